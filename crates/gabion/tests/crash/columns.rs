//! `gabion protect` is killed while it changes the number of redundancy columns.

use crate::fixture::{Files, Fixture, assert_same, bytes, files_below, rot};
use crate::pool::Tank;
use gabion_testkit::kill::can_kill;
use std::fs;

fn policy(code: &str) -> String {
    format!("[default]\ncode = \"{code}\"\nblock = \"4KiB\"\nquiet = \"0s\"\n\n[guard]\nat_least = 100000\n")
}

const PROTECT: [&str; 4] = ["protect", "tree", "--policy", "policy.toml"];

/// Files of a directory whose redundancy is rewritten, and one whose redundancy is changed in place.
const SIZES: [(&str, usize); 4] = [("empty", 0), ("quiet", 30_000), ("sub/one", 4096), ("large", 2_300_000)];

/// Protects with one number of columns, then is killed on the way to the other.
fn kill_directory(test: &str, from: usize, to: usize) {
    if !can_kill(test) {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("tree/sub")).unwrap();
    for (number, (name, size)) in SIZES.into_iter().enumerate() {
        fs::write(fixture.path("tree").join(name), bytes(size, number as u64)).unwrap();
    }
    let files = files_below(&fixture.path("tree"));
    fixture.kill_everywhere(
        test,
        12,
        &PROTECT,
        &mut (),
        |(), _| {
            fs::write(fixture.path("policy.toml"), policy(&format!("2+{from}"))).unwrap();
            fixture.expect("before", &PROTECT);
            fs::write(fixture.path("policy.toml"), policy(&format!("2+{to}"))).unwrap();
        },
        |(), round, told| {
            // Whether the columns of before count or those of after: all is as it should be.
            let scrubbed = fixture.json(told, &["scrub", "tree"]);
            assert_eq!(scrubbed["files"].as_u64(), Some(files.len() as u64), "{told}: {scrubbed}");
            if round % 2 == 1 {
                damage(&fixture, from.min(to));
                fixture.expect(told, &["repair", "tree", "--yes"]);
                assert_same(told, &files_below(&fixture.path("tree")), &files);
            }
            fixture.expect(told, &PROTECT);
            fixture.expect(told, &["scrub", "tree"]);
            let status = fixture.json(told, &["status", "tree"]);
            assert_eq!(status["pending"]["queued"], 0, "{told}: {status}");
            let staging = files_below(&fixture.path("tree/.gabion/staging"));
            assert!(staging.is_empty(), "{told}: {:?}", staging.keys());
            damage(&fixture, to);
            fixture.expect(told, &["repair", "tree", "--yes"]);
            assert_same(told, &files_below(&fixture.path("tree")), &files);
        },
    );
}

/// In up to two columns of a stripe of each file: as many as it has redundancy for.
fn damage(fixture: &Fixture, columns: usize) {
    // 2 + m: the second column begins in the middle, or a segment of a full row later.
    for column in 0..columns.min(2) as u64 {
        rot(&fixture.path("tree/quiet"), column * 15_000 + 200, 100);
        rot(&fixture.path("tree/large"), column * 1_150_000 + 5000, 100);
    }
}

#[test]
fn a_column_is_added_or_not() {
    kill_directory("a_column_is_added_or_not", 1, 2);
}

#[test]
fn columns_are_removed_or_not() {
    kill_directory("columns_are_removed_or_not", 3, 1);
}

/// The same in a pool.
fn kill_pool(test: &str, from: usize, to: usize) {
    if !can_kill(test) {
        return;
    }
    let mut tank = Tank::new();
    for (number, (name, size)) in
        [("empty", 0), ("quiet", 30_000), ("large", 3_600_000)].into_iter().enumerate()
    {
        tank.put(name, &bytes(size, number as u64));
    }
    let set = |columns: usize| {
        let text = policy(&format!("3+{columns}"));
        fs::write(tank.fixture.path("policy.toml"), text).unwrap();
    };
    let protect = ["protect", "tank", "--policy", "policy.toml", "--pools", "names"];
    let wanted: &Files = &tank.files;
    tank.fixture.kill_everywhere(
        test,
        12,
        &protect,
        &mut (),
        |(), _| {
            set(from);
            tank.fixture.expect("before", &protect);
            set(to);
        },
        |(), _, told| {
            assert_same(told, &tank.seen(told), wanted);
            tank.fixture.expect(told, &protect);
            tank.converge_with(told, to);
        },
    );
}

#[test]
fn a_column_of_a_pool_is_added_or_not() {
    kill_pool("a_column_of_a_pool_is_added_or_not", 2, 3);
}

#[test]
fn a_column_of_a_pool_is_removed_or_not() {
    kill_pool("a_column_of_a_pool_is_removed_or_not", 3, 2);
}
