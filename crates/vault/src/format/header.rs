//! Header of a redundancy file, in both versions of the format.

use super::binding::Binding;
use super::fields::{Reader, Writer};
use super::frame::FrameKey;
use crate::geometry::{Geometry, GeometryError, MAX_SIZE, Tail};
use crate::tree::Generation;
use crate::world::Timestamp;
use gabion_engine::Code;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// First bytes of a redundancy file. The byte above 127 and the line ends reveal text conversions.
pub const MAGIC: [u8; 8] = *b"\x89GABRD\r\n";

/// Version that is written. Version 1 is still read, verified and repaired.
pub const VERSION: u32 = 2;

/// Supported versions of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// No binding; records in the order of stripes; signatures at Y and Y².
    One,
    /// With binding; one section per redundancy column; signatures at two independent points.
    Two,
}

impl Version {
    /// Version of new redundancy.
    pub const NEWEST: Version = Version::Two;

    /// Number in the header.
    pub fn number(self) -> u32 {
        match self {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    fn of(number: u32) -> Result<Version, HeaderError> {
        match number {
            1 => Ok(Version::One),
            2 => Ok(Version::Two),
            other => Err(HeaderError::Version(other)),
        }
    }

    /// Length of the fixed fields: version 2 appends some.
    pub fn fixed_bytes(self) -> usize {
        match self {
            Version::One => FIELDS[FIELDS_OF_VERSION_1].offset,
            Version::Two => FIXED_BYTES,
        }
    }
}

/// Largest header: it includes the extended attributes of a file.
pub const MAX_HEADER: usize = 1 << 18;

/// Header lengths are multiples of this.
pub const HEADER_UNIT: usize = 64;

/// Length of the end of a header: its length once more, so that it can be found from the end of a file, and the
/// checksum.
pub const END_BYTES: usize = 4 + 32;

/// Maximum length of all k + m blocks of a stripe: every thread that works on a file holds a stripe in memory.
pub const MAX_STRIPE: u64 = 1 << 30;

/// Maximum number of blocks of a stripe.
pub const MAX_COLUMNS: usize = 1024;

const FLAG_STRIPED: u32 = 1;
const FLAG_ATTRIBUTES_LEFT_OUT: u32 = 2;
const FLAG_STRONG: u32 = 4;

/// Extensions with this bit in the tag must be understood by a reader; others may be ignored.
const CRITICAL: u16 = 0x8000;

/// Extension with the id of the body that has the frames: the file shares them with others.
const BODY: u16 = CRITICAL | 1;

/// A fixed field of the header; `docs/reference/redundancy.md` has the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpec {
    /// Offset.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
    /// Name in the document.
    pub name: &'static str,
}

/// The fixed fields in the order of reading and writing; a test compares them with the document.
pub const FIELDS: [FieldSpec; 26] = field_table([
    (8, "magic"),
    (4, "version"),
    (4, "header length"),
    (16, "file id"),
    (8, "revision"),
    (8, "file size"),
    (8, "mtime"),
    (8, "ctime"),
    (8, "inode"),
    (8, "protected at"),
    (8, "block size"),
    (4, "rows"),
    (4, "flags"),
    (2, "first column"),
    (2, "columns"),
    (4, "mode"),
    (4, "owner"),
    (4, "group"),
    (16, "root"),
    (2, "code identity length"),
    (2, "target count"),
    (4, "attribute count"),
    (16, "binding"),
    (2, "columns in use"),
    (2, "extension count"),
    (4, "reserved"),
]);

/// Number of fields of version 1.
const FIELDS_OF_VERSION_1: usize = 22;

const fn field_table<const N: usize>(fields: [(usize, &'static str); N]) -> [FieldSpec; N] {
    let mut field_table = [FieldSpec { offset: 0, bytes: 0, name: "" }; N];
    let (mut index, mut offset) = (0, 0);
    while index < N {
        field_table[index] = FieldSpec { offset, bytes: fields[index].0, name: fields[index].1 };
        offset += fields[index].0;
        index += 1;
    }
    field_table
}

/// Offset of the code identity: the end of the fixed fields of the newest version.
pub const FIXED_BYTES: usize = FIELDS[FIELDS.len() - 1].offset + FIELDS[FIELDS.len() - 1].bytes;

/// Identity of a protected file; stays the same when the file is renamed or changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub [u8; 16]);

impl FileId {
    /// Inode number for storage with file identities: the first 8 bytes, little endian.
    pub fn inode(self) -> u64 {
        let mut inode = [0; 8];
        inode.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(inode)
    }
}

/// The two hexadecimal digits of a byte.
pub(crate) fn hex_digits(byte: u8) -> [char; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]))
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().flat_map(|byte| hex_digits(*byte)).try_for_each(|digit| f.write_char(digit))
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({self})")
    }
}

