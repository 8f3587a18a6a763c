//! Crashes: a child process changes the pool repeatedly until it is killed at a counted system call.

use super::fixture::{PoolFixture, bytes, metadata, options};
use gabion_testkit::kill::{Call, Point, can_kill, killed_at, was_killed};
use gabion_vault::storage::pool::Pool;
use gabion_vault::world::Timestamp;
use std::path::PathBuf;
use std::process::Stdio;

/// Path of the pool for the child, which is started in the fixture's directory.
const FIRST_TARGET: &str = "d1";

const SIZE: usize = 40_000;

fn version(number: u64) -> Vec<u8> {
    bytes(SIZE + number as usize % 7 * 5000, number % 7)
}

/// Rounds of changes by a child that is not killed before.
const CHILD_ROUNDS: u64 = 3;

#[test]
#[ignore = "this is the child, which the other tests start and kill"]
fn child() {
    let pool = Pool::open_at(&[PathBuf::from(FIRST_TARGET)], options()).unwrap();
    for number in 0..CHILD_ROUNDS {
        pool.put(b"dir/file", &mut &version(number)[..], &metadata(), Timestamp::from_nanoseconds(5))
            .unwrap();
        pool.put(b"moving", &mut &version(number)[..], &metadata(), Timestamp::from_nanoseconds(5)).unwrap();
        pool.rename(b"moving", b"dir/moved").unwrap();
        pool.put(b"passing", &mut &version(number)[..], &metadata(), Timestamp::from_nanoseconds(5)).unwrap();
        pool.remove(b"passing").unwrap();
    }
}

/// Runs the child; true if it was killed, false if it finished.
fn run_and_kill(place: &PoolFixture, point: Point) -> bool {
    let mut child = killed_at(point, std::env::current_exe().unwrap());
    let status = child
        .args(["--exact", "crashes::child", "--ignored"])
        .current_dir(place.root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(was_killed(status) || status.success(), "{point:?}: it was killed, it did not fail: {status}");
    was_killed(status)
}

/// Kills come at counted system calls of each kind, at growing distances. Kills after a fixed time missed the work on a
/// loaded machine.
#[test]
fn a_kill_leaves_the_old_file_or_the_new_one() {
    if !can_kill("a_kill_leaves_the_old_file_or_the_new_one") {
        return;
    }
    let place = PoolFixture::new(5, 3, 2);
    place.put("dir/file", &version(0));
    place.put("dir/moved", &version(0));
    let known: Vec<Vec<u8>> = (0..7).map(version).collect();
    let (mut changed, mut killed, mut orphans) = (0, 0, 0);
    let points =
        Call::ALL.into_iter().flat_map(|call| [1, 2, 3, 5, 8, 13, 21, 34].map(|nth| Point { call, nth }));
    for (round, point) in points.enumerate() {
        let before = place.pool.stub(b"dir/file").unwrap();
        killed += u32::from(run_and_kill(&place, point));
        // Seen by a new process, and by one that had the pool open all the time.
        for pool in [&place.reopened(1 + round % 5), &place.pool] {
            for (name, listed) in [pool.list(b"").unwrap(), pool.list(b"dir").unwrap()].concat_all() {
                let listed = listed.unwrap_or_else(|error| panic!("{point:?}: {error}"));
                let Some(stub) = listed.stub else { continue };
                let path =
                    if name == b"file" || name == b"moved" { [b"dir/", &name[..]].concat() } else { name };
                let mut content = Vec::new();
                pool.get(&path, &mut content).unwrap_or_else(|error| panic!("{point:?}: {error}"));
                assert!(known.contains(&content), "{point:?}: {path:?} of {} bytes is no version", stub.size);
            }
        }
        changed += u32::from(place.pool.stub(b"dir/file").unwrap() != before);
        let swept = place.pool.sweep(true).unwrap();
        orphans += swept.orphans.len();
        assert_eq!(swept.busy, 0);
        let again = place.pool.sweep(false).unwrap();
        assert!(again.orphans.is_empty(), "{point:?}: {again:?}");
    }
    println!("{killed} of 40 were killed, {changed} changed the file, {orphans} objects were left over");
    assert!(killed >= 25 && changed >= 15, "{killed} killed, {changed} changed the file");
    assert!(place.pool.heal().unwrap().failed.is_empty());
    assert_eq!(place.pool.status().warnings, []);
    let one_name_each: Vec<_> = place.objects().into_keys().collect();
    let stubs =
        ["dir/file", "dir/moved"].map(|path| place.pool.stub(path.as_bytes()).unwrap().id.to_string());
    assert_ne!(stubs[0], stubs[1], "no two names for one content");
    let rest = one_name_each.iter().filter(|(_, name)| !stubs.iter().any(|id| name.starts_with(id.as_str())));
    let left: Vec<_> = rest.collect();
    let others =
        ["moving", "passing"].into_iter().filter(|path| place.pool.stub(path.as_bytes()).is_ok()).count();
    assert!(left.len() <= others * 3, "{left:?}");
}

trait ConcatAll<T> {
    fn concat_all(self) -> Vec<T>;
}

impl<T> ConcatAll<T> for [Vec<T>; 2] {
    fn concat_all(self) -> Vec<T> {
        self.into_iter().flatten().collect()
    }
}
