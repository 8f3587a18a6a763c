//! Commands on a pool are killed.

use crate::fixture::{Files, Fixture, assert_same, bytes, files_below, rot};
use gabion_testkit::kill::can_kill;
use gabion_vault::coder::Coders;
use gabion_vault::format::Metadata;
use gabion_vault::live::{Live, LiveEntry};
use gabion_vault::storage::pool::config::TargetName;
use gabion_vault::storage::pool::{Options, Pool};
use gabion_vault::world::Timestamp;
use std::fs;
use std::path::PathBuf;

pub(crate) const TARGETS: usize = 6;

/// A pool of six targets, 3+2.
pub(crate) struct Tank {
    pub(crate) fixture: Fixture,
    pub(crate) files: Files,
}

impl Tank {
    pub(crate) fn new() -> Tank {
        let fixture = Fixture::new();
        let create = ["pool", "create", "tank", "--pools", "names", "--stripe", "3", "--redundancy", "2"];
        let targets: Vec<String> = (1..=TARGETS).map(|number| format!("d{number}")).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        fixture.expect("at first", &[&create[..], &["--block", "4KiB", "--targets"], &targets].concat());
        fs::write(fixture.path("policy.toml"), "[default]\nquiet = \"0s\"\n[guard]\nat_least = 100000\n")
            .unwrap();
        Tank { fixture, files: Files::new() }
    }

    fn filled() -> Tank {
        Tank::of(&["quiet", "changed", "sub/written", "moved0", "new0", "new1", "x", "y"])
    }

    /// With these files, protected.
    pub(crate) fn of(names: &[&str]) -> Tank {
        let mut tank = Tank::new();
        for (number, name) in names.iter().enumerate() {
            tank.put(name, &bytes(9000 + number * 4000, number as u64));
        }
        tank.expect("at first", &["protect", "tank", "--policy", "policy.toml"]);
        tank
    }

    pub(crate) fn expect(&self, told: &str, args: &[&str]) -> String {
        self.fixture.expect(told, &[args, &["--pools", "names"]].concat())
    }

    pub(crate) fn target(&self, number: usize) -> PathBuf {
        self.fixture.path(&format!("d{number}"))
    }

    pub(crate) fn pool(&self) -> Pool {
        let there = (1..=TARGETS).map(|number| self.target(number)).filter(|path| path.exists());
        Pool::open_at(&there.collect::<Vec<_>>(), Options::default()).unwrap()
    }

    pub(crate) fn put(&mut self, name: &str, content: &[u8]) {
        let metadata = Metadata { mode: 0o640, ..Metadata::default() };
        self.pool()
            .put(name.as_bytes(), &mut &content[..], &metadata, Timestamp::from_nanoseconds(5))
            .unwrap();
        self.files.insert(name.to_owned(), content.to_vec());
    }

    /// All files as a reader finds them. Where targets are gone, as `gabion pool get` makes them.
    pub(crate) fn seen(&self, told: &str) -> Files {
        fn below(pool: &Pool, path: &[u8], told: &str, found: &mut Files) {
            for (name, listed) in pool.list(path).unwrap() {
                let path = gabion_vault::tree::join(path, &name);
                let shown = String::from_utf8_lossy(&path).into_owned();
                let listed = listed.unwrap_or_else(|error| panic!("{told}: {shown}: {error}"));
                if listed.stub.is_none() {
                    below(pool, &path, told, found);
                    continue;
                }
                let mut content = Vec::new();
                pool.get(&path, &mut content).unwrap_or_else(|error| panic!("{told}: {shown}: {error}"));
                found.insert(shown, content);
            }
        }
        let mut found = Files::new();
        below(&self.pool(), b"", told, &mut found);
        found
    }

    pub(crate) fn lose(&self, number: usize) {
        fs::rename(self.target(number), self.fixture.path(&format!("away{number}"))).unwrap();
    }

    pub(crate) fn bring_back(&self, number: usize) {
        fs::rename(self.fixture.path(&format!("away{number}")), self.target(number)).unwrap();
    }

    /// Everything is protected, and nothing is there beside it.
    pub(crate) fn converge(&self, told: &str) {
        self.converge_with(told, 2);
    }

    /// The same with a number of redundancy columns.
    pub(crate) fn converge_with(&self, told: &str, columns: usize) {
        self.expect(told, &["protect", "tank"]);
        self.expect(told, &["scrub", "tank"]);
        self.expect(told, &["status", "tank"]);
        // A kill may leave objects that no stub refers to; a sweep removes them, and only a sweep does.
        self.expect(told, &["pool", "status", "tank", "--sweep"]);
        let swept = self.pool().sweep(false).unwrap();
        assert!(swept.orphans.is_empty(), "{told}: {swept:?}");
        let mut parity = 0;
        for number in 1..=TARGETS {
            let left = files_below(&self.target(number).join("staging"));
            assert!(left.is_empty(), "{told}: d{number} has {:?} in staging", left.keys());
            parity += files_below(&self.target(number).join("parity")).len();
        }
        let mut ids: Vec<String> = Vec::new();
        let pool = self.pool();
        for name in self.seen(told).keys() {
            ids.push(pool.stub(name.as_bytes()).unwrap().id.to_string());
        }
        ids.sort();
        ids.dedup();
        assert_eq!(parity, ids.len() * columns, "{told}: redundancy files");
    }
}

