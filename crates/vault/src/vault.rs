//! A protected tree with everything that belongs to it.
//!
//! The repository is a directory: `vault.toml` says what is protected and how, `policy.toml` what files get (in a pool, all targets have
//! copies of both), `redundancy/` holds
//! the redundancy files under the names of what they protect, `staging/` what is not whole yet, `catalogue.sqlite` and
//! `changelog/` are what their names say, `lock` tells who is at work.

mod lock;
mod pointer;
mod renew;
mod scratch;
mod settings;
mod shared;

pub use lock::{Lock, LockError};
pub use renew::{Renewal, Renewed, survey};
pub use settings::{Kind, Location, Settings};

use crate::catalogue::{Catalogue, CatalogueError};
use crate::catalogue_rebuild::RebuildError;
use crate::changelog::remember_password;
use crate::changelog::server::without_password;
use crate::changelog::{self, Absent, Changelog, Embedded, Server};
use crate::coder::Coders;
use crate::policy::{Policy, PolicyError};
use crate::private;
use crate::redundancy::{REDUNDANCY, STAGING, redo};
use crate::replaced;
use crate::run::RunContext;
use crate::shown::Shown;
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

/// What files get where nothing is configured.
pub const DEFAULT_CODE: &str = "8+2";

/// Our directory within a tree that is protected.
pub const OWN: &str = ".gabion";

/// Why there is no vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// Nothing at or above the path is protected.
    #[error("{} is not protected: there is no {OWN} directory in it or above it (`gabion protect DIR` makes one; \
             --repository names one that lies elsewhere)", path.display())]
    Unprotected {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// The settings are no settings.
    #[error("{}: {why}", path.display())]
    Settings {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What the repository needs is damaged, and can be made anew.
    #[error("{}: {}; `gabion catalogue rebuild` makes it anew", path.display(), why.trim_end())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another one is at work.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A watch, a mount or a daemon has the catalogue open.
    #[error("the catalogue is in use by {holder}: end that first, it would go on with the old catalogue")]
    CatalogueInUse {
        /// Process, host, time.
        holder: String,
    },
    /// The policy is none.
    #[error("{}: {source}", path.display())]
    Policy {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: Box<PolicyError>,
    },
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The changelog fails.
    #[error("the changelog: {}{}", .0, advice(.0))]
    Changelog(#[from] changelog::Error),
    /// The pool fails.
    #[error(transparent)]
    Pool(#[from] pool::PoolError),
    /// The engine fails.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// The repository belongs to another tree.
    #[error(
        "the repository {} protects {}, not {}; if that is where the tree is now, put it into {}",
        Shown::path(repository), Shown::path(theirs), Shown::path(ours), Shown::path(&repository.join(settings::FILE))
    )]
    OtherTree {
        /// The repository.
        repository: PathBuf,
        /// What it protects.
        theirs: PathBuf,
        /// What was asked for.
        ours: PathBuf,
    },
    /// The tree that the repository is for is not there.
    #[error(
        "{}, which the repository {} protects, is not there; if it was moved, put where it is now into {}",
        Shown::path(root), Shown::path(repository), Shown::path(&repository.join(settings::FILE))
    )]
    NoTree {
        /// The repository.
        repository: PathBuf,
        /// Where the tree was.
        root: PathBuf,
    },
}

fn advice(error: &changelog::Error) -> &'static str {
    if error.is_damage() { "; `gabion catalogue rebuild` makes it anew" } else { "" }
}

fn at(path: &Path) -> impl Fn(io::Error) -> VaultError + '_ {
    |source| VaultError::Io { path: path.to_owned(), source }
}

/// What a vault is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To bring it up to date.
    Change,
    /// To look at it; a repository that is read-only will do.
    Look,
}

/// Why the repository cannot be written, if it cannot.
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

