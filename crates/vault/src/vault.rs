//! Vault: a protected tree or pool with its repository.
//!
//! The repository is a directory: `vault.toml` holds the settings, `policy.toml` the policy (in a pool, all targets
//! have copies of both), `redundancy/` the redundancy files under the names of the files that they protect, `staging/`
//! incomplete files, `catalogue.sqlite` the catalogue, `changelog/` pending changes, and `lock` names the process that
//! holds the vault. Where hosts share the vault, the changelog is on a server, and each host has a copy of the
//! catalogue on a disk of its own.

mod copies;
mod error;
mod forget;
mod lock;
mod moving;
mod others;
mod pointer;
mod renew;
mod scratch;
mod settings;
mod shared;

pub use error::VaultError;
use error::at;
pub use forget::{ForgetOptions, Removal};
pub use lock::{Lock, LockError, MOUNTED};
pub use moving::Moved;
pub use renew::{Renewal, Renewed, survey};
pub use settings::{Kind, Location, Settings};

use crate::catalogue::{Catalogue, CatalogueError, Keeping};
use crate::changelog::monitors::Monitor;
use crate::changelog::remember_password;
use crate::changelog::server::without_password;
use crate::changelog::{self, Absent, Changelog, Embedded, Server};
use crate::coder::Coders;
use crate::mark::give_up_lost;
use crate::policy::Policy;
use crate::private;
use crate::redundancy::{REDUNDANCY, STAGING, redo};
use crate::replaced;
use crate::run::RunContext;
use crate::storage::plain::Plain;
use crate::storage::pool::{self, Document, Pool};
use crate::storage::{Storage, TargetState};
use crate::tree::{Generation, Tree};
use crate::world::Clock;
use gabion_engine::Code;
use gabion_platform::lock::Lockable;
use scratch::Scratch;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default code.
pub const DEFAULT_CODE: &str = "8+2";

/// Repository directory within a protected tree.
pub const OWN: &str = ".gabion";

/// Purpose of opening a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To change it.
    Change,
    /// To read it; a read-only repository suffices.
    Look,
}

/// Reason why the repository cannot be written, if so.
fn refusal_to_write(repository: &Tree) -> Result<Option<VaultError>, VaultError> {
    let path = repository.path();
    for name in [".", CATALOGUE, CHANGELOG] {
        let path = if name == "." { path.to_owned() } else { path.join(name) };
        if let Some(refusal) = repository.refusal_to_write(name).map_err(at(&path))? {
            return Ok(Some(at(&path)(refusal)));
        }
    }
    Ok(None)
}

/// An open vault.
pub struct Vault {
    /// Root of the protected tree.
    pub root: PathBuf,
    /// Repository directory.
    pub repository: Tree,
    /// Storage of the files.
    pub storage: Box<dyn Storage>,
    /// The pool, for the vault of a pool.
    pub pool: Option<Pool>,
    /// Prepared codes.
    pub coders: Coders,
    /// Clock.
    pub clock: Clock,
    /// Policy.
    pub policy: Policy,
    /// Code of files for which the policy names none.
    pub default_code: Code,
    /// Catalogue of protected files.
    pub catalogue: Catalogue,
    /// Changelog with pending changes.
    pub changelog: Arc<dyn Changelog>,
    /// Settings.
    pub settings: Settings,
    /// Reason why the repository cannot be written, if so. Catalogue and changelog are then temporary copies.
    pub read_only: Option<String>,
    /// Directory of catalogue and embedded changelog.
    databases: Tree,
    /// Temporary directory of these copies; declared last, so that it is removed after they are closed.
    _scratch: Option<Scratch>,
}

