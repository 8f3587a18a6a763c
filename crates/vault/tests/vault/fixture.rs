//! Fixture: a protected tree in a temporary directory.

pub(crate) use super::test_rng::TestRng;
use gabion_vault::catalogue::State;
use gabion_vault::catalogue_rebuild::{self, Rebuilt};
use gabion_vault::protect::{self, Report};
use gabion_vault::repair::{self, Repaired};
use gabion_vault::run::RunContext;
use gabion_vault::scrub::{self, Options, Selection};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::worker::{self, Scanned, WorkedVault, Worker, WorkerOptions};
use gabion_vault::world::Clock;
use gabion_vault::world::Timestamp;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) const QUIET: RunContext<'static> =
    RunContext { threads: 2, rate: None, progress: &|_| {}, stopped: &|| false };

/// The worker of a watch.
pub(crate) fn live_worker<'a>(vault: &'a Vault, scanned: &'a Scanned) -> Worker<'a> {
    let options = WorkerOptions { live_events: true, ..WorkerOptions::new(scanned) };
    let run = RunContext { threads: 1, ..QUIET };
    Worker { vault: WorkedVault::of(vault), run, options, name: worker::name(1) }
}

/// Rebuilds the catalogue of an open vault from headers.
pub(crate) fn rebuild_catalogue(vault: &Vault) -> Rebuilt {
    catalogue_rebuild::rebuild(&vault.catalogue, &*vault.storage, &vault.coders, QUIET).unwrap()
}

/// A tree with a vault, removed on drop.
pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) vault: Vault,
    pub(crate) clock: Clock,
}

impl Fixture {
    pub(crate) fn new(code: &str) -> Fixture {
        Fixture::with_policy(&format!("[default]\ncode = \"{code}\"\nblock = \"4KiB\"\n"))
    }

    pub(crate) fn with_policy(policy: &str) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let clock = Clock::manual(Timestamp::from_seconds(1_800_000_000));
        let location = Location::of(&dir.path().join("tree"), None);
        let mut vault = Vault::create(&location, None, clock.clone()).unwrap();
        vault.set_policy(policy).unwrap();
        Fixture { dir, vault, clock }
    }

    /// Opens the vault again, as the next process would.
    pub(crate) fn reopen(self) -> Fixture {
        let location = Location::of(&self.root(), None);
        let Fixture { dir, vault, clock } = self;
        drop(vault);
        let vault = Vault::open(&location, clock.clone()).unwrap();
        Fixture { dir, vault, clock }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Path of a file's redundancy file.
    pub(crate) fn redundancy(&self, name: &str) -> PathBuf {
        self.root().join(".gabion/redundancy").join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn protect(&self) -> Report {
        let _lock = self.vault.lock("test").unwrap();
        protect::protect(&self.vault, QUIET).unwrap()
    }

    /// Protects, and expects no failures.
    pub(crate) fn protect_all(&self) -> Report {
        let report = self.protect();
        assert_eq!(report.done.failed, []);
        assert_eq!(report.seen.unreadable, []);
        assert!(report.held.is_none());
        report
    }

    pub(crate) fn scrub(&self) -> scrub::Report {
        let options = Options { selection: Selection::All, from_medium: false, resume: false };
        scrub::scrub(&self.vault, b"", options, QUIET).unwrap()
    }

    /// Expects that a scrub finds no damage.
    pub(crate) fn assert_clean(&self) {
        let report = self.scrub();
        assert!(report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
    }

    pub(crate) fn repair(&self, name: &str) -> Repaired {
        let _lock = self.vault.lock("test").unwrap();
        repair::repair(&self.vault, name.as_bytes(), QUIET).unwrap()
    }

    /// State of a file according to a scrub.
    pub(crate) fn state(&self, name: &str) -> State {
        let report = self.scrub();
        let found = report.damage.iter().find(|damage| damage.path == name.as_bytes());
        found.map_or(State::Protected, |damage| damage.state)
    }
}

/// Overwrites bytes of a file and restores its mtime, like bit rot.
pub(crate) fn rot(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.set_modified(modified).unwrap();
}

/// Inverts one byte.
pub(crate) fn flip(path: &Path, offset: u64) {
    let mut byte = [0];
    std::fs::File::open(path).unwrap().read_exact_at(&mut byte, offset).unwrap();
    rot(path, offset, &[!byte[0]]);
}
