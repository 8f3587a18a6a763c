//! The header of a shard and the identity of a set. Every byte that is read is hostile.

use crate::frame::signature_bytes;
use crate::geometry::{Geometry, GeometryError};
use gabion_engine::{Code, Signature};
use gabion_platform::display_path::DisplayPath;
use std::collections::BTreeMap;
use std::fmt;

/// First bytes of a shard. The byte over 127 and the line end show conversions of text.
pub const MAGIC: [u8; 8] = *b"\x89GABSH\r\n";

/// The version that is written and the only one that is read.
pub const VERSION: u32 = 1;

/// Largest header.
pub const MAX_HEADER: usize = 1 << 16;

/// A header is a multiple of this long.
pub const HEADER_UNIT: usize = 64;

/// Bytes of the checksum that ends a header.
pub const CHECKSUM_BYTES: usize = 32;

/// Most shards of a set: all are open at once, and the matrix of a code that a stranger chose is made
/// before anything else is known of him.
pub const MAX_SHARDS: usize = 1024;

/// Longest name of a file that file systems know.
pub const MAX_NAME: usize = 255;

/// The only flag: the source had holes.
const FLAG_SPARSE: u32 = 1;

/// One fixed field of the header; `docs/reference/shards.md` has the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub offset: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// Name in the document.
    pub name: &'static str,
}

const fn place(offset: usize, bytes: usize, name: &'static str) -> Place {
    Place { offset, bytes, name }
}

const MAGIC_AT: Place = place(0, 8, "magic");
const VERSION_AT: Place = place(8, 4, "version");
const LENGTH_AT: Place = place(12, 4, "header length");
const SET_AT: Place = place(16, 16, "set id");
const SIZE_AT: Place = place(32, 8, "file size");
const BLOCK_AT: Place = place(40, 8, "block size");
const STRIPES_AT: Place = place(48, 8, "stripe count");
const INDEX_AT: Place = place(56, 4, "shard index");
const FLAGS_AT: Place = place(60, 4, "flags");
const CODE_LENGTH_AT: Place = place(64, 2, "code identity length");
const NAME_LENGTH_AT: Place = place(66, 2, "name length");

/// The fixed fields in their order; code identity and name follow.
pub const PLACES: [Place; 11] = [
    MAGIC_AT,
    VERSION_AT,
    LENGTH_AT,
    SET_AT,
    SIZE_AT,
    BLOCK_AT,
    STRIPES_AT,
    INDEX_AT,
    FLAGS_AT,
    CODE_LENGTH_AT,
    NAME_LENGTH_AT,
];

/// Where the fixed fields end and the code identity begins.
pub const FIXED_BYTES: usize = NAME_LENGTH_AT.offset + NAME_LENGTH_AT.bytes;

/// Identity of a set of shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub [u8; 16]);

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetId({self})")
    }
}

/// A name that no shard may carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, `.`, `..`, or with a slash or NUL in it.
    #[error("{0:?} is no name of a file")]
    NoFileName(String),
    /// Longer than file systems allow.
    #[error("a name of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        limit: usize,
    },
}

/// Checks a name: it must stay within a directory.
///
/// # Errors
/// See [`NameError`].
pub fn check_name(name: &[u8]) -> Result<(), NameError> {
    if name.len() > MAX_NAME {
        return Err(NameError::TooLong { bytes: name.len(), limit: MAX_NAME });
    }
    let escapes =
        name.is_empty() || name == b"." || name == b".." || name.iter().any(|b| matches!(b, 0 | b'/'));
    if escapes { Err(NameError::NoFileName(DisplayPath::bytes(name).to_string())) } else { Ok(()) }
}

