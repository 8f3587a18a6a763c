//! Readers of open files that may have been renamed since they were protected.
//!
//! In a plain directory, redundancy stays under the name that its file had when it was protected until a worker moves
//! it. So it may lie under the present name, under a former name that the catalogue knows, or be [set
//! aside](crate::displaced). Redundancy under another name is used only if inode, size and mtime are those of the file
//! and the file was not created later.

use super::{DegradedReader, ReadError};
#[cfg(doc)]
use crate::catalogue::Catalogue;
use crate::catalogue::PossibleNames;
use crate::coder::Coders;
use crate::displaced::{PresentFile, displaced_of};
use crate::examine::ProtectedFile;
use crate::format::Header;
use crate::redundancy::PartPath;
use crate::storage::plain::content_of;
use crate::storage::{Content, Storage};
use crate::tree::{Generation, stat_of};
use crate::version;
use std::fs::File;
use std::io;

impl DegradedReader {
    /// Opens the redundancy of an open file. `path` is the last known name of the file, if it has one; `names` returns
    /// what [`Catalogue::possible_names`] does. Returns none if there is no
    /// redundancy of the present version.
    ///
    /// # Errors
    /// [`ReadError::Open`]: the file cannot be read.
    pub fn of_open(
        storage: &dyn Storage,
        coders: &Coders,
        file: &File,
        path: Option<&[u8]>,
        names: impl Fn(&Generation) -> PossibleNames,
    ) -> Result<Option<DegradedReader>, ReadError> {
        let found = PresentFile::of(&stat_of(file).map_err(ReadError::Open)?);
        let now = found.now;
        let content = || -> io::Result<Box<dyn Content>> { Ok(content_of(file.try_clone()?)) };
        // Unusable redundancy at one place does not prevent the search at others.
        let at = |place: PartPath, is_its: &dyn Fn(&Header) -> bool| {
            let protected = ProtectedFile::open_at(place, coders, content, is_its).ok()?;
            if protected.is_changed() || !is_its(&protected.header) {
                return None;
            }
            // With one repository per file, the layout does not depend on the name.
            DegradedReader::guarded(protected.for_reading(storage, b"").ok()?).ok()
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
        let at_any = |names: &[Vec<u8>]| {
            names.iter().find_map(|name| places(name).into_iter().find_map(|place| at(place, &is_its)))
        };
        let set_aside = || {
            let kept = |tree: &crate::tree::Tree| displaced_of(tree, now.inode);
            storage.repositories().iter().find_map(|it| at(kept(&it.tree), &is_its))
        };
        let former = names(&now).known;
        if let Some(reader) = at_any(&former).or_else(set_aside).or_else(own) {
            return Ok(Some(reader));
        }
        if former.is_empty() {
            return Ok(None);
        }
        // Workers move redundancy from a former name to the set-aside place and from there to the new name, which is
        // recorded before. It was at neither of the first two, so the new name is known by now, if there is one. A
        // worker whose claim ended sets it aside again.
        let PossibleNames { moving, known } = names(&now);
        Ok(at_any(&moving).or_else(|| at_any(&known)).or_else(set_aside))
    }
}
