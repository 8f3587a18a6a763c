//! `pool.toml`: the members of a pool. Every target has a copy; the copy with the highest epoch is valid.

use crate::geometry::{BLOCK_UNIT, MAX_BLOCK};
use crate::redundancy::STAGING;
use crate::tree::{Tree, join};
use crate::world::unique_id;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::str::FromStr;

/// Name of the file on every target.
pub const CONFIG: &[u8] = b"pool.toml";

/// Version of new pools; every change of the namespace raises an older pool to it.
pub const VERSION: u32 = 2;

/// Version of pools without change records, whose redundancy lies at the paths of files. Readable; raised before the
/// first change.
const FIRST_VERSION: u32 = 1;

/// Maximum number of targets of a pool.
pub const MAX_TARGETS: usize = 1024;

/// Largest `pool.toml` that is read.
const MAX_BYTES: u64 = 1 << 22;

const HEAD: &str = "# A target of a Gabion pool; do not edit. Read it with: gabion pool status DIRECTORY\n";
const CHECK: &str = "# check ";

/// Content of `pool.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Format version.
    pub format: u32,
    /// Identity of the pool, 32 hexadecimal digits.
    pub pool: String,
    /// Display name.
    pub name: String,
    /// Counts changes of this file.
    pub epoch: u64,
    /// Targets that new files are striped over (k).
    pub stripe: usize,
    /// Block size of new files.
    pub block: u64,
    /// Redundancy columns of new files (m).
    pub redundancy: usize,
    /// The target that this copy is on.
    pub this: String,
    /// All targets.
    pub target: Vec<Member>,
}

/// A target as recorded in `pool.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Name; never reused for another target.
    pub name: TargetName,
    /// Identity, 32 hexadecimal digits.
    pub uuid: String,
    /// Path at the time of writing.
    pub path: String,
    /// Failure domain.
    pub domain: String,
    /// Whether it receives new data.
    pub state: MemberState,
    /// State of its copy of the namespace.
    pub mirror: Mirror,
}

/// Whether a target receives new data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It does.
    Online,
    /// It does not; existing data stays and is read.
    Retired,
    /// It was given up and its content is reconstructed elsewhere. When it is reachable again, its content must be
    /// verified before it counts.
    Away,
}

/// State of a target's copy of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mirror {
    /// No copy.
    None,
    /// The copy has all changes.
    Current,
    /// The copy missed changes and is not used.
    Stale,
}

/// Why bytes are no `pool.toml`, or a configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// Invalid TOML or unknown fields.
    #[error("{0}")]
    Syntax(String),
    /// Written by another version of the program.
    #[error("format version {0} is not supported (supported: {FIRST_VERSION} to {VERSION})")]
    Version(u32),
    /// A number out of range.
    #[error("{field} of {value} is not between {least} and {most}")]
    Range {
        /// Field.
        field: &'static str,
        /// Value.
        value: u64,
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },
    /// A block size that is no multiple of the unit.
    #[error("a block of {0} bytes is not a multiple of {BLOCK_UNIT}")]
    Block(u64),
    /// An invalid name.
    #[error(
        "{0:?} is not a valid name: use letters, digits, dot, dash and underscore, at most 64, not starting with a dot"
    )]
    Name(String),
    /// A duplicate value.
    #[error("{field} {value:?} appears twice")]
    Twice {
        /// Field.
        field: &'static str,
        /// Value.
        value: String,
    },
    /// The target of this copy is missing from the list.
    #[error("target {0} is not in the list of targets")]
    This(String),
}

/// A new identity, in hexadecimal.
pub(crate) fn new_identity() -> io::Result<String> {
    Ok(crate::format::FileId(unique_id()?).to_string())
}

/// Names appear in file names, tables and stubs.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

/// Name of a target: valid, and neither that of a pool nor of a failure domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TargetName(String);

impl TargetName {
    /// Its characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Of bytes as in layouts and headers; none if they are no valid name.
    pub(crate) fn from_bytes(name: &[u8]) -> Option<TargetName> {
        std::str::from_utf8(name).ok()?.parse().ok()
    }

    /// Its bytes, as in layouts and headers.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

impl TryFrom<String> for TargetName {
    type Error = ConfigError;

