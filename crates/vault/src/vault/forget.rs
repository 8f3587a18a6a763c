//! Removal of a vault: the protection of a tree ends, its files stay as they are.
//!
//! A killed removal is repeated by the same command. The order is: a mark in the repository, after which nothing opens
//! the vault; redundancy, databases and documents; the pointer of the tree gets the name of a pointer that is being
//! written, which nothing reads; settings, the mark and the repository's directory; the pointer. So at each moment
//! either the tree or the mark leads to what is left.
//!
//! Only names that Gabion gives are removed, links are removed and never followed, and a file system that is mounted
//! within is refused.

use super::lock::Lock;
use super::pointer::{DRAFT, Pointer};
use super::settings::{FILE as SETTINGS, Kind};
use super::{
    CATALOGUE, CHANGELOG, Location, OWN, POLICY, Settings, Vault, VaultError, at, copies, remove_catalogue,
};
use crate::displaced::DISPLACED;
use crate::display_path::DisplayPath;
use crate::private;
use crate::redundancy::{REDUNDANCY, SHARED, STAGING};
use crate::repair_mark::REPAIRING;
use crate::replaced::REPLACED;
use crate::tree::{self, Tree, absent_is_none, join};
use crate::world::Clock;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Mark of a repository whose removal has begun. It holds the path of the tree.
const MARK: &str = "forgotten";

/// Longest path in a mark.
const MAX_PATH: u64 = 1 << 16;

/// Directories of a repository, besides that of replaced content.
const DIRECTORIES: &[&[u8]] =
    &[STAGING, REDUNDANCY, SHARED, DISPLACED, REPAIRING, b"approved", CHANGELOG.as_bytes()];

/// Files of a repository, besides databases, settings, locks and the mark. Those of earlier versions are among them.
const FILES: &[&str] = &[
    POLICY,
    "policy.revision",
    "vault.revision",
    "catalogue.sqlite.draft",
    "catalogue.sqlite.draft-wal",
    "catalogue.sqlite.draft-shm",
    "mounted",
    "daemon",
    "mount.log",
    "events.jsonl",
    "events.old.jsonl",
];

/// Locks, which are held until the end.
const LOCKS: &[&str] = &["watch", "lock"];

/// What the removal of a vault removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Root of the tree.
    pub root: PathBuf,
    /// The repository.
    pub repository: PathBuf,
    /// The pointer in the tree, if the repository is elsewhere.
    pub pointer: Option<PathBuf>,
    /// Files with redundancy.
    pub files: u64,
    /// Allocated bytes of these.
    pub bytes: u64,
    /// Files with content that repair replaced.
    pub replaced: u64,
    /// What is in the repository and not of Gabion: it stays.
    pub foreign: Vec<PathBuf>,
    /// An earlier removal was interrupted.
    pub is_resumed: bool,
}

/// How a vault is removed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForgetOptions {
    /// Ignore users of the vault that are only known to the changelog, and a changelog that does not answer.
    pub force: bool,
    /// Remove the content that repair replaced, too.
    pub with_replaced: bool,
}

impl Removal {
    /// Finds the vault of the directory `path`, or of the named repository, or what an interrupted removal left.
    ///
    /// # Errors
    /// See [`VaultError`]: also for a part of a protected tree, and for pools.
    pub fn find(path: &Path, repository: Option<&Path>) -> Result<Removal, VaultError> {
        let location = match Location::find(path, repository) {
            Err(error @ VaultError::Unprotected { .. }) => {
                return Ok(match remains(path, repository)? {
                    Some(left) => left.counted()?,
                    None => return Err(error),
                });
            }
            location => location?,
        };
        if location.storage == Kind::Pool {
            let why = "it is the vault of a pool, whose redundancy is part of the pool: take the files out with `gabion pool get`, \
                       then delete the directories of its targets";
            return Err(VaultError::Settings { path: location.repository, why: why.to_owned() });
        }
        let root = std::fs::canonicalize(&location.root).unwrap_or_else(|_| location.root.clone());
        let named = repository.is_some() && path == Path::new(".");
        if !named && std::fs::canonicalize(path).map_err(at(path))? != root {
            let why = format!(
                "it is part of {0}, which is protected as a whole: `gabion forget {0}` removes its protection, a policy with \
                 protect = false leaves parts out",
                DisplayPath::path(&root)
            );
            return Err(VaultError::Settings { path: path.to_owned(), why });
        }
        let repository = std::fs::canonicalize(&location.repository).map_err(at(&location.repository))?;
        let id = Settings::load(&repository)?.id;
        let pointer = Pointer::of(&root)?.filter(|pointer| pointer.id == id).map(|_| root.join(OWN));
        Removal::of(root, repository, pointer).counted()
    }

    fn of(root: PathBuf, repository: PathBuf, pointer: Option<PathBuf>) -> Removal {
        let is_resumed = repository.join(MARK).symlink_metadata().is_ok();
        Removal {
            root,
            repository,
            pointer,
            files: 0,
            bytes: 0,
            replaced: 0,
            foreign: Vec::new(),
            is_resumed,
        }
    }