/// Why bytes are no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It does not begin like a shard.
    #[error("it does not begin like a shard")]
    Magic,
    /// It ends within the header.
    #[error("the file ends within the header")]
    Short,
    /// A length that no header has.
    #[error("header length {0} is out of range")]
    Length(u32),
    /// The checksum does not fit.
    #[error("the header checksum does not fit")]
    Checksum,
    /// Written by a later version.
    #[error("format version {0}, this program reads version {VERSION}")]
    Version(u32),
    /// Flags that this version does not know.
    #[error("reserved flags {0:#x} are set")]
    Flags(u32),
    /// Bytes that must be zero are not, or lengths contradict each other.
    #[error("the header contradicts itself: {0}")]
    Inconsistent(&'static str),
    /// A name that would leave the directory.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A code that does not exist.
    #[error("code: {0}")]
    Code(#[from] gabion_engine::Error),
    /// More shards than a set can have.
    #[error("a set of {0} shards is over the limit of {MAX_SHARDS}")]
    TooManyShards(usize),
    /// Sizes that cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// Fields that are equal in all shards of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The code.
    pub code: Code,
    /// Name of the file, without directory.
    pub name: Vec<u8>,
    /// Its size.
    pub size: u64,
    /// Bytes of a block in all stripes but the last.
    pub block: u64,
    /// Whether it had holes.
    pub sparse: bool,
}

impl Content {
    /// Sizes and offsets.
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(&self.code, self.size, self.block)
    }

    /// Bytes of the header of each shard.
    pub fn header_len(&self) -> usize {
        header_len(self.code.to_string().len(), self.name.len())
    }
}

fn header_len(code: usize, name: usize) -> usize {
    (FIXED_BYTES + code + name + CHECKSUM_BYTES).next_multiple_of(HEADER_UNIT)
}

/// Name of the file that holds a shard.
pub fn shard_file_name(name: &[u8], index: u32) -> Vec<u8> {
    [name, format!(".{index:03}.gabion").as_bytes()].concat()
}

/// Name and index, if a file is named as shards are.
pub fn parse_shard_file_name(file_name: &[u8]) -> Option<(&[u8], u32)> {
    let stem = file_name.strip_suffix(b".gabion")?;
    let dot = stem.iter().rposition(|&byte| byte == b'.')?;
    let digits = std::str::from_utf8(&stem[dot + 1..]).ok()?;
    let index: u32 = digits.parse().ok()?;
    (dot > 0 && format!("{index:03}") == digits).then_some((&stem[..dot], index))
}

/// The header of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The set it belongs to.
    pub set: SetId,
    /// Fields that it shares with the others.
    pub content: Content,
    /// Its column.
    pub index: u32,
}

/// Codes that were met before: a matrix takes long to make, and a set names one code many times.
#[derive(Debug, Default)]
pub struct Codes(BTreeMap<String, Code>);

impl Codes {
    fn parse(&mut self, identity: &str) -> Result<Code, HeaderError> {
        if let Some(code) = self.0.get(identity) {
            return Ok(code.clone());
        }
        // Before the matrix is made, which takes time and memory for large shapes.
        let shape = identity.split(':').find_map(|part| part.split_once('+'));
        let parse = |digits: &str| digits.parse::<usize>().unwrap_or(usize::MAX);
        let shards = shape.map_or(0, |(k, m)| parse(k).saturating_add(parse(m)));
        if shards > MAX_SHARDS {
            return Err(HeaderError::TooManyShards(shards));
        }
        let code: Code = identity.parse()?;
        if code.to_string() != identity {
            return Err(HeaderError::Inconsistent("the code is not written in full"));
        }
        self.0.insert(identity.to_owned(), code.clone());
        Ok(code)
    }
}

impl Header {
    /// The bytes of the header.
    ///
    /// # Errors
    /// Content that the format does not allow.
    pub fn encode(&self) -> Result<Vec<u8>, HeaderError> {
        let Content { code, name, size, block, sparse } = &self.content;
        check_name(name)?;
        let stripes = self.content.geometry()?.stripes();
        let code = code.to_string();
        let length = header_len(code.len(), name.len());
        let mut bytes = vec![0; length];
        let mut put = |at: Place, value: &[u8]| bytes[at.offset..][..at.bytes].copy_from_slice(value);
        put(MAGIC_AT, &MAGIC);
        put(VERSION_AT, &VERSION.to_le_bytes());
        put(LENGTH_AT, &(length as u32).to_le_bytes());
        put(SET_AT, &self.set.0);
        put(SIZE_AT, &size.to_le_bytes());
        put(BLOCK_AT, &block.to_le_bytes());
        put(STRIPES_AT, &stripes.to_le_bytes());
        put(INDEX_AT, &self.index.to_le_bytes());
        put(FLAGS_AT, &(u32::from(*sparse) * FLAG_SPARSE).to_le_bytes());
        put(CODE_LENGTH_AT, &(code.len() as u16).to_le_bytes());
        put(NAME_LENGTH_AT, &(name.len() as u16).to_le_bytes());
        put(place(FIXED_BYTES, code.len(), "code identity"), code.as_bytes());
        put(place(FIXED_BYTES + code.len(), name.len(), "name"), name);
        let end = length - CHECKSUM_BYTES;
        let checksum = blake3::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(checksum.as_bytes());
        Ok(bytes)
    }

