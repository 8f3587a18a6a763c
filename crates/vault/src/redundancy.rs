//! Redundancy files on disk: opened, created and updated so that a crash leaves one complete version.
//!
//! A new file is a [`Draft`] in the staging directory that is renamed into place. An update of some records is a
//! [`redo`] file: it appears there complete, its writes are then made in place, and after a crash the next process that
//! opens the redundancy file repeats them. Frames that several files share are in a `body`.

pub(crate) mod body;
pub mod draft;
pub(crate) mod fence;
pub mod redo;

pub use body::SHARED;
pub use draft::Draft;
pub(crate) use draft::SUFFIX as DRAFT_SUFFIX;

use crate::coder::Coders;
use crate::display_path::DisplayPath;
use crate::format::header::{END_BYTES, HEADER_UNIT};
use crate::format::{Frame, Header, HeaderError, Records};
use crate::retry::{Retry, Retryable};
use crate::tree::{Tree, absent_is_none, stat_of};
use gabion_platform::lock::Lockable;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Directory of redundancy files in a repository.
pub const REDUNDANCY: &[u8] = b"redundancy";

/// Directory of incomplete files.
pub const STAGING: &[u8] = b"staging";

/// How long a process waits for another one that has locked a redundancy file, because it reads it or updates it in
/// place. Then the file is left for later: the other one may be at a large file, suspended, or cut off from a disk.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Path of a redundancy file.
#[derive(Debug, Clone)]
pub struct PartPath {
    /// The repository, or the target's part of it.
    pub tree: Tree,
    /// The path in it.
    pub path: Vec<u8>,
}

/// An open redundancy file.
#[derive(Debug)]
pub struct Part {
    /// Its path.
    pub place: PartPath,
    /// The file.
    pub file: Lockable,
    /// The first header, or the second if the first is damaged.
    pub header: Header,
    /// Offsets of its frames, in its [body](Part::frames) if it shares them.
    pub records: Records,
    /// Offsets of its headers.
    own: Records,
    /// The frames, if it shares them with other files.
    body: Option<File>,
    /// Damage of the first header.
    pub head_damage: Option<HeaderError>,
    /// Damage of the second header, which is only read by [`Part::check_trailer`] or if the first is damaged.
    pub trailer_damage: Option<HeaderError>,
}

/// Why a redundancy file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Both headers are damaged, or of another version.
    #[error("{head}; at its end: {trailer}")]
    Headers {
        /// Damage of the first.
        head: HeaderError,
        /// Damage of the second.
        trailer: HeaderError,
    },
    /// The frames that it shares with other files are gone.
    #[error("it shares {}, which is missing", DisplayPath::path(.path))]
    Body {
        /// Path of the body.
        path: std::path::PathBuf,
    },
}

impl PartError {
    /// True if the file is useless to this and any later version of the program: both headers are damaged, or its
    /// frames are gone.
    pub fn is_unusable(&self) -> bool {
        matches!(self, PartError::Headers { .. } | PartError::Body { .. }) && !self.is_later()
    }

    /// True if a later version of the program wrote the file: it is intact, and must never be overwritten.
    pub fn is_later(&self) -> bool {
        matches!(self, PartError::Headers { head, trailer } if head.is_later() || trailer.is_later())
    }

    /// True if the content is unknown although the medium is intact: a later version wrote it, or this process lacks
    /// permission, memory or descriptors. Counting it as missing would report files as lost that are not.
    pub fn is_inconclusive(&self) -> bool {
        use rustix::io::Errno;
        let PartError::Io(error) = self else { return self.is_later() };
        let limits = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ACCESS, Errno::PERM];
        limits.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    }

    /// True if there is a redundancy file that is unreadable now (medium, permissions, limits). Its content is unknown,
    /// so it must not be overwritten. An obstacle at its path (a directory, a link) is no redundancy file.
    pub fn is_unreadable(&self) -> bool {
        use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory};
        let PartError::Io(error) = self else { return false };
        let no_file = matches!(error.kind(), InvalidInput | NotADirectory | IsADirectory | InvalidFilename);
        !no_file && error.raw_os_error() != Some(rustix::io::Errno::LOOP.raw_os_error())
    }
}

impl Retryable for PartError {
    fn retry(&self) -> Retry {
        match self {
            PartError::Io(error) => error.retry(),
            PartError::Headers { .. } | PartError::Body { .. } => Retry::AfterChange,
        }
    }
}

/// A redundancy file whose content cannot be determined now.
#[derive(Debug, thiserror::Error)]
#[error("its redundancy {}: {source}", DisplayPath::path(.path))]
pub struct InconclusivePart {
    /// Path.
    pub path: std::path::PathBuf,
    /// Error.
    pub source: Box<PartError>,
}

impl Retryable for InconclusivePart {
    fn retry(&self) -> Retry {
        self.source.retry()
    }
}

/// What a redundancy file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenMode {
    Read,
    /// Fails if it is being updated.
    TryRead,
    /// Excludes readers and other writers.
    Update,
}

