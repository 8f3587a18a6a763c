//! Source of the rows that are encoded: mapped through a window if the data is in the page cache, otherwise read into a
//! buffer.

use super::EncodeError;
use crate::geometry::Run;
use crate::runs::MAX_RUN_BYTES;
use crate::storage::Content;
use gabion_platform::mapping::page_bytes;
use gabion_platform::thread::page_faults;
use gabion_platform::window::Window;
use std::ops::Range;

/// Minimum size of a column's piece for which mapping is worth its system calls, and maximum size of all mapped pieces,
/// in bytes.
const MAPPED_BYTES: Range<u64> = 256 << 10..MAX_RUN_BYTES;

/// Number of the mapped run on which the cost is measured, counted from 1. In the first run the window's own memory is
/// new as well.
const MEASURED_RUN: u32 = 2;

/// Minimum size of the measured run, so that page faults of other threads do not matter.
const MEASURED_BYTES: u64 = 4 << 20;

/// Data of one thread, of one file.
#[derive(Debug, Default)]
pub(super) struct RowSource {
    /// The k blocks of a row that was read.
    buffer: Vec<u8>,
    window: Option<Window>,
    /// Run that the window maps.
    mapped: Option<Run>,
    /// Number of runs mapped so far.
    mapped_runs: u32,
    /// Count of page faults before the measured run.
    faults_before: Option<u64>,
    /// Pages are mapped one by one, so that reading is faster.
    is_costly: bool,
}

impl RowSource {
    /// Maps the k columns of `run` if they are in the page cache. The rows of the run are loaded next.
    pub(super) fn begin(&mut self, content: &dyn Content, run: &Run, k: usize) {
        self.mapped = None;
        if self.is_costly || run.bytes() < MAPPED_BYTES.start || run.bytes() > MAPPED_BYTES.end / k as u64 {
            return;
        }
        if self.window.is_none() {
            // Without a window everything is read.
            self.window = Window::new().ok();
        }
        let show = |window: &mut Window| content.map_columns(run, k, window);
        self.mapped = self.window.as_mut().is_some_and(show).then_some(*run);
        if self.mapped.is_some() && run.bytes() * k as u64 >= MEASURED_BYTES {
            self.mapped_runs = self.mapped_runs.saturating_add(1);
            self.faults_before = (self.mapped_runs == MEASURED_RUN).then(page_faults);
        }
    }

    /// Provides the k blocks of row `row` of `run`.
    pub(super) fn load(
        &mut self,
        content: &dyn Content,
        run: &Run,
        row: u64,
        k: usize,
    ) -> Result<(), EncodeError> {
        if self.mapped.is_some() {
            return Ok(());
        }
        self.buffer.resize(k * run.block as usize, 0);
        read(content, run, row, &mut self.buffer)
    }

    /// The k blocks of the stripe that was loaded last.
    pub(super) fn blocks(&self, stripe: u64, k: usize, block: usize) -> Vec<&[u8]> {
        match (&self.mapped, &self.window) {
            (Some(run), Some(window)) => {
                let start = (stripe - run.first) as usize * block;
                (0..k).map(|column| &window.piece(column)[start..start + block]).collect()
            }
            _ => self.buffer.chunks_exact(block).collect(),
        }
    }

    /// Ends the run: checks that the window mapped the file's data throughout. If not, reading the run returns the
    /// cause.
    pub(super) fn end(&mut self, content: &dyn Content, k: usize) -> Result<(), EncodeError> {
        let (Some(run), Some(window)) = (self.mapped.take(), &self.window) else { return Ok(()) };
        if window.is_whole() {
            if let Some(before) = self.faults_before.take() {
                self.decide_mapping(page_faults().saturating_sub(before), run.bytes() * k as u64);
            }
            return Ok(());
        }
        self.buffer.resize(k * run.block as usize, 0);
        (0..run.count).try_for_each(|row| read(content, &run, row, &mut self.buffer))?;
        Err(EncodeError::Changed)
    }

    /// Decides whether further runs are mapped, by the number of page faults for the given number of bytes.
    ///
    /// A fault normally maps sixteen pages or a huge page. It maps a single page if the system is configured so, and
    /// for tmpfs pages that the system tried to evict (drop_caches): these are marked with the bit that ends readahead.
    fn decide_mapping(&mut self, faults: u64, bytes: u64) {
        self.is_costly = faults > bytes / page_bytes() as u64 / 2;
        if self.is_costly {
            self.window = None;
        }
    }
}

/// Reads the blocks of a row.
fn read(content: &dyn Content, run: &Run, row: u64, buffer: &mut [u8]) -> Result<(), EncodeError> {
    match content.read_stripe(run, row, buffer).map_err(EncodeError::Read)? {
        true => Ok(()),
        false => Err(EncodeError::Changed),
    }
}

#[cfg(test)]
mod tests;