    /// Counts what is there.
    fn counted(mut self) -> Result<Removal, VaultError> {
        let Some(tree) = self.open()? else { return Ok(self) };
        let repository = self.repository.clone();
        let failed = at(&repository);
        let device = tree.stat(b"").map_err(&failed)?.device;
        for name in [REDUNDANCY, DISPLACED] {
            each_file(&tree, name, device, &mut |_, stat| {
                self.files += 1;
                self.bytes += stat.allocated;
                Ok(())
            })
            .map_err(&failed)?;
        }
        each_file(&tree, SHARED, device, &mut |_, stat| {
            // Further names of redundancy that is counted already.
            self.bytes += if stat.links == 1 { stat.allocated } else { 0 };
            Ok(())
        })
        .map_err(&failed)?;
        each_file(&tree, REPLACED, device, &mut |_, _| {
            self.replaced += 1;
            Ok(())
        })
        .map_err(&failed)?;
        for (name, _) in tree.directory(b"").and_then(|it| it.names()).map_err(&failed)?.iter() {
            if !is_known(name) {
                self.foreign.push(tree.shown(name));
            }
        }
        Ok(self)
    }

    fn open(&self) -> Result<Option<Tree>, VaultError> {
        absent_is_none(Tree::open_owned(&self.repository)).map_err(at(&self.repository))
    }

    /// Removes the vault.
    ///
    /// # Errors
    /// See [`VaultError`]: something uses the vault, or there is replaced content and it may not be removed.
    pub fn carry_out(&self, options: ForgetOptions, command: &str, clock: Clock) -> Result<(), VaultError> {
        if let Some(tree) = self.open()? {
            if self.replaced > 0 && !options.with_replaced {
                let why = format!(
                    "{} files with content that repair replaced are there: copy what is needed, then repeat this with --with-replaced",
                    self.replaced
                );
                return Err(VaultError::Settings { path: tree.shown(REPLACED), why });
            }
            self.remove(&tree, options, command, clock)?;
        }
        self.remove_pointer().map_err(at(&self.root))
    }

    fn remove(
        &self,
        tree: &Tree,
        options: ForgetOptions,
        command: &str,
        clock: Clock,
    ) -> Result<(), VaultError> {
        let failed = at(&self.repository);
        let device = tree.stat(b"").map_err(&failed)?.device;
        let is_whole = !self.is_resumed && tree.find(SETTINGS.as_bytes()).map_err(&failed)?.is_some();
        let _locks = match is_whole {
            true => self.mark(options, command, clock)?,
            false => (Lock::take_to_watch(tree, command, &clock)?, Lock::take(tree, command, &clock)?),
        };
        let replaced = options.with_replaced.then_some(REPLACED);
        for name in DIRECTORIES.iter().copied().chain(replaced) {
            remove_all(tree, name, device).map_err(&failed)?;
        }
        remove_catalogue(tree)?;
        for name in FILES {
            remove_file(tree, name).map_err(&failed)?;
        }
        for (name, _) in tree.directory(b"").and_then(|it| it.names()).map_err(&failed)?.iter() {
            // What a killed process was about to write.
            if private::name_of_draft(name).is_some_and(is_known) {
                tree.remove(name).map_err(&failed)?;
            }
        }
        tree.sync_directory(b"").map_err(&failed)?;
        self.hide_pointer().map_err(at(&self.root))?;
        for name in LOCKS.iter().chain(&[SETTINGS, MARK]) {
            remove_file(tree, name).map_err(&failed)?;
            tree.sync_directory(b"").map_err(&failed)?;
        }
        match std::fs::remove_dir(&self.repository) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => absent_is_none(removed).map(drop).map_err(&failed),
        }
    }

    /// Marks the vault once nothing else uses it.
    fn mark(&self, options: ForgetOptions, command: &str, clock: Clock) -> Result<(Lock, Lock), VaultError> {
        let in_use = |error: VaultError| match error {
            VaultError::Attended { who } => VaultError::InUse { who },
            error => error,
        };
        let location = Location::of(&self.root, Some(&self.repository));
        let (vault, away) = Vault::open_to_examine(&location, clock)?;
        let failed = at(&self.repository);
        if let Some(why) = &vault.read_only {
            return Err(VaultError::Settings { path: self.repository.clone(), why: why.clone() });
        }
        let lock = vault.lock(command)?;
        let watch = vault.lock_to_watch(command)?;
        if let (Some(error), false) = (&away, options.force) {
            return Err(VaultError::UsersUnknown(error.clone()));
        }
        vault.refuse_others(options.force).map_err(in_use)?;
        private::replace(&self.repository, MARK, self.root.as_os_str().as_bytes()).map_err(&failed)?;
        // Whoever came meanwhile and has not seen the mark.
        if let Err(refused) = vault.refuse_others(options.force) {
            vault.repository.remove(MARK.as_bytes()).map_err(&failed)?;
            return Err(in_use(refused));
        }
        if away.is_none() {
            vault.changelog.forget_all()?;
        }
        if vault.settings.is_shared() {
            let copy = copies::directory(&vault.settings, &location)?;
            drop(vault);
            remove_catalogue(&copy)?;
            remove_file(&copy, "watch").map_err(at(copy.path()))?;
            let _ = std::fs::remove_dir(copy.path());
        }
        Ok((watch, lock))
    }

    /// Gives the pointer a name that nothing reads.
    fn hide_pointer(&self) -> io::Result<()> {
        if self.pointer.is_none() {
            return Ok(());
        }
        let tree = Tree::open(&self.root)?;
        tree.rename(OWN.as_bytes(), DRAFT)?;
        tree.sync_directory(b"")
    }

    fn remove_pointer(&self) -> io::Result<()> {
        if !self.root.is_dir() || self.repository.starts_with(&self.root) {
            return Ok(());
        }
        super::pointer::remove_draft(&self.root)
    }
}

