//! Order of changes: a change that is killed at any counted point is applied or not, permanently and for every later
//! process.
//!
//! Before pools had change records, a rename was noted on all mirrors and completed only by the next *change*: readers
//! and mounts saw the old names first, wrote to them, and the old rename was then applied under the open file.

use super::fixture::{PoolFixture, bytes, metadata, options};
use gabion_vault::coder::Coders;
use gabion_vault::fault;
use gabion_vault::live::{Live, LiveEntry, LiveFile};
use gabion_vault::storage::pool::{Pool, Unlinked};
use gabion_vault::world::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// More file-system changes than any of the operations below makes.
const MOST: u64 = 200;

pub(crate) fn live(pool: &Pool) -> Live {
    Live::start(pool.clone(), Coders::new().unwrap()).unwrap()
}

fn open(live: &Live, path: &str) -> Option<LiveFile> {
    match live.find(path.as_bytes()).unwrap() {
        Some(LiveEntry::File(stub)) => Some(live.open(*stub)),
        Some(LiveEntry::Directory(..)) | None => None,
    }
}

/// Truncates a file, writes and syncs it, as a program does through a mount.
pub(crate) fn rewrite(live: &Live, path: &str, content: &[u8]) -> bool {
    let Some(file) = open(live, path) else { return false };
    let name = || vec![path.as_bytes().to_vec()];
    file.set_size(&name, 0).unwrap();
    file.write(&name, 0, content).unwrap();
    file.sync(&name).unwrap();
    file.close(&name).unwrap();
    true
}

fn unnamed(live: &Live, path: &str, unnamed: Unlinked) {
    if let Unlinked::Last(stub) = unnamed {
        live.queue_removal(path.as_bytes(), stub);
    }
}

/// Makes one change, chosen by its first word.
pub(crate) fn act(pool: &Pool, work: &str) {
    let words: Vec<&str> = work.split(' ').collect();
    match words[..] {
        ["put", path, seed, size] => {
            let content = bytes(size.parse().unwrap(), seed.parse().unwrap());
            pool.put(path.as_bytes(), &mut &content[..], &metadata(), Timestamp::from_nanoseconds(5))
                .unwrap();
        }
        ["rm", path] => drop(pool.remove(path.as_bytes()).unwrap()),
        ["mv", from, to] => drop(pool.rename(from.as_bytes(), to.as_bytes()).unwrap()),
        ["mkdir", path] => drop(pool.make_directory(path.as_bytes(), 0o755, 0, 0).unwrap()),
        ["live-mv", from, to] => {
            let live = live(pool);
            use gabion_vault::live::RenameOutcome;
            if let RenameOutcome::Renamed(Some(gone)) =
                live.rename(from.as_bytes(), to.as_bytes(), false).unwrap()
            {
                unnamed(&live, to, gone);
            }
        }
        ["swap", one, other] => live(pool).exchange(one.as_bytes(), other.as_bytes()).unwrap(),
        ["link", from, to] => {
            let live = live(pool);
            let file = open(&live, from).unwrap();
            file.add_name(&|| vec![from.as_bytes().to_vec()], to.as_bytes()).unwrap();
            file.close(&|| vec![from.as_bytes().to_vec()]).unwrap();
        }
        ["live-rm", path] => {
            let live = live(pool);
            let gone = live.remove(path.as_bytes()).unwrap();
            unnamed(&live, path, gone);
        }
        ["live-put", path, seed, size] => {
            let live = live(pool);
            let file = live.create(path.as_bytes(), &metadata()).unwrap();
            let name = || vec![path.as_bytes().to_vec()];
            file.write(&name, 0, &bytes(size.parse().unwrap(), seed.parse().unwrap())).unwrap();
            file.sync(&name).unwrap();
            file.close(&name).unwrap();
        }
        ["rewrite", path, seed, size] => {
            let content = bytes(size.parse().unwrap(), seed.parse().unwrap());
            assert!(rewrite(&live(pool), path, &content));
        }
        _ => panic!("{work}"),
    }
}

#[test]
#[ignore = "this is the child, which the other tests start"]
fn child() {
    // The file-system change before which it is killed, and its operation.
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    let Some((point, work)) = told.trim_end().split_once(' ') else { return };
    let pool = open_any(Path::new("."));
    fault::kill_before(point.parse().unwrap());
    act(&pool, work);
}

/// The pool as a new process finds it.
pub(crate) fn open_any(root: &Path) -> Pool {
    let targets = (1..=9).map(|number| root.join(format!("d{number}")));
    let there: Vec<PathBuf> = targets.filter(|path| path.join("pool.toml").exists()).collect();
    Pool::open_at(&there, options()).unwrap()
}

/// Runs `work` in a child that is killed before its file-system change `point`. False if the child finished first.
pub(crate) fn killed(root: &Path, work: &str, point: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "order::child", "--ignored", "--nocapture"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{point} {work}\n").as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() || done.status.signal() == Some(9), "{work}: {}: {said}", done.status);
    !done.status.success()
}