/// A vault, open.
pub struct Vault {
    /// The protected tree.
    pub root: PathBuf,
    /// Where it keeps what is its own.
    pub repository: Tree,
    /// Where files are.
    pub storage: Box<dyn Storage>,
    /// The pool they are in, if it is one.
    pub pool: Option<Pool>,
    /// Codes made ready.
    pub coders: Coders,
    /// The time.
    pub clock: Clock,
    /// What files get.
    pub policy: Policy,
    /// What files get where the policy says nothing.
    pub default_code: Code,
    /// What is known of them.
    pub catalogue: Catalogue,
    /// What is due.
    pub changelog: Arc<dyn Changelog>,
    /// How it is set up.
    pub settings: Settings,
    /// Why the repository cannot be written, if it cannot: then catalogue and changelog are copies.
    pub read_only: Option<String>,
    /// Where these copies are; it goes after all that has them open.
    _scratch: Option<Scratch>,
}

impl From<RebuildError> for VaultError {
    fn from(error: RebuildError) -> VaultError {
        match error {
            RebuildError::Catalogue(error) => VaultError::Catalogue(error),
            RebuildError::Io { path, source } => VaultError::Io { path, source },
        }
    }
}

impl Vault {
    /// Makes a repository for `root`, or opens the one that is there.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn create(location: &Location, changelog: Option<&str>, clock: Clock) -> Result<Vault, VaultError> {
        let repository = &location.repository;
        // Settings have the address without its password.
        changelog.into_iter().for_each(remember_password);
        let is_begun = repository.join(settings::FILE).exists();
        if !is_begun && *repository == location.root.join(OWN) && repository.is_symlink() {
            let why = "it is a symbolic link: --repository names one that lies elsewhere".to_owned();
            return Err(VaultError::Settings { path: repository.clone(), why });
        }
        make_private(repository)?;
        // Before anything is written there: someone else may have made it.
        Tree::open_owned(repository).map_err(at(repository))?;
        if !is_begun {
            Vault::begin(location, changelog, &clock).inspect_err(|_| {
                // Where nothing was begun nothing is left; what is not empty stays.
                let _ = std::fs::remove_dir(repository);
            })?;
        }
        let vault = Vault::open(location, clock)?;
        // Settings of earlier versions may have a password in them.
        let was = without_password(&vault.settings.changelog);
        if let Some(wanted) = changelog.map(without_password).filter(|wanted| *wanted != was) {
            let path = repository.join(settings::FILE);
            let why =
                format!("its changelog is {was}, not {wanted}: finish what is pending and edit this file");
            return Err(VaultError::Settings { path, why });
        }
        Ok(vault)
    }

    /// Leaves a pointer in the tree to a repository that lies elsewhere, so that later commands find it by the tree alone.
    ///
    /// # Errors
    /// What the operating system says; the vault can be used without.
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

    /// Writes the settings of a new vault, if they can be used: a changelog that is none would stand in the way of every later command.
    fn begin(location: &Location, changelog: Option<&str>, clock: &Clock) -> Result<(), VaultError> {
        let repository = &location.repository;
        let _turn = take_turn(repository)?;
        let pool = pool_of(location, clock)?;
        let settings = Settings::new(location, changelog, pool.as_ref())?;
        // Another one may have been first.
        if repository.join(settings::FILE).exists() {
            return Ok(());
        }
        open_changelog(&settings, repository)?;
        pool.as_ref().map(shared::outdate_others).transpose()?;
        settings.save(repository)
    }

    /// Opens a vault. If it has no catalogue, that is made from the headers of redundancy files: it is only a cache, and what it does
    /// not know must not look like something that does not exist.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn open(location: &Location, clock: Clock) -> Result<Vault, VaultError> {
        let vault = Vault::open_as_it_is(location, clock, Purpose::Change, open_changelog)?;
        vault.with_catalogue(location)
    }

    /// Opens a vault to look at it and to examine and repair files, for which nobody needs a server: if that fails, its changelog is
    /// [`Absent`]. Says why. Nor does anyone need to write to the repository to look: if that cannot be, nothing is noted there.
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
        if self.catalogue.is_to_be_made()? {
            let _turn = take_turn(&location.repository)?;
            // Another one may have been first.
            if self.catalogue.is_to_be_made()? {
                self.make_catalogue()?;
            }
        }
        Ok(self)
    }

    /// Removes replaced content that is too old or takes too much room. Gives what is left.
    ///
    /// # Errors
    /// What the operating system says.
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
        let mut settings = Settings::load(path)?;
        settings.check_root(root, path)?;
        let repository = Tree::open_owned(path).map_err(at(path))?;
        let refusal = refusal_to_write(&repository)?;
        let read_only = match (refusal, purpose) {
            // What a pool's targets have to agree on is written whenever it is opened.
            (Some(refusal), Purpose::Look) if settings.storage == Kind::Plain => Some(refusal.to_string()),
            (Some(refusal), _) => return Err(refusal),
            (None, _) => None,
        };
        // One at a time: whoever comes first makes the databases.
        let _turn = take_turn(path)?;
        let mut of_files = None;
        let (storage, code): (Box<dyn Storage>, Code) = match settings.storage {
            Kind::Plain => {
                let tree = Tree::open(root).map_err(at(root))?;
                for directory in [REDUNDANCY, STAGING] {
                    if read_only.is_none() && repository.find(directory).map_err(at(path))?.is_none() {
                        repository.make_directories(directory, 0o700).map_err(at(path))?;
                    }
                }
                (Box::new(Plain::new(tree, repository.clone())), DEFAULT_CODE.parse()?)
            }
            Kind::Pool => {
                let pool = open_pool(root, &clock)?;
                let code = format!("{}+{}", pool.config().stripe, pool.config().redundancy).parse()?;
                // Another vault was worked with since: this catalogue does not know what happened there. It is made from headers.
                if shared::is_outdated(path, &pool) {
                    for suffix in ["", "-wal", "-shm"] {
                        let name = format!("{CATALOGUE}{suffix}");
                        repository.remove(name.as_bytes()).map_err(at(path))?;
                    }
                }
                shared::reconcile_policy(path, &pool)?;
                settings.reconcile(path, &pool)?;
                of_files = Some(pool.clone());
                (Box::new(pool), code)
            }
        };
        let scratch = read_only.is_some().then(|| Scratch::of(&repository)).transpose()?;
        let databases = scratch.as_ref().map_or(path.as_path(), Scratch::path);
        let changelog = open_changelog(&settings, databases)?;
        Ok(Vault {
            root: root.clone(),
            storage,
            pool: of_files,
            coders: Coders::new()?,
            clock,
            policy: load_policy(path, &code)?,
            default_code: code,
            catalogue: Catalogue::open(&databases.join(CATALOGUE))?,
            changelog,
            settings,
            repository,
            read_only,
            _scratch: scratch,
        })
    }

    /// Opens the vault of a pool. If the target that it was on is gone, another one is begun on one that answers, with a catalogue
    /// made from the headers of redundancy files. Says whether that was so.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn of_pool(pool: &Pool, clock: Clock) -> Result<(Vault, bool), VaultError> {
        let location = Location::of_pool(pool)?;
        let begun = !location.repository.join(settings::FILE).exists();
        let all_answer = pool.targets().iter().all(|target| target.state != TargetState::Offline);
        // A vault that was lost with its target, or removed from it, goes on elsewhere as the same.
        if begun && all_answer && pool.document(Document::Vault).is_none() {
            return Err(VaultError::Unprotected { path: PathBuf::from(pool.config().name) });
        }
        Ok((Vault::create(&location, None, clock)?, begun))
    }

    /// As [`of_pool`](Vault::of_pool) and [`open_to_examine`](Vault::open_to_examine) together. One that has to be begun elsewhere needs
    /// its server.
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

    /// Takes a policy, checked, and keeps it for later runs.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn set_policy(&mut self, text: &str) -> Result<(), VaultError> {
        let path = self.repository.path().to_owned();
        let policy = parse_policy(text, &path.join(POLICY), &self.default_code)?;
        if let Some(pool) = &self.pool {
            policy
                .check_pool_block(pool.config().block)
                .map_err(|source| VaultError::Policy { path: path.join(POLICY), source: Box::new(source) })?;
        }
        match &self.pool {
            Some(pool) => shared::set_policy(&path, pool, text)?,
            None => settings::replace(&path, POLICY, text.as_bytes())?,
        }
        self.policy = policy;
        Ok(())
    }

    /// Takes the vault for one command that changes it, and clears away what a crash left behind.
    ///
    /// # Errors
    /// [`LockError`]: who has it.
    pub fn lock(&self, command: &str) -> Result<Lock, LockError> {
        if self.read_only.is_some() {
            return Lock::take_to_read(&self.repository);
        }
        let lock = Lock::take(&self.repository, command, &self.clock)?;
        for repository in self.storage.writable_repositories() {
            redo::recover(&repository.tree).map_err(LockError::Io)?;
        }
        Ok(lock)
    }

    /// Becomes the one that watches this tree; others may use the vault meanwhile.
    ///
    /// # Errors
    /// [`LockError::Watched`]: who does.
    pub fn lock_to_watch(&self, command: &str) -> Result<Lock, LockError> {
        Lock::take_to_watch(&self.repository, command, &self.clock)
    }

    /// Which version of the policy the repository has, and nothing of what is in it.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn policy_version(&self) -> Result<Option<Generation>, VaultError> {
        let found = self.repository.find(POLICY.as_bytes());
        Ok(found.map_err(at(self.repository.path()))?.map(|stat| stat.generation()))
    }

    /// Reads the policy of the repository again.
    ///
    /// # Errors
    /// See [`VaultError`]; the policy stays as it was.
    pub fn read_policy(&self) -> Result<Policy, VaultError> {
        load_policy(self.repository.path(), &self.default_code)
    }

    /// A path of the file system as the storage has it: relative to the root. Nothing for one outside; files of a pool have no
    /// such path.
    pub fn inside(&self, path: &Path) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        if self.settings.storage == Kind::Pool {
            return None;
        }
        let root = std::fs::canonicalize(&self.root).ok()?;
        // The file itself may be gone; its directory need not be.
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