/// Refuses a vault whose removal has begun.
pub(super) fn refuse_forgotten(repository: &Path, root: &Path) -> Result<(), VaultError> {
    let path = repository.join(MARK);
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(&path)(error)),
        Ok(_) => {
            let why = format!(
                "`gabion forget` was interrupted here: `gabion forget {}` finishes it",
                DisplayPath::path(root)
            );
            Err(VaultError::Settings { path, why })
        }
    }
}

/// What an interrupted removal left.
fn remains(path: &Path, repository: Option<&Path>) -> Result<Option<Removal>, VaultError> {
    if let Some(repository) = repository {
        return Ok(marked_root(repository)?.map(|root| Removal::of(root, repository.to_owned(), None)));
    }
    let root = std::fs::canonicalize(path).map_err(at(path))?;
    let own = root.join(OWN);
    // The mark, or an empty directory, is the last of a repository in the tree.
    let is_directory = own.symlink_metadata().is_ok_and(|found| found.is_dir());
    let is_empty = || std::fs::read_dir(&own).is_ok_and(|mut entries| entries.next().is_none());
    if is_directory && (marked_root(&own)?.is_some() || is_empty()) {
        return Ok(Some(Removal::of(root, own, None)));
    }
    let Some(pointer) = Pointer::of_draft(&root)? else { return Ok(None) };
    // Otherwise it is the pointer of a vault that is being created.
    let is_left = !pointer.repository.join(SETTINGS).exists() || marked_root(&pointer.repository)?.is_some();
    Ok(is_left.then(|| Removal::of(root, pointer.repository, None)))
}

/// The tree in the mark of a repository, if there is one.
fn marked_root(repository: &Path) -> Result<Option<PathBuf>, VaultError> {
    let failed = at(repository);
    let Some(tree) = absent_is_none(Tree::open_owned(repository)).map_err(&failed)? else { return Ok(None) };
    let Some(file) = absent_is_none(tree.read(MARK.as_bytes())).map_err(&failed)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(MAX_PATH).read_to_end(&mut bytes).map_err(&failed)?;
    Ok(Some(PathBuf::from(OsStr::from_bytes(&bytes))))
}

fn is_known(name: &[u8]) -> bool {
    let name = private::name_of_draft(name).or_else(|| name.strip_suffix(b".draft")).unwrap_or(name);
    let databases = ["", "-wal", "-shm"].map(|suffix| format!("{CATALOGUE}{suffix}"));
    name == REPLACED
        || DIRECTORIES.contains(&name)
        || FILES.iter().chain(LOCKS).chain(&[SETTINGS, MARK]).any(|known| known.as_bytes() == name)
        || databases.iter().any(|known| known.as_bytes() == name)
}

/// Removes a file and its draft.
fn remove_file(tree: &Tree, name: &str) -> io::Result<()> {
    tree.remove(format!("{name}.draft").as_bytes())?;
    tree.remove(name.as_bytes())
}

/// Calls `act` for everything that is no directory, at and below a path.
fn each_file(
    tree: &Tree,
    path: &[u8],
    device: u64,
    act: &mut dyn FnMut(&[u8], &tree::Stat) -> io::Result<()>,
) -> io::Result<()> {
    let Some(stat) = tree.find(path)? else { return Ok(()) };
    if stat.kind != tree::Kind::Directory {
        return act(path, &stat);
    }
    if stat.device != device {
        let why = format!("another file system is mounted at {}: unmount it first", DisplayPath::bytes(path));
        return Err(io::Error::other(why));
    }
    let names = tree.directory(path)?.names()?;
    names.iter().try_for_each(|(name, _)| each_file(tree, &join(path, name), device, act))
}

/// Removes a directory with all that is below it. Links are removed and not followed.
fn remove_all(tree: &Tree, path: &[u8], device: u64) -> io::Result<()> {
    each_file(tree, path, device, &mut |path, _| tree.remove(path))?;
    remove_directories(tree, path)
}

fn remove_directories(tree: &Tree, path: &[u8]) -> io::Result<()> {
    let Some(directory) = absent_is_none(tree.directory(path))? else { return Ok(()) };
    let names = directory.names()?;
    names.iter().try_for_each(|(name, _)| remove_directories(tree, &join(path, name)))?;
    // It alone: its parent is the repository, or is removed next.
    tree.remove_empty(path, tree::split(path).0)
}
