//! Pointer of a tree to its vault: a small file `.gabion` in the root of a tree with an external repository.
//!
//! Without it, a later `protect` without `--repository` would create a second vault in the tree, and the first one
//! would become outdated unnoticed. The file itself is not protected. Its lines:
//!
//! ```text
//! gabion repository 1
//! id ID OF THE VAULT
//! path ABSOLUTE PATH OF THE REPOSITORY
//! ```
//!
//! The path is the rest of the file without the final line feed, and may contain any bytes. A pointer is trusted like
//! the repository itself: it must belong to the effective user or to root and must not be writable by others, unless
//! the environment declares it trusted ([`TRUST`](crate::tree::TRUST)).

use super::settings::FILE;
use super::{Location, OWN, Settings, VaultError, at};
use crate::display_path::DisplayPath;
use crate::private::MAX_TEXT;
use crate::tree::{Kind, Tree, check_alone};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FIRST_LINE: &[u8] = b"gabion repository 1\n";

/// Name while the pointer is written. A crash may leave this file in the tree.
pub(super) const DRAFT: &[u8] = b".gabion.draft";

/// Content of a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    /// Identity of the vault.
    pub(super) id: String,
    /// Absolute path of the repository.
    pub(super) repository: PathBuf,
}

impl Pointer {
    /// Reads the pointer of the tree at `root`, if there is one.
    ///
    /// # Errors
    /// The pointer cannot be read, is not trusted, or is damaged.
    pub(super) fn of(root: &Path) -> Result<Option<Pointer>, VaultError> {
        Pointer::read(&root.join(OWN))
    }

    /// Reads a pointer that is being written, or is about to be removed.
    ///
    /// # Errors
    /// As [`of`](Pointer::of), but one that is not complete is none.
    pub(super) fn of_draft(root: &Path) -> Result<Option<Pointer>, VaultError> {
        match Pointer::read(&root.join(OsStr::from_bytes(DRAFT))) {
            Err(VaultError::Settings { .. }) => Ok(None),
            found => found,
        }
    }

    fn read(path: &Path) -> Result<Option<Pointer>, VaultError> {
        let none = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO];
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
            // Not found, not a directory, a link or a socket.
            Err(error) if none.iter().any(|it| error.raw_os_error() == Some(it.raw_os_error())) => {
                return Ok(None);
            }
            opened => opened.map_err(at(path))?,
        };
        let found = file.metadata().map_err(at(path))?;
        if !found.is_file() {
            return Ok(None);
        }
        let wrong = |why: String| VaultError::Settings { path: path.to_owned(), why };
        check_alone(path, found.uid(), found.mode()).map_err(at(path))?;
        let mut bytes = Vec::new();
        file.take(MAX_TEXT).read_to_end(&mut bytes).map_err(at(path))?;
        let pointer = Pointer::decode(&bytes).ok_or_else(|| {
            wrong("it is no pointer to a repository: `gabion protect DIR --repository REPOSITORY` writes it again".to_owned())
        })?;
        Ok(Some(pointer))
    }

    fn decode(bytes: &[u8]) -> Option<Pointer> {
        let (id, path) = bytes.strip_prefix(FIRST_LINE)?.strip_prefix(b"id ")?.split_at_checked(32)?;
        let path = path.strip_prefix(b"\npath ")?.strip_suffix(b"\n")?;
        let repository = PathBuf::from(OsStr::from_bytes(path));
        let is_id = id.iter().all(u8::is_ascii_hexdigit);
        let id = String::from_utf8(id.to_vec()).ok()?;
        (is_id && repository.is_absolute()).then_some(Pointer { id, repository })
    }

    fn encode(&self) -> Vec<u8> {
        [FIRST_LINE, b"id ", self.id.as_bytes(), b"\npath ", self.repository.as_os_str().as_bytes(), b"\n"]
            .concat()
    }

    /// Resolves the pointer of the tree at `root` to its vault.
    ///
    /// # Errors
    /// The repository does not exist, is a different one, or protects another tree.
    pub(super) fn resolve(&self, root: &Path) -> Result<Location, VaultError> {
        let repository = &self.repository;
        let shown = DisplayPath::path(repository);
        let wrong = |why: String| VaultError::Settings { path: root.join(OWN), why };
        let settings = match Settings::load(repository) {
            Err(VaultError::Unprotected { .. }) if repository.join("redundancy").is_dir() => {
                let why = "the settings are missing".to_owned();
                return Err(VaultError::Damaged { path: repository.join(FILE), why });
            }
            Err(VaultError::Unprotected { .. }) => {
                return Err(wrong(format!(
                    "it names the repository {shown}, where no vault is. Is its disk mounted? If it was moved: \
                     gabion protect {} --repository WHERE-IT-IS-NOW. If it is lost for good, remove this file to begin another one",
                    DisplayPath::path(root)
                )));
            }
            settings => settings?,
        };
        if settings.id != self.id {
            return Err(wrong(format!(
                "it names the repository {shown}, which is that of another vault now; name the right one with --repository"
            )));
        }
        let theirs = settings.root_at(repository);
        if theirs != root {
            return Err(wrong(format!(
                "it names the repository {shown}, which protects {}. If the tree was moved, put where it is now into {}; \
                 if it is a copy, remove this file",
                DisplayPath::path(&theirs),
                DisplayPath::path(&repository.join(FILE))
            )));
        }
        Ok(Location::of(root, Some(repository)))
    }

    /// Writes the pointer into its tree unless it exists.
    ///
    /// # Errors
    /// The operating system fails; a pointer that is not trusted is kept.
    pub(super) fn leave(&self, root: &Path) -> io::Result<()> {
        remove_draft(root)?;
        match Pointer::of(root) {
            Ok(Some(found)) if found == *self => return Ok(()),
            Err(VaultError::Io { source, .. }) => return Err(source),
            _ => {}
        }
        if let Ok(found) = std::fs::symlink_metadata(root.join(OWN))
            && !(found.is_file() && is_trusted(&root.join(OWN), &found))
        {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "something else by that name is there"));
        }
        let tree = Tree::open(root)?;
        let mut file = tree.create(DRAFT, 0o644)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        tree.rename(DRAFT, OWN.as_bytes())?;
        tree.sync_directory(b"")
    }
}

