//! Sets of shards in a directory. Shards are identified by their content, not by their names: users rename files.

use crate::error::{Error, SetList, plain};
use crate::format::{
    Codes, Content, Header, HeaderError, MAGIC, SetId, parse_shard_file_name, shard_file_name,
};
use gabion_platform::display_path::DisplayPath;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file with a good header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub len: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// A file that looks like a shard, by content or by name, and is none that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Where it is.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
    /// Whether its content speaks for a shard that was damaged, not for something else by that name.
    pub was_shard: bool,
}

/// The shards of one set.
#[derive(Debug, Clone)]
pub struct Set {
    /// Its identity.
    pub id: SetId,
    /// Content of its headers.
    pub content: Content,
    /// The file of each index: the first is used, others are duplicates.
    pub files: BTreeMap<u32, Vec<Found>>,
}

impl Set {
    /// Whether there are enough shards.
    pub fn joinable(&self) -> bool {
        self.files.len() >= self.content.code.k()
    }

    /// The indexes that have no file.
    pub fn missing(&self) -> Vec<u32> {
        (0..self.content.code.blocks() as u32).filter(|index| !self.files.contains_key(index)).collect()
    }

    /// The permission bits that all its files have.
    pub fn mode(&self) -> u32 {
        self.files.values().flatten().fold(0o777, |mode, found| mode & found.mode)
    }

    /// Where a shard belongs.
    pub fn place(&self, dir: &Path, index: u32) -> PathBuf {
        dir.join(OsStr::from_bytes(&shard_file_name(&self.content.name, index)))
    }

    /// Another path for a shard whose usual name belongs to a shard that must stay.
    pub fn other_place(&self, dir: &Path, index: u32, number: u32) -> PathBuf {
        let name = [&self.content.name[..], format!(".{index:03}-{number}.gabion").as_bytes()].concat();
        dir.join(OsStr::from_bytes(&name))
    }

    /// Its description in one line.
    pub fn summary(&self) -> String {
        let (have, code) = (self.files.len(), &self.content.code);
        let (name, size) = (DisplayPath::bytes(&self.content.name), self.content.size);
        format!("{} {name}: {size} bytes, {code}, {have} of {} shards", self.id, code.blocks())
    }

    fn too_few(&self) -> Error {
        Error::TooFewShards {
            name: DisplayPath::bytes(&self.content.name).to_string(),
            need: self.content.code.k(),
            have: self.files.len(),
            missing: self.missing(),
        }
    }
}

/// Content of a directory.
#[derive(Debug)]
pub struct Scan {
    /// The directory.
    pub dir: PathBuf,
    /// The sets, by identity.
    pub sets: Vec<Set>,
    /// Files that look like shards and cannot be used.
    pub damaged: Vec<Damaged>,
}

