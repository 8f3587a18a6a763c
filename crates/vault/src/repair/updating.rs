//! Redundancy written by a repair, in place.

use super::Work;
use crate::examine::open_in_order;
use crate::redundancy::fence::superseded;
use crate::redundancy::{PATIENCE, Part, redo};
use std::io;

impl Work<'_> {
    /// Writes frames of a redundancy file, or of the body that it shares.
    pub(super) fn update_frames(&self, part: usize, writes: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        match &self.protected.parts[part] {
            _ if writes.is_empty() => Ok(()),
            shared if shared.is_shared() => shared.restore_frames(&writes),
            _ => self.update(part, writes),
        }
    }

    /// Writes to a redundancy file that is still the one that was examined.
    pub(super) fn update(&self, part: usize, writes: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        let part = &self.protected.parts[part];
        // Our own shared lock would keep the writer out, and others that have locked this file wait for the rest.
        self.protected.parts.iter().try_for_each(|part| part.file.unlock())?;
        let now = part.place.open_to_update(&self.vault.coders).map_err(io::Error::other)?;
        let is_same =
            |now: &Part| (now.header.id, now.header.revision) == (part.header.id, part.header.revision);
        let Some(now) = now.filter(is_same) else { return Err(superseded()) };
        redo::update(&part.place, &now.file, &part.header, &writes)?;
        // Bytes behind the end are foreign and hide the second header.
        now.file.set_len(part.own_records().file())?;
        drop(now);
        let locations = self.vault.storage.redundancy_locations(self.path)?;
        open_in_order(&locations, |location| {
            let mut parts = self.protected.parts.iter();
            let part = parts.find(|part| part.place.is(&location.place));
            part.map_or(Ok(()), |part| part.file.lock_shared_within(PATIENCE))
        })
        .map(drop)
    }
}
