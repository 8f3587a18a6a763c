//! A vault with its changelog on a Redis server: shared, killed, offline.

use super::fixture::{QUIET, TestRng};
use super::server::TestServer;
use gabion_vault::catalogue::{CatalogueError, Entry, Piece, Problem, State};
use gabion_vault::changelog::{Change, When, WorkerId};
use gabion_vault::format::Metadata;
use gabion_vault::protect::{protect, work};
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::scrub::{Options, Selection, scrub};
use gabion_vault::storage::pool::{self, NewTarget, Pool};
use gabion_vault::vault::{Location, Vault, VaultError};
use gabion_vault::worker;
use gabion_vault::world::Timestamp;
use gabion_vault::world::{Clock, SECOND};
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
        let fixture = RedisFixture {
            dir,
            server: TestServer::start(),
            clock: Clock::manual(Timestamp::from_seconds(1_800_000_000)),
        };
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
        self.open_on("host")
    }

    fn location(&self, host: &str) -> Location {
        Location { cache: Some(self.dir.path().join(host)), ..Location::of(&self.root(), None) }
    }

    /// The vault as a host sees it that has its own copy of the catalogue.
    fn open_on(&self, host: &str) -> Result<Vault, VaultError> {
        let url = self.server.server("unused").url;
        Vault::create(&self.location(host), Some(url.as_str()), self.clock.clone())
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
    let location = fixture.location("host");
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
    fixture.clock.set(fixture.clock.now() + 2 * hour);
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
    let location = fixture.location("host");
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
    pool.put(
        b"file",
        &mut &content[..],
        &Metadata { mode: 0o640, ..Metadata::default() },
        Timestamp::from_nanoseconds(5),
    )
    .unwrap();
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
    let location = Location { cache: Some(dir.path().join("host")), ..Location::of(dir.path(), None) };
    let url = server.server("unused").url.replace("redis://", "redis://:hush@");
    let vault = Vault::create(&location, Some(&url), Clock::System).unwrap();
    vault.changelog.record(&[Change::modify_whole("a", When::now(Timestamp::EPOCH, 0))]).unwrap();
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

/// What a host knows of all files: state, version and time of protection of each.
fn known(vault: &Vault) -> Vec<(Vec<u8>, String)> {
    vault.follow().unwrap();
    let mut known = Vec::new();
    let note = |page: Vec<(Vec<u8>, Entry)>| -> Result<(), CatalogueError> {
        known.extend(page.into_iter().map(|(path, entry)| {
            let problems = vault.catalogue.problems(&path).unwrap();
            (path, format!("{entry:?} {problems:?}"))
        }));
        Ok(())
    };
    vault.catalogue.each_page(b"", note).unwrap();
    known
}

#[test]
fn hosts_with_catalogues_of_their_own_know_the_same() {
    let fixture = RedisFixture::new(40, 3000);
    let (one, two) = (fixture.open_on("one").unwrap(), fixture.open_on("two").unwrap());
    assert_eq!(protect(&one, QUIET).unwrap().done.encoded, 40);
    assert_eq!(known(&two).len(), 40);
    assert!(known(&one) == known(&two));
    // The other host sees no changes, and what it does is seen here.
    assert!(protect(&two, QUIET).unwrap().seen.changes.is_empty());
    std::fs::remove_file(fixture.root().join("3")).unwrap();
    std::fs::rename(fixture.root().join("4"), fixture.root().join("moved")).unwrap();
    fixture.write(5, b"changed");
    super::fixture::flip(&fixture.root().join("6"), 1000);
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    assert_eq!(protect(&two, QUIET).unwrap().done.removed, 1);
    assert_eq!(scrub(&two, b"", options, QUIET).unwrap().damage.len(), 1);
    assert!(known(&one) == known(&two));
    assert_eq!(one.catalogue.find(b"6").unwrap().unwrap().state, State::Damaged);
    assert!(!one.catalogue.problems(b"6").unwrap().is_empty());
    {
        let _lock = one.lock("test").unwrap();
        gabion_vault::repair::repair(&one, b"6", QUIET).unwrap();
    }
    assert_eq!(two.catalogue.find(b"6").unwrap().unwrap().state, State::Damaged, "it has not looked");
    assert!(known(&two) == known(&one));
    assert_eq!(two.catalogue.find(b"6").unwrap().unwrap().state, State::Protected);
    // A new host reads the journal from its beginning; a copy that was removed is made again.
    assert!(known(&fixture.open_on("three").unwrap()) == known(&one));
    drop(two);
    std::fs::remove_dir_all(fixture.dir.path().join("two")).unwrap();
    assert!(known(&fixture.open_on("two").unwrap()) == known(&one));
    // No database lies on the storage that they share.
    let names = std::fs::read_dir(fixture.root().join(".gabion")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("sqlite")), "{names:?}");
    fixture.assert_whole(&one, 39);
}

