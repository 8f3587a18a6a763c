//! Records on their way to a redundancy file.
//!
//! The system keeps what is written in pieces of memory as large as the writes that bring it, up to 2 MiB, and pieces that are
//! filled by several writes are cleared first. So records are held back until they end such a piece.

use crate::redundancy::Draft;
use gabion_platform::mapping::LARGE_PAGE;
use std::io;

/// Bytes that all outflows of a thread hold back together, about.
const HELD_BYTES: u64 = 4 << 20;

/// The records of one redundancy file, as far as one thread makes them.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    /// Where in the redundancy file the first byte that is held belongs.
    start: u64,
    /// Bytes that are held back, at the beginning of the buffer.
    held: usize,
    /// Bytes of the newest run, behind them.
    fresh: usize,
    /// Grows only: what is in it is written over.
    buffer: Vec<u8>,
}

impl Outflow {
    /// Makes room for `bytes` of records that belong at `offset`. What is held back and lies elsewhere is written.
    pub(super) fn begin(&mut self, offset: u64, bytes: usize, draft: Option<&Draft>) -> io::Result<()> {
        if offset != self.start + self.held as u64 {
            self.flush(draft)?;
            self.start = offset;
        }
        self.fresh = bytes;
        if self.buffer.len() < self.held + bytes {
            self.buffer.resize(self.held + bytes, 0);
        }
        Ok(())
    }

    /// The records of the newest run.
    pub(super) fn fresh(&mut self) -> &mut [u8] {
        &mut self.buffer[self.held..][..self.fresh]
    }

    /// The records of the newest run are what they will be: what ends a large piece is written. `outflows` share the memory.
    pub(super) fn end(&mut self, draft: Option<&Draft>, outflows: usize) -> io::Result<()> {
        self.held += std::mem::take(&mut self.fresh);
        let due = due(self.start, self.held, outflows);
        self.write(draft, due)
    }

    /// Writes all that is held back.
    pub(super) fn flush(&mut self, draft: Option<&Draft>) -> io::Result<()> {
        self.write(draft, self.held)
    }

    fn write(&mut self, draft: Option<&Draft>, bytes: usize) -> io::Result<()> {
        if let Some(draft) = draft.filter(|_| bytes > 0) {
            draft.write(self.start, &self.buffer[..bytes])?;
        }
        self.buffer.copy_within(bytes..self.held, 0);
        self.start += bytes as u64;
        self.held -= bytes;
        Ok(())
    }
}

/// Of `held` bytes from `start` of a file on, those up to the last end of a large piece; of smaller ones if many outflows share
/// the memory.
fn due(start: u64, held: usize, outflows: usize) -> usize {
    let share = (HELD_BYTES / outflows.max(1) as u64).max(1);
    let piece = (LARGE_PAGE as u64).min(1 << share.ilog2());
    let end = start + held as u64;
    (end / piece * piece).saturating_sub(start) as usize
}

#[cfg(test)]
mod tests;