/// Name of a code with its optional hashes, for messages and the catalogue: `subspace:8+2:w8 blake3`. It does not tell
/// which wider code the columns are taken from: that is no matter of users.
pub fn coding(code: &Code, strong: bool) -> String {
    format!("{}{}", code.in_words(), if strong { STRONG } else { "" })
}

/// Suffix of the name of a coding with BLAKE3.
pub const STRONG: &str = " blake3";

/// Metadata of a file, restored along with its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes, including access control lists.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Some attributes were too large for a header, or unreadable, and are missing here.
    pub attributes_left_out: bool,
}

/// A header extension, of this program or of a later one with the same format version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// Kind; those with the highest bit set must be understood.
    pub tag: u16,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Decoded header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Format version.
    pub version: Version,
    /// Identity of this redundancy.
    pub id: FileId,
    /// Counts updates of this redundancy; of two that disagree, the higher is newer.
    pub revision: u64,
    /// Version of the file that is protected.
    pub generation: Generation,
    /// Time of the encoding.
    pub protected_at: Timestamp,
    /// Code. Its m is the number of columns in use; it may be the first columns of a wider one, which the bytes name.
    pub code: Arc<Code>,
    /// Frames have BLAKE3 of every block in addition to signatures.
    pub strong: bool,
    /// Cut of the file.
    pub geometry: Geometry,
    /// First redundancy column in this file, counted from 0.
    pub first: usize,
    /// Number of redundancy columns in this file.
    pub columns: usize,
    /// Sum of the checks of all frames.
    pub root: [u8; 16],
    /// Metadata to restore.
    pub metadata: Metadata,
    /// Target names of all k + m columns, if storage has several targets; otherwise empty.
    pub targets: Vec<Vec<u8>>,
    /// Binding to the protected file; version 1 has none.
    pub binding: Option<Binding>,
    /// The body of a file that shares frames, and unknown extensions that may be ignored.
    pub extensions: Vec<Extension>,
}