impl Vault {
    /// Creates a repository for `root`, or opens the existing one.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn create(location: &Location, changelog: Option<&str>, clock: Clock) -> Result<Vault, VaultError> {
        let repository = &location.repository;
        // Settings have the address without its password.
        changelog.into_iter().for_each(remember_password);
        forget::refuse_forgotten(repository, &location.root)?;
        let is_begun = repository.join(settings::FILE).exists();
        if !is_begun && *repository == location.root.join(OWN) && repository.is_symlink() {
            let why = "it is a symbolic link: --repository names one in another place".to_owned();
            return Err(VaultError::Settings { path: repository.clone(), why });
        }
        make_private(repository)?;
        // Checked before anything is written there: another user may have created it.
        Tree::open_owned(repository).map_err(at(repository))?;
        if !is_begun {
            Vault::begin(location, changelog, &clock).inspect_err(|_| {
                // Removes only an empty directory.
                let _ = std::fs::remove_dir(repository);
            })?;
        }
        let vault = Vault::open(location, clock)?;
        // Settings of earlier versions may contain a password.
        let was = without_password(&vault.settings.changelog);
        if let Some(wanted) = changelog.map(without_password).filter(|wanted| *wanted != was) {
            let path = repository.join(settings::FILE);
            let why = format!("its changelog is {was}, not {wanted}: `gabion changelog move` changes that");
            return Err(VaultError::Settings { path, why });
        }
        Ok(vault)
    }

    /// Writes a pointer to an external repository into the tree, so that later commands find it.
    ///
    /// # Errors
    /// The operating system fails; the vault can be used without a pointer.
    pub fn leave_pointer(&self) -> io::Result<()> {
        let root = std::fs::canonicalize(&self.root)?;
        let repository = std::fs::canonicalize(self.repository.path())?;
        if self.settings.storage == Kind::Pool {
            return Ok(());
        }
        if repository.starts_with(&root) {
            return pointer::remove_draft(&root);
        }
        pointer::Pointer { id: self.settings.id.clone(), repository }.leave(&root)
    }

    /// Writes the settings of a new vault after checking them: an invalid changelog would make every later command
    /// fail.
    fn begin(location: &Location, changelog: Option<&str>, clock: &Clock) -> Result<(), VaultError> {
        let repository = &location.repository;
        let _turn = take_turn(repository)?;
        let pool = pool_of(location, clock)?;
        let settings = Settings::new(location, changelog, pool.as_ref())?;
        // Another process may have been faster.
        if repository.join(settings::FILE).exists() {
            return Ok(());
        }
        open_changelog(&settings, repository)?;
        pool.as_ref().map(shared::outdate_others).transpose()?;
        settings.save(repository)
    }

    /// Opens a vault. A missing catalogue is rebuilt from the headers of redundancy files: with an empty one all files
    /// would look unprotected.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn open(location: &Location, clock: Clock) -> Result<Vault, VaultError> {
        let vault = Vault::open_as_it_is(location, clock, Purpose::Change, open_changelog)?;
        vault.with_catalogue(location)
    }

    /// Opens a vault to show its status, and to examine and repair files. That does not need the changelog's server: if
    /// it fails, the changelog is [`Absent`] and the reason is returned. Nor does it need write access: with a
    /// read-only repository no results are recorded.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn open_to_examine(
        location: &Location,
        clock: Clock,
    ) -> Result<(Vault, Option<changelog::Error>), VaultError> {
        let mut why = None;
        let vault =
            Vault::open_as_it_is(location, clock, Purpose::Look, |settings, path| {
                match open_changelog(settings, path) {
                    Err(VaultError::Changelog(error)) if settings.changelog != settings::EMBEDDED => {
                        why = Some(error.clone());
                        Ok(Arc::new(Absent(error)))
                    }
                    opened => opened,
                }
            })?;
        Ok((vault.with_catalogue(location)?, why))
    }

    fn with_catalogue(self, location: &Location) -> Result<Vault, VaultError> {
        self.follow_at(&location.repository)?;
        Ok(self)
    }

    /// Notices monitors of other processes that ended uncleanly or are out of reach, and records gaps for them.
    ///
    /// # Errors
    /// The changelog's.
    pub fn give_up_lost_monitors(&self) -> changelog::Result<Vec<Monitor>> {
        give_up_lost(&*self.changelog, &self.clock)
    }

    /// Brings the catalogue up to date with what other hosts did, and makes it if it is missing or its journal was
    /// lost. Notices lost monitors of other hosts.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn follow(&self) -> Result<(), VaultError> {
        self.follow_at(self.repository.path())
    }

    fn follow_at(&self, repository: &Path) -> Result<(), VaultError> {
        let catch_up = || match self.catalogue.catch_up().map_err(CatalogueError::into_journal_error) {
            Ok(()) => Ok(()),
            Err(Ok(error)) => Err(VaultError::Changelog(error)),
            Err(Err(error)) => Err(VaultError::Catalogue(error)),
        };
        catch_up()?;
        if self.read_only.is_none() {
            self.give_up_lost_monitors()?;
        }
        if self.catalogue.is_to_be_made()? {
            let _turn = take_turn(repository)?;
            // Another process may have been faster.
            catch_up()?;
            if self.catalogue.is_to_be_made()? {
                self.make_catalogue()?;
            }
        }
        Ok(())
    }

    /// Opens the catalogue once more, for another thread.
    ///
    /// # Errors
    /// [`VaultError::Catalogue`].
    pub fn open_catalogue(&self) -> Result<Catalogue, VaultError> {
        copies::open(&self.settings, self.databases.path(), &self.changelog, self.keeping())
    }

    /// Opens the catalogue of a vault alone.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn catalogue_of(location: &Location) -> Result<Catalogue, VaultError> {
        let repository = &location.repository;
        let settings = Settings::load(repository)?;
        if !settings.is_shared() {
            return Ok(Catalogue::open(&repository.join(CATALOGUE))?);
        }
        let changelog = open_changelog(&settings, repository)?;
        copies::open(&settings, copies::directory(&settings, location)?.path(), &changelog, Keeping::Shared)
    }

    fn keeping(&self) -> Keeping {
        if self.read_only.is_some() { Keeping::Silent } else { Keeping::Shared }
    }

    /// Removes replaced content that is too old or uses too much space. Returns the remaining runs.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn purge_replaced(&self) -> io::Result<Vec<replaced::Run>> {
        match self.read_only {
            Some(_) => replaced::runs(&self.repository),
            None => replaced::purge(&self.repository, &self.policy.replaced, self.clock.now()),
        }
    }

    fn make_catalogue(&self) -> Result<(), VaultError> {
        let quiet = RunContext { threads: 1, rate: None, progress: &|_| {}, stopped: &|| false };
        Ok(crate::catalogue_rebuild::rebuild(&self.catalogue, &*self.storage, &self.coders, quiet)
            .map(drop)?)
    }

    fn open_as_it_is(
        location: &Location,
        clock: Clock,
        purpose: Purpose,
        open_changelog: impl FnOnce(&Settings, &Path) -> Result<Arc<dyn Changelog>, VaultError>,
    ) -> Result<Vault, VaultError> {
        let Location { root, repository: path, .. } = location;
        forget::refuse_forgotten(path, root)?;
        let mut settings = Settings::load(path)?;
        settings.check_root(root, path)?;
        let repository = Tree::open_owned(path).map_err(at(path))?;
        let refusal = refusal_to_write(&repository)?;
        let read_only = match (refusal, purpose) {
            // Opening the vault of a pool always writes the documents that its targets share.
            (Some(refusal), Purpose::Look) if settings.storage == Kind::Plain => Some(refusal.to_string()),
            (Some(refusal), _) => return Err(refusal),
            (None, _) => None,
        };
        // One process at a time, since the first one creates the databases. Those of hosts that share the vault are
        // their own: a host that hangs keeps no other one from opening it.
        let _turn = match settings.is_shared() {
            true => take_turn(copies::directory(&settings, location)?.path())?,
            false => take_turn(path)?,
        };
        let mut of_files = None;
        let mut files = None;
        let mut directories = vec![STAGING];
        let (storage, code): (Box<dyn Storage>, Code) = match settings.storage {
            Kind::Plain => {
                let tree = Tree::open(root).map_err(at(root))?;
                directories.push(REDUNDANCY);
                files = Some(tree.clone());
                (Box::new(Plain::new(tree, repository.clone())), DEFAULT_CODE.parse()?)
            }
            Kind::Pool => {
                let pool = open_pool(root, &clock)?;
                let code = format!("{}+{}", pool.config().stripe, pool.config().redundancy).parse()?;
                // Another vault of the pool was in use since, so this catalogue is outdated and is rebuilt.
                if shared::is_outdated(path, &pool) {
                    remove_catalogue(&repository)?;
                }
                shared::reconcile_policy(path, &pool)?;
                settings.reconcile(path, &pool)?;
                of_files = Some(pool.clone());
                (Box::new(pool), code)
            }
        };
        for directory in directories {
            if read_only.is_none() && repository.find(directory).map_err(at(path))?.is_none() {
                repository.make_directories(directory, 0o700).map_err(at(path))?;
            }
        }
        let databases = match settings.is_shared() {
            true => copies::directory(&settings, location)?,
            false => repository.clone(),
        };
        // Earlier versions had the database of several hosts in the repository.
        if settings.is_shared() && read_only.is_none() {
            remove_catalogue(&repository)?;
        }
        let scratch = read_only.is_some().then(|| Scratch::of(&databases)).transpose()?;
        let databases = match &scratch {
            Some(scratch) => Tree::open(scratch.path()).map_err(at(scratch.path()))?,
            None => databases,
        };
        let changelog = open_changelog(&settings, databases.path())?;
        let keeping = if read_only.is_some() { Keeping::Silent } else { Keeping::Shared };
        Ok(Vault {
            root: root.clone(),
            storage,
            pool: of_files,
            coders: Coders::new()?,
            clock,
            policy: load_policy(path, &code, files)?,
            default_code: code,
            catalogue: copies::open(&settings, databases.path(), &changelog, keeping)?,
            changelog,
            settings,
            repository,
            read_only,
            databases,
            _scratch: scratch,
        })
    }

    /// Opens the vault of a pool. If its target is gone, a new vault is created on an online target, with a catalogue
    /// rebuilt from the headers of redundancy files. Returns true in that case.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn of_pool(pool: &Pool, clock: Clock) -> Result<(Vault, bool), VaultError> {
        let location = Location::of_pool(pool)?;
        let begun = !location.repository.join(settings::FILE).exists();
        let all_answer = pool.targets().iter().all(|target| target.state != TargetState::Offline);
        // A vault that was lost or removed with its target keeps its identity.
        if begun && all_answer && pool.document(Document::Vault).is_none() {
            return Err(VaultError::Unprotected { path: PathBuf::from(pool.config().name) });
        }
        Ok((Vault::create(&location, None, clock)?, begun))
    }

    /// Combines [`of_pool`](Vault::of_pool) and [`open_to_examine`](Vault::open_to_examine). A vault that has to be
    /// created on another target needs its server.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn of_pool_to_examine(
        pool: &Pool,
        clock: Clock,
    ) -> Result<(Vault, bool, Option<changelog::Error>), VaultError> {
        let location = Location::of_pool(pool)?;
        if location.repository.join(settings::FILE).exists() {
            let (vault, missing) = Vault::open_to_examine(&location, clock)?;
            return Ok((vault, false, missing));
        }
        let (vault, begun) = Vault::of_pool(pool, clock)?;
        Ok((vault, begun, None))
    }

    /// Checks a policy and stores it.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn set_policy(&mut self, text: &str) -> Result<(), VaultError> {
        let path = self.repository.path().to_owned();
        let policy = parse_policy(text, &path.join(POLICY), &self.default_code)?;
        if let Some(pool) = &self.pool {
            policy
                .check_pool_block(pool.config().block)
                .and_then(|()| policy.check_pool_conditions())
                .map_err(|source| VaultError::Policy { path: path.join(POLICY), source: Box::new(source) })?;
        }
        match &self.pool {
            Some(pool) => shared::set_policy(&path, pool, text)?,
            None => settings::replace(&path, POLICY, text.as_bytes())?,
        }
        self.use_policy(policy);
        Ok(())
    }

    /// Uses a policy that is not stored.
    pub fn use_policy(&mut self, mut policy: Policy) {
        policy.look_in(self.policy.tree().cloned());
        self.policy = policy;
    }

    /// Locks the vault for a command that changes it, and recovers from a crash.
    ///
    /// # Errors
    /// [`LockError`]: another process holds it.
    pub fn lock(&self, command: &str) -> Result<Lock, LockError> {
        if self.read_only.is_some() {
            return Lock::take_to_read(&self.repository);
        }
        let lock = Lock::take(&self.repository, command, &self.clock)?;
        for repository in self.storage.writable_repositories() {
            redo::recover(&repository.tree).map_err(LockError::Io)?;
        }
        // Redundancy of a pool is in the repositories of its targets.
        if self.pool.is_some() {
            redo::recover(&self.repository).map_err(LockError::Io)?;
        }
        Ok(lock)
    }

    /// Takes the lock of the watch on this host; the vault remains usable by others.
    ///
    /// # Errors
    /// [`LockError::Watched`]: another watch is running.
    pub fn lock_to_watch(&self, command: &str) -> Result<Lock, LockError> {
        // Each host of a deployment may watch.
        let place = if self.settings.is_shared() { &self.databases } else { &self.repository };
        Lock::take_to_watch(place, command, &self.clock)
    }

    /// Version of the policy file.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn policy_version(&self) -> Result<Option<Generation>, VaultError> {
        let found = self.repository.find(POLICY.as_bytes());
        Ok(found.map_err(at(self.repository.path()))?.map(|stat| stat.generation()))
    }

    /// Reads the policy file again.
    ///
    /// # Errors
    /// See [`VaultError`]; the policy stays as it was.
    pub fn read_policy(&self) -> Result<Policy, VaultError> {
        load_policy(self.repository.path(), &self.default_code, self.policy.tree().cloned())
    }

    /// Converts a path of the file system to a path relative to the root. None for a path outside the tree, and for
    /// pools.
    pub fn inside(&self, path: &Path) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        if self.settings.storage == Kind::Pool {
            return None;
        }
        let root = std::fs::canonicalize(&self.root).ok()?;
        // The file may be deleted, but its directory has to exist.
        let absolute = match std::fs::canonicalize(path) {
            Ok(absolute) => absolute,
            Err(_) => std::fs::canonicalize(parent(path)).ok()?.join(path.file_name()?),
        };
        Some(absolute.strip_prefix(&root).ok()?.as_os_str().as_bytes().to_vec())
    }
}