/// The pool of a vault that is about to be made, if it is one of a pool.
fn pool_of(location: &Location, clock: &Clock) -> Result<Option<Pool>, pool::PoolError> {
    let of_pool = location.storage == Kind::Pool;
    of_pool.then(|| open_pool(&location.root, clock)).transpose()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Keeps others from opening the repository at the same time.
fn take_turn(repository: &Path) -> Result<Lockable, VaultError> {
    std::fs::File::open(repository).and_then(Lockable::exclusive).map_err(at(repository))
}

const POLICY: &str = "policy.toml";

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

fn load_policy(repository: &Path, code: &Code) -> Result<Policy, VaultError> {
    let path = repository.join(POLICY);
    match private::read(repository, POLICY).map_err(at(&path))? {
        Some(text) => parse_policy(&text, &path, code),
        None => Ok(Policy::only(code.clone())),
    }
}

/// Reads a policy, with the code that files get where it says nothing; errors name the file.
///
/// # Errors
/// [`VaultError::Policy`].
pub fn parse_policy(text: &str, path: &Path, code: &Code) -> Result<Policy, VaultError> {
    Policy::parse(text, code.clone(), &identity)
        .map_err(|source| VaultError::Policy { path: path.to_owned(), source: Box::new(source) })
}

/// The number of a user or group, wherever this machine keeps them.
fn identity(kind: &'static str, name: &str) -> Option<u32> {
    let database = if kind == "user" { "passwd" } else { "group" };
    let found = std::process::Command::new("getent").args([database, name]).output().ok()?;
    let line = String::from_utf8(found.stdout).ok()?;
    line.split(':').nth(2)?.parse().ok()
}
