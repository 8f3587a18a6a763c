//! Drafts: redundancy files that appear complete or not at all.

use super::fence::{Fence, NameChange, superseded};
use super::{PartPath, STAGING, read_up_to};
use crate::format::header::HEADER_UNIT;
use crate::format::{FileId, Header, HeaderError, Records};
use crate::tree::{Tree, join, split};
use crate::world::unique_id;
use gabion_platform::lock::Lockable;
use rustix::fs::copy_file_range;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};

/// Readable for the owner only: redundancy contains parts of the data, which may have other permissions.
pub const FILE_MODE: u32 = 0o600;

/// Directories of the repository show the names of the data.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Files up to this length are written with one system call.
const SMALL_BYTES: u64 = 64 << 10;

/// Bytes that are copied at once.
const COPIED_BYTES: u64 = 1 << 20;

/// Suffix of drafts.
pub const SUFFIX: &[u8] = b".draft";

/// A new redundancy file under a temporary name; removed when dropped.
#[derive(Debug)]
pub struct Draft {
    place: PartPath,
    temporary: Option<Vec<u8>>,
    file: Lockable,
    /// The file that it may replace.
    fence: Fence,
    /// The file that it replaced.
    replaced: Option<Lockable>,
    /// Content of a small file, collected for one system call.
    held: Option<Mutex<Vec<u8>>>,
}