fn open_pool(target: &Path, clock: &Clock) -> Result<Pool, pool::PoolError> {
    let options = pool::Options { clock: clock.clone(), ..pool::Options::default() };
    Pool::open_at(&[target.to_owned()], options)
}

/// The pool of a new vault, if it is the vault of a pool.
fn pool_of(location: &Location, clock: &Clock) -> Result<Option<Pool>, pool::PoolError> {
    let of_pool = location.storage == Kind::Pool;
    of_pool.then(|| open_pool(&location.root, clock)).transpose()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn remove_catalogue(repository: &Tree) -> Result<(), VaultError> {
    ["", "-wal", "-shm"].iter().try_for_each(|suffix| {
        let name = format!("{CATALOGUE}{suffix}");
        repository.remove(name.as_bytes()).map(drop).map_err(at(repository.path()))
    })
}

/// Prevents others from opening the repository at the same time.
fn take_turn(repository: &Path) -> Result<Lockable, VaultError> {
    std::fs::File::open(repository).and_then(Lockable::exclusive).map_err(at(repository))
}

pub(crate) const POLICY: &str = "policy.toml";

const CATALOGUE: &str = "catalogue.sqlite";

const CHANGELOG: &str = "changelog";

fn make_private(path: &Path) -> Result<(), VaultError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))
}