/// Removes a partly written pointer after a crash. A user's file of that name is kept.
///
/// # Errors
/// The operating system fails.
pub(super) fn remove_draft(root: &Path) -> io::Result<()> {
    let tree = Tree::open(root)?;
    if tree.find(DRAFT)?.is_none_or(|found| found.kind != Kind::File || found.size > MAX_TEXT) {
        return Ok(());
    }
    let mut bytes = Vec::new();
    tree.read(DRAFT)?.take(MAX_TEXT).read_to_end(&mut bytes)?;
    let is_ours = bytes.starts_with(FIRST_LINE) || FIRST_LINE.starts_with(&bytes);
    if is_ours { tree.remove(DRAFT) } else { Ok(()) }
}

/// True if the file's owner and mode are trusted.
fn is_trusted(path: &Path, found: &std::fs::Metadata) -> bool {
    check_alone(path, found.uid(), found.mode()).is_ok()
}

/// Nearest directory above `root` with a trusted vault.
pub(super) fn protected_above(root: &Path) -> Option<&Path> {
    root.ancestors().skip(1).find(|above| has_vault(above))
}

/// True if the directory has a trusted vault, in it or by a pointer.
fn has_vault(directory: &Path) -> bool {
    let own = directory.join(OWN);
    let is_vault =
        own.join(FILE).exists() && std::fs::metadata(&own).is_ok_and(|found| is_trusted(&own, &found));
    is_vault || matches!(Pointer::of(directory), Ok(Some(_)))
}

/// Directories below `root` with trusted vaults, relative to it. Unreadable directories are left out.
pub(super) fn protected_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut ahead) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = ahead.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let below = entries.filter_map(Result::ok).filter(is_directory).map(|entry| entry.path());
        for path in below.filter(|path| path.file_name() != Some(OsStr::new(OWN))) {
            if has_vault(&path) {
                found.extend(path.strip_prefix(root).map(Path::to_owned));
            }
            ahead.push(path);
        }
    }
    found.sort();
    found
}

/// Refuses URLs: `s3://bucket/x` would create the directory `s3:/bucket/x`.
pub(super) fn refuse_url(repository: &Path) -> Result<(), VaultError> {
    let bytes = repository.as_os_str().as_bytes();
    let scheme = bytes.windows(3).position(|window| window == b"://").map(|end| &bytes[..end]);
    let is_url = scheme.is_some_and(|scheme| {
        scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte))
    });
    if !is_url {
        return Ok(());
    }
    let why = "a repository is a directory, and this is a URL. Mount the storage and name the directory where it is mounted; \
               a directory by this name is written with ./ before it"
        .to_owned();
    Err(VaultError::Settings { path: repository.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::{Pointer, refuse_url};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    #[test]
    fn a_pointer_is_read_as_it_was_written() {
        let repository = Path::new(OsStr::from_bytes(b"/mnt/\xff line\nfeed/r")).to_owned();
        let pointer = Pointer { id: "0123456789abcdef".repeat(2), repository };
        assert_eq!(Pointer::decode(&pointer.encode()), Some(pointer.clone()));
        let bytes = Pointer { repository: Path::new("/mnt/r").to_owned(), ..pointer }.encode();
        for length in 0..bytes.len() {
            assert_eq!(Pointer::decode(&bytes[..length]), None, "cut after {length} bytes");
        }
    }

    #[test]
    fn urls_are_no_repositories() {
        for url in ["s3://bucket/x", "https://host/x", "sftp://u@h/x", "a+b.c-1://x"] {
            assert!(refuse_url(Path::new(url)).is_err(), "{url}");
        }
        for path in ["./s3://bucket/x", "/mnt/s3://x", "s3:/bucket", "://x", "1a://x", "r"] {
            assert!(refuse_url(Path::new(path)).is_ok(), "{path}");
        }
    }
}
