//! A vault with its changelog on a Redis server: shared, killed, offline.

use super::fixture::{QUIET, TestRng};
use super::server::TestServer;
use gabion_vault::changelog::{Change, When, WorkerId};
use gabion_vault::format::Metadata;
use gabion_vault::protect::{protect, work};
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::scrub::{Options, Selection, scrub};
use gabion_vault::storage::pool::{self, NewTarget, Pool};
use gabion_vault::vault::{Location, Vault, VaultError};
use gabion_vault::worker;
use gabion_vault::world::{Clock, SECOND, after};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A tree, its vault and the server.
struct RedisFixture {
    dir: tempfile::TempDir,
    server: TestServer,
    clock: Clock,
}

impl RedisFixture {
    fn new(files: u64, size: usize) -> RedisFixture {
        let dir = tempfile::tempdir().unwrap();
        let fixture =
            RedisFixture { dir, server: TestServer::start(), clock: Clock::manual(1_800_000_000 * SECOND) };
        std::fs::create_dir(fixture.root()).unwrap();
        (0..files).for_each(|number| fixture.write(number, &TestRng(number).bytes(size)));
        fixture
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn write(&self, number: u64, bytes: &[u8]) {
        std::fs::write(self.root().join(number.to_string()), bytes).unwrap();
    }

    fn open(&self) -> Result<Vault, VaultError> {
        let url = self.server.server("unused").url;
        Vault::create(&Location::of(&self.root(), None), Some(url.as_str()), self.clock.clone())
    }

    /// Expects that all files are protected and intact, and nothing is pending.
    fn assert_whole(&self, vault: &Vault, files: u64) {
        let report = protect(vault, QUIET).unwrap();
        assert_eq!(report.done.failed, []);
        assert_eq!(vault.changelog.pending().unwrap().entries(), 0);
        let options = Options { selection: Selection::All, from_medium: false, resume: false };
        let report = scrub(vault, b"", options, QUIET).unwrap();
        assert!(report.files == files && report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
        assert!(protect(vault, QUIET).unwrap().seen.changes.is_empty());
        let staging = self.root().join(".gabion/staging");
        drop(vault.lock("test").unwrap());
        assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
    }
}

#[test]
fn a_vault_works_with_a_redis_changelog() {
    let fixture = RedisFixture::new(20, 5000);
    let vault = fixture.open().unwrap();
    assert_eq!(protect(&vault, QUIET).unwrap().done.encoded, 20);
    fixture.assert_whole(&vault, 20);
    std::fs::remove_file(fixture.root().join("3")).unwrap();
    std::fs::rename(fixture.root().join("4"), fixture.root().join("moved")).unwrap();
    fixture.write(5, b"changed");
    let done = protect(&vault, QUIET).unwrap().done;
    assert_eq!((done.removed, done.moved, done.encoded), (1, 1, 1), "{done:?}");
    fixture.assert_whole(&vault, 19);
    // Another changelog is refused, since pending entries would be forgotten.
    let location = Location::of(&fixture.root(), None);
    let error = Vault::create(&location, Some("embedded"), fixture.clock.clone()).map(drop).unwrap_err();
    assert!(error.to_string().contains("its changelog is redis://"), "{error}");
}

#[test]
fn two_at_once_share_the_work() {
    const FILES: u64 = 3000;
    let fixture = RedisFixture::new(FILES, 2000);
    let (one, other) = (fixture.open().unwrap(), fixture.open().unwrap());
    let when = When::now(fixture.clock.now(), 0);
    let changes: Vec<Change> =
        (0..FILES).map(|number| Change::modify_whole(number.to_string(), when)).collect();
    one.changelog.record(&changes).unwrap();
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads = [one, other].map(|vault| scope.spawn(move || (work(&vault, QUIET).unwrap(), vault)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let counts: Vec<u64> = done.iter().map(|(done, _)| done.encoded + done.adopted).collect();
    assert_eq!(counts.iter().sum::<u64>(), FILES, "{counts:?}");
    assert!(counts.iter().all(|&count| count > 0), "one did all: {counts:?}");
    assert!(done.iter().all(|(done, _)| done.failures == 0));
    fixture.assert_whole(&done[0].1, FILES);
}

/// Regression: claims of a dead process of this machine were kept until their leases expired.
#[test]
fn claims_of_a_dead_process_are_taken_over_at_once() {
    let fixture = RedisFixture::new(4, 2000);
    let vault = fixture.open().unwrap();
    let when = When::now(fixture.clock.now(), 0);
    let changes: Vec<Change> = (0..4).map(|number| Change::modify_whole(number.to_string(), when)).collect();
    vault.changelog.record(&changes).unwrap();
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let of = |process: u32| {
        let name = worker::name(7).0;
        WorkerId(name.replacen(&format!("/{}/", std::process::id()), &format!("/{process}/"), 1))
    };
    let hour = Duration::from_secs(3600);
    let dead = vault.changelog.claim(&of(gone.id()), 2, hour, fixture.clock.now()).unwrap();
    // Claims of a living process, and of an unknown one.
    let living = vault.changelog.claim(&of(std::process::id()), 1, hour, fixture.clock.now()).unwrap();
    let elsewhere = WorkerId(format!("elsewhere{}", of(gone.id()).0));
    let other = vault.changelog.claim(&elsewhere, 1, hour, fixture.clock.now()).unwrap();
    assert_eq!((dead.len(), living.len(), other.len()), (2, 1, 1));
    let done = work(&vault, QUIET).unwrap();
    assert_eq!((done.encoded, done.failures), (2, 0), "{done:?}");
    assert_eq!(vault.changelog.pending().unwrap().claimed, 2);
    for claim in living.iter().chain(&other) {
        assert!(vault.changelog.still_mine(claim).unwrap());
    }
    fixture.clock.set(after(fixture.clock.now(), 2 * hour));
    fixture.assert_whole(&vault, 4);
}

/// Two concurrent full protects both finish, and everything is protected.
#[test]
fn concurrent_protects_do_no_harm() {
    for seed in 0..4 {
        let fixture = RedisFixture::new(300, 1000 + 777 * seed as usize);
        let vaults = [fixture.open().unwrap(), fixture.open().unwrap()];
        let vaults: Vec<Vault> = std::thread::scope(|scope| {
            let threads = vaults.map(|vault| {
                scope.spawn(move || {
                    protect(&vault, QUIET).unwrap();
                    vault
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        fixture.assert_whole(&vaults[0], 300);
    }
}

#[test]
fn a_server_that_dies_in_the_middle_loses_nothing() {
    for kill_at in [0, 90, 199] {
        let mut fixture = RedisFixture::new(200, 3000);
        let vault = fixture.open().unwrap();
        let done = AtomicU64::new(0);
        let server = std::sync::Mutex::new(&mut fixture.server);
        let progress = |step: Progress| {
            if matches!(step, Progress::Done(1, 0)) && done.fetch_add(1, Ordering::SeqCst) == kill_at {
                server.lock().unwrap().kill();
            }
        };
        let error = protect(&vault, RunContext { progress: &progress, ..QUIET }).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1") && error.contains("is away"), "{error}");
        assert!(done.load(Ordering::SeqCst) > kill_at);
        fixture.server.restart();
        // The claims' owner cannot be proved dead; its leases expire.
        fixture.clock.set(fixture.clock.now() + 3600 * SECOND);
        fixture.assert_whole(&vault, 200);
    }
}

/// Pending entries are lost with the server's files; a scan finds the changes.
#[test]
fn a_server_that_comes_back_without_its_files_loses_nothing_that_is_protected() {
    let mut fixture = RedisFixture::new(200, 3000);
    let vault = fixture.open().unwrap();
    assert_eq!(protect(&vault, QUIET).unwrap().done.encoded, 200);
    (0..90).for_each(|number| fixture.write(number, &TestRng(number + 1000).bytes(2000)));
    std::fs::rename(fixture.root().join("150"), fixture.root().join("moved")).unwrap();
    std::fs::remove_file(fixture.root().join("151")).unwrap();
    let done = AtomicU64::new(0);
    let server = std::sync::Mutex::new(&mut fixture.server);
    let progress = |step: Progress| {
        if matches!(step, Progress::Done(1, 0)) && done.fetch_add(1, Ordering::SeqCst) == 30 {
            server.lock().unwrap().forget();
        }
    };
    protect(&vault, RunContext { progress: &progress, ..QUIET }).unwrap_err();
    fixture.server.restart();
    fixture.assert_whole(&vault, 199);
    fixture.assert_whole(&fixture.open().unwrap(), 199);
}

#[test]
fn an_offline_server_is_named_in_the_error() {
    let mut fixture = RedisFixture::new(3, 100);
    let vault = fixture.open().unwrap();
    protect(&vault, QUIET).unwrap();
    fixture.server.kill();
    fixture.write(1, b"changed");
    let error = protect(&vault, QUIET).unwrap_err().to_string();
    assert!(error.starts_with("the changelog: the server 127.0.0.1:"), "{error}");
    let error = fixture.open().map(drop).unwrap_err().to_string();
    assert!(error.contains("is away after"), "{error}");
    // Nothing is forgotten, and protected files stay protected.
    fixture.server.restart();
    fixture.assert_whole(&fixture.open().unwrap(), 3);
}

/// A server that is busy for a while is waited for: nothing fails or is done twice.
#[test]
fn a_slow_server_is_waited_for() {
    let fixture = RedisFixture::new(20, 5000);
    let vault = fixture.open().unwrap();
    protect(&vault, QUIET).unwrap();
    (0..5).for_each(|number| fixture.write(number, b"changed"));
    fixture.server.pause(Duration::from_millis(1500));
    let done = protect(&vault, QUIET).unwrap().done;
    assert_eq!((done.encoded, done.failed), (5, Vec::new()));
    fixture.assert_whole(&vault, 20);
}

/// Examination and repair need no changelog. Regression: an offline server prevented the repair of damaged files.
#[test]
fn files_are_examined_and_repaired_without_the_server() {
    let mut fixture = RedisFixture::new(3, 100_000);
    protect(&fixture.open().unwrap(), QUIET).unwrap();
    fixture.server.kill();
    let path = fixture.root().join("1");
    let content = std::fs::read(&path).unwrap();
    super::fixture::flip(&path, 50_000);
    let location = Location::of(&fixture.root(), None);
    let (vault, missing) = Vault::open_to_examine(&location, fixture.clock.clone()).unwrap();
    assert!(missing.unwrap().to_string().contains("is away"));
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    assert_eq!(scrub(&vault, b"", options, QUIET).unwrap().damage.len(), 1);
    {
        let _lock = vault.lock("test").unwrap();
        let done = gabion_vault::repair::repair(&vault, b"1", QUIET).unwrap();
        assert_eq!(done.state, gabion_vault::catalogue::State::Protected);
    }
    assert!(std::fs::read(&path).unwrap() == content);
    // Commands that need the server report it.
    let error = protect(&vault, QUIET).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && error.contains("is away"), "{error}");
    drop(vault);
    fixture.server.restart();
    let (vault, missing) = Vault::open_to_examine(&location, fixture.clock.clone()).unwrap();
    assert!(missing.is_none());
    fixture.assert_whole(&vault, 3);
}

/// The same for pools.
#[test]
fn files_of_pools_are_examined_and_repaired_without_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = TestServer::start();
    let targets: Vec<NewTarget> =
        (0..5).map(|at| NewTarget { path: dir.path().join(format!("d{at}")), domain: None }).collect();
    let pool = Pool::create("tank", &targets, 3, 4096, 2, pool::Options::default()).unwrap();
    let content = TestRng(1).bytes(100_000);
    pool.put(b"file", &mut &content[..], &Metadata { mode: 0o640, ..Metadata::default() }, 5).unwrap();
    let url = server.server("unused").url;
    let location = Location::of_pool(&pool).unwrap();
    let vault = Vault::create(&location, Some(url.as_str()), Clock::System).unwrap();
    assert_eq!(protect(&vault, QUIET).unwrap().done.failed, []);
    drop(vault);
    server.kill();
    let stub = pool.stub(b"file").unwrap();
    let object = format!("{}.0", stub.id);
    let target = dir.path().join(stub.targets[0].as_str());
    super::fixture::flip(&target.join("objects").join(&object[..2]).join(object), 5000);
    let (vault, begun, missing) = Vault::of_pool_to_examine(&pool, Clock::System).unwrap();
    assert!(!begun && missing.unwrap().to_string().contains("is away"));
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    assert_eq!(scrub(&vault, b"", options, QUIET).unwrap().damage.len(), 1);
    {
        let _lock = vault.lock("test").unwrap();
        let done = gabion_vault::repair::repair(&vault, b"file", QUIET).unwrap();
        assert_eq!(done.state, gabion_vault::catalogue::State::Protected);
    }
    let report = scrub(&vault, b"", options, QUIET).unwrap();
    assert!(report.files == 1 && report.damage.is_empty(), "{report:?}");
    let mut read = Vec::new();
    pool.get(b"file", &mut read).unwrap();
    assert!(read == content);
}

/// Regression: the server's password was stored in `vault.toml` and in its copies on all targets of a pool.
#[test]
fn passwords_are_not_stored() {
    let settings = ["--appendonly", "yes", "--appendfsync", "always", "--requirepass", "hush"];
    let server = TestServer::start_with(&settings);
    let dir = tempfile::tempdir().unwrap();
    let location = Location::of(dir.path(), None);
    let url = server.server("unused").url.replace("redis://", "redis://:hush@");
    let vault = Vault::create(&location, Some(&url), Clock::System).unwrap();
    vault.changelog.record(&[Change::modify_whole("a", When::now(0, 0))]).unwrap();
    assert!(!vault.settings.changelog.contains("hush") && !format!("{:?}", vault.settings).contains("hush"));
    drop(vault);
    let stored = std::fs::read_to_string(dir.path().join(".gabion/vault.toml")).unwrap();
    assert!(stored.contains("redis://127.0.0.1") && !stored.contains("hush"), "{stored}");
    // This process has the password already.
    Vault::open(&location, Clock::System).unwrap();
    let other = Vault::create(&location, Some("redis://:hush@127.0.0.1:1/"), Clock::System).map(drop);
    let error = other.unwrap_err().to_string();
    assert!(error.contains("its changelog is") && !error.contains("hush"), "{error}");
}