impl Scan {
    /// Looks at every regular file of a directory.
    ///
    /// # Errors
    /// A directory that cannot be read; files that cannot are in the result.
    pub fn of(dir: &Path) -> Result<Scan, Error> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir).map_err(Error::io("read the directory", dir))? {
            paths.push(entry.map_err(Error::io("read the directory", dir))?.path());
        }
        paths.sort();
        let mut codes = Codes::default();
        let mut sets: BTreeMap<(SetId, Vec<u8>), Set> = BTreeMap::new();
        let mut damaged = Vec::new();
        for path in paths {
            match examine(&path, &mut codes) {
                Seen::Other => {}
                Seen::Damaged { reason, was_shard } => damaged.push(Damaged { path, reason, was_shard }),
                Seen::Shard { header, len, mode } => {
                    // Headers that agree in their identity but in nothing else are not one set.
                    let alike = Header { index: 0, ..(*header).clone() }.encode().unwrap_or_default();
                    let Header { set: id, content, index } = *header;
                    let set = sets.entry((id, alike)).or_insert(Set { id, content, files: BTreeMap::new() });
                    set.files.entry(index).or_default().push(Found { path, len, mode });
                }
            }
        }
        let mut sets: Vec<Set> = sets.into_values().collect();
        sets.iter_mut().for_each(|set| rank_duplicates(dir, set));
        Ok(Scan { dir: dir.to_owned(), sets, damaged })
    }

    /// The set to work on: the one `--set` names, else the only one that can be joined, else the only one.
    ///
    /// # Errors
    /// None or several; too few shards where `joinable` is asked for.
    pub fn choose(&self, prefix: Option<&str>, joinable: bool) -> Result<&Set, Error> {
        let fits: Vec<&Set> = match prefix {
            None => self.sets.iter().collect(),
            Some(prefix) => {
                let wanted = prefix.to_ascii_lowercase();
                self.sets.iter().filter(|set| set.id.to_string().starts_with(&wanted)).collect()
            }
        };
        let whole: Vec<&Set> = fits.iter().copied().filter(|set| set.joinable()).collect();
        let list = |sets: &[&Set]| SetList(sets.iter().map(|set| set.summary()).collect());
        let dir = self.dir.clone();
        match (prefix, fits.as_slice(), whole.as_slice()) {
            (_, _, [set]) => Ok(set),
            (Some(prefix), [], _) => {
                let list = list(&self.sets.iter().collect::<Vec<_>>());
                Err(Error::NoSuchSet { prefix: prefix.to_owned(), count: 0, dir, list })
            }
            (Some(prefix), many @ [_, _, ..], _) => {
                Err(Error::NoSuchSet { prefix: prefix.to_owned(), count: many.len(), dir, list: list(many) })
            }
            (None, [], _) if self.damaged.is_empty() => Err(Error::NoShards { dir }),
            (None, [], _) => Err(Error::OnlyDamaged { dir, damaged: self.damaged.len() }),
            (_, [set], []) if joinable => Err(set.too_few()),
            (_, [set], []) => Ok(set),
            (None, many, []) if joinable => {
                // All are lost; the error names the one with the most shards.
                let nearest =
                    many.iter().min_by_key(|set| set.content.code.k().saturating_sub(set.files.len()));
                Err(nearest.map_or(Error::NoShards { dir }, |set| set.too_few()))
            }
            (None, many, []) => Err(Error::SeveralSets { dir, list: list(many) }),
            (_, _, several) => Err(Error::SeveralSets { dir, list: list(several) }),
        }
    }

    /// Other files of the directory, with the reason why each was not used.
    pub fn others(&self, chosen: &Set) -> Vec<Note> {
        let mut notes = Vec::new();
        for Damaged { path, reason, .. } in &self.damaged {
            notes.push(Note { path: path.clone(), text: format!("damaged: {reason}") });
        }
        for (index, files) in &chosen.files {
            for found in files.iter().skip(1) {
                let text =
                    format!("duplicate of shard {index}, which is {}", DisplayPath::path(&files[0].path));
                notes.push(Note { path: found.path.clone(), text });
            }
        }
        for set in self.sets.iter().filter(|set| !std::ptr::eq(*set, chosen)) {
            for (index, files) in &set.files {
                for found in files {
                    let name = DisplayPath::bytes(&set.content.name);
                    let text = format!("foreign: shard {index} of set {} ({name})", set.id);
                    notes.push(Note { path: found.path.clone(), text });
                }
            }
        }
        notes
    }
}

/// Something to say about a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The file.
    #[serde(serialize_with = "path_as_text")]
    pub path: PathBuf,
    /// The note.
    pub text: String,
}

pub(crate) fn path_as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Of files with one index, the longest is used, then the one in its own place, then the first by name.
fn rank_duplicates(dir: &Path, set: &mut Set) {
    let expected = set.content.geometry().map_or(0, |g| g.body_len() + set.content.header_len() as u64);
    for index in set.files.keys().copied().collect::<Vec<_>>() {
        let place = set.place(dir, index);
        if let Some(files) = set.files.get_mut(&index) {
            files.sort_by_key(|found| (std::cmp::Reverse(found.len.min(expected)), found.path != place));
        }
    }
}

