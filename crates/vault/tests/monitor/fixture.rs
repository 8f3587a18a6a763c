//! Fixture: a tree on some file system, and a watch of it.

pub(crate) use super::test_rng::TestRng;
use gabion_vault::catalogue::{CatalogueError, Change, Class};
use gabion_vault::monitor::{Choice, Live, Notice, Options, Status};
use gabion_vault::protect;
use gabion_vault::run::RunContext;
use gabion_vault::scrub::{self, Selection};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Fanotify covers the whole file system: a test that fills the queue would disturb others, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Timeout for conditions; other load may delay every `fsync` by seconds.
const PATIENCE: Duration = gabion_testkit::PATIENCE;

pub(crate) const QUIET: RunContext<'static> =
    RunContext { threads: 2, rate: None, progress: &|_| {}, stopped: &|| false };

/// A loop-mounted file system, unmounted on drop.
pub(crate) struct Mounted {
    at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

pub(crate) struct Fixture {
    // Declared first: unmounted before the directory is removed.
    _mounted: Option<Mounted>,
    dir: tempfile::TempDir,
    notices: Arc<Mutex<Vec<Notice>>>,
    _turn: MutexGuard<'static, ()>,
}

fn run(program: &str, args: &[&OsStr]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Fixture {
    /// In a tmpfs.
    pub(crate) fn new() -> Fixture {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        Fixture { _mounted: None, dir, notices: Arc::default(), _turn: turn }
    }

    /// On a file system of this kind; none, with a skip line, if it is not available.
    pub(crate) fn on(kind: &str, test: &str) -> Option<Fixture> {
        let fixture = Fixture::new();
        let (image, at) = (fixture.dir.path().join("image"), fixture.dir.path().join("tree"));
        std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        let mkfs = format!("mkfs.{kind}");
        if !is_root() || !run(&mkfs, &["-q".as_ref(), image.as_os_str()]) {
            gabion_testkit::skip!("{test} on {kind}: {mkfs} is not here, or we are not root");
            return None;
        }
        if !run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()]) {
            gabion_testkit::skip!("{test} on {kind}: nothing can be mounted here");
            return None;
        }
        Some(Fixture { _mounted: Some(Mounted { at }), ..fixture })
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn path(&self, name: impl AsRef<[u8]>) -> PathBuf {
        self.root().join(OsStr::from_bytes(name.as_ref()))
    }

    /// The protected tree: a directory of the file system, so that the same one has files outside the tree.
    pub(crate) fn root(&self) -> PathBuf {
        self.tree().join("root")
    }

    pub(crate) fn write(&self, name: impl AsRef<[u8]>, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn location(&self) -> Location {
        Location::of(&self.root(), Some(&self.dir.path().join("repository")))
    }

    pub(crate) fn vault(&self) -> Vault {
        Vault::open(&self.location(), Clock::System).unwrap()
    }

    /// Creates the vault.
    pub(crate) fn create(&self, policy: &str) {
        self.create_on(None, policy);
    }

    /// Creates the vault with its changelog on a server.
    pub(crate) fn create_on(&self, server: Option<&str>, policy: &str) {
        std::fs::create_dir_all(self.root()).unwrap();
        let mut vault = Vault::create(&self.location(), server, Clock::System).unwrap();
        vault.set_policy(policy).unwrap();
    }

    pub(crate) fn options(source: Choice) -> Options {
        Options {
            source,
            threads: 2,
            rescan: Duration::MAX,
            event_delay: Duration::from_millis(5),
            record_interval: Duration::from_millis(20),
            ..Options::default()
        }
    }

    pub(crate) fn watch(&self, options: Options) -> Live {
        self.notices().clear();
        let notices = Arc::clone(&self.notices);
        let tell = move |notice: &Notice| notices.lock().unwrap().push(notice.clone());
        Live::start(self.vault(), options, Arc::new(tell)).unwrap()
    }

    pub(crate) fn notices(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.notices.lock().unwrap()
    }

    /// Number of full scans since the watch began.
    pub(crate) fn whole_scans(&self) -> usize {
        let whole = |notice: &&Notice| matches!(notice, Notice::Scanned(scan) if scan.within.iter().any(Vec::is_empty));
        self.notices().iter().filter(whole).count()
    }

    /// Waits for a condition.
    pub(crate) fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let began = Stopwatch::start();
        while !so() {
            assert!(began.elapsed() < PATIENCE, "never: {what}; {:#?}", self.notices());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all present files are protected and nothing is pending.
    pub(crate) fn until_protected(&self) {
        let vault = self.vault();
        let began = Stopwatch::start();
        loop {
            let pending = vault.changelog.entries(None, 10).unwrap();
            let seen = protect::scan(&vault, QUIET).unwrap();
            if pending.is_empty() && seen.changes.is_empty() {
                return;
            }
            if began.elapsed() > PATIENCE {
                let differ = |class| -> Vec<String> {
                    let mut found = Vec::new();
                    let page = |page: &[Change]| -> Result<(), CatalogueError> {
                        found.extend(page.iter().map(|change| format!("{change:?}")));
                        Ok(())
                    };
                    vault.catalogue.each_change(class, page).unwrap();
                    found
                };
                let differ = Class::ALL.map(differ);
                panic!("pending {pending:?}; different {differ:?}; {:#?}", self.notices());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Expects that exactly the present files are protected, and intact.
    pub(crate) fn assert_protected(&self) {
        let vault = self.vault();
        let mut known = BTreeSet::new();
        vault
            .catalogue
            .each_page(b"", |page| -> Result<(), CatalogueError> {
                known.extend(page.into_iter().map(|(path, _)| path));
                Ok(())
            })
            .unwrap();
        assert_eq!(known, files_below(&self.root()));
        assert_eq!(files_below(&self.dir.path().join("repository/redundancy")), known);
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        let report = scrub::scrub(&vault, b"", options, QUIET).unwrap();
        assert!(report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
    }

    pub(crate) fn stop(&self, live: Live) -> Status {
        live.stop().unwrap()
    }
}

/// Paths of regular files below a directory.
pub(crate) fn files_below(root: &Path) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(dir) = ahead.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                ahead.push(entry.path());
            } else if kind.is_file() {
                found.insert(entry.path().strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec());
            }
        }
    }
    found
}
