//! Fixture: a pool to mount, and its vault.

use super::loops::Disks;
pub(crate) use super::seed::Seed as TestRng;
use gabion_mount::{Mounted, Options, Outage, Privileges, Recorder, VerifiedReads, mount};
use gabion_vault::catalogue::PossibleNames;
use gabion_vault::changelog::Embedded;
use gabion_vault::coder::Coders;
use gabion_vault::policy::Policy;
use gabion_vault::protect::{self};
use gabion_vault::run::RunContext;
use gabion_vault::scrub::{self, Selection, scrub};
use gabion_vault::storage::pool::{self, NewTarget, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether tests can mount here; says so if not.
pub(crate) fn can_mount(name: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        gabion_testkit::skip!("{name}: mounting needs root and /dev/fuse");
    }
    can
}

/// What the kernel keeps of files is read again.
pub(crate) fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
}

/// How long a busy machine may take for what takes a second.
pub(crate) const PATIENCE: Duration = gabion_testkit::PATIENCE;

pub(crate) const QUIET: RunContext<'static> =
    RunContext { threads: 2, rate: None, progress: &|_| {}, stopped: &|| false };

/// Nothing is held back: these tests change everything at once.
const POLICY: &str = "[guard]\nat_least = 1000000\n";

/// Targets d1, d2, … of a pool, and a place to mount it at.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    count: usize,
}

/// A pool that is mounted. Dropped without a word, it is unmounted as well: a test that fails leaves nothing behind.
pub(crate) struct Mount {
    mounted: Option<Mounted>,
    recorder: Arc<Recorder>,
    degraded: Arc<AtomicU64>,
    root: PathBuf,
    pool: Pool,
}

impl Fixture {
    /// Targets in memory.
    pub(crate) fn new(count: usize, stripe: usize, redundancy: usize, block: u64) -> Fixture {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::tempdir_in(parent).unwrap();
        let fixture = Fixture { dir, count };
        (1..=count).for_each(|number| std::fs::create_dir(fixture.target(number)).unwrap());
        fixture.found(stripe, redundancy, block);
        fixture
    }

    /// Eight targets of a pool of 3+2, each a small disk of its own; none where that cannot be had here.
    pub(crate) fn on_disks(test: &str) -> Option<(Fixture, Disks)> {
        if !can_mount(test) {
            return None;
        }
        let fixture = Fixture::bare(8);
        let disks = match Disks::make(fixture.root(), 8, "24M") {
            Ok(disks) => disks,
            Err(why) => {
                gabion_testkit::skip!("{test}: {why}");
                return None;
            }
        };
        fixture.found(3, 2, 4096);
        Some((fixture, disks))
    }

    /// Directories for targets; the pool is not made yet.
    pub(crate) fn bare(count: usize) -> Fixture {
        let fixture = Fixture { dir: tempfile::tempdir().unwrap(), count };
        (1..=count).for_each(|number| std::fs::create_dir(fixture.target(number)).unwrap());
        fixture
    }

    /// Makes the pool of targets that are there.
    pub(crate) fn found(&self, stripe: usize, redundancy: usize, block: u64) {
        let target = |number| NewTarget { path: self.target(number), domain: None };
        let targets: Vec<NewTarget> = (1..=self.count).map(target).collect();
        Pool::create("tank", &targets, stripe, block, redundancy, options()).unwrap();
        std::fs::create_dir_all(self.mountpoint()).unwrap();
        let mut vault = Vault::create(&self.location(), None, Clock::System).unwrap();
        vault.set_policy(POLICY).unwrap();
    }

    /// What a child process has of a ground.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn target(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("d{number}"))
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub(crate) fn pool(&self) -> Pool {
        open_pool(self.dir.path(), self.count)
    }

    fn location(&self) -> Location {
        Location::of_pool(&self.pool()).unwrap()
    }

    pub(crate) fn vault(&self) -> Vault {
        Vault::create(&self.location(), None, Clock::System).unwrap()
    }

    /// The disk is pulled out.
    pub(crate) fn lose(&self, number: usize) {
        std::fs::rename(self.target(number), self.dir.path().join(format!("away{number}"))).unwrap();
    }

    /// It is put back as it was.
    pub(crate) fn bring_back(&self, number: usize) {
        std::fs::rename(self.dir.path().join(format!("away{number}")), self.target(number)).unwrap();
    }

    pub(crate) fn mount(&self) -> Mount {
        Mount::new(self.dir.path(), self.count)
    }

