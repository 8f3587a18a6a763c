//! Stubs: the entries of the namespace that stand for files, and the mapping of file ranges to objects.

use super::config::TargetName;
use crate::format::header::hex_digits;
use crate::format::{FileId, Metadata};
use crate::geometry::{BLOCK_UNIT, MAX_BLOCK, MAX_SIZE};
use crate::tree::{Kind, Stat};
use crate::world::Timestamp;
use std::fmt::Write;
use std::ops::Range;
use std::str::Lines;

/// Version of the stub of a file at rest.
pub const VERSION: u32 = 1;

/// Version of the stub of a file that is being written in place.
pub const VERSION_WRITING: u32 = 2;

/// Added to the version if a stub has optional fields: time of access, several names, pipes and devices.
const MORE: u32 = 2;

/// Maximum size of a stub: it includes the extended attributes of a file, in hexadecimal.
pub const MAX_BYTES: u64 = 1 << 20;

const HEAD: &str = "gabion pool stub";
const EXPLANATION: &str = "the content is striped over the pool's targets; read it with: gabion pool get";

/// A file of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stub {
    /// Identity; names the objects. New content gets a new identity.
    pub id: FileId,
    /// Counts changes at this path; the highest revision is valid.
    pub revision: u64,
    /// Size of the content.
    pub size: u64,
    /// Block size.
    pub block: u64,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change of content or metadata; increases with every revision.
    pub changed: Timestamp,
    /// Owner, permissions, attributes.
    pub metadata: Metadata,
    /// Target names, by column.
    pub targets: Vec<TargetName>,
    /// Destination of a symbolic link, which has no targets and no content.
    pub link: Option<Vec<u8>>,
    /// Kind of a pipe, socket or device, which has no targets and no content.
    pub special: Option<Special>,
    /// Time of the last access, if a program has set it.
    pub accessed: Option<Timestamp>,
    /// Number of names, if the stub lies apart from them; 0 if the stub is at its only name.
    pub names: u32,
    /// Objects are being written in place: bytes may change and be appended without an update of the stub.
    pub writing: bool,
}

/// A file that is neither regular, a link nor a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A named pipe.
    Pipe,
    /// A named socket.
    Socket,
    /// A character device, by its numbers.
    Character(u32, u32),
    /// A block device, by its numbers.
    Block(u32, u32),
}

impl Special {
    fn encode(self) -> String {
        match self {
            Special::Pipe => "pipe".to_owned(),
            Special::Socket => "socket".to_owned(),
            Special::Character(major, minor) => format!("character {major} {minor}"),
            Special::Block(major, minor) => format!("block {major} {minor}"),
        }
    }

    fn decode(text: &str) -> Option<Special> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |text: &str| text.parse().ok();
        match words[..] {
            ["pipe"] => Some(Special::Pipe),
            ["socket"] => Some(Special::Socket),
            ["character", major, minor] => Some(Special::Character(number(major)?, number(minor)?)),
            ["block", major, minor] => Some(Special::Block(number(major)?, number(minor)?)),
            _ => None,
        }
    }
}

/// Why bytes are no stub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StubError {
    /// The first line is not that of a stub.
    #[error("it is not a stub")]
    Head,
    /// Written by another version of the program.
    #[error("stub version {0} is not supported (supported: 1 to 4, and 5 for hard links)")]
    Version(u32),
    /// The checksum does not match.
    #[error("the stub's checksum does not match")]
    Checksum,
    /// A field is missing or invalid.
    #[error("the stub's field {0} is missing or invalid")]
    Field(&'static str),
}

/// A piece of a file in one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Column.
    pub column: usize,
    /// Offset in its object.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

impl Stub {
    /// True if it has content: it is neither a link nor special.
    pub fn is_file(&self) -> bool {
        self.link.is_none() && self.special.is_none()
    }

    /// Number of columns that the content is striped over.
    pub fn stripe(&self) -> u64 {
        self.targets.len() as u64
    }

    /// Length of the object of `column` for a file of `size` bytes.
    pub fn object_bytes(&self, column: usize, size: u64) -> u64 {
        let row = self.stripe().saturating_mul(self.block).max(1);
        let before = column as u64 * self.block;
        size / row * self.block + (size % row).saturating_sub(before).min(self.block)
    }