/// The server lost everything: copies are not trusted, because nobody knows which of them is the newest.
#[test]
fn a_journal_that_was_lost_is_begun_again_from_headers() {
    let mut fixture = RedisFixture::new(40, 3000);
    let (one, two) = (fixture.open_on("one").unwrap(), fixture.open_on("two").unwrap());
    protect(&one, QUIET).unwrap();
    known(&two);
    fixture.write(1, b"changed");
    protect(&one, QUIET).unwrap();
    fixture.server.forget();
    fixture.server.restart();
    let then = known(&two);
    assert_eq!(then.len(), 40);
    assert!(known(&one) == then);
    let entry = two.catalogue.find(b"1").unwrap().unwrap();
    assert_eq!(entry.generation.size, 7, "the header says what was protected last");
    fixture.assert_whole(&two, 40);
    fixture.assert_whole(&one, 40);
}

/// A replica that took over may lack what the server acknowledged last, and others may have gone on since.
#[test]
fn a_journal_that_went_back_is_read_again() {
    let mut fixture = RedisFixture::new(10, 3000);
    let (one, two) = (fixture.open_on("one").unwrap(), fixture.open_on("two").unwrap());
    protect(&one, QUIET).unwrap();
    known(&two);
    let before = fixture.server.state();
    fixture.write(1, b"changed");
    protect(&one, QUIET).unwrap();
    assert_eq!(known(&one).len(), 10);
    fixture.server.restore(&before);
    fixture.write(2, b"changed as well");
    protect(&two, QUIET).unwrap();
    assert!(known(&one) == known(&two));
    fixture.assert_whole(&one, 10);
    assert!(known(&one) == known(&two));
}

/// Records are in one order, whoever wrote first into the own copy.
#[test]
fn copies_of_many_writers_end_the_same() {
    let fixture = RedisFixture::new(1, 100);
    let hosts: Vec<Vault> = (0..3).map(|host| fixture.open_on(&format!("{host}")).unwrap()).collect();
    protect(&hosts[0], QUIET).unwrap();
    known(&hosts[1]);
    let entry = hosts[0].catalogue.find(b"0").unwrap().unwrap();
    let hosts: Vec<Vault> = std::thread::scope(|scope| {
        let threads: Vec<_> = hosts
            .into_iter()
            .enumerate()
            .map(|(number, vault)| {
                let entry = &entry;
                scope.spawn(move || {
                    let mut chance = TestRng(number as u64);
                    for round in 0..150 {
                        // Shortened by one host while the others write.
                        if number == 0 && round % 30 == 29 {
                            vault.catalogue.shorten_journal(0).unwrap();
                        }
                        let path = format!("d/{}", chance.below(8));
                        let path = path.as_bytes();
                        let redundancy = number as u64 * 1000 + round;
                        match chance.below(4) {
                            0 => vault.catalogue.forget(path).unwrap(),
                            1 => vault
                                .catalogue
                                .set_problems(
                                    path,
                                    &[Problem { piece: Piece::Data, range: 0..redundancy }],
                                    Timestamp::EPOCH,
                                )
                                .unwrap(),
                            _ => vault.catalogue.put(path, &Entry { redundancy, ..entry.clone() }).unwrap(),
                        }
                    }
                    vault
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for round in 0..200 {
        hosts[1].catalogue.put(b"d/1", &Entry { redundancy: round, ..entry.clone() }).unwrap();
    }
    // Not found by examinations, so that it stays beside what they find.
    let changed = Problem { piece: Piece::Changed, range: 0..5 };
    hosts[1].catalogue.set_problems(b"d/1", &[changed], Timestamp::EPOCH).unwrap();
    let first = known(&hosts[0]);
    assert!(hosts.iter().all(|vault| known(vault) == first));
    assert!(known(&fixture.open_on("late").unwrap()) == first);
    let journal = hosts[0].changelog.journal().unwrap();
    let before = journal.size().unwrap();
    hosts[0].catalogue.shorten_journal(0).unwrap();
    let after = journal.size().unwrap();
    assert!(before > 3 * after && after > 0, "{before} bytes became {after}");
    assert!(known(&fixture.open_on("later").unwrap()) == first);
    assert!(hosts.iter().all(|vault| known(vault) == first), "those who knew the old one");
    hosts[1].catalogue.forget(b"d/1").unwrap();
    assert!(known(&hosts[0]) == known(&hosts[1]));
}

/// Without the server a host records what it found, and tells the others later.
#[test]
fn damage_found_without_the_server_is_told_when_it_is_back() {
    let mut fixture = RedisFixture::new(3, 100_000);
    let two = fixture.open_on("two").unwrap();
    protect(&two, QUIET).unwrap();
    protect(&fixture.open_on("one").unwrap(), QUIET).unwrap();
    fixture.server.kill();
    super::fixture::flip(&fixture.root().join("1"), 50_000);
    let (one, missing) = Vault::open_to_examine(&fixture.location("one"), fixture.clock.clone()).unwrap();
    assert!(missing.is_some());
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    assert_eq!(scrub(&one, b"", options, QUIET).unwrap().damage.len(), 1);
    // A host that never met the server examines by headers.
    let (new, _) = Vault::open_to_examine(&fixture.location("new"), fixture.clock.clone()).unwrap();
    assert_eq!(new.catalogue.count().unwrap(), 3);
    drop((one, new));
    fixture.server.restart();
    known(&fixture.open_on("one").unwrap());
    known(&two);
    assert_eq!(two.catalogue.find(b"1").unwrap().unwrap().state, State::Damaged);
    assert!(known(&fixture.open_on("new").unwrap()) == known(&two));
}