/// Why bytes are no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Wrong magic.
    #[error("it is not a redundancy file")]
    Magic,
    /// Too short.
    #[error("it is truncated")]
    Short,
    /// Invalid length.
    #[error("a header of {0} bytes is out of range")]
    Length(u64),
    /// The checksum does not match.
    #[error("the header's checksum does not match")]
    Checksum,
    /// Written by another version of the program.
    #[error("format version {0} is not supported (supported: up to {VERSION})")]
    Version(u32),
    /// A critical extension that is not supported.
    #[error("extension {0:#x} is not supported")]
    Extension(u16),
    /// A feature of the format that is not supported.
    #[error("{field} of {value} is not supported here")]
    Unsupported {
        /// Field that requests it.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Unknown flags.
    #[error("flags {0:#x} are not supported")]
    Flags(u32),
    /// Invalid code identity.
    #[error("code {identity:?}: {why}")]
    Code {
        /// The identity.
        identity: String,
        /// The error.
        why: String,
    },
    /// Invalid sizes.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A field contradicts another one.
    #[error("{field} of {value} cannot be")]
    Field {
        /// Field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl HeaderError {
    /// True if a later program wrote this header: its checksum is valid, and some of its content is unknown here. Such
    /// a file is intact and must never be overwritten.
    pub fn is_later(&self) -> bool {
        use HeaderError::{Code, Extension, Flags, Unsupported, Version};
        matches!(self, Version(_) | Flags(_) | Extension(_) | Unsupported { .. } | Code { .. })
    }
}

impl Header {
    /// Key that binds frames to this redundancy file.
    pub fn frame_key(&self) -> FrameKey {
        FrameKey { version: self.version, id: self.body().unwrap_or(self.id) }
    }

    /// The body that has the frames of this file, if it shares them with other files.
    pub fn body(&self) -> Option<FileId> {
        let extension = self.extensions.iter().find(|extension| extension.tag == BODY)?;
        extension.bytes[..].try_into().ok().map(FileId)
    }

    /// This header for a file that shares the frames of a body, which have this sum.
    #[must_use]
    pub fn sharing(mut self, body: FileId, root: [u8; 16]) -> Header {
        self.extensions.retain(|extension| extension.tag != BODY);
        self.extensions.insert(0, Extension { tag: BODY, bytes: body.0.to_vec() });
        Header { root, ..self }
    }

    /// Only a file with all redundancy columns, in storage with one target, can share frames.
    fn check_body(&self) -> Result<(), HeaderError> {
        let mut bodies = self.extensions.iter().filter(|extension| extension.tag == BODY);
        let Some(Extension { bytes, .. }) = bodies.next() else { return Ok(()) };
        let is_whole = (self.first, self.columns) == (0, self.code.m()) && self.targets.is_empty();
        match bodies.next().is_none() && bytes.len() == 16 && is_whole {
            true => Ok(()),
            false => Err(HeaderError::Field { field: "a shared body", value: bytes.len() as u64 }),
        }
    }

    /// True if this may be the redundancy of the file with `binding` and version `now`. A renamed file keeps its inode,
    /// a replaced one its name; if neither matches, the redundancy is of another file. Version 1 always returns true.
    pub fn belongs_to(&self, binding: &Binding, now: Option<&Generation>) -> bool {
        let inode = now.is_some_and(|now| now.inode == self.generation.inode);
        inode || self.binding.as_ref().is_none_or(|own| own == binding)
    }

    /// Coding name, as accepted by [`Coders::get`](crate::coder::Coders::get).
    pub fn coding(&self) -> String {
        coding(&self.code, self.strong)
    }

    /// Encodes the header with at least `at_least` bytes: an update in place must not move what follows.
    ///
    /// # Errors
    /// [`HeaderError::Length`] if attributes or targets do not fit.
    pub fn encode(&self, at_least: usize) -> Result<Vec<u8>, HeaderError> {
        let identity = self.code.wide_identity();
        let attributes = &self.metadata.attributes;
        let variable = identity.len()
            + self.targets.iter().map(|target| 2 + target.len()).sum::<usize>()
            + attributes.iter().map(|(name, value)| 6 + name.len() + value.len()).sum::<usize>()
            + self.extensions.iter().map(|extension| 6 + extension.bytes.len()).sum::<usize>();
        let fixed = self.version.fixed_bytes();
        let length = (fixed + variable + END_BYTES).next_multiple_of(HEADER_UNIT).max(at_least);
        if length > MAX_HEADER {
            return Err(HeaderError::Length(length as u64));
        }
        let striped = if self.geometry.tail() == Tail::Striped { FLAG_STRIPED } else { 0 };
        let strong = if self.strong { FLAG_STRONG } else { 0 };
        let left_out = if self.metadata.attributes_left_out { FLAG_ATTRIBUTES_LEFT_OUT } else { 0 };
        let mut out = Writer::default();
        out.bytes(&MAGIC).u32(self.version.number()).u32(length as u32).bytes(&self.id.0).u64(self.revision);
        let Generation { size, mtime, ctime, inode } = self.generation;
        out.u64(size).time(mtime).time(ctime).u64(inode).time(self.protected_at);
        out.u64(self.geometry.block()).u32(self.geometry.rows() as u32).u32(striped | left_out | strong);
        out.u16(self.first as u16).u16(self.columns as u16);
        out.u32(self.metadata.mode).u32(self.metadata.uid).u32(self.metadata.gid).bytes(&self.root);
        out.u16(identity.len() as u16).u16(self.targets.len() as u16).u32(attributes.len() as u32);
        if self.version > Version::One {
            out.bytes(&self.binding.unwrap_or_default().0);
            out.u16(self.code.m() as u16).u16(self.extensions.len() as u16).u32(0);
        }
        debug_assert_eq!(out.0.len(), fixed);
        out.bytes(identity.as_bytes());
        for target in &self.targets {
            out.u16(target.len() as u16).bytes(target);
        }
        for (name, value) in attributes {
            out.u16(name.len() as u16).u32(value.len() as u32).bytes(name).bytes(value);
        }
        for Extension { tag, bytes } in &self.extensions {
            out.u16(*tag).u32(bytes.len() as u32).bytes(bytes);
        }
        out.0.resize(length - END_BYTES, 0);
        out.u32(length as u32);
        let checksum = blake3::hash(&out.0);
        out.bytes(checksum.as_bytes());
        Ok(out.0)
    }

    /// Length of the header that starts with these bytes (16 or more).
    ///
    /// # Errors
    /// Not a header of any version.
    pub fn length(start: &[u8]) -> Result<usize, HeaderError> {
        let mut fields = Reader(start);
        if fields.bytes(MAGIC.len())? != MAGIC {
            return Err(HeaderError::Magic);
        }
        fields.u32()?;
        check_length(fields.u32()?)
    }

    /// Length of the header that ends with these bytes ([`END_BYTES`]).
    ///
    /// # Errors
    /// Not a header of any version.
    pub fn length_from_end(end: &[u8]) -> Result<usize, HeaderError> {
        check_length(Reader(end).u32()?)
    }

    /// Identity and revision of the header that `bytes` start with; none if it is damaged.
    pub fn identity(bytes: &[u8]) -> Option<(FileId, u64)> {
        let header = bytes.get(..Header::length(bytes).ok()?)?;
        let (body, checksum) = header.split_at(header.len() - 32);
        if blake3::hash(body).as_bytes() != checksum {
            return None;
        }
        let mut fields = Reader(body.get(16..)?);
        Some((FileId(fields.id().ok()?), fields.u64().ok()?))
    }

    /// Version of a valid header that a later program wrote.
    pub fn later_version(bytes: &[u8]) -> Option<u32> {
        let header = bytes.get(..Header::length(bytes).ok()?)?;
        let (body, checksum) = header.split_at(header.len() - 32);
        let version = Reader(body.get(MAGIC.len()..)?).u32().ok()?;
        (blake3::hash(body).as_bytes() == checksum && version > VERSION).then_some(version)
    }

    /// Decodes a header that fills `bytes`. `code` gives the code of an identity, with the columns in use if they are
    /// fewer than its own.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn decode(
        bytes: &[u8],
        code: impl FnOnce(&str, Option<u16>) -> Result<Arc<Code>, String>,
    ) -> Result<Header, HeaderError> {
        let length = Header::length(bytes)?;
        if bytes.len() != length {
            return Err(HeaderError::Length(bytes.len() as u64));
        }
        let (body, checksum) = bytes.split_at(length - 32);
        if blake3::hash(body).as_bytes() != checksum {
            return Err(HeaderError::Checksum);
        }
        let (body, length_again) = body.split_at(body.len() - 4);
        if Header::length_from_end(length_again)? != length {
            return Err(HeaderError::Length(length as u64));
        }
        let mut fields = Reader(&body[MAGIC.len()..]);
        let version = Version::of(fields.u32()?)?;
        fields.u32()?;
        let (id, revision) = (FileId(fields.id()?), fields.u64()?);
        let generation = Generation {
            size: fields.u64()?,
            mtime: fields.time()?,
            ctime: fields.time()?,
            inode: fields.u64()?,
        };
        let protected_at = fields.time()?;
        let (block, rows, flags) = (fields.u64()?, fields.u32()?, fields.u32()?);
        if flags & !(FLAG_STRIPED | FLAG_ATTRIBUTES_LEFT_OUT | FLAG_STRONG) != 0 {
            return Err(HeaderError::Flags(flags));
        }
        let (first, columns) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let (mode, uid, gid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let root = fields.id()?;
        let (code_length, target_count) = (fields.u16()?, fields.u16()?);
        let attribute_count = fields.u32()?;
        let mut added = Added::default();
        if version > Version::One {
            added = Added::read(&mut fields)?;
        }
        let identity = String::from_utf8_lossy(fields.bytes(code_length.into())?).into_owned();
        let code = code(&identity, added.columns_in_use)
            .map_err(|why| HeaderError::Code { identity: identity.clone(), why })?;
        if code.wide_identity() != identity || code.k() + code.room() > MAX_COLUMNS {
            return Err(HeaderError::Code { identity, why: "it is not written as it is here".to_owned() });
        }
        let limit = |field, value: u64, fits: bool| match fits {
            true => Ok(()),
            false => Err(HeaderError::Field { field, value }),
        };
        limit("file size", generation.size, generation.size <= MAX_SIZE)?;
        limit("first column", first as u64, first < code.room().max(1))?;
        limit("columns", columns as u64, columns <= code.room() - first.min(code.room()))?;
        limit("mode", mode.into(), mode <= 0o7777)?;
        let none_or_all = target_count == 0 || usize::from(target_count) == code.blocks();
        limit("target count", target_count.into(), none_or_all)?;
        // None of them, more than the code has, or fewer than this file has.
        let cannot_be = |value: usize| {
            value != code.m() || (value == 0 && code.room() > 0) || (columns > 0 && first + columns > value)
        };
        if let Some(value) = added.columns_in_use.filter(|&value| cannot_be(value.into())) {
            return Err(HeaderError::Unsupported { field: "columns in use", value: value.into() });
        }
        let tail = if flags & FLAG_STRIPED == 0 { Tail::Balanced } else { Tail::Striped };
        let geometry = Geometry::new(code.k() as u64, block, rows.into(), tail, code.granule() as u64)?;
        // The lengths must describe a possible redundancy file.
        let cut = geometry.cut(generation.size);
        let stripe = cut.block(0).saturating_mul(code.blocks() as u64);
        limit("stripe", stripe, stripe <= MAX_STRIPE)?;
        let strong = flags & FLAG_STRONG != 0;
        let frame = cut.block(0).max(block) + super::frame::table_bytes(code.k(), strong) as u64;
        let records = u128::from(cut.stripes()) * columns as u128 * u128::from(frame);
        let file = records + 2 * bytes.len() as u128;
        limit("file size", generation.size, file <= u128::from(MAX_SIZE))?;
        let mut targets = Vec::new();
        for _ in 0..target_count {
            let length = fields.u16()?;
            targets.push(fields.bytes(length.into())?.to_vec());
        }
        let mut attributes = Vec::new();
        for _ in 0..attribute_count {
            let (name, value) = (fields.u16()?, fields.u32()?);
            attributes.push((fields.bytes(name.into())?.to_vec(), fields.bytes(value as usize)?.to_vec()));
        }
        let mut extensions = Vec::new();
        for _ in 0..added.extension_count {
            let (tag, length) = (fields.u16()?, fields.u32()?);
            if tag & CRITICAL != 0 && tag != BODY {
                return Err(HeaderError::Extension(tag));
            }
            extensions.push(Extension { tag, bytes: fields.bytes(length as usize)?.to_vec() });
        }
        limit("filling", fields.0.len() as u64, fields.0.iter().all(|&byte| byte == 0))?;
        let attributes_left_out = flags & FLAG_ATTRIBUTES_LEFT_OUT != 0;
        let metadata = Metadata { mode, uid, gid, attributes, attributes_left_out };
        let header = Header {
            version,
            id,
            revision,
            generation,
            protected_at,
            code,
            strong,
            geometry,
            first,
            columns,
            root,
            metadata,
            targets,
            binding: added.binding,
            extensions,
        };
        header.check_body()?;
        Ok(header)
    }
}

/// Fields that version 2 added.
#[derive(Default)]
struct Added {
    binding: Option<Binding>,
    columns_in_use: Option<u16>,
    extension_count: u16,
}

impl Added {
    fn read(fields: &mut Reader<'_>) -> Result<Added, HeaderError> {
        let (binding, columns_in_use) = (Some(Binding(fields.id()?)), Some(fields.u16()?));
        let (extension_count, reserved) = (fields.u16()?, fields.u32()?);
        match reserved {
            0 => Ok(Added { binding, columns_in_use, extension_count }),
            value => Err(HeaderError::Unsupported { field: "reserved", value: value.into() }),
        }
    }
}

fn check_length(length: u32) -> Result<usize, HeaderError> {
    let fits = (Version::One.fixed_bytes() + END_BYTES..=MAX_HEADER).contains(&(length as usize));
    match fits && (length as usize).is_multiple_of(HEADER_UNIT) {
        true => Ok(length as usize),
        false => Err(HeaderError::Length(length.into())),
    }
}

#[cfg(test)]
mod tests;