/// Every file with its content, every directory with a trailing slash.
pub(crate) type Seen = BTreeMap<String, Vec<u8>>;

pub(crate) fn seen(pool: &Pool) -> Seen {
    fn below(pool: &Pool, path: &[u8], seen: &mut Seen) {
        for (name, listed) in pool.list(path).unwrap() {
            let path = gabion_vault::tree::join(path, &name);
            let shown = String::from_utf8_lossy(&path).into_owned();
            let listed = listed.unwrap_or_else(|error| panic!("{shown}: {error}"));
            let mut content = Vec::new();
            if listed.stub.is_none() {
                below(pool, &path, seen);
                seen.insert(format!("{shown}/"), content);
                continue;
            }
            pool.get(&path, &mut content).unwrap_or_else(|error| panic!("{shown}: {error}"));
            seen.insert(shown, content);
        }
    }
    let mut all = Seen::new();
    below(pool, b"", &mut all);
    all
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// A pool whose three mirrors are d1, d2 and d3.
fn filled() -> PoolFixture {
    let place = PoolFixture::in_memory(6, 2, 2);
    for (number, path) in ["a", "b", "dir/c", "dir/d"].into_iter().enumerate() {
        place.put(path, &bytes(5000 + number * 3000, number as u64));
    }
    place.pool.make_directory(b"empty", 0o755, 0, 0).unwrap();
    act(&place.pool, "link a linked");
    place
}

/// Restores the whole namespace of a pool.
fn again(place: &PoolFixture, scratch: &Path) {
    (1..=place.count).for_each(|number| fs::remove_dir_all(place.target(number)).unwrap());
    let targets = (1..=place.count).map(|number| scratch.join(format!("d{number}")));
    let done = Command::new("cp").arg("-a").args(targets).arg(place.root()).status().unwrap();
    assert!(done.success());
}

const WORKS: [&str; 16] = [
    "put new 7 9000",
    "put b 7 9000",
    "put x/y/new 7 100",
    "rm b",
    "rm linked",
    "mv a dir/moved",
    "mv b a",
    "mv b linked",
    "mv dir empty",
    "mkdir one/two",
    "live-mv a b",
    "live-put fresh 7 9000",
    "live-rm b",
    "swap b dir/c",
    "swap dir empty",
    "link b dir/another",
];

/// The first reader after a killed change decides whether it is applied, for all later readers and whichever disks are
/// reachable; the next change does not alter the result.
#[test]
fn a_change_killed_at_any_point_is_applied_or_not_for_good() {
    let place = filled();
    let scratch = PoolFixture::in_memory(1, 1, 0);
    fs::remove_dir_all(scratch.target(1)).unwrap();
    (1..=6).for_each(|number| copy(&place.target(number), scratch.root()));
    let before = seen(&place.reopened(1));
    for work in WORKS {
        again(&place, scratch.root());
        act(&open_any(place.root()), work);
        let after = seen(&place.reopened(1));
        assert_ne!(before, after, "{work}");
        for point in 0..MOST {
            again(&place, scratch.root());
            let told = format!("{work}, killed before change {point}");
            let was_killed = killed(place.root(), work, point);
            let first = seen(&place.reopened(1 + point as usize % 6));
            // A file that is created through a mount has no bytes at first.
            let begun = |all: &Seen| {
                work.starts_with("live-put")
                    && all.get("fresh").is_some_and(|found| after["fresh"].starts_with(found))
            };
            assert!(first == before || first == after || begun(&first), "{told}: {:?}", first.keys());
            assert!(was_killed || first == after, "{told}");
            let others = [[2, 3], [1, 3], [1, 2]][point as usize % 3];
            others.into_iter().for_each(|number| place.lose(number));
            let alone = Pool::open_at(&[place.target(4)], options()).unwrap();
            assert_eq!(names(&alone), first.keys().cloned().collect::<Vec<_>>(), "{told}, one mirror");
            others.into_iter().for_each(|number| place.restore_disk(number));
            act(&open_any(place.root()), "put later/one 9 10");
            act(&open_any(place.root()), "put later/two 9 10");
            let mut then = seen(&place.reopened(1));
            then.retain(|path, _| !path.starts_with("later"));
            assert_eq!(then, first, "{told}, after the next change");
            if !was_killed {
                break;
            }
            assert!(point + 1 < MOST, "{work} never ends");
        }
    }
}

fn names(pool: &Pool) -> Vec<String> {
    let mut all = super::fixture::all_names(pool, b"");
    all.sort();
    all
}

/// Programs write through a mount after a rename, an exchange or a link was killed. Their synced writes must be found
/// under the names they wrote to.
#[test]
fn synced_writes_after_a_killed_rename_are_never_lost() {
    let place = filled();
    let scratch = PoolFixture::in_memory(1, 1, 0);
    fs::remove_dir_all(scratch.target(1)).unwrap();
    (1..=6).for_each(|number| copy(&place.target(number), scratch.root()));
    for work in ["mv a b", "live-mv b dir/c", "swap b dir/c", "mv dir moved", "link b dir/another"] {
        for point in 0..MOST {
            again(&place, scratch.root());
            let was_killed = killed(place.root(), work, point);
            let pool = open_any(place.root());
            let live = live(&pool);
            let mut promised = Seen::new();
            for (number, path) in ["a", "b", "dir/c", "dir/d", "moved/c"].into_iter().enumerate() {
                let content = bytes(7000, 50 + number as u64);
                if rewrite(&live, path, &content) {
                    // All names of a file have the same content.
                    let same = |other: &String| {
                        pool.stub(other.as_bytes()).unwrap().id == pool.stub(path.as_bytes()).unwrap().id
                    };
                    promised
                        .iter_mut()
                        .filter(|(other, _)| same(other))
                        .for_each(|(_, it)| it.clone_from(&content));
                    promised.insert(path.to_owned(), content);
                }
            }
            drop(live);
            act(&open_any(place.root()), "put later 9 10");
            let found = seen(&place.reopened(1));
            for (path, content) in &promised {
                assert!(
                    found.get(path) == Some(content),
                    "{work}, killed before change {point}: {path} is lost"
                );
            }
            if !was_killed {
                break;
            }
        }
    }
}

/// A disk that was set back to an earlier state (a snapshot, a clone) must serve neither old bytes nor removed names.
#[test]
fn a_mirror_set_back_to_an_older_state_is_not_used() {
    let place = PoolFixture::in_memory(6, 2, 2);
    for seed in 0..3 {
        place.put("file", &bytes(5000, seed));
    }
    place.put("removed", b"removed");
    place.put("moved", b"moved");
    let scratch = PoolFixture::in_memory(1, 1, 0);
    fs::remove_dir_all(scratch.target(1)).unwrap();
    copy(&place.target(1), scratch.root());
    for path in ["file", "removed"] {
        place.pool.remove(path.as_bytes()).unwrap();
    }
    place.put("file", b"new");
    place.pool.rename(b"moved", b"there").unwrap();
    let now = seen(&place.pool);
    for part in fs::read_dir(scratch.root().join("d1")).unwrap() {
        let part = part.unwrap().file_name();
        // Objects stay: this test is about names.
        if part != "objects" {
            let there = place.target(1).join(&part);
            let _ = fs::remove_dir_all(&there);
            let _ = fs::remove_file(&there);
            copy(&scratch.root().join("d1").join(&part), &there);
        }
    }
    for pool in [&place.reopened(1), &place.reopened(5), &place.pool] {
        assert_eq!(seen(pool), now);
    }
    let other = open_any(place.root());
    other.put(b"next", &mut &b"next"[..], &metadata(), Timestamp::from_nanoseconds(5)).unwrap();
    let mut then = seen(&place.reopened(1));
    then.remove("next").unwrap();
    assert_eq!(then, now);
    assert!(other.heal().unwrap().failed.is_empty());
    place.lose(2);
    place.lose(3);
    assert_eq!(names(&open_any(place.root())), ["file", "next", "there"], "what the first mirror says alone");
}

/// Regression: a program writes to an open file while `gabion pool mv` moves it. The mount knows the old name, or none
/// after a new lookup. The synced bytes must be in the file under its new name; they used to go to objects that the
/// stub did not refer to.
#[test]
fn an_open_file_that_another_process_moves_keeps_what_is_synced() {
    for (known, written_before) in [(true, false), (true, true), (false, false), (false, true)] {
        let place = filled();
        let live = live(&place.pool);
        let file = open(&live, "b").unwrap();
        let content = bytes(9000, 77);
        let before = || vec![b"b".to_vec()];
        if written_before {
            file.write(&before, 0, b"begun").unwrap();
        }
        place.reopened(2).rename(b"b", b"dir/moved").unwrap();
        let after = || if known { before() } else { Vec::new() };
        file.set_size(&after, 0).unwrap();
        file.write(&after, 0, &content[..5000]).unwrap();
        file.sync(&after).unwrap();
        file.write(&after, 5000, &content[5000..]).unwrap();
        file.sync(&after).unwrap();
        let told = format!("{known}, {written_before}");
        assert!(seen(&place.reopened(1))["dir/moved"] == content, "{told}");
        assert!(file.close(&after).unwrap().is_none(), "{told}");
        drop(live);
        let found = seen(&place.reopened(1));
        assert!(found["dir/moved"] == content && !found.contains_key("b"), "{told}");
    }
}

/// A file removed by another process stays readable for programs that have it open, and stays removed.
#[test]
fn an_open_file_that_another_process_removes_does_not_come_back() {
    let place = filled();
    let live = live(&place.pool);
    let file = open(&live, "b").unwrap();
    let name = || vec![b"b".to_vec()];
    file.write(&name, 0, b"begun").unwrap();
    place.reopened(2).remove(b"b").unwrap();
    file.write(&name, 5, b" and ended").unwrap();
    file.sync(&name).unwrap();
    file.close(&name).unwrap();
    drop(live);
    assert!(!seen(&place.reopened(1)).contains_key("b"));
}
