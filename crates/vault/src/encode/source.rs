//! The data of the rows that are encoded: shown by the storage where it lies in memory, else read into a buffer.

use super::EncodeError;
use crate::geometry::Run;
use crate::runs::MAX_RUN_BYTES;
use crate::storage::Content;
use gabion_platform::mapping::page_bytes;
use gabion_platform::thread::page_faults;
use gabion_platform::window::Window;
use std::ops::Range;

/// Bytes of a column's piece from which showing it is worth its system calls, and the most of all pieces that are shown at once.
const SHOWN_BYTES: Range<u64> = 256 << 10..MAX_RUN_BYTES;

/// The run by which it is told what showing costs, counted from 1: during the first one, memory of our own is new as well.
const TELLING: u32 = 2;

/// Bytes of a run that tells something: beside them, memory that others touch meanwhile is little.
const TELLING_BYTES: u64 = 4 << 20;

/// Where a thread has its data, of one file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// The k blocks of a row that was read.
    buffer: Vec<u8>,
    window: Option<Window>,
    /// What the window shows.
    shown: Option<Run>,
    /// Runs that were shown so far.
    shows: u32,
    /// Pages that were touched before the run that tells what showing costs.
    touched: Option<u64>,
    /// Pages are shown one by one, and reading is faster.
    is_costly: bool,
}

impl Source {
    /// Shows the k columns of `run` if they lie in memory. Its rows are loaded next.
    pub(super) fn begin(&mut self, content: &dyn Content, run: &Run, k: usize) {
        self.shown = None;
        if self.is_costly || run.bytes() < SHOWN_BYTES.start || run.bytes() > SHOWN_BYTES.end / k as u64 {
            return;
        }
        if self.window.is_none() {
            // Without one, everything is read.
            self.window = Window::new().ok();
        }
        let show = |window: &mut Window| content.map_columns(run, k, window);
        self.shown = self.window.as_mut().is_some_and(show).then_some(*run);
        if self.shown.is_some() && run.bytes() * k as u64 >= TELLING_BYTES {
            self.shows = self.shows.saturating_add(1);
            self.touched = (self.shows == TELLING).then(page_faults);
        }
    }

    /// Has the k blocks of row `row` of `run` at hand.
    pub(super) fn load(
        &mut self,
        content: &dyn Content,
        run: &Run,
        row: u64,
        k: usize,
    ) -> Result<(), EncodeError> {
        if self.shown.is_some() {
            return Ok(());
        }
        self.buffer.resize(k * run.block as usize, 0);
        read(content, run, row, &mut self.buffer)
    }

    /// The k blocks of the stripe that was loaded last.
    pub(super) fn blocks(&self, stripe: u64, k: usize, block: usize) -> Vec<&[u8]> {
        match (&self.shown, &self.window) {
            (Some(run), Some(window)) => {
                let start = (stripe - run.first) as usize * block;
                (0..k).map(|column| &window.piece(column)[start..start + block]).collect()
            }
            _ => self.buffer.chunks_exact(block).collect(),
        }
    }

    /// All rows of the run are encoded: whether that was the file's data. If not, whoever reads it is told why.
    pub(super) fn end(&mut self, content: &dyn Content, k: usize) -> Result<(), EncodeError> {
        let (Some(run), Some(window)) = (self.shown.take(), &self.window) else { return Ok(()) };
        if window.is_whole() {
            if let Some(before) = self.touched.take() {
                self.weigh(page_faults().saturating_sub(before), run.bytes() * k as u64);
            }
            return Ok(());
        }
        self.buffer.resize(k * run.block as usize, 0);
        (0..run.count).try_for_each(|row| read(content, &run, row, &mut self.buffer))?;
        Err(EncodeError::Changed)
    }

    /// Decides by how often memory had to be touched for so many bytes that were shown whether more of them is shown.
    ///
    /// At a touch the system shows sixteen pages, or a large one. It may be set to show a single one, and it does so for pages of a
    /// tmpfs that it tried to evict, as everybody's caches are dropped: each is marked then, with the bit that stops reading ahead.
    fn weigh(&mut self, touched: u64, bytes: u64) {
        self.is_costly = touched > bytes / page_bytes() as u64 / 2;
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
