//! Redundancy files on disk: opened, made, updated, each so that a crash leaves one whole version.
//!
//! A new file is a [`Draft`] in the staging directory that is renamed into place. An update of some records is a
//! [`redo`] file: it appears there whole, its writes are then made in place, and whoever opens the redundancy after a
//! crash makes them again.

pub mod draft;
pub(crate) mod fence;
pub mod redo;

pub use draft::Draft;

use crate::coder::Coders;
use crate::format::header::{END_BYTES, HEADER_UNIT, MAX_COLUMNS};
use crate::format::{Header, HeaderError, Records};
use crate::shown::Shown;
use crate::tree::{Tree, absent_is_none, stat_of};
use gabion_engine::Code;
use gabion_platform::lock::Lockable;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Where redundancy files are, beneath a repository.
pub const REDUNDANCY: &[u8] = b"redundancy";

/// Where files are until they are whole.
pub const STAGING: &[u8] = b"staging";

/// A place for a redundancy file.
#[derive(Debug, Clone)]
pub struct PartPath {
    /// The repository, or the target's part of it.
    pub tree: Tree,
    /// The path in it.
    pub path: Vec<u8>,
}

/// A redundancy file that is open.
#[derive(Debug)]
pub struct Part {
    /// Where it is.
    pub place: PartPath,
    /// The file.
    pub file: Lockable,
    /// What its header says: the first, or the second where the first is damaged.
    pub header: Header,
    /// Where its records lie.
    pub records: Records,
    /// What is wrong with the first header.
    pub head_damage: Option<HeaderError>,
    /// What is wrong with the second one. Only [`Part::check_trailer`] looks unless the first is damaged.
    pub trailer_damage: Option<HeaderError>,
}

/// Why a redundancy file cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The operating system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Both headers are damaged, or it was written by another version.
    #[error("{head}; at its end: {trailer}")]
    Headers {
        /// What is wrong with the first.
        head: HeaderError,
        /// What is wrong with the second.
        trailer: HeaderError,
    },
}

impl PartError {
    /// Whether nothing can use the file, neither now nor by a later version of the program: both headers are damaged.
    pub fn is_beyond_use(&self) -> bool {
        matches!(self, PartError::Headers { .. }) && !self.is_later()
    }

    /// Whether a later program wrote the file: it is not damaged, and must never be overwritten.
    pub fn is_later(&self) -> bool {
        matches!(self, PartError::Headers { head, trailer } if head.is_later() || trailer.is_later())
    }

    /// Whether it is not known what is in the file, although its medium is sound: a later program wrote it, or this process lacks the rights, memory or
    /// descriptors to read it. To count it as missing would call files lost that are not.
    pub fn is_unknown(&self) -> bool {
        use rustix::io::Errno;
        let PartError::Io(error) = self else { return self.is_later() };
        let limits = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ACCESS, Errno::PERM];
        limits.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    }

    /// Whether there is a redundancy file that cannot be read now: an error of the medium, of rights, of limits. What is in it is not known, so it must
    /// not be overwritten. Something else in its place (a directory, a link) is no redundancy file.
    pub fn is_unreadable(&self) -> bool {
        use io::ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory};
        let PartError::Io(error) = self else { return false };
        let no_file = matches!(error.kind(), InvalidInput | NotADirectory | IsADirectory | InvalidFilename);
        !no_file && error.raw_os_error() != Some(rustix::io::Errno::LOOP.raw_os_error())
    }
}

/// A redundancy file that is there, and of which nobody can say now what is in it.
#[derive(Debug, thiserror::Error)]
#[error("its redundancy {}: {source}", Shown::path(.path))]
pub struct Unknown {
    /// Where it is.
    pub path: std::path::PathBuf,
    /// What is wrong.
    pub source: Box<PartError>,
}

/// What a redundancy file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    /// Without waiting for who updates it.
    ReadAtOnce,
    /// Readers and other writers wait meanwhile.
    Update,
}

impl PartPath {
    /// Why what is there must not be removed or replaced: a later program wrote it, or it cannot be read now, so that it may be of a file that is elsewhere.
    pub(crate) fn must_stay(&self, coders: &Coders) -> Option<Unknown> {
        match self.open(coders) {
            Err(source) if source.is_later() || source.is_unreadable() => {
                Some(Unknown { path: self.tree.shown(&self.path), source: Box::new(source) })
            }
            _ => None,
        }
    }

