//! Files that appear complete or not at all: written under a temporary name in the directory they are for,
//! synced, then renamed. A draft that is dropped is removed.

use crate::error::Error;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file in the making.
#[derive(Debug)]
pub(crate) struct Draft {
    temp: NamedTempFile,
    target: PathBuf,
    /// Permission bits of the finished file; `None` leaves it to the umask.
    mode: Option<u32>,
}

impl Draft {
    /// A draft of `target`, in its directory.
    pub(crate) fn new(target: PathBuf, mode: Option<u32>) -> Result<Draft, Error> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".gabion-").suffix(".tmp");
        // Private while it is being written: the content may be secret.
        builder.permissions(Permissions::from_mode(if mode.is_some() { 0o600 } else { 0o666 }));
        let dir = directory_of(&target);
        let temp = builder.tempfile_in(dir).map_err(Error::io("create a file in", dir))?;
        Ok(Draft { temp, target, mode })
    }

    pub(crate) fn file(&self) -> &File {
        self.temp.as_file()
    }

    /// The name it will have.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// An error of writing, with the name of the target.
    pub(crate) fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::io(doing, &self.target)
    }

    /// Everything is on disk after this, under the temporary name.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        if let Some(mode) = self.mode {
            let set = self.file().set_permissions(Permissions::from_mode(mode));
            set.map_err(self.failed("set permissions of"))?;
        }
        self.file().sync_all().map_err(self.failed("write"))
    }
}

/// Renames synced drafts to their names, then syncs the directories. Without `replace`, a name that is
/// taken is an error and what was renamed before is removed again. With it, drafts that
/// cannot be renamed are kept under their temporary names: together with those already in place
/// they are whole, and tools find them by their content.
pub(crate) fn publish(drafts: Vec<Draft>, replace: bool) -> Result<(), Error> {
    let mut placed: Vec<PathBuf> = Vec::new();
    let mut left = drafts.into_iter();
    let failed = loop {
        let Some(Draft { temp, target, .. }) = left.next() else { break None };
        let renamed = if replace { temp.persist(&target) } else { temp.persist_noclobber(&target) };
        match renamed {
            Ok(_) => placed.push(target),
            Err(error) => break Some((target, error)),
        }
    };
    let Some((target, error)) = failed else {
        placed.dedup_by(|a, b| directory_of(a) == directory_of(b));
        return placed.iter().try_for_each(|path| sync_directory(directory_of(path)));
    };
    if replace {
        // Nothing more can be done about those that cannot be kept: the error is reported anyway.
        let _ = error.file.keep();
        left.for_each(|draft| drop(draft.temp.keep()));
    } else {
        placed.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    match error.error.kind() {
        io::ErrorKind::AlreadyExists => Err(Error::Exists { path: target }),
        _ => Err(Error::io("rename a file to", &target)(error.error)),
    }
}

/// The directory that a file is or will be in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Creates a directory and those above it that are missing, each durable before anything is put into it.
pub(crate) fn create_directory(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = directory_of(dir);
    if parent != dir {
        create_directory(parent)?;
    }
    match fs::create_dir(dir) {
        // Somebody else was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) => Err(Error::io("create the directory", dir)(error)),
        Ok(()) => sync_directory(parent),
    }
}

fn sync_directory(dir: &Path) -> Result<(), Error> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(Error::io("write the directory", dir))
}
