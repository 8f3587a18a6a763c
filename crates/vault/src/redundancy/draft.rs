//! A redundancy file that appears whole or not at all.

use super::fence::{Fence, Way, superseded};
use super::{PartPath, STAGING, read_up_to};
use crate::format::header::HEADER_UNIT;
use crate::format::{FileId, Header, HeaderError, Records};
use crate::tree::{join, split};
use crate::world::unique_id;
use gabion_platform::lock::Lockable;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// Only who runs us reads redundancy: it has parts of the data in it, whoever may read those.
pub const FILE_MODE: u32 = 0o600;

/// For directories of the repository, whose names are those of the data.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Files up to this length are written at once.
const SMALL_BYTES: u64 = 64 << 10;

/// Ends the names of drafts.
pub const SUFFIX: &[u8] = b".draft";

/// A new redundancy file under a temporary name. Dropped, it is gone.
#[derive(Debug)]
pub struct Draft {
    place: PartPath,
    temporary: Option<Vec<u8>>,
    file: Lockable,
    /// What it may replace.
    fence: Fence,
    /// The content of a small file, until it is complete: one system call writes all of it.
    held: Option<Mutex<Vec<u8>>>,
}

impl Draft {
    /// A draft of what will be at `place`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(place: PartPath) -> io::Result<Draft> {
        let name = FileId(unique_id()?).to_string();
        let temporary = join(STAGING, &[name.as_bytes(), SUFFIX].concat());
        // Whoever clears away what crashes left behind sees that this one is alive.
        let file = Lockable::exclusive(place.tree.create(&temporary, FILE_MODE)?)?;
        let fence = Fence::new(&place);
        Ok(Draft { place, temporary: Some(temporary), file, fence, held: None })
    }

    /// A draft of a file of so many bytes; [`write_headers`](Draft::write_headers) completes it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn of_length(place: PartPath, bytes: u64) -> io::Result<Draft> {
        let mut draft = Draft::new(place)?;
        draft.held = (bytes <= SMALL_BYTES).then(|| Mutex::new(vec![0; bytes as usize]));
        Ok(draft)
    }

    /// Where it will be.
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

    /// Writes both headers; `header_bytes` is what was assumed when records were written.
    ///
    /// # Errors
    /// I/O errors; a header that does not fit is one of `InvalidInput`.
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

    /// A file that is small enough to be written at once: headers and records.
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

    /// Puts it in place of what was there when it was begun. The content must be durable before; the name becomes so when whoever
    /// publishes many syncs all of them.
    ///
    /// # Errors
    /// Another process has put a file there since; what the operating system says.
    pub fn publish(mut self) -> io::Result<()> {
        self.put_in_place().map(drop)
    }

    /// Puts it in place of what is there, and makes the name durable, with those of directories that were made for it: what it
    /// replaces elsewhere may be removed then.
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

    /// Says whether directories had to be made. What failed can be tried again; done twice, nothing happens.
    pub(crate) fn put_in_place(&mut self) -> io::Result<bool> {
        let Some(temporary) = self.temporary.take() else { return Ok(false) };
        let PartPath { tree, path } = &self.place;
        // Nothing is replaced. Whatever is in the way of it (a file, no directory, a file system that cannot) is seen to below.
        if self.fence.saw_nothing() && tree.rename_new(&temporary, path).is_ok() {
            return Ok(false);
        }
        if let Err(later) = refuse_later(&self.place) {
            self.temporary = Some(temporary);
            return Err(later);
        }
        let rename = |way: Way| match way {
            Way::Replacing => tree.rename(&temporary, path),
            Way::New => match tree.rename_new(&temporary, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(superseded()),
                // Not all file systems can.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => tree.rename(&temporary, path),
                renamed => renamed,
            },
        };
        let published = self.fence.pass(&self.place, |way| match rename(way) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tree.make_directories(split(path).0, DIRECTORY_MODE).and_then(|()| rename(way)).map(|()| true)
            }
            renamed => renamed.map(|()| false),
        });
        if published.is_err() {
            self.temporary = Some(temporary);
        }
        published
    }
}

/// Redundancy that a later program wrote is never overwritten, whatever this one thinks of it.
fn refuse_later(place: &PartPath) -> io::Result<()> {
    // What is no file, or cannot be read, is a matter for those who decided to replace it.
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
            // It has no readers; what stays is cleared away when the vault is opened next.
            let _ = self.place.tree.remove(&temporary);
        }
    }
}
