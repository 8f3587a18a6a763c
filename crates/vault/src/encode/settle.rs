//! Waits until the version of a file can be told from every later one, before the file is read.
//!
//! A program that has a file mapped changes its mtime only with the first store into a clean page. So dirty pages are written first: from
//! then on the next store changes the mtime. Timestamps are coarse as well: a file that was written a moment ago is read when that moment
//! is over ([`version`](crate::version)).

use super::{EncodeError, EncodeOptions, Encoder};
use crate::storage::{Content, Fault};
use crate::tree::Stat;
use crate::version::settles_in;
use crate::world::{Clock, Nanos};
use std::time::Duration;

/// How often it is asked whether to stop.
const SLICE: Duration = Duration::from_millis(20);

impl Encoder<'_> {
    /// The file as it is, and the time before which it got this version. A file that is written all the time stays in doubt, and is
    /// read all the same.
    pub(super) fn settle(
        &self,
        content: &dyn Content,
        options: EncodeOptions<'_>,
    ) -> Result<(Nanos, Stat), EncodeError> {
        let before = self.clock.now();
        let stat = content.stat().map_err(EncodeError::read)?;
        if content.is_immutable() {
            return Ok((self.clock.now(), stat));
        }
        let is_settled = settles_in(stat.mtime, before) == 0;
        self.wait(settles_in(stat.mtime, self.clock.now()), options)?;
        let read_at = if is_settled { before } else { self.clock.now() };
        let is_flushed = |stat: &Stat| {
            options.flushed.is_some_and(|it| it.device == stat.device && settles_in(stat.mtime, it.at) == 0)
        };
        let stat = if is_settled { stat } else { content.stat().map_err(EncodeError::read)? };
        // A file that was written since the file system was flushed has dirty pages of its own.
        if is_flushed(&stat) {
            return Ok((read_at, stat));
        }
        content.flush().map_err(|error| EncodeError::Read(Fault::Io(error)))?;
        Ok((read_at, content.stat().map_err(EncodeError::read)?))
    }

    /// Time passes only by the real clock.
    fn wait(&self, nanos: Nanos, options: EncodeOptions<'_>) -> Result<(), EncodeError> {
        let mut left = match self.clock {
            Clock::System => Duration::from_nanos(nanos.unsigned_abs()),
            Clock::Manual(_) => Duration::ZERO,
        };
        while !left.is_zero() {
            if (options.stopped)() {
                return Err(EncodeError::Stopped);
            }
            std::thread::sleep(left.min(SLICE));
            left = left.saturating_sub(SLICE);
        }
        Ok(())
    }
}