    /// Opens what is there, for reading. What is damaged, or is no redundancy file, counts as nothing; what is not known is an error.
    ///
    /// # Errors
    /// See [`PartError::is_unknown`].
    pub fn open_known(&self, coders: &Coders) -> Result<Option<Part>, Unknown> {
        match self.open(coders) {
            Err(source) if source.is_unknown() => {
                Err(Unknown { path: self.tree.shown(&self.path), source: Box::new(source) })
            }
            opened => Ok(opened.unwrap_or_default()),
        }
    }

    /// Whether both are the same place of the same tree.
    pub fn is(&self, other: &PartPath) -> bool {
        self.path == other.path && self.tree.path() == other.tree.path()
    }

    /// Opens what is there, for reading; nothing if nothing is there.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn open(&self, coders: &Coders) -> Result<Option<Part>, PartError> {
        self.open_as(coders, Purpose::Read)
    }

    /// Opens what is there, for reading, unless someone is about to update it.
    ///
    /// # Errors
    /// See [`PartError`]; someone is.
    pub(crate) fn open_at_once(&self, coders: &Coders) -> Result<Option<Part>, PartError> {
        self.open_as(coders, Purpose::ReadAtOnce)
    }

    /// Opens what is there, for reading, unless it is just being updated and of a version that is of no use: whoever makes redundancy
    /// of a file that was written holds what there was of it for as long as that takes.
    ///
    /// # Errors
    /// See [`PartError`]; it is of no use.
    pub(crate) fn open_if_of_use(
        &self,
        coders: &Coders,
        is_of_use: impl Fn(&Header) -> bool,
    ) -> Result<Option<Part>, PartError> {
        match self.open_at_once(coders) {
            Err(PartError::Io(busy)) if busy.kind() == io::ErrorKind::WouldBlock => {
                let Some(file) = absent_is_none(self.tree.read(&self.path))? else { return Ok(None) };
                // Headers are written at the end, so until then they are those of the version before. Who finds them torn does not wait long.
                match head(&file, coders)? {
                    Ok((header, _)) if !is_of_use(&header) => Err(busy.into()),
                    _ => self.open(coders),
                }
            }
            opened => opened,
        }
    }

    /// Opens what is there to update it; readers and other writers wait meanwhile.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn open_to_update(&self, coders: &Coders) -> Result<Option<Part>, PartError> {
        self.open_as(coders, Purpose::Update)
    }

    fn open_as(&self, coders: &Coders, purpose: Purpose) -> Result<Option<Part>, PartError> {
        let open = || match purpose {
            Purpose::Update => self.tree.write(&self.path),
            Purpose::Read | Purpose::ReadAtOnce => self.tree.read(&self.path),
        };
        let Some(mut file) = absent_is_none(open())? else { return Ok(None) };
        let file = match purpose {
            Purpose::Update => loop {
                let locked = Lockable::exclusive(file)?;
                // It may have gone along with its file while we waited.
                let here = self.tree.find(&self.path)?.map(|it| (it.device, it.inode));
                let stat = stat_of(&locked)?;
                if here == Some((stat.device, stat.inode)) {
                    break locked;
                }
                let Some(another) = absent_is_none(open())? else { return Ok(None) };
                file = another;
            },
            Purpose::Read => Lockable::shared(file)?,
            Purpose::ReadAtOnce => {
                let file = Lockable::from(file);
                file.try_lock_shared().map_err(io::Error::from)?;
                file
            }
        };
        let part = self.read_headers(file, coders)?;
        // Whoever began an update and died left its writes behind.
        match redo::left_over(self, &part.header)? {
            false => Ok(Some(part)),
            true if purpose == Purpose::ReadAtOnce => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "an update has to be finished first").into())
            }
            true => {
                let header = part.header.clone();
                drop(part);
                let file = Lockable::exclusive(self.tree.write(&self.path)?)?;
                redo::finish(self, &file, &header)?;
                match purpose {
                    Purpose::Update => {}
                    Purpose::Read | Purpose::ReadAtOnce => {
                        file.unlock()?;
                        file.lock_shared()?;
                    }
                }
                // A writer that comes between leaves another update behind at most if it dies there: the next opener finishes that.
                self.read_headers(file, coders).map(Some)
            }
        }
    }

    fn read_headers(&self, file: Lockable, coders: &Coders) -> Result<Part, PartError> {
        let place = self.clone();
        match head(&file, coders)? {
            Ok((header, length)) => {
                let records = Records::new(&header, length);
                Ok(Part { place, file, header, records, head_damage: None, trailer_damage: None })
            }
            Err(head) => match trailer(&file, coders)? {
                Ok((header, length)) => {
                    let records = Records::new(&header, length);
                    let head_damage = Some(head);
                    Ok(Part { place, file, header, records, head_damage, trailer_damage: None })
                }
                Err(trailer) => Err(PartError::Headers { head, trailer }),
            },
        }
    }
}

