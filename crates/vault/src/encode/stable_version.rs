//! Wait before a file is read, so that its version differs from that of every later write.
//!
//! A program with a mapping changes the mtime only by its first store into a clean page. So dirty pages are flushed
//! first; the next store then changes the mtime. Timestamps are also coarse: a file that was written within the current
//! timestamp tick is read after it has passed ([`version`](crate::version)).

use super::{EncodeError, EncodeOptions, Encoder};
use crate::storage::{Content, Fault};
use crate::tree::Stat;
use crate::version::{settled_at, settles_in};
use crate::world::{Clock, Timestamp};
use std::time::Duration;

/// Interval at which a stop is checked.
const SLICE: Duration = Duration::from_millis(20);

impl Encoder<'_> {
    /// Returns the file's version and a time at which it already had this version. A file that is written continuously
    /// stays doubtful and is read nevertheless.
    pub(super) fn stable_version(
        &self,
        content: &dyn Content,
        options: EncodeOptions<'_>,
    ) -> Result<(Timestamp, Stat), EncodeError> {
        let before = self.clock.now();
        let stat = content.stat().map_err(EncodeError::read)?;
        if content.is_immutable() {
            return Ok((self.clock.now(), stat));
        }
        let is_settled = settles_in(stat.mtime, before).is_zero();
        // A host whose clock is ahead may have given the time. One step later its clock has gone on as well.
        self.wait(settles_in(stat.mtime, self.clock.now().max(stat.mtime)), options)?;
        let is_flushed = |stat: &Stat| {
            options
                .flushed
                .is_some_and(|it| it.device == stat.device && settles_in(stat.mtime, it.at).is_zero())
        };
        let seen = stat.mtime;
        let stat = if is_settled { stat } else { content.stat().map_err(EncodeError::read)? };
        let read_at = match (is_settled, self.clock) {
            (true, _) => before,
            (false, Clock::System) if stat.mtime == seen => self.clock.now().max(settled_at(seen)),
            (false, _) => self.clock.now(),
        };
        // A file that was written after the file system's flush has dirty pages of its own.
        if is_flushed(&stat) {
            return Ok((read_at, stat));
        }
        content.flush().map_err(|error| EncodeError::Read(Fault::Io(error)))?;
        Ok((read_at, content.stat().map_err(EncodeError::read)?))
    }

    /// Sleeps, unless the clock is manual.
    fn wait(&self, span: Duration, options: EncodeOptions<'_>) -> Result<(), EncodeError> {
        let mut left = match self.clock {
            Clock::System => span,
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
