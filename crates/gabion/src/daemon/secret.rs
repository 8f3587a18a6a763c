//! Passwords, tokens and secret addresses: read from files of their owner or from the environment, never printed.
//!
//! The configuration names the place of a secret, `file:PATH` or `env:NAME`, and never the secret itself. It is read
//! each time that it is used, so that a password that changed needs no restart.

use gabion_platform::display_path::DisplayPath;
use rustix::fs::{FileType, Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of a secret.
const MAX_BYTES: u64 = 8 << 10;

/// A secret. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The secret itself.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Replaces the secret where it occurs in a text.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "***")
    }
}

/// The place of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file with mode 0600 or less, of the user of this process or of root.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
}

/// Error of a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The text names no place.
    #[error("write file:PATH or env:NAME: secrets are not written into the configuration")]
    NoPlace,
    /// The file cannot be read.
    #[error("{}: {source}", DisplayPath::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Others could read or replace the file.
    #[error("{}: {why}", DisplayPath::path(path))]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// There is no such variable.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// It is not a secret in one line.
    #[error("{place}: {why}")]
    Content {
        /// The file or variable.
        place: String,
        /// The reason.
        why: &'static str,
    },
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "file:{}", DisplayPath::path(path)),
            SecretSource::Environment(name) => write!(f, "env:{name}"),
        }
    }
}

impl SecretSource {
    /// Parses `file:PATH` or `env:NAME`. A relative path starts at `base`.
    ///
    /// # Errors
    /// [`SecretError::NoPlace`]. The message does not repeat the text, which may be a secret.
    pub fn parse(text: &str, base: &Path) -> Result<SecretSource, SecretError> {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        match (text.strip_prefix("file:"), text.strip_prefix("env:")) {
            (Some(path), _) if !path.is_empty() => Ok(SecretSource::File(base.join(path))),
            (_, Some(name)) if !name.is_empty() && name.chars().all(letter) => {
                Ok(SecretSource::Environment(name.to_owned()))
            }
            _ => Err(SecretError::NoPlace),
        }
    }

    /// Reads the secret.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub(super) fn read(&self) -> Result<Secret, SecretError> {
        let text = match self {
            SecretSource::File(path) => read_file(path)?,
            SecretSource::Environment(name) => {
                std::env::var(name).map_err(|_| SecretError::Unset(name.clone()))?
            }
        };
        let wrong = |why| SecretError::Content { place: self.to_string(), why };
        let text = text.trim_end_matches(['\n', '\r']);
        match () {
            () if text.is_empty() => Err(wrong("it is empty")),
            () if text.chars().any(char::is_control) => Err(wrong("it has more than one line")),
            () => Ok(Secret(text.to_owned())),
        }
    }
}

/// Reads a file that only its owner can read. The checks apply to the file that was opened: it cannot be exchanged in
/// between, and a pipe under its name does not block.
fn read_file(path: &Path) -> Result<String, SecretError> {
    let io = |source| SecretError::Io { path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| io(error.into()))?);
    let stat = rustix::fs::fstat(&file).map_err(|error| io(error.into()))?;
    let exposed = |why: String| SecretError::Exposed { path: path.to_owned(), why };
    let mode = stat.st_mode & 0o777;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(exposed("it is not a regular file".to_owned()));
    }
    if mode & 0o077 != 0 {
        let why = format!("it has mode {mode:04o} and others may use it: chmod 600");
        return Err(exposed(why));
    }
    if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(exposed(format!("it belongs to user {}, not to the daemon's user or root", stat.st_uid)));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    let content = |why| SecretError::Content { place: DisplayPath::path(path).to_string(), why };
    if bytes.len() as u64 > MAX_BYTES {
        return Err(content("it has more than 8 KiB"));
    }
    String::from_utf8(bytes).map_err(|_| content("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::{SecretError, SecretSource};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_secret_is_read_from_a_file_of_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let source = SecretSource::parse("file:secret", dir.path()).unwrap();
        assert!(matches!(source.read(), Err(SecretError::Io { .. })));
        std::fs::write(&path, "hunter2\n").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o660, 0o610] {
            set(mode);
            let error = source.read().unwrap_err();
            assert!(matches!(error, SecretError::Exposed { .. }), "{mode:o}");
            assert!(error.to_string().contains("chmod 600") && !error.to_string().contains("hunter2"));
        }
        for mode in [0o600, 0o400] {
            set(mode);
            let secret = source.read().unwrap();
            assert_eq!(secret.reveal(), "hunter2");
            assert!(!format!("{secret:?}").contains("hunter2"));
            assert_eq!(secret.redact("535 hunter2 is wrong"), "535 *** is wrong");
        }
        set(0o600);
        for bytes in [&b""[..], b"\n", b"a\nb", b"a\r\nHeader: b", b"\xff\xfe", &[b'a'; 9000]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(source.read(), Err(SecretError::Content { .. })), "{bytes:?}");
        }
    }

    #[test]
    fn directories_and_pipes_are_no_secrets() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let made = std::process::Command::new("mkfifo").arg("-m600").arg(dir.path().join("p")).status();
        assert!(made.unwrap().success());
        for name in ["file:d", "file:p"] {
            let source = SecretSource::parse(name, dir.path()).unwrap();
            assert!(matches!(source.read(), Err(SecretError::Exposed { .. })), "{name}");
        }
    }

    #[test]
    fn a_place_is_a_file_or_a_variable() {
        let parse = |text| SecretSource::parse(text, Path::new("/etc/gabion"));
        assert_eq!(parse("file:a/b").unwrap(), SecretSource::File("/etc/gabion/a/b".into()));
        assert_eq!(parse("file:/x").unwrap(), SecretSource::File("/x".into()));
        assert_eq!(parse("env:A_1").unwrap(), SecretSource::Environment("A_1".to_owned()));
        for wrong in ["hunter2", "", "file:", "env:", "env:A B", "env:A=B", "FILE:x"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let unset = parse("env:GABION_TEST_NO_SUCH_VARIABLE").unwrap().read();
        assert!(matches!(unset, Err(SecretError::Unset(_))));
    }
}
