//! Readers of files that are open and may have been renamed since they were protected.
//!
//! In a plain directory redundancy lies under the name that its file had when it was protected, until a worker has moved it: at the name, at a former one that the
//! catalogue knows, or [set aside](crate::displaced). Under a name that is not the file's own it is used only if inode, size and mtime are those of the
//! file and the file was not made after it.

use super::{DegradedReader, ReadError};
use crate::coder::Coders;
use crate::displaced::{Found, aside};
use crate::examine::Subject;
use crate::format::Header;
use crate::gather::Sources;
use crate::redundancy::PartPath;
use crate::storage::plain::content_of;
use crate::storage::{Content, Storage};
use crate::tree::{Generation, stat_of};
use crate::version;
use std::fs::File;
use std::io;

impl DegradedReader {
    /// Opens redundancy of an open file of a directory. `path` is the name that the file has now, if it has one; `names` gives those by which the catalogue knows
    /// its inode, size and mtime. Nothing if there is no redundancy for the file as it is.
    ///
    /// # Errors
    /// [`ReadError::Open`]: the file cannot be looked at.
    pub fn of_open(
        storage: &dyn Storage,
        coders: &Coders,
        file: &File,
        path: Option<&[u8]>,
        names: impl FnOnce(&Generation) -> Vec<Vec<u8>>,
    ) -> Result<Option<DegradedReader>, ReadError> {
        let found = Found::of(&stat_of(file).map_err(ReadError::Open)?);
        let now = found.now;
        let content = || -> io::Result<Box<dyn Content>> { Ok(content_of(file.try_clone()?)) };
        // What cannot be used at one place does not keep from looking at the next.
        let at = |place: PartPath, is_its: &dyn Fn(&Header) -> bool| {
            let subject = Subject::open_at(place, coders, content, is_its).ok()?;
            if subject.is_changed() || !is_its(&subject.header) {
                return None;
            }
            // Where a file has one repository, its layout does not depend on its name.
            DegradedReader::guarded(Sources::of(subject, storage, b"").ok()?).ok()
        };
        let places =
            |name: &[u8]| storage.repositories().into_iter().map(|it| it.place(name)).collect::<Vec<_>>();
        let own = || {
            let places = path.map(places).unwrap_or_default();
            places.into_iter().find_map(|place| at(place, &|header| version::is_unchanged(header, &now)))
        };
        if let Some(reader) = own() {
            return Ok(Some(reader));
        }
        let is_its = |header: &Header| found.is_of_header(header) && version::is_unchanged(header, &now);
        let former =
            names(&now).iter().find_map(|name| places(name).into_iter().find_map(|place| at(place, &is_its)));
        let set_aside = || {
            let kept = |tree: &crate::tree::Tree| aside(tree, now.inode);
            storage.repositories().iter().find_map(|it| at(kept(&it.tree), &is_its))
        };
        // Workers move it from former names to where it is set aside, and from there to the name of the file: whoever looks in this order finds it.
        Ok(former.or_else(set_aside).or_else(own))
    }
}