enum Seen {
    Other,
    Damaged { reason: String, was_shard: bool },
    Shard { header: Box<Header>, len: u64, mode: u32 },
}

fn examine(path: &Path, codes: &mut Codes) -> Seen {
    let named = path.file_name().is_some_and(|name| parse_shard_file_name(name.as_bytes()).is_some());
    let unreadable = |error: io::Error| match named {
        true => Seen::Damaged { reason: format!("cannot read it: {}", plain(&error)), was_shard: true },
        false => Seen::Other,
    };
    let opened = open_regular(path);
    let (file, metadata) = match opened {
        Ok(Some(opened)) => opened,
        Ok(None) => return Seen::Other,
        Err(error) => return unreadable(error),
    };
    let (len, mode) = (metadata.len(), metadata.permissions().mode() & 0o777);
    match read_header(&file, codes) {
        Ok(Ok(header)) => Seen::Shard { header: Box::new(header), len, mode },
        Ok(Err(HeaderError::Magic)) if has_header_without_magic(&file, codes) => Seen::Damaged {
            reason: "its first bytes are damaged, the rest of its header is not".to_owned(),
            was_shard: true,
        },
        Ok(Err(HeaderError::Magic)) if !named => Seen::Other,
        Ok(Err(HeaderError::Short)) if !named && !begins_with_magic(&file) => Seen::Other,
        Ok(Err(reason)) => Seen::Damaged {
            reason: reason.to_string(),
            was_shard: reason != HeaderError::Magic || resembles(&file),
        },
        Err(error) => unreadable(error),
    }
}

/// True if the header is right but for its first eight bytes: its checksum leaves no doubt that the file is a shard.
fn has_header_without_magic(file: &File, codes: &mut Codes) -> bool {
    let mut start = [0; 16];
    if !read_up_to(file, &mut start, 0).is_ok_and(|got| got == start.len()) {
        return false;
    }
    start[..MAGIC.len()].copy_from_slice(&MAGIC);
    let Ok(length) = Header::length(&start) else { return false };
    let mut bytes = vec![0; length];
    let Ok(got) = read_up_to(file, &mut bytes, 0) else { return false };
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    Header::decode(&bytes[..got], codes).is_ok()
}

fn begins_with_magic(file: &File) -> bool {
    let mut start = [0; 8];
    file.read_exact_at(&mut start, 0).is_ok() && start == MAGIC
}

/// Whether a file without magic may have been a shard: a damaged magic, or zeros, as an unfinished
/// shard and a lost first page have them.
fn resembles(file: &File) -> bool {
    let mut start = [0; 8];
    let alike = |start: [u8; 8]| start.iter().zip(MAGIC).filter(|&(&is, was)| is == was).count() >= 4;
    file.read_exact_at(&mut start, 0).is_ok() && (start == [0; 8] || alike(start))
}

/// Opens a regular file for reading, or a link to one; others are `None`. Never waits for the writer of a pipe.
pub(crate) fn open_regular(path: &Path) -> io::Result<Option<(File, fs::Metadata)>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((file, metadata)))
}

/// Reads the header at the start of a file.
pub(crate) fn read_header(file: &File, codes: &mut Codes) -> io::Result<Result<Header, HeaderError>> {
    let mut start = [0; 16];
    let got = read_up_to(file, &mut start, 0)?;
    if got < start.len() {
        let cut = start[..got.min(8)] == MAGIC[..got.min(8)];
        return Ok(Err(if cut { HeaderError::Short } else { HeaderError::Magic }));
    }
    let length = match Header::length(&start) {
        Ok(length) => length,
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; length];
    let got = read_up_to(file, &mut bytes, 0)?;
    Ok(Header::decode(&bytes[..got], codes))
}

/// Reads until the buffer is full or the file ends; returns how much was read.
pub(crate) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