impl PartPath {
    /// Why a file must not be removed or replaced: a later version of the program wrote it, or it is unreadable and may
    /// belong to another file.
    pub(crate) fn reason_to_keep(&self, coders: &Coders) -> Option<InconclusivePart> {
        match self.open(coders) {
            Err(source) if source.is_later() || source.is_unreadable() => {
                Some(InconclusivePart { path: self.tree.shown(&self.path), source: Box::new(source) })
            }
            _ => None,
        }
    }

    /// Opens a file for reading. A damaged or invalid file counts as absent; one of unknown content is an error.
    ///
    /// # Errors
    /// See [`PartError::is_inconclusive`].
    pub fn open_conclusive(&self, coders: &Coders) -> Result<Option<Part>, InconclusivePart> {
        match self.open(coders) {
            Err(source) if source.is_inconclusive() => {
                Err(InconclusivePart { path: self.tree.shown(&self.path), source: Box::new(source) })
            }
            opened => Ok(opened.unwrap_or_default()),
        }
    }

    /// True if both are the same path of the same tree.
    pub fn is(&self, other: &PartPath) -> bool {
        self.path == other.path && self.tree.path() == other.tree.path()
    }

    /// Opens a file for reading; none if it does not exist.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn open(&self, coders: &Coders) -> Result<Option<Part>, PartError> {
        self.open_as(coders, OpenMode::Read)
    }

    /// Opens a file for reading, unless it is being updated.
    ///
    /// # Errors
    /// See [`PartError`]; it is being updated.
    pub(crate) fn try_open(&self, coders: &Coders) -> Result<Option<Part>, PartError> {
        self.open_as(coders, OpenMode::TryRead)
    }

    /// Opens a file for reading, unless it is being updated and its version is not useful: encoding a changed file
    /// locks its old redundancy for the whole time.
    ///
    /// # Errors
    /// See [`PartError`]; the version is not useful.
    pub(crate) fn open_if_useful(
        &self,
        coders: &Coders,
        is_of_use: impl Fn(&Header) -> bool,
    ) -> Result<Option<Part>, PartError> {
        match self.try_open(coders) {
            Err(PartError::Io(busy)) if busy.kind() == io::ErrorKind::WouldBlock => {
                let Some(file) = absent_is_none(self.tree.read(&self.path))? else { return Ok(None) };
                // Headers are written last, so until then they are those of the previous version. Torn headers mean
                // that the update is almost done.
                match head(&file, coders)? {
                    Ok((header, _)) if !is_of_use(&header) => Err(busy.into()),
                    _ => self.open(coders),
                }
            }
            opened => opened,
        }
    }

    /// Opens a file for an update; readers and other writers wait meanwhile.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn open_to_update(&self, coders: &Coders) -> Result<Option<Part>, PartError> {
        self.open_as(coders, OpenMode::Update)
    }

    fn open_as(&self, coders: &Coders, mode: OpenMode) -> Result<Option<Part>, PartError> {
        let open = || match mode {
            OpenMode::Update => self.tree.write(&self.path),
            OpenMode::Read | OpenMode::TryRead => self.tree.read(&self.path),
        };
        let Some(mut file) = absent_is_none(open())? else { return Ok(None) };
        let file = match mode {
            OpenMode::Update => loop {
                let locked = Lockable::exclusive_within(file, PATIENCE)?;
                // It may have been removed along with its file during the wait.
                let here = self.tree.find(&self.path)?.map(|it| (it.device, it.inode));
                let stat = stat_of(&locked)?;
                if here == Some((stat.device, stat.inode)) {
                    break locked;
                }
                let Some(another) = absent_is_none(open())? else { return Ok(None) };
                file = another;
            },
            OpenMode::Read => Lockable::shared_within(file, PATIENCE)?,
            OpenMode::TryRead => {
                let file = Lockable::from(file);
                file.try_lock_shared().map_err(io::Error::from)?;
                file
            }
        };
        let part = self.read_headers(file, coders)?;
        // A writer that died during an update has left its writes behind.
        match redo::is_pending(self, &part.header)? {
            false => Ok(Some(part)),
            true if mode == OpenMode::TryRead => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "an update has to be finished first").into())
            }
            true => {
                let header = part.header.clone();
                drop(part);
                let file = Lockable::exclusive_within(self.tree.write(&self.path)?, PATIENCE)?;
                redo::finish(self, &file, &header)?;
                match mode {
                    OpenMode::Update => {}
                    OpenMode::Read | OpenMode::TryRead => file.lock_shared_within(PATIENCE)?,
                }
                // A writer in between may leave another update behind if it dies; the next process to open the file
                // completes it.
                self.read_headers(file, coders).map(Some)
            }
        }
    }

    fn read_headers(&self, file: Lockable, coders: &Coders) -> Result<Part, PartError> {
        let place = self.clone();
        let (header, length, head_damage) = match head(&file, coders)? {
            Ok((header, length)) => (header, length, None),
            Err(head) => match trailer(&file, coders)? {
                Ok((header, length)) => (header, length, Some(head)),
                Err(trailer) => return Err(PartError::Headers { head, trailer }),
            },
        };
        let own = Records::new(&header, length);
        let body = body::open(&place.tree, &header)?;
        let records = if body.is_some() { Records::of_body(&header) } else { own };
        Ok(Part { place, file, header, records, own, body, head_damage, trailer_damage: None })
    }
}