/// Creates a file with a lock that shows a cleanup that it is in use.
pub(super) fn create_locked(tree: &Tree, path: &[u8]) -> io::Result<Lockable> {
    loop {
        let file = Lockable::exclusive(tree.create(path, FILE_MODE)?)?;
        // A cleanup may have found it before it was locked.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

impl Draft {
    /// Creates a draft for `place`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(place: PartPath) -> io::Result<Draft> {
        let name = FileId(unique_id()?).to_string();
        let temporary = join(STAGING, &[name.as_bytes(), SUFFIX].concat());
        let file = create_locked(&place.tree, &temporary)?;
        let fence = Fence::new(&place);
        Ok(Draft { place, temporary: Some(temporary), file, fence, replaced: None, held: None })
    }

    /// Creates a draft of known length, completed by [`write_headers`](Draft::write_headers).
    ///
    /// # Errors
    /// I/O errors.
    pub fn of_length(place: PartPath, bytes: u64) -> io::Result<Draft> {
        let mut draft = Draft::new(place)?;
        draft.held = (bytes <= SMALL_BYTES).then(|| Mutex::new(vec![0; bytes as usize]));
        Ok(draft)
    }

    /// Opens a draft of another worker, to write into it. It stays when this is dropped.
    ///
    /// # Errors
    /// I/O errors; `InvalidInput` for what is no name of a draft.
    pub fn of_another(place: PartPath, name: &[u8]) -> io::Result<Draft> {
        let id =
            name.strip_suffix(SUFFIX).filter(|id| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit));
        id.ok_or(io::ErrorKind::InvalidInput)?;
        let file = place.tree.write(&join(STAGING, name))?.into();
        let fence = Fence::new(&place);
        Ok(Draft { place, temporary: None, file, fence, replaced: None, held: None })
    }

    /// Name by which others find the draft; none if it is small, and written at once.
    pub fn shared_name(&self) -> Option<&[u8]> {
        self.temporary.as_deref().filter(|_| self.held.is_none()).map(|path| split(path).1)
    }

    /// A copy in a new file, which nobody else has open.
    ///
    /// # Errors
    /// I/O errors.
    pub fn copied(self) -> io::Result<Draft> {
        let mut copy = Draft::new(self.place.clone())?;
        copy.fence = self.fence.clone();
        copy.copy(&self.file, 0, 0, self.file.metadata()?.len())?;
        Ok(copy)
    }

    /// Path of the finished file.
    pub fn place(&self) -> &PartPath {
        &self.place
    }

    /// Writes records.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(held) = &self.held {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = held.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..bytes.len()))
            {
                place.copy_from_slice(bytes);
                return Ok(());
            }
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Copies records of another file, on file systems that can without reading them.
    ///
    /// # Errors
    /// I/O errors; `UnexpectedEof` if the other file ends before.
    pub fn copy(&self, from: &File, from_offset: u64, offset: u64, bytes: u64) -> io::Result<()> {
        let (mut from_offset, mut offset, end) = (from_offset, offset, from_offset + bytes);
        while self.held.is_none() && from_offset < end {
            // Not all pairs of file systems can; the rest is read and written.
            let rest = usize::try_from(end - from_offset).unwrap_or(usize::MAX);
            let copied = copy_file_range(from, Some(&mut from_offset), &*self.file, Some(&mut offset), rest);
            if copied.unwrap_or(0) == 0 {
                break;
            }
        }
        let mut buffer = vec![0; (end - from_offset).min(COPIED_BYTES) as usize];
        while from_offset < end {
            let piece = &mut buffer[..(end - from_offset).min(COPIED_BYTES) as usize];
            from.read_exact_at(piece, from_offset)?;
            self.write(offset, piece)?;
            from_offset += piece.len() as u64;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes both headers; `header_bytes` is the length that was assumed for the records.
    ///
    /// # Errors
    /// I/O errors; `InvalidInput` for a header that does not fit.
    pub fn write_headers(&self, header: &Header, header_bytes: usize) -> io::Result<()> {
        let bytes = header.encode(header_bytes).map_err(invalid)?;
        if bytes.len() != header_bytes {
            return Err(invalid(HeaderError::Length(bytes.len() as u64)));
        }
        self.write(Records::new(header, bytes.len()).trailer(), &bytes)?;
        self.write(0, &bytes)?;
        match &self.held {
            Some(held) => self.file.write_all_at(&held.lock().unwrap_or_else(PoisonError::into_inner), 0),
            None => Ok(()),
        }
    }

    /// Writes a small file at once: headers and records.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write_whole(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(0, bytes)
    }

    /// Makes the content durable.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Moves the draft into place, replacing the file that was there when it was created. The content must be durable
    /// before; a caller that publishes many drafts syncs the directories for all of them.
    ///
    /// # Errors
    /// Another process has replaced the file since; I/O errors.
    pub fn publish(mut self) -> io::Result<()> {
        self.put_in_place().map(drop)
    }

    /// Moves the draft into place, and syncs all directories involved, so that the caller may then remove what it
    /// replaces elsewhere.
    ///
    /// # Errors
    /// I/O errors.
    pub fn publish_durably(mut self) -> io::Result<()> {
        let made = self.put_in_place()?;
        let directory = split(&self.place.path).0;
        match made {
            true => self.place.tree.sync_directories(directory),
            false => self.place.tree.sync_directory(directory),
        }
    }

    /// Returns whether directories had to be created. May be repeated after a failure; repeating a success does
    /// nothing.
    pub(crate) fn put_in_place(&mut self) -> io::Result<bool> {
        let Some(temporary) = self.temporary.take() else { return Ok(false) };
        let PartPath { tree, path } = &self.place;
        // Creates a name without replacing anything. Obstacles (a file, a missing directory, a file system without
        // support) are handled below.
        if self.fence.was_absent() && tree.rename_new(&temporary, path).is_ok() {
            return Ok(false);
        }
        if let Err(later) = refuse_later(&self.place) {
            self.temporary = Some(temporary);
            return Err(later);
        }
        let rename = |way: NameChange| match way {
            NameChange::Replace => tree.rename(&temporary, path),
            NameChange::Create => match tree.rename_new(&temporary, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(superseded()),
                // Not supported by all file systems.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => tree.rename(&temporary, path),
                renamed => renamed,
            },
        };
        let published = self.fence.pass_keeping(&self.place, |way| match rename(way) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tree.make_directories(split(path).0, DIRECTORY_MODE).and_then(|()| rename(way)).map(|()| true)
            }
            renamed => renamed.map(|()| false),
        });
        match published {
            Ok((made, replaced)) => {
                self.replaced = replaced;
                Ok(made)
            }
            Err(error) => {
                self.temporary = Some(temporary);
                Err(error)
            }
        }
    }

    /// Replaces the file that was there when the draft was created, and nothing else: neither a file that was moved to
    /// another name nor one that was written since.
    ///
    /// # Errors
    /// [`superseded`] if that file is not there any more; I/O errors.
    pub(crate) fn replace(&mut self) -> io::Result<()> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let PartPath { tree, path } = &self.place;
        self.fence.pass(&self.place, |way| match way {
            NameChange::Replace => tree.rename(temporary, path),
            NameChange::Create => Err(superseded()),
        })?;
        self.temporary = None;
        Ok(())
    }

    /// True if the file is the one that the draft may replace.
    pub(crate) fn may_replace(&self, file: &File) -> io::Result<bool> {
        self.fence.saw(file)
    }

    /// Gives the draft another name, which stays when it is published or dropped.
    pub(crate) fn link(&self, path: &[u8]) -> io::Result<()> {
        let temporary = self.temporary.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.place.tree.link(temporary, path)
    }

    /// Gives the draft another name and takes it away again.
    ///
    /// # Errors
    /// The file system has no hard links; other I/O errors.
    pub(crate) fn try_link(&self) -> io::Result<()> {
        // What a crash leaves is removed as an abandoned draft.
        let name = FileId(unique_id()?).to_string();
        let path = join(STAGING, &[name.as_bytes(), SUFFIX].concat());
        self.link(&path)?;
        self.place.tree.remove(&path)
    }

    /// The file that it replaced, whose space is freed when this is closed.
    pub(crate) fn take_replaced(&mut self) -> Option<Lockable> {
        self.replaced.take()
    }
}

/// Redundancy of a later version of the program is never overwritten.
fn refuse_later(place: &PartPath) -> io::Result<()> {
    // Obstacles and unreadable files are up to the caller that decided to replace them.
    let Ok(file) = place.tree.read(&place.path) else { return Ok(()) };
    let mut head = vec![0; HEADER_UNIT];
    let got = read_up_to(&file, &mut head, 0)?;
    let Ok(length) = Header::length(&head[..got]) else { return Ok(()) };
    head.resize(length, 0);
    let got = read_up_to(&file, &mut head, 0)?;
    match Header::later_version(&head[..got]) {
        None => Ok(()),
        Some(version) => {
            let shown = place.tree.shown(&place.path);
            let why =
                format!("{}: {}; it is never overwritten", shown.display(), HeaderError::Version(version));
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }
}

fn invalid(error: HeaderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // A reader cannot have it; a file that stays is removed when the vault is opened next.
            let _ = self.place.tree.remove(&temporary);
        }
    }
}
