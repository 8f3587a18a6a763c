//! Pools after a power cut: the work of each command that exited with 0 is durable.

use crate::disks::Disks;
use crate::fixture::{Files, Fixture, PROGRAM, assert_same, bytes, files_below};
use gabion_testkit::kill::can_kill;
use std::fs;
use std::process::Command;

pub(crate) const DISKS: usize = 4;

/// A pool over four disks, 2+1.
pub(crate) struct Tank {
    pub(crate) disks: Disks,
    pub(crate) fixture: Fixture,
    pub(crate) files: Files,
}

impl Tank {
    pub(crate) fn new(test: &str) -> Option<Tank> {
        let fixture = Fixture::new();
        let disks = Disks::make(test, &fixture, DISKS)?;
        let create = ["pool", "create", "tank", "--pools", "names", "--stripe", "2", "--redundancy", "1"];
        fixture.expect(
            "at first",
            &[&create[..], &["--block", "4KiB", "--targets", "d1", "d2", "d3", "d4"]].concat(),
        );
        let policy = "[default]\nquiet = \"0s\"\n[guard]\nat_least = 100000\n";
        fs::write(fixture.path("policy.toml"), policy).unwrap();
        Some(Tank { disks, fixture, files: Files::new() })
    }

    fn filled(test: &str) -> Option<Tank> {
        let mut tank = Tank::new(test)?;
        for (number, name) in ["quiet", "x", "y", "sub/file"].into_iter().enumerate() {
            tank.put(name, &bytes(9000 + number * 4000, number as u64));
        }
        tank.expect("at first", &["protect", "tank", "--policy", "policy.toml"]);
        Some(tank)
    }

    pub(crate) fn expect(&self, told: &str, args: &[&str]) {
        self.fixture.expect(told, &[args, &["--pools", "names"]].concat());
    }

    fn put(&mut self, name: &str, content: &[u8]) {
        fs::write(self.fixture.path("source"), content).unwrap();
        self.expect("put", &["pool", "put", "tank", "source", name]);
        self.files.insert(name.to_owned(), content.to_vec());
    }

    /// All files, as `gabion pool get` gives them.
    pub(crate) fn seen(&self, told: &str) -> Files {
        let _ = fs::remove_dir_all(self.fixture.path("got"));
        self.expect(told, &["pool", "get", "tank", "/", "got"]);
        files_below(&self.fixture.path("got"))
    }

    pub(crate) fn converge(&self, told: &str) {
        for args in [
            &["protect", "tank"][..],
            &["scrub", "tank"],
            &["status", "tank"],
            &["pool", "status", "tank", "--sweep"],
        ] {
            self.expect(told, args);
        }
        assert_same(told, &self.seen(told), &self.files);
    }
}

/// For users of a pool: files that were put, moved, replaced, removed and protected are so after a power cut that
/// follows at once.
#[test]
fn acknowledged_commands_survive_a_power_cut() {
    let Some(mut tank) = Tank::filled("acknowledged_commands_survive_a_power_cut") else { return };
    type Step = (&'static [&'static str], fn(&mut Files));
    let steps: [Step; 7] = [
        (&["pool", "put", "tank", "source", "new"], |files| {
            drop(files.insert("new".to_owned(), bytes(30_000, 99)))
        }),
        (&["pool", "put", "tank", "source", "x"], |files| {
            drop(files.insert("x".to_owned(), bytes(30_000, 99)))
        }),
        (&["pool", "mv", "tank", "quiet", "sub/moved"], |files| {
            let content = files.remove("quiet").unwrap();
            files.insert("sub/moved".to_owned(), content);
        }),
        (&["pool", "mv", "tank", "y", "x"], |files| {
            let content = files.remove("y").unwrap();
            files.insert("x".to_owned(), content);
        }),
        (&["pool", "rm", "tank", "sub/file"], |files| drop(files.remove("sub/file"))),
        (&["protect", "tank"], |_| {}),
        (&["pool", "rebuild", "tank"], |_| {}),
    ];
    fs::write(tank.fixture.path("source"), bytes(30_000, 99)).unwrap();
    for (args, change) in steps {
        let told = format!("power was cut after gabion {}", args.join(" "));
        tank.expect(&told, args);
        change(&mut tank.files);
        tank.disks.cut_and_mount_again();
        assert_same(&told, &tank.seen(&told), &tank.files);
    }
    let told = "all was protected";
    for number in 1..=DISKS {
        // Redundancy is durable as well: any disk may go.
        tank.disks.unmount(number);
        assert_same(told, &tank.seen(told), &tank.files);
        tank.disks.mount(number).unwrap();
    }
    tank.converge(told);
}

