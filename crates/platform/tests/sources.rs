//! Both event sources on real directories: the events of common file operations.

#[path = "support/own_memory.rs"]
mod own_memory;

use gabion_platform::event::{Change, Event, EventSource};
use gabion_platform::fanotify::Fanotify;
use gabion_platform::inotify::Inotify;
use own_memory::OwnMemory;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const OWN: &[u8] = b".own";

/// All sources that work on this machine.
fn sources(root: &Path, test: &str) -> Vec<Box<dyn EventSource>> {
    let mut all: Vec<Box<dyn EventSource>> = vec![Box::new(Inotify::watch(root, OWN).unwrap())];
    match Fanotify::watch(root, OWN) {
        Ok(fanotify) => all.push(Box::new(fanotify)),
        Err(error) if rustix::process::geteuid().is_root() => panic!("{error}"),
        Err(error) => gabion_testkit::skip!("{test} with fanotify: {error}"),
    }
    all
}

/// All events until the queue stays empty.
fn drained(source: &mut dyn EventSource) -> Vec<Event> {
    let mut events = Vec::new();
    while source.wait(Duration::from_millis(50)).unwrap() {
        source.drain(&mut events).unwrap();
    }
    source.report_deferred(&mut events).unwrap();
    events
}

fn changed(path: &str, change: Change) -> Event {
    Event::Changed { path: path.into(), change, directory: false }
}

fn moved(from: Option<&str>, to: Option<&str>, directory: bool) -> Event {
    Event::Moved { from: from.map(Into::into), to: to.map(Into::into), directory }
}