    /// The same, and other users may use it.
    pub(crate) fn mount_for_all(&self) -> Mount {
        std::fs::set_permissions(self.root(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Mount::with(self.dir.path(), self.count, true)
    }

    /// Protects everything, and expects that nothing goes wrong.
    pub(crate) fn protect(&self) -> protect::Report {
        let vault = self.vault();
        let _lock = vault.lock("test").unwrap();
        let report = protect::protect(&vault, QUIET).unwrap();
        assert_eq!(report.done.failed, []);
        assert_eq!(report.seen.unreadable, []);
        assert!(report.held.is_none(), "{:?}", report.held);
        report
    }

    pub(crate) fn scrub(&self) -> scrub::Report {
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        scrub(&self.vault(), b"", options, QUIET).unwrap()
    }

    /// Protects, and expects that a scrub finds nothing then.
    pub(crate) fn assert_converges(&self) {
        self.protect();
        let report = self.scrub();
        assert!(report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
    }
}

pub(crate) fn options() -> pool::Options {
    pool::Options::default()
}

pub(crate) fn open_pool(root: &Path, count: usize) -> Pool {
    let targets = (1..=count).map(|number| root.join(format!("d{number}")));
    let there: Vec<PathBuf> = targets.filter(|path| path.join("pool.toml").exists()).collect();
    Pool::open_at(&there, options()).unwrap()
}

impl Mount {
    pub(crate) fn new(root: &Path, count: usize) -> Mount {
        Mount::with(root, count, false)
    }

    fn with(root: &Path, count: usize, allow_other: bool) -> Mount {
        let pool = open_pool(root, count);
        let location = Location::of_pool(&pool).unwrap();
        let changelog = Arc::new(Embedded::open(&location.repository.join("changelog")).unwrap());
        let code = format!("{}+{}", pool.config().stripe, pool.config().redundancy).parse().unwrap();
        let policy = Policy::only(code);
        let recorder = Recorder::start(
            changelog,
            policy,
            Clock::System,
            Outage::Wait,
            &location.repository,
            Box::new(|_| ()),
        );
        let recorder = Arc::new(recorder.unwrap());
        let degraded = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&degraded);
        let verified = VerifiedReads {
            storage: Box::new(pool.clone()),
            coders: Coders::new().unwrap(),
            names: Box::new(|_| PossibleNames::default()),
            note: Box::new(move |_, report| {
                theirs.fetch_add(report.reconstructed, Ordering::Relaxed);
            }),
        };
        let (coders, theirs) = (Coders::new().unwrap(), Arc::clone(&recorder));
        let files =
            gabion_mount::Pool::new(pool.clone(), coders, Clock::System, theirs, Some(verified)).unwrap();
        let at = root.join("mnt");
        let privileges = Privileges { suid: true, dev: true, exec: true };
        let name = "tank".to_owned();
        let options = Options { name, threads: 3, allow_other, read_only: false, privileges };
        let mounted = mount(files, &at, &options).unwrap();
        Mount { mounted: Some(mounted), recorder, degraded, root: at, pool }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Waits until no file is being written and the changelog knows of all writes: the kernel reports a close a
    /// moment after `close()` has returned, and the mount marks the file as closed before the changelog has stored
    /// its ranges.
    pub(crate) fn until_closed(&self) {
        let is_written = |name: &[u8]| self.pool.stub(name).is_ok_and(|stub| stub.writing);
        let names = || fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name().into_vec());
        gabion_testkit::until("files are closed", || !names().any(|name| is_written(&name)));
        self.recorder.flush();
    }

    /// Protects everything as a worker of the mount does.
    pub(crate) fn protect(&self, fixture: &Fixture) -> protect::Report {
        let mut vault = fixture.vault();
        vault.storage = Box::new(self.pool.clone());
        let _lock = vault.lock("test").unwrap();
        protect::protect(&vault, QUIET).unwrap()
    }

    pub(crate) fn recorded(&self) -> u64 {
        self.recorder.recorded()
    }

    /// Blocks that had to be made from others for readers, as far as these have closed their files.
    pub(crate) fn degraded(&self) -> u64 {
        self.degraded.load(Ordering::Relaxed)
    }

    /// For a test that unmounts in another way.
    pub(crate) fn take(&mut self) -> Mounted {
        self.mounted.take().unwrap()
    }

    pub(crate) fn unmount(mut self) {
        // A command that another test begins just now may still have what was open here.
        let forced = self.mounted.take().unwrap().unmount_within(&self.root, PATIENCE).unwrap();
        assert!(!forced, "someone has a file open");
        self.recorder.finish().unwrap();
    }
}
