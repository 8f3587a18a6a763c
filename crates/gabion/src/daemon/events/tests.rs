//! Order, bounds and crash safety of events and their histories.

use super::history::History;
use super::{EventData, EventKind, Events, RECENT};
use crate::report::PathName;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn events() -> Arc<Events> {
    Events::new(Arc::new(|_, _| {}))
}

fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn publish(events: &Events, source: &str, text: &str) -> u64 {
    events.publish(Some(source), EventKind::SourceRunning, text, EventData::default()).sequence
}

fn messages(events: &Events, source: &str) -> Vec<String> {
    events.history(source, 0, &[]).iter().map(|event| event.message.clone()).collect()
}

#[test]
fn events_reach_the_log_the_history_and_subscribers_in_one_order() {
    let log: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let theirs = Arc::clone(&log);
    let events = Events::new(Arc::new(move |source, entry| {
        theirs.lock().unwrap().push(format!("{source} {entry:?}"));
    }));
    let dir = repository();
    let mut subscription = events.subscribe();
    // Published before the repository is known: written as soon as it is.
    let first = publish(&events, "photos", "one");
    events.attach("photos", dir.path());
    let data = EventData { files: Some(2), ..EventData::default() };
    let data = data.with_paths(&[PathName::new(b"a\xff"), PathName::new(b"b")]);
    let second = events.publish(Some("photos"), EventKind::DamageFound, "two", data.clone()).sequence;
    assert!(second > first);
    let got = subscription.next(Duration::ZERO);
    assert_eq!(got.iter().map(|event| event.sequence).collect::<Vec<_>>(), [first, second]);
    assert!(subscription.next(Duration::ZERO).is_empty());
    assert_eq!(messages(&events, "photos"), ["one", "two"]);
    let known = events.history("photos", first, &[EventKind::DamageFound]);
    assert_eq!((known.len(), &known[0].data), (1, &data));
    let log = log.lock().unwrap();
    assert!(log[0].contains("Message") && log[1].contains("Warning"), "{log:?}");
}

#[test]
fn a_torn_last_line_is_dropped_and_numbers_continue() {
    let dir = repository();
    let last = {
        let events = events();
        events.attach("photos", dir.path());
        publish(&events, "photos", "one");
        publish(&events, "photos", "two")
    };
    let path = dir.path().join("events.jsonl");
    let whole = std::fs::read(&path).unwrap();
    let line = whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap().to_owned();
    for cut in 1..line.len() {
        let mut torn = whole.clone();
        torn.extend(&line[..cut]);
        std::fs::write(&path, &torn).unwrap();
        let (history, sequence) = History::open(dir.path()).unwrap();
        assert_eq!((history.read().unwrap().len(), sequence), (2, last), "{cut}");
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{cut}");
    }
    // Lines of another version, and of hostile content, are skipped; later ones are read.
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"kind\":\"from_the_future\"}\n\xff\xfe\n[[[[\n").unwrap();
    let events = events();
    events.attach("photos", dir.path());
    assert!(publish(&events, "photos", "three") > last);
    assert_eq!(messages(&events, "photos"), ["one", "two", "three"]);
}

#[test]
fn a_history_is_bounded_and_keeps_the_newest() {
    let dir = repository();
    let events = events();
    events.attach("photos", dir.path());
    let text = "x".repeat(2000);
    let size = |name: &str| std::fs::metadata(dir.path().join(name)).map_or(0, |found| found.len());
    for number in 0..1600 {
        publish(&events, "photos", &format!("{number} {text}"));
    }
    assert!(size("events.jsonl") <= super::history::MAX_BYTES);
    assert!((1..=super::history::MAX_BYTES).contains(&size("events.old.jsonl")));
    let known = messages(&events, "photos");
    assert!(known.len() > 400 && known.last().unwrap().starts_with("1599 "), "{}", known.len());
    let numbers = known.iter().map(|text| text.split(' ').next().unwrap().parse::<u32>().unwrap());
    assert!(numbers.collect::<Vec<_>>().windows(2).all(|pair| pair[0] + 1 == pair[1]));
}

#[test]
fn a_subscriber_that_fell_behind_reads_the_history() {
    let (dir, other) = (repository(), repository());
    let events = events();
    events.attach("photos", dir.path());
    events.attach("music", other.path());
    let mut subscription = events.subscribe();
    for number in 0..2 * RECENT {
        publish(&events, if number % 2 == 0 { "photos" } else { "music" }, &number.to_string());
    }
    assert!(events.recent_after(0, 1).is_none());
    let mut got = Vec::new();
    loop {
        let next = subscription.next(Duration::ZERO);
        if next.is_empty() {
            break;
        }
        got.extend(next.iter().map(|event| event.message.parse::<usize>().unwrap()));
    }
    assert_eq!(got, (0..2 * RECENT).collect::<Vec<_>>());
}

#[test]
fn a_subscriber_waits_until_an_event_or_the_end() {
    let events = events();
    let mut subscription = events.subscribe();
    let theirs = Arc::clone(&events);
    let publisher = std::thread::spawn(move || publish(&theirs, "photos", "one"));
    assert_eq!(subscription.next(gabion_testkit::PATIENCE).len(), 1);
    publisher.join().unwrap();
    events.close();
    assert!(subscription.next(gabion_testkit::PATIENCE).is_empty() && subscription.is_closed());
}

#[test]
fn links_and_other_files_under_its_name_are_refused() {
    let dir = repository();
    let victim = repository();
    std::fs::write(victim.path().join("file"), b"precious").unwrap();
    std::os::unix::fs::symlink(victim.path().join("file"), dir.path().join("events.jsonl")).unwrap();
    assert!(History::open(dir.path()).is_err());
    assert_eq!(std::fs::read(victim.path().join("file")).unwrap(), b"precious");
    assert!(History::open(Path::new("/nonexistent")).is_err());
}
