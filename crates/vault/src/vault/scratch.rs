//! Temporary copies of a repository's databases, for read-only media and for directories of other users.
//!
//! SQLite creates files next to a database even for reading, and a database whose last writer died has to be recovered
//! first. So the database is copied with its journal and opened in a writable place; what is recorded there is
//! discarded.

use super::{CATALOGUE, CHANGELOG, VaultError, at};
use crate::changelog::embedded::DATABASES;
use crate::tree::{Generation, Tree};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts, and the pause between them, to copy a database that others write to.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Suffixes of a database and of its write-ahead log.
const SUFFIXES: [&str; 2] = ["", "-wal"];

/// Temporary directory, removed on drop.
pub(super) struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    /// Copies the existing databases.
    pub(super) fn of(repository: &Tree) -> Result<Scratch, VaultError> {
        let place = std::env::temp_dir();
        let directory = tempfile::tempdir_in(&place).map_err(at(&place))?;
        let scratch = Scratch { directory };
        copy(repository, Path::new(CATALOGUE), scratch.path())?;
        let changelog = scratch.path().join(CHANGELOG);
        std::fs::create_dir(&changelog).map_err(at(&changelog))?;
        for name in DATABASES {
            copy(repository, &Path::new(CHANGELOG).join(name), scratch.path())?;
        }
        Ok(scratch)
    }

    /// Directory of the copies, which have the names of the originals.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Makes a consistent copy of a database, if it exists.
fn copy(repository: &Tree, name: &Path, to: &Path) -> Result<(), VaultError> {
    let failed = |source| VaultError::Io { path: repository.path().join(name), source };
    for _ in 0..LOOKS {
        let before = versions(repository, name).map_err(failed)?;
        for suffix in SUFFIXES {
            copy_file(repository, &with(name, suffix), to).map_err(failed)?;
        }
        if versions(repository, name).map_err(failed)? == before {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, "it is written to without a pause")))
}

fn with(name: &Path, suffix: &str) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn versions(repository: &Tree, name: &Path) -> io::Result<[Option<Generation>; 2]> {
    let of = |suffix| -> io::Result<_> {
        let found = repository.find(with(name, suffix).as_os_str().as_encoded_bytes())?;
        Ok(found.map(|stat| stat.generation()))
    };
    Ok([of(SUFFIXES[0])?, of(SUFFIXES[1])?])
}

fn copy_file(repository: &Tree, name: &Path, to: &Path) -> io::Result<()> {
    let to = to.join(name);
    match repository.read(name.as_os_str().as_encoded_bytes()) {
        Ok(mut from) => {
            let mut copy = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
            io::copy(&mut from, &mut copy).map(drop)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match std::fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        Err(error) => Err(error),
    }
}