/// New, replaced, removed, renamed, exchanged and linked files, and one that is written in place.
fn change(tank: &mut Tank, round: u64) {
    let round = round + 2;
    let (two_ago, one_ago) = (format!("new{}", round - 2), format!("new{}", round - 1));
    tank.pool().remove(two_ago.as_bytes()).unwrap();
    tank.files.remove(&two_ago);
    let moved = format!("moved{}", round % 3);
    tank.pool().rename(one_ago.as_bytes(), moved.as_bytes()).unwrap();
    let content = tank.files.remove(&one_ago).unwrap();
    tank.files.insert(moved, content);
    tank.put(&one_ago, &bytes(7000, round * 10));
    tank.put(&format!("new{round}"), &bytes(13_000, round * 10 + 1));
    tank.put("changed", &bytes(10_000 + round as usize % 7 * 3000, round * 10 + 2));
    let live = Live::start(tank.pool(), Coders::new().unwrap()).unwrap();
    live.exchange(b"x", b"y").unwrap();
    let (x, y) = (tank.files["x"].clone(), tank.files["y"].clone());
    tank.files.extend([("x".to_owned(), y), ("y".to_owned(), x)]);
    let Some(LiveEntry::File(stub)) = live.find(b"sub/written").unwrap() else { panic!("it is a file") };
    let written = live.open(*stub);
    let name = || vec![b"sub/written".to_vec()];
    let part = bytes(3000, round * 10 + 3);
    written.write(&name, 5000, &part).unwrap();
    tank.files.get_mut("sub/written").unwrap()[5000..8000].copy_from_slice(&part);
    if round == 2 {
        written.add_name(&name, b"linked").unwrap();
    }
    written.sync(&name).unwrap();
    written.close(&name).unwrap();
    let content = tank.files["sub/written"].clone();
    tank.files.insert("linked".to_owned(), content);
}

/// For whoever protects a pool: a killed run loses no file, with a target gone neither, and the next run makes up for
/// it.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn protect_of_a_pool_killed_at_any_change_is_made_up_for() {
    let test = "protect_of_a_pool_killed_at_any_change_is_made_up_for";
    if !can_kill(test) {
        return;
    }
    let mut tank = Tank::filled();
    let runner = tank.fixture.clone();
    runner.kill_everywhere(
        test,
        6,
        &["protect", "tank", "--pools", "names"],
        &mut tank,
        change,
        |tank, round, told| {
            if round % 3 == 1 {
                // A disk goes before the next run. What nobody wrote can be read without it.
                let number = 1 + round as usize % TARGETS;
                tank.lose(number);
                tank.expect(told, &["pool", "get", "tank", "quiet", "got", "--force"]);
                assert!(fs::read(tank.fixture.path("got")).unwrap() == tank.files["quiet"], "{told}");
                tank.bring_back(number);
            }
            assert_same(told, &tank.seen(told), &tank.files);
            tank.converge(told);
            assert_same(told, &tank.seen(told), &tank.files);
        },
    );
}

fn objects(tank: &Tank, name: &str) -> Vec<PathBuf> {
    let stub = tank.pool().stub(name.as_bytes()).unwrap();
    let id = stub.id.to_string();
    let place = |(column, target): (usize, &TargetName)| {
        tank.fixture.path(target).join("objects").join(&id[..2]).join(format!("{id}.{column}"))
    };
    stub.targets.iter().enumerate().map(place).collect()
}

/// For whoever repairs a pool: corrupt objects, lost columns and corrupt redundancy come back, wherever the repair
/// before was killed.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn repair_of_a_pool_killed_at_any_change_is_finished_by_the_next() {
    let test = "repair_of_a_pool_killed_at_any_change_is_finished_by_the_next";
    if !can_kill(test) {
        return;
    }
    let mut tank = Tank::filled();
    let runner = tank.fixture.clone();
    let args = ["repair", "tank", "--yes", "--pools", "names"];
    runner.kill_everywhere(
        test,
        6,
        &args,
        &mut tank,
        |tank, round| {
            rot(&objects(tank, "quiet")[round as usize % 3], 100, 300);
            rot(&objects(tank, "y")[0], 4000, 1000);
            fs::remove_file(&objects(tank, "x")[round as usize % 3]).unwrap();
            let id = tank.pool().stub(b"changed").unwrap().id.to_string();
            let parity =
                (1..=TARGETS).map(|number| tank.target(number).join("parity").join(&id[..2]).join(&id));
            rot(&parity.filter(|path| path.exists()).nth(round as usize % 2).unwrap(), 500, 300);
        },
        |tank, round, told| {
            if round % 3 == 1 {
                tank.fixture.run(&["protect", "tank", "--pools", "names"]);
            }
            tank.expect(told, &["repair", "tank", "--yes"]);
            assert_same(told, &tank.seen(told), &tank.files);
            tank.converge(told);
            assert_same(told, &tank.seen(told), &tank.files);
        },
    );
}

/// For whoever lost a disk: a killed rebuild is finished by the next, and the disk can come back afterwards.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn rebuild_killed_at_any_change_is_finished_by_the_next() {
    let test = "rebuild_killed_at_any_change_is_finished_by_the_next";
    if !can_kill(test) {
        return;
    }
    let mut tank = Tank::filled();
    let runner = tank.fixture.clone();
    let args = ["pool", "rebuild", "tank", "--pools", "names"];
    runner.kill_everywhere(
        test,
        4,
        &args,
        &mut tank,
        |tank, round| tank.lose(1 + round as usize % TARGETS),
        |tank, round, told| {
            let number = 1 + round as usize % TARGETS;
            tank.expect(told, &["pool", "rebuild", "tank"]);
            assert_same(told, &tank.seen(told), &tank.files);
            tank.expect(told, &["protect", "tank"]);
            tank.expect(told, &["scrub", "tank"]);
            tank.expect(told, &["status", "tank"]);
            tank.bring_back(number);
            tank.expect(told, &["pool", "rebuild", "tank"]);
            tank.converge(told);
            assert_same(told, &tank.seen(told), &tank.files);
        },
    );
}
