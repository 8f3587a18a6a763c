//! New directories that fanotify ignores at first: no change in them is missed.

#[path = "support/own_memory.rs"]
mod own_memory;

use gabion_platform::event::{Change, Event, EventSource};
use gabion_platform::fanotify::Fanotify;
use own_memory::OwnMemory;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

struct Fixture {
    dir: OwnMemory,
    source: Fanotify,
}

/// A watched tree with existing directories and files. `None`, with a recorded skip, without privileges and on kernels
/// without ignore marks.
fn fixture(test: &str) -> Option<Fixture> {
    let dir = OwnMemory::new();
    fs::create_dir_all(dir.path().join("root/old")).unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    for name in ["root/old/comes", "outside/comes too"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    let source = match Fanotify::watch(&dir.path().join("root"), b".own") {
        Ok(source) => source,
        Err(error) if rustix::process::geteuid().is_root() => panic!("{error}"),
        Err(error) => {
            gabion_testkit::skip!("{test}: {error}");
            return None;
        }
    };
    let mut fixture = Fixture { dir, source };
    fixture.ignored("first");
    if !fixture.source.has_deferred() {
        gabion_testkit::skip!("{test}: this kernel has no ignore marks");
        return None;
    }
    fixture.deferred();
    Some(fixture)
}

impl Fixture {
    fn root(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join("outside").join(name)
    }

    /// All queued events. The kernel queues an event before the call that caused it returns.
    fn drained(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.source.drain(&mut events).unwrap();
        events
    }

    /// Creates a directory, which is ignored then.
    fn ignored(&mut self, name: &str) {
        fs::create_dir(self.root(name)).unwrap();
        let made = Event::Changed { path: name.into(), change: Change::Created, directory: true };
        assert_eq!(self.drained(), [made]);
    }

    /// The deferred files.
    fn deferred(&mut self) -> BTreeSet<String> {
        let mut events = Vec::new();
        self.source.report_deferred(&mut events).unwrap();
        assert!(!self.source.has_deferred());
        let told = |event| match event {
            Event::Changed { path, change: Change::Created, directory: false } => {
                String::from_utf8(path).unwrap()
            }
            other => panic!("{other:?}"),
        };
        events.into_iter().map(told).collect()
    }
}

fn changed(path: &str, change: Change) -> Event {
    Event::Changed { path: path.into(), change, directory: false }
}

fn moved(from: Option<&str>, to: Option<&str>, directory: bool) -> Event {
    Event::Moved { from: from.map(Into::into), to: to.map(Into::into), directory }
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn files_of_a_new_directory_are_reported_when_its_ignore_ends() {
    let Some(mut fixture) = fixture("files_of_a_new_directory") else { return };
    fixture.ignored("new");
    let open = File::create(fixture.root("new/open")).unwrap();
    fs::write(fixture.root("new/file"), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", fixture.root("new/link")).unwrap();
    fs::create_dir(fixture.root("new/sub")).unwrap();
    let sub = Event::Changed { path: b"new/sub".into(), change: Change::Created, directory: true };
    assert_eq!(fixture.drained(), [sub], "directories are told, files are not");
    fs::write(fixture.root("new/sub/deep"), "x").unwrap();
    assert_eq!(fixture.drained(), []);
    assert_eq!(fixture.deferred(), names(["new/file", "new/link", "new/open", "new/sub/deep"]));
    // From now on all changes are reported, also of files that were open all the time.
    open.write_all_at(b"x", 0).unwrap();
    fs::write(fixture.root("new/later"), "x").unwrap();
    let events = fixture.drained();
    for event in [changed("new/open", Change::Modified), changed("new/later", Change::Closed)] {
        // The kernel may merge the events of one name.
        let Event::Changed { path, .. } = &event else { unreachable!() };
        let is_it = |told: &Event| matches!(told, Event::Changed { path: told, .. } if told == path);
        assert!(events.iter().any(is_it), "{event:?} not in {events:#?}");
    }
    assert_eq!(fixture.deferred(), names([]));
}

/// A file whose creation was suppressed is reported at the path to which it moved.
#[test]
fn moves_in_and_out_of_an_ignored_directory_are_reported() {
    let Some(mut fixture) = fixture("what_goes_and_comes") else { return };
    fixture.ignored("new");
    let make = |name: &str| File::create(fixture.root("new").join(name)).unwrap();
    let open = ["to old", "renamed", "removed", "leaves", "linked"].map(make);
    fs::rename(fixture.root("new/to old"), fixture.root("old/went")).unwrap();
    fs::rename(fixture.root("new/renamed"), fixture.root("new/other")).unwrap();
    fs::remove_file(fixture.root("new/removed")).unwrap();
    fs::rename(fixture.root("new/leaves"), fixture.outside("left")).unwrap();
    fs::hard_link(fixture.root("new/linked"), fixture.root("old/link")).unwrap();
    fs::rename(fixture.root("old/comes"), fixture.root("new/came")).unwrap();
    fs::rename(fixture.outside("comes too"), fixture.root("new/came too")).unwrap();
    fs::write(fixture.root("new/removed"), "again").unwrap();
    open[0].write_all_at(b"x", 0).unwrap();
    let events = fixture.drained();
    let expected = [
        moved(Some("new/to old"), Some("old/went"), false),
        changed("old/went", Change::Created),
        moved(Some("new/renamed"), Some("new/other"), false),
        changed("new/other", Change::Created),
        changed("new/removed", Change::Deleted),
        moved(Some("new/leaves"), None, false),
        changed("old/link", Change::Created),
        moved(Some("old/comes"), Some("new/came"), false),
        changed("new/came", Change::Created),
        moved(None, Some("new/came too"), false),
        changed("new/came too", Change::Created),
        changed("old/went", Change::Modified),
    ];
    assert_eq!(events, expected);
    let there = ["new/came", "new/came too", "new/linked", "new/other", "new/removed"];
    assert_eq!(fixture.deferred(), names(there));
    open[1].write_all_at(b"x", 0).unwrap();
    assert_eq!(fixture.drained(), [changed("new/other", Change::Modified)]);
}

#[test]
fn ignored_directories_that_are_moved_or_removed_are_followed() {
    let Some(mut fixture) = fixture("directories_that_are_moved") else { return };
    for name in ["moves", "leaves", "goes"] {
        fixture.ignored(name);
        fs::write(fixture.root(name).join("file"), "x").unwrap();
    }
    fs::rename(fixture.root("moves"), fixture.root("old/moved")).unwrap();
    fs::rename(fixture.root("leaves"), fixture.outside("left")).unwrap();
    fs::remove_dir_all(fixture.root("goes")).unwrap();
    // The ignore state ends before the move events are read: files are reported at their new paths.
    assert_eq!(fixture.deferred(), names(["old/moved/file"]));
    let events = fixture.drained();
    let gone = Event::Changed { path: b"goes".into(), change: Change::Deleted, directory: true };
    let ends = [moved(Some("moves"), Some("old/moved"), true), moved(Some("leaves"), None, true), gone];
    for event in &ends {
        assert!(events.contains(event), "{event:?} not in {events:#?}");
    }
    let unexpected =
        |event: &&Event| !ends.contains(event) && **event != changed("goes/file", Change::Deleted);
    assert_eq!(events.iter().find(unexpected), None);
    fs::write(fixture.outside("left/elsewhere"), "x").unwrap();
    assert_eq!(fixture.drained(), []);
    fs::rename(fixture.outside("left"), fixture.root("back")).unwrap();
    assert_eq!(fixture.drained(), [moved(None, Some("back"), true)]);
    for path in ["old/moved/later", "back/later"] {
        fs::write(fixture.root(path), "x").unwrap();
        let events = fixture.drained();
        assert!(
            events
                .iter()
                .any(|event| matches!(event, Event::Changed { path: told, .. } if told == path.as_bytes())),
            "{events:#?}"
        );
    }
}

/// Descriptors are limited: the oldest directories are listed when new ones appear.
#[test]
fn only_the_youngest_directories_are_ignored() {
    let Some(mut fixture) = fixture("only_the_youngest") else { return };
    let mut told = BTreeSet::new();
    for number in 0..200 {
        fixture_with_file(&mut fixture, number, &mut told);
    }
    assert!(told.contains("d 0/file") && told.contains("d 100/file"), "{told:?}");
    assert!(!told.contains("d 199/file"));
    told.extend(fixture.deferred());
    assert_eq!(told.len(), 200);
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let kept = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(fixture.root("d 199")))
    };
    assert!(!descriptors.flatten().any(kept));
}

fn fixture_with_file(fixture: &mut Fixture, number: u32, told: &mut BTreeSet<String>) {
    let name = format!("d {number}");
    fs::create_dir(fixture.root(&name)).unwrap();
    for event in fixture.drained() {
        match event {
            Event::Changed { path, directory: false, .. } => {
                told.insert(String::from_utf8(path).unwrap());
            }
            Event::Changed { path, directory: true, .. } => assert_eq!(path, name.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
    fs::write(fixture.root(&name).join("file"), "x").unwrap();
}

/// A reader that applies the events in order knows every file that exists in the end, for any interleaving of reads,
/// ignore marks and writes.
#[test]
fn files_made_renamed_and_removed_while_events_are_read_are_all_reported() {
    for seed in 1..=6 {
        let Some(mut fixture) = fixture("files_made_renamed_and_removed") else { return };
        let (root, done) = (fixture.root(""), AtomicBool::new(false));
        let mut known = BTreeSet::from([b"old/comes".to_vec()]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                disturb(&root, seed);
                done.store(true, Ordering::Release);
            });
            loop {
                // Checked first: changes before this point are read after it.
                let last = done.load(Ordering::Acquire);
                let mut events = Vec::new();
                fixture.source.wait(Duration::from_millis(1)).unwrap();
                fixture.source.drain(&mut events).unwrap();
                if last || events.len() % 5 == 0 {
                    fixture.source.report_deferred(&mut events).unwrap();
                }
                events.into_iter().for_each(|event| learn(event, &root, &mut known));
                if last {
                    break;
                }
            }
        });
        let missed: Vec<PathBuf> = files(&root)
            .into_iter()
            .filter(|path| !known.contains(path.as_os_str().as_encoded_bytes()))
            .collect();
        assert_eq!(missed, Vec::<PathBuf>::new(), "seed {seed}");
    }
}

/// Removed paths are examined too, since they may exist again. So may an old name.
fn learn(event: Event, root: &Path, known: &mut BTreeSet<Vec<u8>>) {
    match event {
        Event::Changed { path, .. } => {
            known.insert(path);
        }
        Event::Moved { from, to, directory } => {
            assert!(!directory);
            let is_there = |path: &Vec<u8>| root.join(OsStr::from_bytes(path)).exists();
            from.iter().filter(|from| !is_there(from)).for_each(|from| {
                known.remove(from);
            });
            known.extend(to);
        }
        Event::Gap(loss) => panic!("{loss:?}"),
    }
}

fn disturb(root: &Path, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let mut directories = 1;
    for number in 0..4000 {
        // Mostly in the newest directories.
        let mut directory = || root.join(format!("d {}", directories - 1 - below(directories.min(3))));
        let (here, there) = (directory(), directory());
        let (one, other) = (below(12), below(12));
        // Calls fail only because a name does not exist at the moment.
        match below(10) {
            0 => {
                fs::create_dir(root.join(format!("d {directories}"))).unwrap();
                directories += 1;
            }
            1 | 2 => drop(fs::rename(here.join(one.to_string()), there.join(other.to_string()))),
            3 => drop(fs::remove_file(here.join(one.to_string()))),
            4 => drop(fs::hard_link(here.join(one.to_string()), there.join(format!("link {number}")))),
            _ => drop(fs::write(here.join(one.to_string()), "x")),
        }
    }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in fs::read_dir(root).unwrap().flatten() {
        for file in fs::read_dir(directory.path()).unwrap().flatten() {
            found.push(file.path().strip_prefix(root).unwrap().to_owned());
        }
    }
    assert!(found.len() > 100, "{found:?}");
    found
}