fn open_changelog(settings: &Settings, repository: &Path) -> Result<Arc<dyn Changelog>, VaultError> {
    match settings.changelog.as_str() {
        settings::EMBEDDED => Ok(Arc::new(Embedded::open(&repository.join(CHANGELOG))?)),
        url if url.starts_with("redis://") || url.starts_with("rediss://") => {
            // Several vaults may share a server.
            let server = Server { url: url.to_owned(), name: settings.id.clone(), allow_forgetful: false };
            Ok(server.open()?)
        }
        other => Err(VaultError::Settings {
            path: repository.join(settings::FILE),
            why: format!(
                "changelog {:?}: it is \"embedded\", redis://HOST:PORT or rediss://HOST:PORT",
                without_password(other)
            ),
        }),
    }
}

fn load_policy(repository: &Path, code: &Code, tree: Option<Tree>) -> Result<Policy, VaultError> {
    let path = repository.join(POLICY);
    let mut policy = match private::read(repository, POLICY).map_err(at(&path))? {
        Some(text) => parse_policy(&text, &path, code)?,
        None => Policy::only(code.clone()),
    };
    policy.look_in(tree);
    Ok(policy)
}

/// Parses a policy, with a default code; errors name the file.
///
/// # Errors
/// [`VaultError::Policy`].
pub fn parse_policy(text: &str, path: &Path, code: &Code) -> Result<Policy, VaultError> {
    Policy::parse(text, code.clone(), &identity)
        .map_err(|source| VaultError::Policy { path: path.to_owned(), source: Box::new(source) })
}

/// The text of a policy with rules that leave files out.
///
/// # Errors
/// [`VaultError::Policy`].
pub fn exclude(text: &str, patterns: &[String], path: &Path, code: &Code) -> Result<String, VaultError> {
    crate::policy::exclude(text, patterns, code, &identity)
        .map_err(|source| VaultError::Policy { path: path.to_owned(), source: Box::new(source) })
}

/// Number of a user or group, from any source that the system uses.
fn identity(kind: &'static str, name: &str) -> Option<u32> {
    let database = if kind == "user" { "passwd" } else { "group" };
    let found = std::process::Command::new("getent").args([database, name]).output().ok()?;
    let line = String::from_utf8(found.stdout).ok()?;
    line.split(':').nth(2)?.parse().ok()
}