    /// How long the header that begins with these 16 bytes is.
    ///
    /// # Errors
    /// No shard, or a length out of range.
    pub fn length(start: &[u8; 16]) -> Result<usize, HeaderError> {
        if start[..8] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let length = u32::from_le_bytes(bytes_at(start, LENGTH_AT));
        let possible = (header_len(0, 0)..=MAX_HEADER).contains(&(length as usize));
        let possible = possible && (length as usize).is_multiple_of(HEADER_UNIT);
        if possible { Ok(length as usize) } else { Err(HeaderError::Length(length)) }
    }

    /// Reads a header; `bytes` may go on after it.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn decode(bytes: &[u8], codes: &mut Codes) -> Result<Header, HeaderError> {
        let start = bytes.first_chunk::<16>().ok_or(HeaderError::Short)?;
        let length = Header::length(start)?;
        let bytes = bytes.get(..length).ok_or(HeaderError::Short)?;
        let (body, checksum) = bytes.split_at(length - CHECKSUM_BYTES);
        // The checksum comes before the version, since it stays where it is in all versions: a flipped
        // bit in the version is damage, not a message from the future.
        if blake3::hash(body).as_bytes()[..] != *checksum {
            return Err(HeaderError::Checksum);
        }
        let version = u32::from_le_bytes(bytes_at(body, VERSION_AT));
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let flags = u32::from_le_bytes(bytes_at(body, FLAGS_AT));
        if flags & !FLAG_SPARSE != 0 {
            return Err(HeaderError::Flags(flags & !FLAG_SPARSE));
        }
        let code_len = usize::from(u16::from_le_bytes(bytes_at(body, CODE_LENGTH_AT)));
        let name_len = usize::from(u16::from_le_bytes(bytes_at(body, NAME_LENGTH_AT)));
        if header_len(code_len, name_len) != length {
            return Err(HeaderError::Inconsistent("its lengths do not add up"));
        }
        let (code, rest) = body[FIXED_BYTES..].split_at(code_len);
        let (name, padding) = rest.split_at(name_len);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(HeaderError::Inconsistent("its padding is not zero"));
        }
        check_name(name)?;
        let code = std::str::from_utf8(code).map_err(|_| HeaderError::Inconsistent("the code is no text"))?;
        let code = codes.parse(code)?;
        let index = u32::from_le_bytes(bytes_at(body, INDEX_AT));
        if index as usize >= code.blocks() {
            return Err(HeaderError::Inconsistent("the code has no such shard"));
        }
        let content = Content {
            code,
            name: name.to_vec(),
            size: u64::from_le_bytes(bytes_at(body, SIZE_AT)),
            block: u64::from_le_bytes(bytes_at(body, BLOCK_AT)),
            sparse: flags & FLAG_SPARSE != 0,
        };
        if content.geometry()?.stripes() != u64::from_le_bytes(bytes_at(body, STRIPES_AT)) {
            return Err(HeaderError::Inconsistent("the stripe count does not follow from the sizes"));
        }
        Ok(Header { set: SetId(bytes_at(body, SET_AT)), content, index })
    }
}

/// The bytes of a fixed field; `bytes` is at least as long as the shortest header.
fn bytes_at<const N: usize>(bytes: &[u8], at: Place) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at.offset..at.offset + N]);
    value
}

/// Computes the identity of a set from its content.
#[derive(Debug, Default)]
pub struct SetHasher(blake3::Hasher);

impl SetHasher {
    /// Takes the signatures of the data blocks, in the order of the file.
    pub fn add(&mut self, signature: &Signature) {
        self.0.update(&signature_bytes(signature));
    }

    /// The identity, from the signatures and the shared fields.
    pub fn finish(&self, content: &Content) -> SetId {
        let code = content.code.to_string();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&VERSION.to_le_bytes());
        hasher.update(&(code.len() as u16).to_le_bytes()).update(code.as_bytes());
        hasher.update(&(content.name.len() as u16).to_le_bytes()).update(&content.name);
        hasher.update(&content.size.to_le_bytes()).update(&content.block.to_le_bytes());
        // A hash of its own, since a stream's size is known only after its last block.
        hasher.update(self.0.finalize().as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        SetId(id)
    }
}

#[cfg(test)]
mod tests;
