//! Foreign objects in the place of redundancy: a directory where a file belongs, or a file where a directory belongs.
//! They are moved to `replaced`.

use super::{Done, MAX_LISTED, Worker};
use crate::redundancy::REDUNDANCY;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::replaced::REPLACED;
use crate::tree::{Kind, join, split};
use crate::world::moment;
use std::io;

impl Worker<'_> {
    /// Runs `step`, which puts redundancy of `path` in place. If it fails because of an obstacle, sets the obstacle
    /// aside and runs `step` again. Redundancy of known files is never set aside: their deletion may wait for an
    /// approval.
    pub(super) fn clearing_obstacles<T>(
        &self,
        path: &[u8],
        done: &mut Done,
        mut step: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let failed = match step() {
            Err(error) => error,
            result => return result,
        };
        match self.set_aside(path, done) {
            Ok(true) => step(),
            // The error of the first attempt is the more specific one.
            _ => Err(failed),
        }
    }

    /// Returns true if an obstacle was set aside.
    fn set_aside(&self, path: &[u8], done: &mut Done) -> io::Result<bool> {
        let mut any = false;
        if self.vault.storage.keeps_by_identity() {
            return Ok(false);
        }
        for repository in self.vault.storage.repositories() {
            let tree = &repository.tree;
            let ends = (1..=path.len()).filter(|&end| end == path.len() || path[end] == b'/');
            for part in ends.map(|end| &path[..end]) {
                let place = join(REDUNDANCY, part);
                let Some(found) = tree.find(&place)? else { break };
                let in_the_way = (found.kind == Kind::Directory) == (part == path);
                let known = match part == path {
                    true => self.vault.catalogue.count_beneath(part).map(|files| files > 0),
                    false => self.vault.catalogue.find(part).map(|entry| entry.is_some()),
                };
                if !in_the_way || known.map_err(io::Error::other)? {
                    continue;
                }
                let when = moment(self.vault.clock.now()).replace([' ', ':'], "-");
                let aside = join(&join(REPLACED, when.as_bytes()), &place);
                tree.make_directories(split(&aside).0, DIRECTORY_MODE)?;
                // `rename_new` keeps what was set aside within the same second.
                tree.rename_new(&place, &aside)?;
                if done.set_aside.len() < MAX_LISTED {
                    done.set_aside.push((path.to_vec(), tree.shown(&aside)));
                }
                any = true;
                break;
            }
        }
        Ok(any)
    }
}