    /// First byte of the file that `column` lacks if its object has `bytes` bytes.
    pub(crate) fn first_byte_after(&self, column: usize, bytes: u64) -> u64 {
        let (block, stripe) = (self.block.max(1), self.stripe());
        let row = (bytes / block).saturating_mul(stripe).saturating_add(column as u64);
        row.saturating_mul(block).saturating_add(bytes % block)
    }

    /// Maps a range of the file to pieces of objects.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + use<> {
        let (stripe, block, mut at) = (self.stripe().max(1), self.block.max(1), range.start);
        std::iter::from_fn(move || {
            let left = range.end.checked_sub(at).filter(|&left| left > 0)?;
            let bytes = left.min(block - at % block);
            let number = at / block;
            let offset = number / stripe * block + at % block;
            at += bytes;
            Some(Piece { column: (number % stripe) as usize, offset, bytes })
        })
    }

    /// Status of the file. `device` is the device number of the pool.
    pub fn stat(&self, device: u64) -> Stat {
        Stat {
            kind: match (&self.link, self.special) {
                (Some(_), _) => Kind::Link,
                (None, Some(_)) => Kind::Special,
                (None, None) => Kind::File,
            },
            size: self.size,
            mtime: self.mtime,
            ctime: self.changed,
            inode: self.id.inode(),
            device,
            links: self.names.max(1),
            mode: self.metadata.mode,
            uid: self.metadata.uid,
            gid: self.metadata.gid,
            allocated: self.size,
            birth: None,
        }
    }

    /// Encodes the stub.
    pub fn encode(&self) -> String {
        let version = if self.writing { VERSION_WRITING } else { VERSION };
        let says_more = self.accessed.is_some() || self.names > 0 || self.special.is_some();
        let version = if says_more { version + MORE } else { version };
        let mut text = format!("{HEAD} {version}: {EXPLANATION}\n");
        let Metadata { mode, uid, gid, attributes, attributes_left_out } = &self.metadata;
        let Stub { id, revision, size, block, .. } = self;
        let (mtime, changed) = (self.mtime.nanoseconds(), self.changed.nanoseconds());
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "id = {id}\nrevision = {revision}\nsize = {size}\nstripe = {}\nblock = {block}\nmtime = {mtime}\n\
             changed = {changed}\nmode = {mode:o}\nuid = {uid}\ngid = {gid}\nattributes = {}\nleft-out = {}\n",
            self.targets.len(),
            attributes.len(),
            u8::from(*attributes_left_out),
        );
        for (name, value) in attributes {
            let _ = writeln!(text, "attribute = {} {}", hex(name), hex(value));
        }
        if says_more {
            let accessed = self.accessed.map_or("never".to_owned(), |time| time.nanoseconds().to_string());
            let special = self.special.map_or("no".to_owned(), Special::encode);
            let _ = writeln!(text, "accessed = {accessed}\nnames = {}\nspecial = {special}", self.names);
        }
        for target in &self.targets {
            let _ = writeln!(text, "target = {target}");
        }
        if let Some(link) = &self.link {
            let _ = writeln!(text, "link = {}", hex(link));
        }
        seal(text)
    }

    /// Decodes a stub.
    ///
    /// # Errors
    /// See [`StubError`].
    pub fn decode(bytes: &[u8]) -> Result<Stub, StubError> {
        let (version, body) = open(bytes)?;
        let (writing, more) = match version {
            VERSION | VERSION_WRITING => (version == VERSION_WRITING, false),
            3 | 4 => (version == VERSION_WRITING + MORE, true),
            other => return Err(StubError::Version(other)),
        };
        let mut fields = Fields(body.lines());
        fields.0.next();
        let stub = Stub { writing, ..fields.stub(more)? };
        match fields.0.next() {
            None => Ok(stub),
            Some(_) => Err(StubError::Field("check")),
        }
    }
}