    fn try_from(name: String) -> Result<TargetName, ConfigError> {
        if is_name(&name) { Ok(TargetName(name)) } else { Err(ConfigError::Name(name)) }
    }
}

impl FromStr for TargetName {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<TargetName, ConfigError> {
        name.to_owned().try_into()
    }
}

impl From<TargetName> for String {
    fn from(name: TargetName) -> String {
        name.0
    }
}

impl Deref for TargetName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TargetName {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq<str> for TargetName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<String> for TargetName {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}

impl PartialEq<&str> for TargetName {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Config {
    /// Checks everything that does not depend on disks.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(FIRST_VERSION..=VERSION).contains(&self.format) {
            return Err(ConfigError::Version(self.format));
        }
        let within = |field, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(ConfigError::Range { field, value, least, most }),
        };
        within("number of targets", self.target.len() as u64, 1, MAX_TARGETS as u64)?;
        within("stripe", self.stripe as u64, 1, self.target.len() as u64)?;
        within("redundancy", self.redundancy as u64, 0, MAX_TARGETS as u64)?;
        within("block", self.block, BLOCK_UNIT, MAX_BLOCK)?;
        if !self.block.is_multiple_of(BLOCK_UNIT) {
            return Err(ConfigError::Block(self.block));
        }
        let identities = self.target.iter().map(|member| &member.uuid).chain([&self.pool]);
        for identity in identities {
            if identity.len() != 32 || !identity.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(ConfigError::Name(identity.clone()));
            }
        }
        let names = self.target.iter().map(|member| &member.domain);
        for name in names.chain([&self.name]) {
            if !is_name(name) {
                return Err(ConfigError::Name(name.clone()));
            }
        }
        unique("target", self.target.iter().map(|member| member.name.as_str()))?;
        unique("identity", self.target.iter().map(|member| member.uuid.as_str()))
    }

    /// The member with this identity.
    pub fn member(&self, uuid: &str) -> Option<&Member> {
        self.target.iter().find(|member| member.uuid == uuid)
    }

    /// Number of targets that receive new data.
    pub fn in_service(&self) -> usize {
        self.target.iter().filter(|member| member.state == MemberState::Online).count()
    }

    /// Number of targets that should hold the namespace.
    pub fn required_mirrors(&self) -> usize {
        self.in_service().min(3.max(self.redundancy + 1))
    }

    /// Number of targets that must be reachable before anything is changed: with more than `redundancy` targets
    /// missing, all targets with the latest change may be among them.
    pub fn quorum(&self) -> usize {
        self.in_service().saturating_sub(self.redundancy).max(1)
    }

    /// Encodes the file.
    ///
    /// # Errors
    /// A value that TOML cannot represent.
    pub fn encode(&self) -> Result<String, ConfigError> {
        let body = toml::to_string(self).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let text = format!("{HEAD}{body}");
        let check = blake3::hash(text.as_bytes()).to_hex();
        Ok(format!("{text}{CHECK}{check}\n"))
    }

    /// Decodes the file.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn decode(text: &str) -> Result<Config, ConfigError> {
        let at = text.rfind(CHECK).ok_or(ConfigError::Checksum)?;
        let (body, check) = (&text[..at], text[at + CHECK.len()..].trim_end());
        if blake3::hash(body.as_bytes()).to_hex().as_str() != check {
            return Err(ConfigError::Checksum);
        }
        let config: Config =
            toml::from_str(body).map_err(|error| ConfigError::Syntax(error.message().to_owned()))?;
        config.validate()?;
        match config.member(&config.this) {
            Some(_) => Ok(config),
            None => Err(ConfigError::This(config.this)),
        }
    }

    /// Reads the copy of a target.
    ///
    /// # Errors
    /// I/O errors; [`io::ErrorKind::InvalidData`] for an invalid `pool.toml`.
    pub(crate) fn read(tree: &Tree) -> io::Result<Config> {
        let mut text = String::new();
        tree.read(CONFIG)?.take(MAX_BYTES).read_to_string(&mut text)?;
        Config::decode(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Replaces the copy of the target `uuid` atomically.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn write(&self, tree: &Tree, uuid: &str) -> io::Result<()> {
        let copy = Config { this: uuid.to_owned(), ..self.clone() };
        let text = copy.encode().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let temporary = join(STAGING, format!("{}.config", new_identity()?).as_bytes());
        let mut file = tree.create(&temporary, 0o600)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let replaced = written.and_then(|()| tree.rename(&temporary, CONFIG));
        if replaced.is_err() {
            // The first error is more useful than one of the cleanup.
            let _ = tree.remove(&temporary);
        }
        replaced.and_then(|()| tree.sync_directory(b""))
    }
}

fn unique<'a>(field: &'static str, values: impl Iterator<Item = &'a str>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for value in values {
        if !seen.insert(value) {
            return Err(ConfigError::Twice { field, value: value.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ConfigError, TargetName};
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Named {
        name: TargetName,
    }

    #[test]
    fn names_of_targets_are_checked_when_they_are_read() {
        let read = |name: &str| toml::from_str::<Named>(&format!("name = {name:?}"));
        assert_eq!(read("disk-1").unwrap().name, "disk-1");
        for bad in ["", ".hidden", "a/b", "a b"] {
            let refused = ConfigError::Name(bad.to_owned());
            assert_eq!(read(bad).unwrap_err().message(), refused.to_string());
            assert_eq!(bad.parse::<TargetName>(), Err(refused));
        }
    }
}
