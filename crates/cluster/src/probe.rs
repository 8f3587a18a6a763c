//! Probe: a child process that looks at one path, because looking may never return.
//!
//! The caller names a program that runs [`Looked::at`] and prints the result as JSON; [`ask`] starts it with a
//! deadline. The file is opened with `O_PATH`, so nothing is read: an offline file of a hierarchical file system is not
//! recalled.

use crate::tool::{self, Limits, ToolError};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, getxattr, open, readlink, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest attribute that is read.
const MAX_ATTRIBUTE: usize = 64 << 10;

/// A program that prints the answer for a path and names of attributes, given as its last arguments.
#[derive(Debug, Clone)]
pub struct Prober {
    /// Program.
    pub program: PathBuf,
    /// Arguments before the path.
    pub arguments: Vec<OsString>,
}

/// What a probe prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Looked {
    /// The path answered.
    Found(Answer),
    /// The path cannot be opened.
    Refused {
        /// Number of the error.
        errno: i32,
        /// Its text.
        text: String,
    },
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Absolute path without symbolic links, in hexadecimal.
    path: String,
    /// Number of the mount; none if the kernel does not tell.
    pub mount: Option<u64>,
    /// Kind of file.
    pub kind: FileKind,
    /// Size.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Inode number.
    pub inode: u64,
    /// Extended attributes that were asked for.
    attributes: Vec<Attribute>,
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Anything else.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Attribute {
    name: String,
    /// Value in hexadecimal.
    value: Option<String>,
    error: Option<String>,
}

/// Why a probe gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The path cannot be opened.
    #[error("{text}")]
    Refused {
        /// Number of the error.
        errno: i32,
        /// Its text.
        text: String,
    },
    /// It printed something else.
    #[error("the probe printed something that is no answer")]
    Answer,
}

/// Asks about a path.
///
/// # Errors
/// See [`ProbeError`].
pub fn ask(prober: &Prober, path: &Path, attributes: &[&str], limits: Limits) -> Result<Answer, ProbeError> {
    let mut command = Command::new(&prober.program);
    command.args(&prober.arguments).arg("--").arg(path).args(attributes);
    match Looked::decode(&tool::run(&mut command, limits)?) {
        Some(Looked::Found(answer)) => Ok(answer),
        Some(Looked::Refused { errno, text }) => Err(ProbeError::Refused { errno, text }),
        None => Err(ProbeError::Answer),
    }
}

impl ProbeError {
    /// True if the path itself is wrong, or may not be looked at: the file system is in order.
    pub fn is_of_path(&self) -> bool {
        let errors =
            [Errno::NOENT, Errno::NOTDIR, Errno::ACCESS, Errno::LOOP, Errno::NAMETOOLONG, Errno::INVAL];
        matches!(self, ProbeError::Refused { errno, .. } if errors.iter().any(|known| known.raw_os_error() == *errno))
    }
}

impl Looked {
    /// Looks at a path: to be called by the probe process only.
    pub fn at(path: &Path, attributes: &[OsString]) -> Looked {
        match Answer::look(path, attributes) {
            Ok(answer) => Looked::Found(answer),
            Err(error) => {
                Looked::Refused { errno: error.raw_os_error().unwrap_or(0), text: error.to_string() }
            }
        }
    }

    /// Decodes what a probe printed.
    pub fn decode(text: &[u8]) -> Option<Looked> {
        let looked: Looked = serde_json::from_slice(text).ok()?;
        match &looked {
            Looked::Found(answer) if !answer.is_valid() => None,
            _ => Some(looked),
        }
    }
}

impl Answer {
    fn look(path: &Path, attributes: &[OsString]) -> io::Result<Answer> {
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        // Attributes cannot be read through a descriptor opened with `O_PATH`, but by way of its name.
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = readlink(&itself, Vec::new())?.into_bytes();
        let attributes = attributes.iter().map(|name| Attribute::read(&itself, name)).collect();
        let mount = (StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID))
            .then_some(stat.stx_mnt_id);
        Ok(Answer {
            path: hex(&path),
            mount,
            kind: match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::RegularFile => FileKind::File,
                FileType::Directory => FileKind::Directory,
                _ => FileKind::Other,
            },
            size: stat.stx_size,
            allocated: stat.stx_blocks.saturating_mul(512),
            inode: stat.stx_ino,
            attributes,
        })
    }

    fn is_valid(&self) -> bool {
        let values = self.attributes.iter().filter_map(|attribute| attribute.value.as_ref());
        values.chain([&self.path]).all(|text| unhex(text).is_some())
    }

    /// The absolute path without symbolic links.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(unhex(&self.path).unwrap_or_default()))
    }

    /// Value of an attribute that was asked for.
    ///
    /// # Errors
    /// Why it could not be read.
    pub fn attribute(&self, name: &str) -> Result<Vec<u8>, String> {
        let Some(found) = self.attributes.iter().find(|attribute| attribute.name == name) else {
            return Err(format!("{name} was not asked for"));
        };
        match (&found.value, &found.error) {
            (Some(value), _) => unhex(value).ok_or_else(|| format!("{name}: not hexadecimal")),
            (None, Some(error)) => Err(format!("{name}: {error}")),
            (None, None) => Err(format!("{name}: no answer")),
        }
    }
}

impl Attribute {
    fn read(path: &str, name: &OsStr) -> Attribute {
        let mut buffer = vec![0; MAX_ATTRIBUTE];
        let shown = name.to_string_lossy().into_owned();
        match getxattr(path, name.as_bytes(), &mut buffer[..]) {
            Ok(bytes) => Attribute { name: shown, value: Some(hex(&buffer[..bytes])), error: None },
            Err(error) => {
                Attribute { name: shown, value: None, error: Some(io::Error::from(error).to_string()) }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| (letter as char).to_digit(16).map(|value| value as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Answer, FileKind, Looked, hex, unhex};

    #[test]
    fn hexadecimal_both_ways() {
        assert_eq!(unhex(&hex(b"\x00\xffa")), Some(b"\x00\xffa".to_vec()));
        for bad in ["1", "1g", "é"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_directory_is_looked_at() {
        let answer = Answer::look("/proc/self/..".as_ref(), &["user.nothing".into()]).unwrap();
        assert_eq!((answer.kind, answer.path().as_path()), (FileKind::Directory, "/proc".as_ref()));
        let mounts = crate::mount::all().unwrap();
        let mount = answer.mount.expect("kernels since 5.8 tell");
        assert_eq!(mounts.iter().find(|it| it.id == mount).unwrap().kind, "proc");
        let error = answer.attribute("user.nothing").unwrap_err();
        assert!(error.starts_with("user.nothing: "), "{error}");
        let text = serde_json::to_vec(&Looked::Found(answer.clone())).unwrap();
        assert_eq!(Looked::decode(&text), Some(Looked::Found(answer)));
        let refused = Looked::at("/no/such/path".as_ref(), &[]);
        assert!(matches!(refused, Looked::Refused { errno: 2, .. }), "{refused:?}");
    }
}
