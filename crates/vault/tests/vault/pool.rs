//! A vault of a pool: targets fail, return and rot, and everything recoverable is restored.

mod lock_order;

use super::fixture::{QUIET, TestRng, flip, rebuild_catalogue};
use gabion_vault::catalogue::State;
use gabion_vault::format::Metadata;
use gabion_vault::protect;
use gabion_vault::repair::{self, plan, repair};
use gabion_vault::scrub::{self, Selection, scrub};
use gabion_vault::status::{Status, status};
use gabion_vault::storage::pool::{Document, NewTarget, Options, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::whatif::what_if;
use gabion_vault::world::Timestamp;
use gabion_vault::world::{Clock, SECOND};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

const BLOCK: u64 = 4096;

/// A pool of targets d1, d2, … and its vault.
pub(super) struct PoolFixture {
    dir: tempfile::TempDir,
    pool: Pool,
    pub(super) vault: Vault,
    count: usize,
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

impl PoolFixture {
    pub(super) fn new(domains: &[Option<&str>], stripe: usize, redundancy: usize) -> PoolFixture {
        let dir = tempfile::tempdir().unwrap();
        let target = |(at, domain): (usize, &Option<&str>)| NewTarget {
            path: dir.path().join(format!("d{}", at + 1)),
            domain: domain.map(str::to_owned),
        };
        let targets: Vec<NewTarget> = domains.iter().enumerate().map(target).collect();
        let pool = Pool::create("tank", &targets, stripe, BLOCK, redundancy, options()).unwrap();
        let vault = Vault::create(&Location::of_pool(&pool).unwrap(), None, clock()).unwrap();
        PoolFixture { dir, pool, vault, count: domains.len(), files: BTreeMap::new() }
    }

    /// Eight targets, 3 + 2, and files of many sizes.
    fn filled(seed: u64) -> PoolFixture {
        let mut fixture = PoolFixture::new(&[None; 8], 3, 2);
        let mut rng = TestRng(seed);
        for (number, size) in [0, 1, 63, 4096, 5000, 12_288, 12_289, 40_000, 100_000].into_iter().enumerate()
        {
            fixture.put(&format!("dir{}/file {number}", number % 2), &rng.bytes(size));
        }
        fixture.protect_all();
        fixture
    }

    pub(super) fn put(&mut self, name: &str, content: &[u8]) {
        let metadata = Metadata { mode: 0o640, ..Metadata::default() };
        self.pool.put(name.as_bytes(), &mut &content[..], &metadata, Timestamp::from_nanoseconds(5)).unwrap();
        self.files.insert(name.to_owned(), content.to_vec());
    }

    pub(super) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        self.pool.get(name.as_bytes(), &mut content).ok().map(|_| content)
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    fn target(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("d{number}"))
    }

    /// Removes a target. If the vault was on it, a new one is created with a catalogue from headers.
    pub(super) fn lose(&mut self, number: usize) {
        std::fs::rename(self.target(number), self.dir.path().join(format!("away{number}"))).unwrap();
        self.open();
    }

    pub(super) fn bring_back(&mut self, number: usize) {
        std::fs::rename(self.dir.path().join(format!("away{number}")), self.target(number)).unwrap();
        self.open();
    }

    /// As the next process does.
    fn open(&mut self) {
        let there = (1..=self.count).map(|number| self.target(number)).find(|path| path.exists()).unwrap();
        self.pool = Pool::open_at(&[there], options()).unwrap();
        let location = Location::of_pool(&self.pool).unwrap();
        let begun = !location.repository.join("vault.toml").exists();
        self.vault = Vault::create(&location, None, clock()).unwrap();
        if begun {
            rebuild_catalogue(&self.vault);
        }
    }

    fn protect(&self) -> protect::Report {
        let _lock = self.vault.lock("test").unwrap();
        protect::protect(&self.vault, QUIET).unwrap()
    }

    pub(super) fn protect_all(&self) -> protect::Report {
        let report = self.protect();
        assert_eq!(report.done.failed, []);
        assert_eq!(report.seen.unreadable, []);
        report
    }

    pub(super) fn scrub(&self) -> scrub::Report {
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        scrub(&self.vault, b"", options, QUIET).unwrap()
    }

    pub(super) fn status(&self) -> Status {
        status(&self.vault, b"", true, 1000, QUIET).unwrap()
    }

    /// Repairs all files; returns the names of those that are not intact afterwards, with reasons.
    pub(super) fn repair(&self) -> BTreeMap<String, String> {
        let _lock = self.vault.lock("test").unwrap();
        // With a rebuilt catalogue and old headers only, newer files look damaged.
        let options = repair::Options { keep_changed: true, ..repair::Options::default() };
        let plan = plan(&self.vault, b"", options, QUIET).unwrap();
        let done = plan.files.iter().map(|damage| match repair(&self.vault, &damage.path, QUIET) {
            Ok(done) if done.state > State::Degraded => (done.path, done.state.word().to_owned()),
            Ok(done) => (done.path, String::new()),
            Err(error) => (damage.path.clone(), error.to_string()),
        });
        let failed = plan.failed.iter().map(|(path, why)| (path.clone(), why.to_string()));
        let left = done.chain(failed).filter(|(_, why)| !why.is_empty());
        left.map(|(path, why)| (String::from_utf8(path).unwrap(), why)).collect()
    }

    /// Targets with data of a file.
    fn data(&self, name: &str) -> Vec<String> {
        let stub = self.pool.stub(name.as_bytes()).unwrap();
        let has_bytes = |column: &usize| stub.object_bytes(*column, stub.size) > 0;
        (0..stub.targets.len()).filter(has_bytes).map(|column| stub.targets[column].to_string()).collect()
    }

    fn assert_whole(&self, told: &str) {
        self.protect_all();
        let report = self.scrub();
        assert!(report.damage.is_empty() && report.failed.is_empty(), "{told}: {report:?}");
        for (name, content) in &self.files {
            assert!(self.get(name).as_ref() == Some(content), "{told}: {name}");
        }
        let status = self.status();
        assert!(status.affected.is_empty(), "{told}: {status:?}");
        assert_eq!(status.matrix.keys().collect::<Vec<_>>(), [&(2, 2)], "{told}");
        self.assert_apart(told);
        assert!(self.protect_all().seen.changes.is_empty(), "{told}");
    }

    /// Expects that all columns of a file are in different domains.
    pub(super) fn assert_apart(&self, told: &str) {
        let config = self.pool.config();
        let domain = |name: &str| {
            let member = config.target.iter().find(|member| member.name == name);
            member.unwrap().domain.clone()
        };
        for name in self.files.keys() {
            let stub = self.pool.stub(name.as_bytes()).unwrap();
            let mut domains: Vec<String> = stub.targets.iter().map(|name| domain(name)).collect();
            domains
                .extend(self.redundancy(name).into_iter().map(|(number, _)| domain(&format!("d{number}"))));
            let distinct: BTreeSet<&String> = domains.iter().collect();
            assert_eq!(distinct.len(), domains.len(), "{told}: {name} is in {domains:?}");
        }
    }

    /// Redundancy files of a file.
    pub(super) fn redundancy(&self, name: &str) -> Vec<(usize, PathBuf)> {
        let id = self.pool.stub(name.as_bytes()).unwrap().id.to_string();
        let place = |number: usize| self.target(number).join("parity").join(&id[..2]).join(&id);
        let all = (1..=self.count).map(|number| (number, place(number)));
        all.filter(|(_, path)| path.exists()).collect()
    }

    /// Number of redundancy files on online targets.
    pub(super) fn redundancy_files(&self) -> usize {
        let shelves =
            (1..=self.count).flat_map(|number| std::fs::read_dir(self.target(number).join("parity")));
        let shelves = shelves.flatten().map(|shelf| shelf.unwrap().path());
        shelves.map(|shelf| std::fs::read_dir(shelf).unwrap().count()).sum()
    }

    pub(super) fn object(&self, name: &str, column: usize) -> PathBuf {
        let stub = self.pool.stub(name.as_bytes()).unwrap();
        let object = format!("{}.{column}", stub.id);
        self.dir.path().join(stub.targets[column].as_str()).join("objects").join(&object[..2]).join(object)
    }

    /// Files that cannot be restored without these targets, computed from their placement.
    fn beyond(&self, lost: &[usize]) -> BTreeSet<String> {
        let gone = |name: &str| lost.iter().any(|number| format!("d{number}") == name);
        let beyond = |name: &&String| {
            let data = self.data(name).iter().filter(|target| gone(target)).count();
            let redundancy = self.redundancy(name);
            let left = redundancy.iter().filter(|(number, _)| !lost.contains(number)).count();
            data > left
        };
        self.files.keys().filter(beyond).cloned().collect()
    }
}

fn options() -> Options {
    Options { clock: clock(), ..Options::default() }
}

/// One hour later each time.
fn clock() -> Clock {
    static HOURS: AtomicI64 = AtomicI64::new(500_000);
    Clock::manual(Timestamp::from_seconds(HOURS.fetch_add(1, Ordering::Relaxed) * 3600))
}

fn flip_in(path: &Path, rng: &mut TestRng) {
    let size = std::fs::metadata(path).unwrap().len();
    flip(path, rng.below(size));
}

#[test]
fn any_one_target_may_go() {
    for number in 1..=8 {
        let mut fixture = PoolFixture::filled(number as u64);
        fixture.assert_whole("before");
        fixture.lose(number);
        let told = format!("without d{number}");
        assert_loss_is_seen(&fixture, &[number], &told);
        assert_eq!(fixture.repair(), BTreeMap::new(), "{told}");
        fixture.assert_whole(&told);
        // The target returns with outdated content, which is ignored.
        fixture.bring_back(number);
        assert_comes_back(&fixture, &format!("d{number} is back"));
    }
}

/// While targets are offline, no file with columns there counts as complete.
fn assert_loss_is_seen(fixture: &PoolFixture, lost: &[usize], told: &str) {
    let touched: BTreeSet<&String> = fixture
        .files
        .keys()
        .filter(|name| {
            let gone = |target: &String| lost.iter().any(|number| format!("d{number}") == *target);
            fixture.data(name).iter().any(gone) || fixture.redundancy(name).len() < 2
        })
        .collect();
    let found = fixture.status();
    let affected: BTreeSet<String> =
        found.affected.iter().map(|it| String::from_utf8(it.path.clone()).unwrap()).collect();
    assert_eq!(affected.iter().collect::<BTreeSet<_>>(), touched, "{told}: {found:?}");
    let whole = found.matrix.get(&(2, 2)).map_or(0, |amount| amount.0);
    assert_eq!(whole as usize, fixture.files.len() - touched.len(), "{told}: {found:?}");
    let offline = found.targets.iter().filter(|target| target.space.is_none()).count();
    assert_eq!(offline, lost.len(), "{told}");
    let report = fixture.scrub();
    assert!(report.failed.is_empty(), "{told}: {report:?}");
    let damage: BTreeSet<String> =
        report.damage.iter().map(|it| String::from_utf8(it.path.clone()).unwrap()).collect();
    assert_eq!(damage.iter().collect::<BTreeSet<_>>(), touched, "{told}: {report:?}");
}

/// A target returns unchanged.
fn assert_comes_back(fixture: &PoolFixture, told: &str) {
    for (name, content) in &fixture.files {
        assert!(fixture.get(name).as_ref() == Some(content), "{told}: {name}");
    }
    fixture.pool.heal().unwrap();
    fixture.protect_all();
    let report = fixture.scrub();
    let wrong = report.damage.iter().filter(|damage| damage.state > State::Degraded);
    assert_eq!(wrong.count(), 0, "{told}: {report:?}");
    // Its outdated content is removed.
    fixture.assert_whole(told);
}

#[test]
fn any_two_targets_may_go() {
    for first in 1..=8 {
        for second in first + 1..=8 {
            // Ten pairs per run; all are covered over the seeds.
            if (first * 5 + second) % 3 != 0 {
                continue;
            }
            let told = format!("without d{first} and d{second}");
            let mut fixture = PoolFixture::filled((first * 8 + second) as u64);
            fixture.lose(first);
            fixture.lose(second);
            assert_loss_is_seen(&fixture, &[first, second], &told);
            assert_eq!(fixture.repair(), BTreeMap::new(), "{told}");
            fixture.assert_whole(&told);
            fixture.bring_back(second);
            fixture.bring_back(first);
            assert_comes_back(&fixture, &told);
        }
    }
}

#[test]
fn of_three_lost_targets_exactly_what_was_predicted_is_lost() {
    // The vault is on d1: without it, files without any header are not known to be protected.
    for lost in [[2, 3, 4], [2, 5, 8], [4, 6, 7], [3, 4, 8]] {
        let mut fixture = PoolFixture::filled(lost[1] as u64);
        let names: Vec<Vec<u8>> = lost.iter().map(|number| format!("d{number}").into_bytes()).collect();
        let answer = what_if(&fixture.vault, b"", &names, 1000, QUIET).unwrap();
        let predicted: BTreeSet<String> =
            answer.names.into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
        assert_eq!(predicted, fixture.beyond(&lost), "{lost:?}");
        assert_eq!((answer.lost.0 as usize, answer.unknown), (predicted.len(), 0));
        lost.iter().for_each(|&number| fixture.lose(number));
        let named = |found: Vec<(Vec<u8>, State)>| -> BTreeSet<String> {
            let lost = found.into_iter().filter(|(_, state)| *state == State::Lost);
            lost.map(|(path, _)| String::from_utf8(path).unwrap()).collect()
        };
        let found = fixture.status().affected.into_iter().map(|it| (it.path, it.state)).collect();
        assert_eq!(named(found), predicted, "{lost:?}: status");
        let found = named(fixture.scrub().damage.into_iter().map(|it| (it.path, it.state)).collect());
        assert_eq!(found, predicted, "{lost:?}: scrub");
        assert!(predicted.iter().all(|name| fixture.get(name).is_none()), "{lost:?}");
        // With more than m targets lost nothing is changed, and each file is reported.
        for (name, why) in fixture.repair() {
            let said = why.contains("targets are reachable") || predicted.contains(&name);
            assert!(said, "{lost:?}: {name}: {why}");
        }
        fixture.bring_back(lost[0]);
        fixture.pool.heal().unwrap();
        assert_eq!(fixture.repair(), BTreeMap::new(), "{lost:?}");
        fixture.assert_whole(&format!("{lost:?}, and one is back"));
    }
}

#[test]
fn rot_on_several_targets_at_once_is_repaired() {
    for seed in 0..12 {
        let mut rng = TestRng(seed);
        let fixture = PoolFixture::filled(seed);
        let mut hit = 0;
        for (name, content) in &fixture.files {
            // Corruption in two columns: at most m blocks of each stripe.
            let mut columns: Vec<usize> = (0..5).collect();
            for _ in 0..2 {
                let column = columns.swap_remove(rng.below(columns.len() as u64) as usize);
                let path = match column {
                    0..3 => fixture.object(name, column),
                    _ => fixture.redundancy(name)[column - 3].1.clone(),
                };
                if !path.exists() || std::fs::metadata(&path).unwrap().len() == 0 {
                    continue;
                }
                hit += 1;
                match rng.below(3) {
                    0 if column < 3 => std::fs::remove_file(&path).unwrap(),
                    0 => {
                        let length = std::fs::metadata(&path).unwrap().len() / 2;
                        std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
                    }
                    // One of the two headers must remain.
                    _ if column > 2 => flip_in(&path, &mut rng),
                    _ => (0..1 + rng.below(4)).for_each(|_| flip_in(&path, &mut rng)),
                }
            }
            // One copy of the stub as well.
            let stubs = (1..=8).map(|number| fixture.target(number).join("tree").join(name));
            let stubs: Vec<PathBuf> = stubs.filter(|path| path.exists()).collect();
            if !content.is_empty() && rng.below(2) == 0 {
                flip_in(&stubs[rng.below(stubs.len() as u64) as usize], &mut rng);
            }
        }
        let report = fixture.scrub();
        assert!(report.damage.len() > 3 && report.failed.is_empty(), "seed {seed}, {hit} hits: {report:?}");
        assert_eq!(fixture.repair(), BTreeMap::new(), "seed {seed}");
        fixture.pool.heal().unwrap();
        fixture.assert_whole(&format!("seed {seed}"));
    }
}

#[test]
fn redundancy_follows_names_and_goes_with_files() {
    let mut fixture = PoolFixture::filled(1);
    let before: Vec<Vec<u8>> =
        fixture.redundancy("dir1/file 7").iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    fixture.pool.rename(b"dir1/file 7", b"dir0/moved").unwrap();
    fixture.pool.remove(b"dir0/file 8").unwrap();
    let content = fixture.files.remove("dir1/file 7").unwrap();
    fixture.files.insert("dir0/moved".to_owned(), content);
    fixture.files.remove("dir0/file 8");
    let report = fixture.protect_all();
    assert_eq!((report.done.moved, report.done.removed, report.done.encoded), (1, 1, 0), "{report:?}");
    let after: Vec<Vec<u8>> =
        fixture.redundancy("dir0/moved").iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    assert!(before == after);
    let left = fixture.files.keys().map(|name| fixture.redundancy(name).len()).sum::<usize>();
    assert_eq!(fixture.redundancy_files(), left, "that of a removed file is gone");
    fixture.assert_whole("moved");
    // A whole directory.
    fixture.pool.rename(b"dir1", b"dir2").unwrap();
    let files = std::mem::take(&mut fixture.files);
    fixture.files =
        files.into_iter().map(|(name, content)| (name.replace("dir1", "dir2"), content)).collect();
    assert_eq!(fixture.protect_all().done.encoded, 0);
    fixture.assert_whole("a directory moved");
}

#[test]
fn a_returning_target_does_not_corrupt_newer_files() {
    for number in 1..=8 {
        let mut fixture = PoolFixture::filled(10 + number as u64);
        fixture.lose(number);
        // Same sizes, other content: only signatures distinguish the old redundancy.
        let names: Vec<String> = fixture.files.keys().cloned().collect();
        for (at, name) in names.iter().enumerate() {
            let size = fixture.files[name].len();
            fixture.put(name, &TestRng(1000 + at as u64).bytes(size));
        }
        fixture.protect_all();
        fixture.bring_back(number);
        fixture.pool.heal().unwrap();
        let told = format!("d{number} is back");
        for (name, content) in &fixture.files {
            assert!(fixture.get(name).as_ref() == Some(content), "{told}: {name}");
        }
        let report = fixture.scrub();
        let wrong = report.damage.iter().filter(|damage| damage.state > State::Degraded);
        assert_eq!(wrong.count(), 0, "{told}: {report:?}");
        // Two more targets fail: the rest suffices despite outdated content.
        let others: Vec<usize> = (1..=8).filter(|&other| other != number).take(2).collect();
        let beyond = fixture.beyond(&others);
        others.iter().for_each(|&other| fixture.lose(other));
        let lost = fixture.repair();
        assert!(lost.keys().all(|name| beyond.contains(name)), "{told}: {lost:?}, not only {beyond:?}");
        for (name, content) in fixture.files.iter().filter(|(name, _)| !lost.contains_key(*name)) {
            assert!(fixture.get(name).as_ref() == Some(content), "{told}: {name}");
        }
    }
}

#[test]
fn domains_are_separated_or_the_file_is_degraded() {
    // Six domains for five columns: one may fail.
    let domains = ["a", "a", "b", "b", "c", "d", "e", "f"].map(Some);
    let mut fixture = PoolFixture::new(&domains, 3, 2);
    for number in 0..12 {
        fixture.put(&format!("file {number}"), &TestRng(number).bytes(30_000));
    }
    fixture.assert_whole("eight targets in six domains");
    fixture.lose(5);
    assert_eq!(fixture.repair(), BTreeMap::new());
    fixture.assert_whole("without c");
    // Four domains are left: one column of each file has no place, and no file counts as complete.
    fixture.lose(6);
    let left = fixture.repair();
    assert!(!left.is_empty() && left.len() < 12, "{left:?}");
    assert!(left.values().all(|why| why.contains("no target in a separate failure domain")), "{left:?}");
    let report = fixture.protect();
    assert_eq!(report.done.reduced_redundancy as usize, 12 - left.len(), "{report:?}");
    assert!(report.done.failed.is_empty(), "{report:?}");
    fixture.assert_apart("without c and d");
    let status = fixture.status();
    assert!(!status.matrix.contains_key(&(2, 2)) && status.affected.len() == 12, "{status:?}");
    for (name, content) in fixture.files.iter().filter(|(name, _)| !left.contains_key(*name)) {
        assert!(fixture.get(name).as_ref() == Some(content), "{name}");
    }
    // With another domain there is a place again.
    let target = NewTarget { path: fixture.target(9), domain: Some("g".to_owned()) };
    fixture.pool.add(&target).unwrap();
    fixture.count = 9;
    fixture.open();
    assert_eq!(fixture.repair(), BTreeMap::new());
    fixture.assert_whole("with g");
}

#[test]
fn without_the_namespace_no_file_is_removed() {
    let mut fixture = PoolFixture::filled(3);
    let mirrors = [1, 2, 3];
    let away = |number: usize| fixture.dir.path().join(format!("away{number}"));
    for number in mirrors {
        std::fs::rename(fixture.target(number), away(number)).unwrap();
    }
    let error = protect::protect(&fixture.vault, QUIET).unwrap_err().to_string();
    assert!(error.contains("d1") && error.contains("d3"), "{error}");
    assert!(status(&fixture.vault, b"", true, 10, QUIET).is_err());
    let counted = status(&fixture.vault, b"", false, 10, QUIET).unwrap();
    assert!(!counted.matrix.contains_key(&(2, 2)), "{counted:?}");
    // The set of files is unknown, so no state can be reported.
    let pool = Pool::open_at(&[fixture.target(4)], options()).unwrap();
    let error = Vault::of_pool(&pool, clock()).err().expect("a vault without a namespace").to_string();
    assert!(error.contains("d1") && error.contains("d3"), "{error}");
    for number in mirrors {
        std::fs::rename(away(number), fixture.target(number)).unwrap();
    }
    fixture.open();
    fixture.assert_whole("the namespace is back");
}

#[test]
fn a_code_that_does_not_fit_the_stripe_is_named() {
    let mut fixture = PoolFixture::filled(1);
    fixture.vault.set_policy("[[rule]]\npaths = [\"dir0/**\"]\ncode = \"4+2\"\n").unwrap();
    let report = fixture.protect();
    let names: Vec<&String> = fixture.files.keys().filter(|name| name.starts_with("dir0")).collect();
    assert_eq!(report.done.failures as usize, names.len(), "{report:?}");
    for (_, why) in &report.done.failed {
        assert_eq!(why.to_string(), "the code has 4 data columns, the file is striped over 3");
    }
    // All redundancy is still there.
    assert!(names.iter().all(|name| fixture.redundancy(name).len() == 2));
    fixture.vault.set_policy("").unwrap();
    fixture.vault.clock.set(fixture.vault.clock.now() + 3600 * SECOND);
    fixture.assert_whole("with the right code");
}

/// New content is a new file: redundancy of the old content must not revert it.
#[test]
fn replaced_files_of_a_pool_are_not_reverted() {
    let mut fixture = PoolFixture::filled(1);
    let old = fixture.files["dir1/file 7"].clone();
    let longer = [&old[..], &TestRng(9).bytes(9000)].concat();
    fixture.put("dir1/file 7", &longer);
    let done = repair(&fixture.vault, b"dir1/file 7", QUIET).unwrap();
    assert_eq!((done.state, done.data_blocks), (State::Degraded, 0), "{done:?}");
    assert!(fixture.get("dir1/file 7") == Some(longer));
    fixture.assert_whole("protected anew");
}

/// The vault lies on one target. Whichever is lost, the policy stays in force and nothing is recoded.
#[test]
fn the_policy_survives_every_target() {
    let policy = "[default]\ncode = \"3+1\"\n[[rule]]\npaths = [\"dir1/**\"]\nprotect = false\n";
    let mut fixture = PoolFixture::new(&[None; 6], 3, 2);
    for number in 0..6 {
        fixture.put(&format!("dir{}/file", number % 2), &TestRng(number).bytes(20_000));
    }
    fixture.vault.set_policy(policy).unwrap();
    fixture.protect_all();
    for lost in 1..=6 {
        fixture.lose(lost);
        let report = fixture.protect();
        assert_eq!(report.seen.changes.of(gabion_vault::catalogue::Class::Recoded).0, 0, "without d{lost}");
        let treatment = &fixture.vault.policy.default;
        assert_eq!((treatment.code.k(), treatment.code.m()), (3, 1), "without d{lost}");
        assert_eq!(fixture.vault.policy.rules().count(), 1);
        fixture.bring_back(lost);
    }
    // A policy that is set while a target is offline reaches it when it returns; then any other may fail.
    fixture.lose(2);
    fixture.vault.set_policy("[default]\nscrub = \"7d\"\n").unwrap();
    fixture.bring_back(2);
    for lost in [1, 3, 4, 5, 6] {
        let away = |number: usize| fixture.dir.path().join(format!("away{number}"));
        std::fs::rename(fixture.target(lost), away(lost)).unwrap();
        let there = Pool::open_at(&[fixture.target(2)], options()).unwrap();
        assert_eq!(
            there.document(Document::Policy).unwrap().text,
            "[default]\nscrub = \"7d\"\n",
            "without d{lost}"
        );
        std::fs::rename(away(lost), fixture.target(lost)).unwrap();
    }
    let second = std::fs::read_to_string(fixture.target(2).join("policy.toml")).unwrap();
    assert!(second.contains("scrub = \"7d\""));
    // A policy that is edited in the repository is used too.
    let own = fixture.vault.repository.path().join("policy.toml");
    std::fs::write(own, "[default]\nscrub = \"9d\"\n").unwrap();
    fixture.open();
    assert!(fixture.pool.document(Document::Policy).unwrap().text.contains("9d"));
    assert_eq!(fixture.vault.policy.default.scrub, 9 * 86400 * SECOND);
}