/// These tests can fail: a `put` whose syncs do nothing is acknowledged, and its file does not survive.
#[test]
fn a_put_that_syncs_nothing_does_not_survive_a_power_cut() {
    let test = "a_put_that_syncs_nothing_does_not_survive_a_power_cut";
    if !can_kill(test) {
        return;
    }
    let Some(tank) = Tank::filled(test) else { return };
    fs::write(tank.fixture.path("source"), bytes(30_000, 99)).unwrap();
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-qqq",
        "-o",
        "/dev/null",
        "-e",
        "inject=fsync,fdatasync,syncfs:retval=0",
        "--",
        PROGRAM,
    ]);
    let put = ["pool", "put", "tank", "source", "new", "--pools", "names"];
    assert!(tank.fixture.with(strace, &put).output().unwrap().status.success());
    tank.disks.cut_and_mount_again();
    let got = tank.fixture.run(&["pool", "get", "tank", "new", "got", "--pools", "names"]);
    assert_ne!(got.status.code(), Some(0), "{got:?}");
}

/// The same while a command is at work: it is killed before a counted change, and power is cut. All that was
/// acknowledged before is there, and the command has done all of its work or nothing.
fn cut_while(test: &str, usual: usize, args: &[&str], prepare: fn(&mut Tank, u64), after: fn(&mut Files)) {
    if !can_kill(test) {
        return;
    }
    let Some(mut tank) = Tank::filled(test) else { return };
    let runner = tank.fixture.clone();
    let args = [args, &["--pools", "names"]].concat();
    runner.kill_everywhere(test, usual, &args, &mut tank, prepare, |tank, round, told| {
        tank.disks.cut_and_mount_again();
        let told = format!("{told}, power was cut");
        let mut done = tank.files.clone();
        after(&mut done);
        let found = tank.seen(&told);
        let wanted = if round > 0 && found == tank.files { tank.files.clone() } else { done };
        assert_same(&told, &found, &wanted);
        tank.files = wanted;
        tank.converge(&told);
    });
}

fn prepare(tank: &mut Tank, round: u64) {
    for (number, name) in ["x", "y"].into_iter().enumerate() {
        tank.put(name, &bytes(12_000, round * 10 + number as u64));
    }
}

#[test]
fn a_put_that_loses_its_power_is_done_or_not() {
    let prepare = |tank: &mut Tank, round| {
        prepare(tank, round);
        fs::write(tank.fixture.path("source"), b"what is put").unwrap();
    };
    let after = |files: &mut Files| drop(files.insert("x".to_owned(), b"what is put".to_vec()));
    let test = "a_put_that_loses_its_power_is_done_or_not";
    cut_while(test, 3, &["pool", "put", "tank", "source", "x"], prepare, after);
}

#[test]
fn a_move_that_loses_its_power_is_done_or_not() {
    let after = |files: &mut Files| {
        let content = files.remove("x").unwrap();
        files.insert("y".to_owned(), content);
    };
    cut_while(
        "a_move_that_loses_its_power_is_done_or_not",
        3,
        &["pool", "mv", "tank", "x", "y"],
        prepare,
        after,
    );
}

#[test]
fn protect_of_a_pool_that_loses_its_power_loses_no_file() {
    let test = "protect_of_a_pool_that_loses_its_power_loses_no_file";
    cut_while(test, 4, &["protect", "tank"], prepare, |_| {});
}
