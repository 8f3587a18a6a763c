//! `pool.toml`: who belongs to a pool. Every target has it; the highest epoch is the truth.

use crate::geometry::{BLOCK_UNIT, MAX_BLOCK};
use crate::redundancy::STAGING;
use crate::tree::{Tree, join};
use crate::world::unique_id;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};

/// The name of the file on every target.
pub const CONFIG: &[u8] = b"pool.toml";

/// The version of pools that are made, and that every change of the namespace raises a pool to.
pub const VERSION: u32 = 2;

/// Version of pools without records of changes, whose redundancy lies at the paths of files. It is read, and raised before the first change.
const FIRST_VERSION: u32 = 1;

/// Most targets of a pool.
pub const MAX_TARGETS: usize = 1024;

/// Largest `pool.toml` that is read.
const MAX_BYTES: u64 = 1 << 22;

const HEAD: &str = "# A target of a Gabion pool; do not edit. Read it with: gabion pool status DIRECTORY\n";
const CHECK: &str = "# check ";

/// What `pool.toml` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The format's version.
    pub format: u32,
    /// Identity of the pool, 32 hexadecimal digits.
    pub pool: String,
    /// Its name, for people.
    pub name: String,
    /// Counts changes of this file.
    pub epoch: u64,
    /// Targets that new files are striped over.
    pub stripe: usize,
    /// Bytes of a block of new files.
    pub block: u64,
    /// Redundancy columns that are wanted.
    pub redundancy: usize,
    /// The target that this copy is on.
    pub this: String,
    /// All targets.
    pub target: Vec<Member>,
}

/// A target as `pool.toml` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name; never given to another target.
    pub name: String,
    /// Its identity, 32 hexadecimal digits.
    pub uuid: String,
    /// Where it was when this was written.
    pub path: String,
    /// What it fails together with.
    pub domain: String,
    /// Whether new things go there.
    pub state: Standing,
    /// What it knows of the namespace.
    pub mirror: Mirror,
}

/// Whether new things go to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// They do.
    Online,
    /// They do not; what is there stays.
    Retired,
    /// It was given up, and what it had is made anew elsewhere. When it answers again, nothing on it counts before it has
    /// been verified.
    Away,
}

/// What a target knows of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mirror {
    /// It has no copy.
    None,
    /// Its copy has all changes.
    Current,
    /// It missed changes, so nothing in its copy is believed.
    Stale,
}

/// Why bytes are no `pool.toml`, or a pool cannot be as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The last line does not fit the others.
    #[error("its checksum does not fit")]
    Checksum,
    /// It is no TOML of ours.
    #[error("{0}")]
    Syntax(String),
    /// Written by another version of the program.
    #[error("format version {0} is not known here (versions {FIRST_VERSION} to {VERSION} are)")]
    Version(u32),
    /// A number that is out of range.
    #[error("{field} of {value} is not between {least} and {most}")]
    Range {
        /// Which.
        field: &'static str,
        /// What it is.
        value: u64,
        /// The least that can be.
        least: u64,
        /// The most that can be.
        most: u64,
    },
    /// A block that is no multiple of the unit.
    #[error("a block of {0} bytes is no multiple of {BLOCK_UNIT}")]
    Block(u64),
    /// A name that cannot be one.
    #[error("{0:?} is no name: letters, digits, dot, dash and underscore, at most 64, no dot in front")]
    Name(String),
    /// Something that must be unique is there twice.
    #[error("{field} {value:?} is there twice")]
    Twice {
        /// What.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// The target that a copy claims to be is not in its list.
    #[error("target {0} is not in the list of targets")]
    This(String),
}

/// A new identity, in hexadecimal.
pub(crate) fn new_identity() -> io::Result<String> {
    Ok(crate::format::FileId(unique_id()?).to_string())
}

/// Names go into file names, tables and stubs.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

impl Config {
    /// Checks all that does not depend on disks.
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
        let names = self.target.iter().flat_map(|member| [&member.name, &member.domain]);
        for name in names.chain([&self.name]) {
            if !is_name(name) {
                return Err(ConfigError::Name(name.clone()));
            }
        }
        unique("target", self.target.iter().map(|member| &member.name))?;
        unique("identity", self.target.iter().map(|member| &member.uuid))
    }

    /// The member of an identity.
    pub fn member(&self, uuid: &str) -> Option<&Member> {
        self.target.iter().find(|member| member.uuid == uuid)
    }

    /// Targets that new things may go to.
    pub fn in_service(&self) -> usize {
        self.target.iter().filter(|member| member.state == Standing::Online).count()
    }

    /// How many targets shall have the namespace.
    pub fn wanted_mirrors(&self) -> usize {
        self.in_service().min(3.max(self.redundancy + 1))
    }

    /// How many targets must answer before anything is changed: more than `redundancy` missing, and those that are
    /// left may be just the ones that missed a change.
    pub fn quorum(&self) -> usize {
        self.in_service().saturating_sub(self.redundancy).max(1)
    }

    /// The text of the file.
    ///
    /// # Errors
    /// What TOML cannot say.
    pub fn encode(&self) -> Result<String, ConfigError> {
        let body = toml::to_string(self).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let text = format!("{HEAD}{body}");
        let check = blake3::hash(text.as_bytes()).to_hex();
        Ok(format!("{text}{CHECK}{check}\n"))
    }

    /// Reads the text of the file.
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

    /// Reads what a target has.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::InvalidData`] for what is no `pool.toml`.
    pub(crate) fn read(tree: &Tree) -> io::Result<Config> {
        let mut text = String::new();
        tree.read(CONFIG)?.take(MAX_BYTES).read_to_string(&mut text)?;
        Config::decode(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Replaces what the target `uuid` has; after a crash it has the one or the other.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn write(&self, tree: &Tree, uuid: &str) -> io::Result<()> {
        let copy = Config { this: uuid.to_owned(), ..self.clone() };
        let text = copy.encode().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let temporary = join(STAGING, format!("{}.config", new_identity()?).as_bytes());
        let mut file = tree.create(&temporary, 0o600)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let replaced = written.and_then(|()| tree.rename(&temporary, CONFIG));
        if replaced.is_err() {
            // The reason of the failure is worth more than a second one.
            let _ = tree.remove(&temporary);
        }
        replaced.and_then(|()| tree.sync_directory(b""))
    }
}

fn unique<'a>(field: &'static str, values: impl Iterator<Item = &'a String>) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for value in values {
        if !seen.insert(value) {
            return Err(ConfigError::Twice { field, value: value.clone() });
        }
    }
    Ok(())
}