#[test]
fn every_change_is_reported_by_path() {
    let dir = OwnMemory::new();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("old/deep")).unwrap();
    fs::create_dir_all(root.join(".own")).unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    for name in ["gone", "shrinks", "renamed", "leaves", "old/deep/file", "link me"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::write(dir.path().join("outside/comes"), "comes").unwrap();
    fs::create_dir(dir.path().join("outside/full")).unwrap();
    let mut all = sources(&root, "every_change_is_reported_by_path");
    fs::write(root.join("old/deep/new"), "new").unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    fs::File::options().write(true).open(root.join("shrinks")).unwrap().set_len(2).unwrap();
    fs::rename(root.join("renamed"), root.join("old/here")).unwrap();
    fs::rename(root.join("leaves"), dir.path().join("outside/leaves")).unwrap();
    fs::rename(dir.path().join("outside/comes"), root.join("comes")).unwrap();
    fs::rename(dir.path().join("outside/full"), root.join("full")).unwrap();
    fs::hard_link(root.join("link me"), root.join("linked")).unwrap();
    fs::set_permissions(root.join("comes"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(root.join(".own/not told"), "x").unwrap();
    fs::write(dir.path().join("outside/not told"), "x").unwrap();
    let odd = std::ffi::OsStr::new("new\nline \u{1}");
    fs::write(root.join(odd), "x").unwrap();
    fs::rename(root.join("old"), root.join("older")).unwrap();
    fs::write(root.join("older/deep/after"), "x").unwrap();
    for source in &mut all {
        let events = drained(&mut **source);
        let has =
            |event: Event| assert!(events.contains(&event), "{}: no {event:?} in {events:#?}", source.name());
        let either = |places: [&str; 2]| {
            let found = |event: &Event| matches!(event, Event::Changed { path, .. } if places.iter().any(|place| place.as_bytes() == path));
            assert!(events.iter().any(found), "{}: {places:?} not in {events:#?}", source.name());
        };
        has(changed("gone", Change::Deleted));
        either(["old/deep/new", "older/deep/new"]);
        either(["older/deep/after", "older/deep/after"]);
        either(["shrinks", "shrinks"]);
        has(moved(Some("leaves"), None, false));
        has(moved(None, Some("comes"), false));
        has(moved(None, Some("full"), true));
        has(moved(Some("old"), Some("older"), true));
        has(changed("linked", Change::Created));
        assert!(
            events.iter().any(|event| matches!(event, Event::Moved { from: Some(from), to: Some(to), .. }
            if from == b"renamed" && (to == b"old/here" || to == b"older/here")))
        );
        let paths: BTreeSet<&[u8]> = events
            .iter()
            .filter_map(|event| match event {
                Event::Changed { path, .. } => Some(&path[..]),
                _ => None,
            })
            .collect();
        assert!(paths.contains("new\nline \u{1}".as_bytes()));
        assert!(!paths.iter().any(|path| path.windows(8).any(|part| part == b"not told")), "{events:#?}");
        assert!(!events.iter().any(|event| matches!(event, Event::Gap(_))), "{}: {events:#?}", source.name());
    }
}

#[test]
fn content_of_a_new_directory_before_its_watch_is_reported() {
    let dir = OwnMemory::new();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    for mut source in sources(&root, "what_was_in_a_new_directory") {
        let top = source.name();
        let deep = root.join(top).join("b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        fs::write(root.join(top).join("b/other"), "x").unwrap();
        let events = drained(&mut *source);
        for path in [format!("{top}/b/c/file"), format!("{top}/b/other")] {
            let is_it =
                |event: &Event| matches!(event, Event::Changed { path: told, .. } if told == path.as_bytes());
            assert!(events.iter().any(is_it), "{path}: {events:#?}");
        }
        // A directory that left the tree is not watched; one that comes back is.
        fs::rename(root.join(top), dir.path().join("left")).unwrap();
        assert!(drained(&mut *source).contains(&moved(Some(top), None, true)));
        fs::write(dir.path().join("left/b/c/file"), "y").unwrap();
        assert_eq!(drained(&mut *source), []);
        fs::rename(dir.path().join("left"), root.join("back")).unwrap();
        drained(&mut *source);
        fs::write(root.join("back/b/c/file"), "z").unwrap();
        let events = drained(&mut *source);
        assert!(events.contains(&changed("back/b/c/file", Change::Closed)), "{events:#?}");
        fs::remove_dir_all(root.join("back")).unwrap();
        let events = drained(&mut *source);
        let gone = Event::Changed { path: b"back".into(), change: Change::Deleted, directory: true };
        assert!(events.contains(&gone), "{events:#?}");
    }
}

#[test]
fn a_full_queue_is_a_gap_and_the_source_goes_on() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 50_000 {
        gabion_testkit::skip!("a_full_queue_is_a_gap: the queue takes {limit} events here");
        return;
    }
    let dir = OwnMemory::new();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    for mut source in sources(&root, "a_full_queue_is_a_gap") {
        let name = source.name();
        let many = root.join(name);
        fs::create_dir(&many).unwrap();
        drained(&mut *source);
        for number in 0..limit + 100 {
            fs::File::create(many.join(number.to_string())).unwrap();
        }
        let events = drained(&mut *source);
        assert!(events.iter().any(|event| matches!(event, Event::Gap(_))), "{name}");
        fs::write(many.join("after"), "x").unwrap();
        let path = format!("{name}/after");
        let is_it =
            |event: &Event| matches!(event, Event::Changed { path: told, .. } if told == path.as_bytes());
        assert!(drained(&mut *source).iter().any(is_it), "{name}");
    }
}

/// Every write of a program that keeps its file open is reported, for every way in which its directory came into the
/// tree.
#[test]
fn writers_that_never_close_are_reported() {
    let dir = OwnMemory::new();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("old")).unwrap();
    for mut source in sources(&root, "writers_that_never_close") {
        let name = source.name();
        let outside = dir.path().join(name);
        fs::create_dir_all(outside.join("deep")).unwrap();
        let mut open = Vec::new();
        let mut create =
            |path: &str| open.push((path.to_owned(), fs::File::create(root.join(path)).unwrap()));
        // No event is read until all of this is done.
        create(&format!("old/{name}"));
        fs::create_dir(root.join(name)).unwrap();
        create(&format!("{name}/in a new directory"));
        fs::create_dir_all(root.join(name).join("first/second")).unwrap();
        fs::rename(root.join(name).join("first"), root.join(name).join("renamed")).unwrap();
        create(&format!("{name}/renamed/second/in one that got another name"));
        fs::rename(&outside, root.join(name).join("came")).unwrap();
        create(&format!("{name}/came/deep/in one that came"));
        drained(&mut *source);
        for round in 0..3_u32 {
            for (path, file) in &open {
                std::os::unix::fs::FileExt::write_all_at(file, &round.to_ne_bytes(), 0).unwrap();
                let events = drained(&mut *source);
                assert!(
                    events.contains(&changed(path, Change::Modified)),
                    "{name}: {path} not in {events:#?}"
                );
            }
        }
        let (path, file) = &open[3];
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert!(drained(&mut *source).contains(&changed(path, Change::Attributes)), "{name}");
    }
}

/// Directories below `top` whose paths are longer than the kernel reports, with a file in the last one.
fn deep_below(top: &Path) -> Vec<OwnedFd> {
    let mut all = vec![openat(CWD, top, FLAGS, Mode::empty()).unwrap()];
    for _ in 0..LEVELS {
        mkdirat(all.last().unwrap(), NAME, Mode::RWXU).unwrap();
        all.push(openat(all.last().unwrap(), NAME, FLAGS, Mode::empty()).unwrap());
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(all.last().unwrap(), "file", flags, Mode::RUSR).unwrap();
    all
}

const LEVELS: usize = 25;
const NAME: &str = match std::str::from_utf8(&[b'd'; 200]) {
    Ok(name) => name,
    Err(_) => unreachable!(),
};
const FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Removes them; they are still open.
fn remove_deep(all: &[OwnedFd]) {
    unlinkat(&all[LEVELS], "file", AtFlags::empty()).unwrap();
    all[..LEVELS].iter().rev().for_each(|above| unlinkat(above, NAME, AtFlags::REMOVEDIR).unwrap());
}

fn is_gap(event: &Event) -> bool {
    matches!(event, Event::Gap(_))
}

fn fanotify(root: &Path, test: &str) -> Option<Fanotify> {
    match Fanotify::watch(root, OWN) {
        Ok(source) => Some(source),
        Err(error) if rustix::process::geteuid().is_root() => panic!("{error}"),
        Err(error) => {
            gabion_testkit::skip!("{test}: {error}");
            None
        }
    }
}

/// A path longer than the kernel reports, anywhere on the file system, once caused a full scan for each event there.
#[test]
fn paths_that_are_too_long_matter_in_the_tree_only() {
    let dir = OwnMemory::new();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let Some(mut source) = fanotify(&root, "paths that are too long") else { return };
    deep_below(dir.path());
    fs::write(root.join("short"), "x").unwrap();
    let events = drained(&mut source);
    assert!(events.contains(&changed("short", Change::Created)), "{events:#?}");
    assert!(!events.iter().any(is_gap), "{events:#?}");
    deep_below(&root);
    assert!(drained(&mut source).iter().any(is_gap), "what is in the tree is not missed");
}

/// The events of a removed directory were called lost if its path had been longer than the kernel reports, although the
/// event of its removal covers them.
#[test]
fn removed_directories_whose_paths_were_too_long_are_no_gap() {
    let dir = OwnMemory::new();
    let Some(mut source) = fanotify(dir.path(), "removed directories") else { return };
    let open = deep_below(dir.path());
    remove_deep(&open);
    let events = drained(&mut source);
    let gone = Event::Changed { path: NAME.into(), change: Change::Deleted, directory: true };
    assert!(events.contains(&gone), "{events:#?}");
    assert!(!events.iter().any(is_gap), "{events:#?}");
}

struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Where only a part of the file system is mounted, as in a container, the kernel finds no parent of a directory
/// outside that part: each event in a long path there caused a full scan.
#[test]
fn paths_that_are_too_long_beside_a_part_that_is_mounted_are_no_gap() {
    if !rustix::process::geteuid().is_root() {
        return gabion_testkit::skip!("paths beside a part that is mounted: mounting needs root");
    }
    let dir = OwnMemory::new();
    let (part, at) = (dir.path().join("part"), dir.path().join("at"));
    fs::create_dir_all(part.join("root")).unwrap();
    fs::create_dir(&at).unwrap();
    let done = Command::new("mount").arg("--bind").args([&part, &at]).status().unwrap();
    assert!(done.success());
    let at = Bound(at);
    let Some(mut source) = fanotify(&at.0.join("root"), "paths beside a part that is mounted") else {
        return;
    };
    for top in [dir.path(), &part] {
        remove_deep(&deep_below(top));
        drop(deep_below(top));
    }
    fs::write(part.join("root/short"), "x").unwrap();
    let events = drained(&mut source);
    assert!(events.contains(&changed("short", Change::Created)), "{events:#?}");
    assert!(!events.iter().any(is_gap), "{events:#?}");
}