type Found = Result<(Header, usize), HeaderError>;

pub(crate) fn decode(bytes: &[u8], coders: &Coders) -> Found {
    let code = |identity: &str| {
        if let Some(coder) = coders.known(identity) {
            return Ok(coder.code().clone());
        }
        // Before it is made ready: that takes time and memory in proportion to k × m.
        let blocks = identity.parse::<Code>().map(|code| code.blocks()).map_err(|error| error.to_string())?;
        if blocks > MAX_COLUMNS {
            return Err(format!("it has {blocks} columns, more than {MAX_COLUMNS}"));
        }
        coders.get(identity).map(|coder| coder.code().clone()).map_err(|error| error.to_string())
    };
    Header::decode(bytes, code).map(|header| (header, bytes.len()))
}

/// Most headers fit in this, so that one read is enough.
const USUAL_HEADER: usize = 512;

fn head(file: &File, coders: &Coders) -> io::Result<Found> {
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

fn trailer(file: &File, coders: &Coders) -> io::Result<Found> {
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
    /// Reads the frames of some stripes: stripe after stripe, in each the frames of all columns. What the file no longer has is zeros, which no
    /// frame consists of.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read_records(&self, first: u64, count: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (records, columns) = (&self.records, self.records.columns());
        let frames: u64 = (first..first + count).map(|stripe| records.frame_bytes(stripe)).sum();
        buffer.clear();
        buffer.resize(columns * frames as usize, 0);
        if records.is_one_piece() {
            read_up_to(&self.file, buffer, records.frame_offset(0, first))?;
            return Ok(());
        }
        let mut section = vec![0; frames as usize];
        for column in 0..columns {
            section.fill(0);
            read_up_to(&self.file, &mut section, records.frame_offset(column, first))?;
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

    /// Looks at the second header as well, and whether it lies where records end: a first header alone ends like a whole file.
    ///
    /// # Errors
    /// I/O errors.
    pub fn check_trailer(&mut self, coders: &Coders) -> io::Result<()> {
        let size = stat_of(&self.file)?.size;
        self.trailer_damage = match trailer(&self.file, coders)? {
            _ if size != self.records.file() => Some(HeaderError::Field { field: "a length", value: size }),
            Ok((header, _)) if header == self.header => None,
            Ok(_) => Some(HeaderError::Checksum),
            Err(error) => Some(error),
        };
        Ok(())
    }

    /// Forgets what the system keeps of it in memory.
    pub fn drop_cache(&self) {
        // Only advice: what is not forgotten is read from memory.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    /// Whether at least half of what its header speaks of is there: in it, or in a file of `size` bytes. Otherwise the header
    /// speaks of another world, and looking at every stripe of that would never end.
    pub fn is_plausible(&self, size: u64) -> bool {
        let there = stat_of(&self.file).map_or(0, |stat| stat.size);
        there >= self.records.file() / 2 || size >= self.header.generation.size / 2
    }

    /// The redundancy columns that are in it, counted from 0.
    pub fn columns(&self) -> std::ops::Range<usize> {
        self.header.first..self.header.first + self.header.columns
    }

    /// Bytes the header takes.
    pub fn header_bytes(&self) -> usize {
        self.records.header_bytes() as usize
    }
}

#[cfg(test)]
mod tests;
