//! Sudden ends. A child process changes the pool over and over until it is killed.

use super::playground::{Playground, bytes, metadata, options};
use gabion_vault::storage::pool::Pool;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Where the child finds the pool: it is started in the playground's directory.
const FIRST_TARGET: &str = "d1";

const SIZE: usize = 40_000;

fn version(number: u64) -> Vec<u8> {
    bytes(SIZE + number as usize % 7 * 5000, number % 7)
}

#[test]
#[ignore = "this is the child, which the other tests start and kill"]
fn child() {
    let pool = Pool::open_at(&[PathBuf::from(FIRST_TARGET)], options()).unwrap();
    for number in 0.. {
        pool.put(b"dir/file", &mut &version(number)[..], &metadata(), 5).unwrap();
        pool.put(b"moving", &mut &version(number)[..], &metadata(), 5).unwrap();
        pool.rename(b"moving", b"dir/moved").unwrap();
        pool.put(b"passing", &mut &version(number)[..], &metadata(), 5).unwrap();
        pool.remove(b"passing").unwrap();
    }
}

fn run_and_kill(place: &Playground, after: Duration) {
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this)
        .args(["--exact", "crashes::child", "--ignored"])
        .current_dir(place.root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleep(after);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(status.code().is_none(), "it was killed, it did not end: {status}");
}

#[test]
fn a_kill_leaves_the_old_file_or_the_new_one() {
    let place = Playground::new(5, 3, 2);
    place.put("dir/file", &version(0));
    place.put("dir/moved", &version(0));
    let known: Vec<Vec<u8>> = (0..7).map(version).collect();
    let mut changed = 0;
    let mut orphans = 0;
    for round in 0..40u64 {
        let before = place.pool.stub(b"dir/file").unwrap();
        // Seeded, and different in every round.
        run_and_kill(&place, Duration::from_micros(4000 + round * 7919 % 30_000));
        // As another process finds it, and as one that was open all the time does.
        for pool in [&place.reopened(1 + round as usize % 5), &place.pool] {
            for (name, listed) in [pool.list(b"").unwrap(), pool.list(b"dir").unwrap()].concat_all() {
                let listed = listed.unwrap_or_else(|error| panic!("round {round}: {error}"));
                let Some(stub) = listed.stub else { continue };
                let path =
                    if name == b"file" || name == b"moved" { [b"dir/", &name[..]].concat() } else { name };
                let mut content = Vec::new();
                pool.get(&path, &mut content).unwrap_or_else(|error| panic!("round {round}: {error}"));
                assert!(
                    known.contains(&content),
                    "round {round}: {path:?} of {} bytes is no version",
                    stub.size
                );
            }
        }
        changed += u32::from(place.pool.stub(b"dir/file").unwrap() != before);
        let swept = place.pool.sweep(true).unwrap();
        orphans += swept.orphans.len();
        assert_eq!(swept.busy, 0);
        let again = place.pool.sweep(false).unwrap();
        assert!(again.orphans.is_empty(), "round {round}: {again:?}");
    }
    println!("{changed} of 40 rounds changed the file, {orphans} objects were left over");
    assert!(changed > 5, "the child must have worked before it was killed: {changed}");
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
