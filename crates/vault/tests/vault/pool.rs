//! A vault over a pool: targets go, come back, rot, and everything that can be brought back is.

use super::playground::{QUIET, Seed, flip, rebuild_catalogue};
use gabion_vault::catalogue::State;
use gabion_vault::format::Metadata;
use gabion_vault::protect;
use gabion_vault::repair::{self, plan, repair};
use gabion_vault::scrub::{self, Selection, scrub};
use gabion_vault::status::{Status, status};
use gabion_vault::storage::pool::{Document, NewTarget, Options, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::whatif::what_if;
use gabion_vault::world::{Clock, SECOND};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

const BLOCK: u64 = 4096;

/// A pool of targets d1, d2, … and its vault.
struct Ground {
    dir: tempfile::TempDir,
    pool: Pool,
    vault: Vault,
    count: usize,
    files: BTreeMap<String, Vec<u8>>,
}

impl Ground {
    fn new(domains: &[Option<&str>], stripe: usize, redundancy: usize) -> Ground {
        let dir = tempfile::tempdir().unwrap();
        let target = |(at, domain): (usize, &Option<&str>)| NewTarget {
            path: dir.path().join(format!("d{}", at + 1)),
            domain: domain.map(str::to_owned),
        };
        let targets: Vec<NewTarget> = domains.iter().enumerate().map(target).collect();
        let pool = Pool::create("tank", &targets, stripe, BLOCK, redundancy, options()).unwrap();
        let vault = Vault::create(&Location::of_pool(&pool).unwrap(), None, clock()).unwrap();
        Ground { dir, pool, vault, count: domains.len(), files: BTreeMap::new() }
    }

    /// Eight targets, 3 + 2, and files of many sizes.
    fn filled(seed: u64) -> Ground {
        let mut ground = Ground::new(&[None; 8], 3, 2);
        let mut chance = Seed(seed);
        for (number, size) in [0, 1, 63, 4096, 5000, 12_288, 12_289, 40_000, 100_000].into_iter().enumerate()
        {
            ground.put(&format!("dir{}/file {number}", number % 2), &chance.bytes(size));
        }
        ground.protect_all();
        ground
    }

    fn put(&mut self, name: &str, content: &[u8]) {
        let metadata = Metadata { mode: 0o640, ..Metadata::default() };
        self.pool.put(name.as_bytes(), &mut &content[..], &metadata, 5).unwrap();
        self.files.insert(name.to_owned(), content.to_vec());
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        self.pool.get(name.as_bytes(), &mut content).ok().map(|_| content)
    }

    fn target(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("d{number}"))
    }

    /// The disk is pulled out. If the vault was on it, another one is begun, and makes its catalogue from headers.
    fn lose(&mut self, number: usize) {
        std::fs::rename(self.target(number), self.dir.path().join(format!("away{number}"))).unwrap();
        self.open();
    }

    fn bring_back(&mut self, number: usize) {
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

    fn protect_all(&self) -> protect::Report {
        let report = self.protect();
        assert_eq!(report.done.failed, []);
        assert_eq!(report.seen.unreadable, []);
        report
    }

    fn scrub(&self) -> scrub::Report {
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        scrub(&self.vault, b"", options, QUIET).unwrap()
    }

    fn status(&self) -> Status {
        status(&self.vault, b"", true, 1000, QUIET).unwrap()
    }

    /// Repairs all that needs it; gives the names of what is not whole then, and why.
    fn repair(&self) -> BTreeMap<String, String> {
        let _lock = self.vault.lock("test").unwrap();
        // With a catalogue made anew and old headers only, what was put since looks like damage.
        let options = repair::Options { keep_changed: true, ..repair::Options::default() };
        let plan = plan(&self.vault, b"", options, QUIET).unwrap();
        let done = plan.files.iter().map(|trouble| match repair(&self.vault, &trouble.path, QUIET) {
            Ok(done) if done.state > State::Degraded => (done.path, done.state.word().to_owned()),
            Ok(done) => (done.path, String::new()),
            Err(error) => (trouble.path.clone(), error.to_string()),
        });
        let left = done.chain(plan.failed.clone()).filter(|(_, why)| !why.is_empty());
        left.map(|(path, why)| (String::from_utf8(path).unwrap(), why)).collect()
    }

    /// Targets that have bytes of a file.
    fn data(&self, name: &str) -> Vec<String> {
        let stub = self.pool.stub(name.as_bytes()).unwrap();
        let has_bytes = |column: &usize| stub.object_bytes(*column, stub.size) > 0;
        (0..stub.targets.len()).filter(has_bytes).map(|column| stub.targets[column].clone()).collect()
    }

    fn assert_whole(&self, told: &str) {
        self.protect_all();
        let report = self.scrub();
        assert!(report.trouble.is_empty() && report.failed.is_empty(), "{told}: {report:?}");
        for (name, content) in &self.files {
            assert!(self.get(name).as_ref() == Some(content), "{told}: {name}");
        }
        let status = self.status();
        assert!(status.affected.is_empty(), "{told}: {status:?}");
        assert_eq!(status.matrix.keys().collect::<Vec<_>>(), [&(2, 2)], "{told}");
        self.assert_apart(told);
        assert!(self.protect_all().seen.changes.is_empty(), "{told}");
    }

    /// Data and redundancy of a file are in different domains, all of them.
    fn assert_apart(&self, told: &str) {
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

    /// The redundancy files of a file.
    fn redundancy(&self, name: &str) -> Vec<(usize, PathBuf)> {
        let id = self.pool.stub(name.as_bytes()).unwrap().id.to_string();
        let place = |number: usize| self.target(number).join("parity").join(&id[..2]).join(&id);
        let all = (1..=self.count).map(|number| (number, place(number)));
        all.filter(|(_, path)| path.exists()).collect()
    }

    /// Redundancy files on all targets that answer.
    fn redundancy_files(&self) -> usize {
        let shelves =
            (1..=self.count).flat_map(|number| std::fs::read_dir(self.target(number).join("parity")));
        let shelves = shelves.flatten().map(|shelf| shelf.unwrap().path());
        shelves.map(|shelf| std::fs::read_dir(shelf).unwrap().count()).sum()
    }

    fn object(&self, name: &str, column: usize) -> PathBuf {
        let stub = self.pool.stub(name.as_bytes()).unwrap();
        let object = format!("{}.{column}", stub.id);
        self.dir.path().join(&stub.targets[column]).join("objects").join(&object[..2]).join(object)
    }

    /// Files that cannot be brought back without these targets, by where their parts are.
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

/// An hour later each time.
fn clock() -> Clock {
    static HOURS: AtomicI64 = AtomicI64::new(500_000);
    Clock::manual(HOURS.fetch_add(1, Ordering::Relaxed) * 3600 * SECOND)
}

fn flip_in(path: &Path, chance: &mut Seed) {
    let size = std::fs::metadata(path).unwrap().len();
    flip(path, chance.below(size));
}

#[test]
fn any_one_target_may_go() {
    for number in 1..=8 {
        let mut ground = Ground::filled(number as u64);
        ground.assert_whole("before");
        ground.lose(number);
        let told = format!("without d{number}");
        assert_loss_is_seen(&ground, &[number], &told);
        assert_eq!(ground.repair(), BTreeMap::new(), "{told}");
        ground.assert_whole(&told);
        // It comes back with what it had: nothing of that counts.
        ground.bring_back(number);
        assert_comes_back(&ground, &format!("d{number} is back"));
    }
}

/// While targets are away, no file that had something there passes for whole.
fn assert_loss_is_seen(ground: &Ground, lost: &[usize], told: &str) {
    let touched: BTreeSet<&String> = ground
        .files
        .keys()
        .filter(|name| {
            let gone = |target: &String| lost.iter().any(|number| format!("d{number}") == *target);
            ground.data(name).iter().any(gone) || ground.redundancy(name).len() < 2
        })
        .collect();
    let found = ground.status();
    let affected: BTreeSet<String> =
        found.affected.iter().map(|it| String::from_utf8(it.path.clone()).unwrap()).collect();
    assert_eq!(affected.iter().collect::<BTreeSet<_>>(), touched, "{told}: {found:?}");
    let whole = found.matrix.get(&(2, 2)).map_or(0, |amount| amount.0);
    assert_eq!(whole as usize, ground.files.len() - touched.len(), "{told}: {found:?}");
    let offline = found.targets.iter().filter(|target| target.space.is_none()).count();
    assert_eq!(offline, lost.len(), "{told}");
    let report = ground.scrub();
    assert!(report.failed.is_empty(), "{told}: {report:?}");
    let trouble: BTreeSet<String> =
        report.trouble.iter().map(|it| String::from_utf8(it.path.clone()).unwrap()).collect();
    assert_eq!(trouble.iter().collect::<BTreeSet<_>>(), touched, "{told}: {report:?}");
}

/// A target is back as it was when it went.
fn assert_comes_back(ground: &Ground, told: &str) {
    for (name, content) in &ground.files {
        assert!(ground.get(name).as_ref() == Some(content), "{told}: {name}");
    }
    ground.pool.heal().unwrap();
    ground.protect_all();
    let report = ground.scrub();
    let wrong = report.trouble.iter().filter(|trouble| trouble.state > State::Degraded);
    assert_eq!(wrong.count(), 0, "{told}: {report:?}");
    // What it had of old is out of the way then.
    ground.assert_whole(told);
}

#[test]
fn any_two_targets_may_go() {
    for first in 1..=8 {
        for second in first + 1..=8 {
            // Ten pairs are enough for each run; all are tried over the seeds.
            if (first * 5 + second) % 3 != 0 {
                continue;
            }
            let told = format!("without d{first} and d{second}");
            let mut ground = Ground::filled((first * 8 + second) as u64);
            ground.lose(first);
            ground.lose(second);
            assert_loss_is_seen(&ground, &[first, second], &told);
            assert_eq!(ground.repair(), BTreeMap::new(), "{told}");
            ground.assert_whole(&told);
            ground.bring_back(second);
            ground.bring_back(first);
            assert_comes_back(&ground, &told);
        }
    }
}

#[test]
fn of_three_lost_targets_exactly_what_was_predicted_is_lost() {
    // The vault itself is on d1: without it, files that have lost all headers are not known to be protected.
    for lost in [[2, 3, 4], [2, 5, 8], [4, 6, 7], [3, 4, 8]] {
        let mut ground = Ground::filled(lost[1] as u64);
        let names: Vec<Vec<u8>> = lost.iter().map(|number| format!("d{number}").into_bytes()).collect();
        let answer = what_if(&ground.vault, b"", &names, 1000, QUIET).unwrap();
        let predicted: BTreeSet<String> =
            answer.names.into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
        assert_eq!(predicted, ground.beyond(&lost), "{lost:?}");
        assert_eq!((answer.lost.0 as usize, answer.unknown), (predicted.len(), 0));
        lost.iter().for_each(|&number| ground.lose(number));
        let named = |found: Vec<(Vec<u8>, State)>| -> BTreeSet<String> {
            let lost = found.into_iter().filter(|(_, state)| *state == State::Lost);
            lost.map(|(path, _)| String::from_utf8(path).unwrap()).collect()
        };
        let found = ground.status().affected.into_iter().map(|it| (it.path, it.state)).collect();
        assert_eq!(named(found), predicted, "{lost:?}: status");
        let found = named(ground.scrub().trouble.into_iter().map(|it| (it.path, it.state)).collect());
        assert_eq!(found, predicted, "{lost:?}: scrub");
        assert!(predicted.iter().all(|name| ground.get(name).is_none()), "{lost:?}");
        // With more than m targets gone nothing is changed, and each file says so.
        for (name, why) in ground.repair() {
            let said = why.contains("targets are reachable") || predicted.contains(&name);
            assert!(said, "{lost:?}: {name}: {why}");
        }
        ground.bring_back(lost[0]);
        ground.pool.heal().unwrap();
        assert_eq!(ground.repair(), BTreeMap::new(), "{lost:?}");
        ground.assert_whole(&format!("{lost:?}, and one is back"));
    }
}

#[test]
fn rot_on_several_targets_at_once_is_repaired() {
    for seed in 0..12 {
        let mut chance = Seed(seed);
        let ground = Ground::filled(seed);
        let mut hit = 0;
        for (name, content) in &ground.files {
            // Whatever of two columns rots, m of each stripe at most.
            let mut columns: Vec<usize> = (0..5).collect();
            for _ in 0..2 {
                let column = columns.swap_remove(chance.below(columns.len() as u64) as usize);
                let path = match column {
                    0..3 => ground.object(name, column),
                    _ => ground.redundancy(name)[column - 3].1.clone(),
                };
                if !path.exists() || std::fs::metadata(&path).unwrap().len() == 0 {
                    continue;
                }
                hit += 1;
                match chance.below(3) {
                    0 if column < 3 => std::fs::remove_file(&path).unwrap(),
                    0 => {
                        let length = std::fs::metadata(&path).unwrap().len() / 2;
                        std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
                    }
                    // One header of the two must stay.
                    _ if column > 2 => flip_in(&path, &mut chance),
                    _ => (0..1 + chance.below(4)).for_each(|_| flip_in(&path, &mut chance)),
                }
            }
            // One copy of its stub as well.
            let stubs = (1..=8).map(|number| ground.target(number).join("tree").join(name));
            let stubs: Vec<PathBuf> = stubs.filter(|path| path.exists()).collect();
            if !content.is_empty() && chance.below(2) == 0 {
                flip_in(&stubs[chance.below(stubs.len() as u64) as usize], &mut chance);
            }
        }
        let report = ground.scrub();
        assert!(report.trouble.len() > 3 && report.failed.is_empty(), "seed {seed}, {hit} hits: {report:?}");
        assert_eq!(ground.repair(), BTreeMap::new(), "seed {seed}");
        ground.pool.heal().unwrap();
        ground.assert_whole(&format!("seed {seed}"));
    }
}

#[test]
fn redundancy_follows_names_and_goes_with_files() {
    let mut ground = Ground::filled(1);
    let before: Vec<Vec<u8>> =
        ground.redundancy("dir1/file 7").iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    ground.pool.rename(b"dir1/file 7", b"dir0/moved").unwrap();
    ground.pool.remove(b"dir0/file 8").unwrap();
    let content = ground.files.remove("dir1/file 7").unwrap();
    ground.files.insert("dir0/moved".to_owned(), content);
    ground.files.remove("dir0/file 8");
    let report = ground.protect_all();
    assert_eq!((report.done.moved, report.done.removed, report.done.encoded), (1, 1, 0), "{report:?}");
    let after: Vec<Vec<u8>> =
        ground.redundancy("dir0/moved").iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    assert!(before == after);
    let left = ground.files.keys().map(|name| ground.redundancy(name).len()).sum::<usize>();
    assert_eq!(ground.redundancy_files(), left, "that of a removed file is gone");
    ground.assert_whole("moved");
    // A whole directory.
    ground.pool.rename(b"dir1", b"dir2").unwrap();
    let files = std::mem::take(&mut ground.files);
    ground.files = files.into_iter().map(|(name, content)| (name.replace("dir1", "dir2"), content)).collect();
    assert_eq!(ground.protect_all().done.encoded, 0);
    ground.assert_whole("a directory moved");
}

#[test]
fn what_was_put_meanwhile_is_not_spoilt_by_a_target_that_comes_back() {
    for number in 1..=8 {
        let mut ground = Ground::filled(10 + number as u64);
        ground.lose(number);
        // Same sizes, other bytes: only signatures tell the old redundancy from the new.
        let names: Vec<String> = ground.files.keys().cloned().collect();
        for (at, name) in names.iter().enumerate() {
            let size = ground.files[name].len();
            ground.put(name, &Seed(1000 + at as u64).bytes(size));
        }
        ground.protect_all();
        ground.bring_back(number);
        ground.pool.heal().unwrap();
        let told = format!("d{number} is back");
        for (name, content) in &ground.files {
            assert!(ground.get(name).as_ref() == Some(content), "{told}: {name}");
        }
        let report = ground.scrub();
        let wrong = report.trouble.iter().filter(|trouble| trouble.state > State::Degraded);
        assert_eq!(wrong.count(), 0, "{told}: {report:?}");
        // Two more targets go: what is left is enough, whatever lies around.
        let others: Vec<usize> = (1..=8).filter(|&other| other != number).take(2).collect();
        let beyond = ground.beyond(&others);
        others.iter().for_each(|&other| ground.lose(other));
        let lost = ground.repair();
        assert!(lost.keys().all(|name| beyond.contains(name)), "{told}: {lost:?}, not only {beyond:?}");
        for (name, content) in ground.files.iter().filter(|(name, _)| !lost.contains_key(*name)) {
            assert!(ground.get(name).as_ref() == Some(content), "{told}: {name}");
        }
    }
}

#[test]
fn domains_are_kept_apart_or_it_is_said() {
    // Six domains for five columns: one may go.
    let domains = ["a", "a", "b", "b", "c", "d", "e", "f"].map(Some);
    let mut ground = Ground::new(&domains, 3, 2);
    for number in 0..12 {
        ground.put(&format!("file {number}"), &Seed(number).bytes(30_000));
    }
    ground.assert_whole("eight targets in six domains");
    ground.lose(5);
    assert_eq!(ground.repair(), BTreeMap::new());
    ground.assert_whole("without c");
    // Four domains are left: one column of each file has no place, and nothing calls that whole.
    ground.lose(6);
    let left = ground.repair();
    assert!(!left.is_empty() && left.len() < 12, "{left:?}");
    assert!(left.values().all(|why| why.contains("no target in a separate failure domain")), "{left:?}");
    let report = ground.protect();
    assert_eq!(report.done.thin as usize, 12 - left.len(), "{report:?}");
    assert!(report.done.failed.is_empty(), "{report:?}");
    ground.assert_apart("without c and d");
    let status = ground.status();
    assert!(!status.matrix.contains_key(&(2, 2)) && status.affected.len() == 12, "{status:?}");
    for (name, content) in ground.files.iter().filter(|(name, _)| !left.contains_key(*name)) {
        assert!(ground.get(name).as_ref() == Some(content), "{name}");
    }
    // With one more there is room again.
    let target = NewTarget { path: ground.target(9), domain: Some("g".to_owned()) };
    ground.pool.add(&target).unwrap();
    ground.count = 9;
    ground.open();
    assert_eq!(ground.repair(), BTreeMap::new());
    ground.assert_whole("with g");
}

#[test]
fn without_the_namespace_nothing_is_believed_and_nothing_lost() {
    let mut ground = Ground::filled(3);
    let mirrors = [1, 2, 3];
    let away = |number: usize| ground.dir.path().join(format!("away{number}"));
    for number in mirrors {
        std::fs::rename(ground.target(number), away(number)).unwrap();
    }
    let error = protect::protect(&ground.vault, QUIET).unwrap_err().to_string();
    assert!(error.contains("d1") && error.contains("d3"), "{error}");
    assert!(status(&ground.vault, b"", true, 10, QUIET).is_err());
    let counted = status(&ground.vault, b"", false, 10, QUIET).unwrap();
    assert!(!counted.matrix.contains_key(&(2, 2)), "{counted:?}");
    // Which files there are is not known, so nobody can say how they are.
    let pool = Pool::open_at(&[ground.target(4)], options()).unwrap();
    let error = Vault::of_pool(&pool, clock()).err().expect("a vault without a namespace").to_string();
    assert!(error.contains("d1") && error.contains("d3"), "{error}");
    for number in mirrors {
        std::fs::rename(away(number), ground.target(number)).unwrap();
    }
    ground.open();
    ground.assert_whole("the namespace is back");
}

#[test]
fn a_code_that_does_not_fit_the_stripe_is_named() {
    let mut ground = Ground::filled(1);
    ground.vault.set_policy("[[rule]]\npaths = [\"dir0/**\"]\ncode = \"4+2\"\n").unwrap();
    let report = ground.protect();
    let names: Vec<&String> = ground.files.keys().filter(|name| name.starts_with("dir0")).collect();
    assert_eq!(report.done.failures as usize, names.len(), "{report:?}");
    for (_, why) in &report.done.failed {
        assert_eq!(why, "the code has 4 data columns, the file is striped over 3");
    }
    // What they had they have still.
    assert!(names.iter().all(|name| ground.redundancy(name).len() == 2));
    ground.vault.set_policy("").unwrap();
    ground.vault.clock.set(ground.vault.clock.now() + 3600 * SECOND);
    ground.assert_whole("with the right code");
}

/// Content that was put anew is another file: redundancy of what was there before does not take it back.
#[test]
fn what_was_put_anew_is_not_taken_back() {
    let mut ground = Ground::filled(1);
    let old = ground.files["dir1/file 7"].clone();
    let longer = [&old[..], &Seed(9).bytes(9000)].concat();
    ground.put("dir1/file 7", &longer);
    let done = repair(&ground.vault, b"dir1/file 7", QUIET).unwrap();
    assert_eq!((done.state, done.data_blocks), (State::Degraded, 0), "{done:?}");
    assert!(ground.get("dir1/file 7") == Some(longer));
    ground.assert_whole("protected anew");
}

/// The vault lies on one target. Whichever is lost, files get what the policy says, and nothing is recoded by mistake.
#[test]
fn the_policy_survives_every_target() {
    let policy = "[default]\ncode = \"3+1\"\n[[rule]]\npaths = [\"dir1/**\"]\nprotect = false\n";
    let mut ground = Ground::new(&[None; 6], 3, 2);
    for number in 0..6 {
        ground.put(&format!("dir{}/file", number % 2), &Seed(number).bytes(20_000));
    }
    ground.vault.set_policy(policy).unwrap();
    ground.protect_all();
    for lost in 1..=6 {
        ground.lose(lost);
        let report = ground.protect();
        assert_eq!(report.seen.changes.of(gabion_vault::catalogue::Class::Recoded).0, 0, "without d{lost}");
        let treatment = &ground.vault.policy.default;
        assert_eq!((treatment.code.k(), treatment.code.m()), (3, 1), "without d{lost}");
        assert_eq!(ground.vault.policy.rules().count(), 1);
        ground.bring_back(lost);
    }
    // A later one, set while a target is away, reaches that target when it is back; then any other may go.
    ground.lose(2);
    ground.vault.set_policy("[default]\nscrub = \"7d\"\n").unwrap();
    ground.bring_back(2);
    for lost in [1, 3, 4, 5, 6] {
        let away = |number: usize| ground.dir.path().join(format!("away{number}"));
        std::fs::rename(ground.target(lost), away(lost)).unwrap();
        let there = Pool::open_at(&[ground.target(2)], options()).unwrap();
        assert_eq!(
            there.document(Document::Policy).unwrap().text,
            "[default]\nscrub = \"7d\"\n",
            "without d{lost}"
        );
        std::fs::rename(away(lost), ground.target(lost)).unwrap();
    }
    let second = std::fs::read_to_string(ground.target(2).join("policy.toml")).unwrap();
    assert!(second.contains("scrub = \"7d\""));
    // Edited where it is worked with, it counts as well.
    let own = ground.vault.repository.path().join("policy.toml");
    std::fs::write(own, "[default]\nscrub = \"9d\"\n").unwrap();
    ground.open();
    assert!(ground.pool.document(Document::Policy).unwrap().text.contains("9d"));
    assert_eq!(ground.vault.policy.default.scrub, 9 * 86400 * SECOND);
}
