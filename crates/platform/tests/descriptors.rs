//! A process without free descriptors. The limit counts for the whole process, so this is the only test of its program.

#[path = "support/own_memory.rs"]
mod own_memory;

use gabion_platform::event::{Change, Event, EventSource};
use gabion_platform::fanotify::Fanotify;
use own_memory::OwnMemory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::os::fd::AsRawFd;

/// A directory that could not be opened again counted as moved away meanwhile: its events were dropped silently.
#[test]
fn events_whose_directories_cannot_be_opened_are_a_gap() {
    let dir = OwnMemory::new();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let mut source = match Fanotify::watch(dir.path(), b".own") {
        Ok(source) => source,
        Err(error) if rustix::process::geteuid().is_root() => panic!("{error}"),
        Err(error) => return gabion_testkit::skip!("events without descriptors: {error}"),
    };
    let limit = getrlimit(Resource::Nofile);
    // One is free, which the handle of the directory takes.
    let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    for (path, left) in [("a/file", 1), ("a/b/file", 0)] {
        fs::write(dir.path().join(path), "x").unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(free + left), ..limit }).unwrap();
        let mut events = Vec::new();
        let drained = source.drain(&mut events);
        setrlimit(Resource::Nofile, limit).unwrap();
        drained.unwrap();
        assert!(events.iter().any(|event| matches!(event, Event::Gap(_))), "{left}: {events:?}");
    }
    fs::write(dir.path().join("a/later"), "x").unwrap();
    let mut events = Vec::new();
    source.drain(&mut events).unwrap();
    let made = Event::Changed { path: b"a/later".to_vec(), change: Change::Created, directory: false };
    assert!(events.contains(&made), "{events:?}");
}