/// Version and fields of a text whose checksum matches.
fn open(bytes: &[u8]) -> Result<(u32, &str), StubError> {
    let rest = bytes.strip_prefix(HEAD.as_bytes()).ok_or(StubError::Head)?;
    let text = std::str::from_utf8(bytes).map_err(|_| StubError::Checksum)?;
    let at = text.rfind("check = ").ok_or(StubError::Checksum)?;
    let (body, check) = text.split_at(at);
    if check != format!("check = {}\n", blake3::hash(body.as_bytes()).to_hex()) {
        return Err(StubError::Checksum);
    }
    let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let version = std::str::from_utf8(&rest[1..1 + digits]).ok().and_then(|text| text.parse().ok());
    Ok((version.ok_or(StubError::Head)?, body))
}

/// Appends the checksum line.
fn seal(mut text: String) -> String {
    let check = blake3::hash(text.as_bytes()).to_hex();
    let _ = writeln!(text, "check = {check}");
    text
}

/// Reads fields in order.
struct Fields<'a>(Lines<'a>);

impl<'a> Fields<'a> {
    fn text(&mut self, name: &'static str) -> Result<&'a str, StubError> {
        let line = self.0.next().and_then(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.strip_prefix(" = ")).ok_or(StubError::Field(name))
    }

    fn number<T: std::str::FromStr>(&mut self, name: &'static str) -> Result<T, StubError> {
        self.text(name)?.parse().map_err(|_| StubError::Field(name))
    }

    fn stub(&mut self, more: bool) -> Result<Stub, StubError> {
        let id = self.text("id")?;
        let id = unhex(id).and_then(|id| id.try_into().ok()).ok_or(StubError::Field("id"))?;
        let (revision, size, stripe) =
            (self.number("revision")?, self.number("size")?, self.number("stripe")?);
        let block = self.number("block")?;
        let mut time = |name| self.number(name).map(Timestamp::from_nanoseconds);
        let (mtime, changed) = (time("mtime")?, time("changed")?);
        let mode = u32::from_str_radix(self.text("mode")?, 8).map_err(|_| StubError::Field("mode"))?;
        let (uid, gid) = (self.number("uid")?, self.number("gid")?);
        let attribute_count: usize = self.number("attributes")?;
        let attributes_left_out = self.number::<u8>("left-out")? != 0;
        let mut attributes = Vec::new();
        for _ in 0..attribute_count {
            let (name, value) =
                self.text("attribute")?.split_once(' ').ok_or(StubError::Field("attribute"))?;
            attributes.push(unhex(name).zip(unhex(value)).ok_or(StubError::Field("attribute"))?);
        }
        let (mut accessed, mut names, mut special) = (None, 0, None);
        if more {
            accessed = match self.text("accessed")? {
                "never" => None,
                time => {
                    Some(Timestamp::from_nanoseconds(time.parse().map_err(|_| StubError::Field("accessed"))?))
                }
            };
            names = self.number("names")?;
            special = match self.text("special")? {
                "no" => None,
                text => Some(Special::decode(text).ok_or(StubError::Field("special"))?),
            };
        }
        let mut targets = Vec::new();
        for _ in 0..stripe {
            targets.push(self.text("target")?.parse().map_err(|_| StubError::Field("target"))?);
        }
        let link = match stripe {
            0usize if special.is_none() => Some(unhex(self.text("link")?).ok_or(StubError::Field("link"))?),
            _ => None,
        };
        let fits = |field, fits: bool| if fits { Ok(()) } else { Err(StubError::Field(field)) };
        fits("size", size <= MAX_SIZE)?;
        fits("mode", mode <= 0o7777)?;
        let whole = (BLOCK_UNIT..=MAX_BLOCK).contains(&block) && block % BLOCK_UNIT == 0;
        fits("special", special.is_none() || (stripe == 0 && size == 0))?;
        fits("block", if stripe == 0 { block == 0 } else { whole })?;
        let metadata = Metadata { mode, uid, gid, attributes, attributes_left_out };
        let (id, writing) = (FileId(id), false);
        Ok(Stub {
            id,
            revision,
            size,
            block,
            mtime,
            changed,
            metadata,
            targets,
            link,
            special,
            accessed,
            names,
            writing,
        })
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 1);
    // The prefix makes an empty value visible, so that every field has a text.
    text.push('x');
    text.extend(bytes.iter().flat_map(|byte| hex_digits(*byte)));
    text
}

/// With or without the prefix.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('x').unwrap_or(text).as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

mod name;
pub(crate) use name::LinkStub;

#[cfg(test)]
mod tests;
