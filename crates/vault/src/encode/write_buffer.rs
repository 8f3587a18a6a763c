//! Write buffer for the records of one redundancy file.
//!
//! The page cache allocates folios as large as the writes, up to 2 MiB, and clears a folio first if several writes fill
//! it. So records are buffered until they complete such a piece.

use crate::redundancy::Draft;
use gabion_platform::mapping::LARGE_PAGE;
use std::io;

/// Approximate limit for all buffers of a thread together, in bytes.
const HELD_BYTES: u64 = 4 << 20;

/// Records of one redundancy file from one thread.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    /// Offset of the first buffered byte in the redundancy file.
    start: u64,
    /// Buffered bytes, at the start of `buffer`.
    held: usize,
    /// Bytes of the newest run, behind the buffered ones.
    fresh: usize,
    /// Only grows; reused without clearing.
    buffer: Vec<u8>,
}

impl WriteBuffer {
    /// Reserves `bytes` for records at `offset`. Buffered bytes that do not end at `offset` are written first.
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

    /// Ends the newest run and writes up to the last complete piece. `buffers` is the number of buffers that share the
    /// limit.
    pub(super) fn end(&mut self, draft: Option<&Draft>, buffers: usize) -> io::Result<()> {
        self.held += std::mem::take(&mut self.fresh);
        let due = due(self.start, self.held, buffers);
        self.write(draft, due)
    }

    /// Writes all buffered bytes.
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

/// Number of bytes to write, of `held` bytes that begin at `start`: up to the last boundary of a 2 MiB piece, or of a
/// smaller one if many buffers share the limit.
fn due(start: u64, held: usize, buffers: usize) -> usize {
    let share = (HELD_BYTES / buffers.max(1) as u64).max(1);
    let piece = (LARGE_PAGE as u64).min(1 << share.ilog2());
    let end = start + held as u64;
    (end / piece * piece).saturating_sub(start) as usize
}

#[cfg(test)]
mod tests;
