//! Bodies: frames that several redundancy files share.
//!
//! A body has frames and nothing else; the headers of the redundancy files that refer to it say what they are of. It
//! is written once. Only a repair writes to it again, and only the bytes that were there. Which files refer to it is
//! said by their headers and counted by [`deduplication`](crate::deduplication).

use super::{Part, PartError, PartPath};
use crate::coder::Coders;
use crate::format::{FileId, Header, Records};
use crate::tree::{Tree, absent_is_none, join};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Directory of bodies in a repository.
pub const SHARED: &[u8] = b"shared";

/// Suffix of a body to which no file referred when this was looked at last.
pub(crate) const UNUSED: &[u8] = b".unused";

/// Directory of a body and of what counts its references.
pub(crate) fn directory_of(id: FileId) -> Vec<u8> {
    join(SHARED, &id.to_string().as_bytes()[..2])
}

/// Path of a body.
pub(crate) fn path_of(id: FileId) -> Vec<u8> {
    join(&directory_of(id), id.to_string().as_bytes())
}

/// Path of a body that may be removed soon.
pub(crate) fn unused_path_of(id: FileId) -> Vec<u8> {
    [&path_of(id), UNUSED].concat()
}

/// Opens a body, which may be about to be removed.
fn find(id: FileId, open: impl Fn(&[u8]) -> io::Result<File>) -> io::Result<Option<File>> {
    for path in [path_of(id), unused_path_of(id), path_of(id)] {
        if let Some(file) = absent_is_none(open(&path))? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Opens the frames of a redundancy file with this header, if it shares them.
pub(super) fn open(tree: &Tree, header: &Header) -> Result<Option<File>, PartError> {
    let Some(id) = header.body() else { return Ok(None) };
    match find(id, |path| tree.read(path))? {
        Some(body) => Ok(Some(body)),
        None => Err(PartError::Body { path: tree.shown(&path_of(id)) }),
    }
}

/// Header of a redundancy file, whether or not its frames are there; none if there is no file, or both are damaged.
pub(crate) fn header_at(place: &PartPath, coders: &Coders) -> io::Result<Option<Header>> {
    let Some(file) = absent_is_none(place.tree.read(&place.path))? else { return Ok(None) };
    let found = match super::head(&file, coders)? {
        Err(_) => super::trailer(&file, coders)?,
        found => found,
    };
    Ok(found.ok().map(|(header, _)| header))
}

impl Part {
    /// True if other files may have the same frames, so that they must not be changed.
    pub fn is_shared(&self) -> bool {
        self.body.is_some()
    }

    /// The file with the frames, at the offsets that `records` gives.
    pub fn frames(&self) -> &File {
        self.body.as_ref().unwrap_or(&self.file)
    }

    /// Offsets of the headers in the redundancy file itself.
    pub fn own_records(&self) -> &Records {
        &self.own
    }

    /// Size of the redundancy, with frames that are shared.
    pub fn bytes(&self) -> u64 {
        self.own.file() + if self.is_shared() { self.records.file() } else { 0 }
    }

    /// Writes frames of the body back as they were. A crash in between leaves some of them damaged, as before.
    ///
    /// # Errors
    /// I/O errors; the body is gone.
    pub(crate) fn restore_frames(&self, frames: &[(u64, Vec<u8>)]) -> io::Result<()> {
        let PartPath { tree, .. } = &self.place;
        let id = self.header.body().ok_or(io::ErrorKind::NotFound)?;
        let body = find(id, |path| tree.write(path))?.ok_or(io::ErrorKind::NotFound)?;
        frames.iter().try_for_each(|(offset, bytes)| body.write_all_at(bytes, *offset))?;
        // What is behind the end is foreign.
        body.set_len(self.records.file())?;
        body.sync_all()
    }
}