type HeaderResult = Result<(Header, usize), HeaderError>;

pub(crate) fn decode(bytes: &[u8], coders: &Coders) -> HeaderResult {
    let code = |identity: &str, in_use| coders.named(identity, in_use);
    Header::decode(bytes, code).map(|header| (header, bytes.len()))
}

/// Most headers fit, so that one read is enough.
const USUAL_HEADER: usize = 512;

fn head(file: &File, coders: &Coders) -> io::Result<HeaderResult> {
    let mut bytes = vec![0; USUAL_HEADER];
    let got = read_up_to(file, &mut bytes, 0)?;
    let length = match Header::length(&bytes[..got]) {
        Ok(length) => length,
        Err(error) => return Ok(Err(error)),
    };
    bytes.resize(length.max(USUAL_HEADER), 0);
    if length > got {
        let more = read_up_to(file, &mut bytes[got..length], got as u64)?;
        if got + more < length {
            return Ok(Err(HeaderError::Short));
        }
    }
    Ok(decode(&bytes[..length], coders))
}

fn trailer(file: &File, coders: &Coders) -> io::Result<HeaderResult> {
    let size = stat_of(file)?.size;
    if size < HEADER_UNIT as u64 {
        return Ok(Err(HeaderError::Short));
    }
    let mut end = [0; END_BYTES];
    file.read_exact_at(&mut end, size - END_BYTES as u64)?;
    let length = match Header::length_from_end(&end) {
        Ok(length) if length as u64 <= size => length,
        Ok(length) => return Ok(Err(HeaderError::Length(length as u64))),
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, size - length as u64)?;
    Ok(decode(&bytes, coders))
}

/// Reads until the buffer is full or the file ends.
///
/// # Errors
/// I/O errors.
pub fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

impl Part {
    /// Reads the frames of some stripes: stripe by stripe, in each the frames of all columns. Missing parts of the file
    /// are zeros, which no valid frame consists of.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read_records(&self, first: u64, count: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (records, columns) = (&self.records, self.records.columns());
        let frames: u64 = (first..first + count).map(|stripe| records.frame_bytes(stripe)).sum();
        buffer.clear();
        buffer.resize(columns * frames as usize, 0);
        if records.is_one_piece() {
            read_up_to(self.frames(), buffer, records.frame_offset(0, first))?;
            return Ok(());
        }
        let mut section = vec![0; frames as usize];
        for column in 0..columns {
            section.fill(0);
            read_up_to(self.frames(), &mut section, records.frame_offset(column, first))?;
            let (mut from, mut to) = (0, 0);
            for stripe in first..first + count {
                let frame = records.frame_bytes(stripe) as usize;
                buffer[to + column * frame..][..frame].copy_from_slice(&section[from..][..frame]);
                from += frame;
                to += columns * frame;
            }
        }
        Ok(())
    }

    /// Checks the second header, and that it lies where the records end: a first header alone looks like a complete
    /// file.
    ///
    /// # Errors
    /// I/O errors.
    pub fn check_trailer(&mut self, coders: &Coders) -> io::Result<()> {
        let size = stat_of(&self.file)?.size;
        self.trailer_damage = match trailer(&self.file, coders)? {
            _ if size != self.own.file() => Some(HeaderError::Field { field: "a length", value: size }),
            Ok((header, _)) if header == self.header => None,
            Ok(_) => Some(HeaderError::Checksum),
            Err(error) => Some(error),
        };
        Ok(())
    }

    /// Drops the file from the page cache.
    pub fn drop_cache(&self) {
        // Advice only: what is not dropped is read from memory.
        for file in [&self.file, self.frames()] {
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    /// True if at least half of the data described by the header exists: in this file, or in a file of `size` bytes.
    /// Otherwise the header is bogus, and examining every stripe would never end.
    pub fn is_plausible(&self, size: u64) -> bool {
        let there = stat_of(self.frames()).map_or(0, |stat| stat.size);
        there >= self.records.file() / 2 || size >= self.header.generation.size / 2
    }

    /// The frame of a redundancy column at the end of `bytes`; none if its table is damaged.
    pub fn frame<'a>(&self, bytes: &'a [u8], column: usize, stripe: u64) -> Option<Frame<'a>> {
        let shape = (self.header.code.k(), self.header.strong);
        Frame::open(bytes, shape, self.header.frame_key(), column, stripe)
    }

    /// Redundancy columns in this file, counted from 0.
    pub fn columns(&self) -> std::ops::Range<usize> {
        self.header.first..self.header.first + self.header.columns
    }

    /// Length of the header.
    pub fn header_bytes(&self) -> usize {
        self.own.header_bytes() as usize
    }
}

#[cfg(test)]
mod tests;
