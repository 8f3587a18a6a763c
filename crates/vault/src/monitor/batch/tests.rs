use super::{Batch, View};
use crate::changelog::What;
use crate::world::Timestamp;
use gabion_platform::event::{Change as Kind, Event, EventLoss};
use std::cell::Cell;
use std::time::Duration;

/// A tree in which only some names exist. Names that end in `~` are not protected.
struct Tree {
    now: Cell<Timestamp>,
    files: &'static [&'static [u8]],
    directories: &'static [&'static [u8]],
}

fn empty() -> Tree {
    Tree { now: Cell::new(Timestamp::EPOCH), files: &[], directories: &[] }
}

impl View for Tree {
    fn now(&self) -> Timestamp {
        self.now.set(self.now.get() + Duration::from_nanos(1));
        self.now.get()
    }

    fn rest(&self, path: &[u8]) -> Option<(Duration, u8)> {
        (!path.ends_with(b"~")).then_some((Duration::from_nanos(1000), 7))
    }

    fn rest_of_gone(&self) -> Duration {
        Duration::from_nanos(500)
    }

    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        if self.directories.contains(&path) {
            Some(true)
        } else {
            self.files.contains(&path).then_some(false)
        }
    }
}

fn changed(path: &str, change: Kind) -> Event {
    Event::Changed { path: path.into(), change, directory: false }
}

fn moved(from: Option<&str>, to: Option<&str>, directory: bool) -> Event {
    Event::Moved { from: from.map(Into::into), to: to.map(Into::into), directory }
}

/// Changes that result from events, in short form.
fn short(view: &Tree, events: Vec<Event>) -> Vec<String> {
    let mut batch = Batch::default();
    events.into_iter().for_each(|event| batch.add(event, view));
    let expected = batch.len();
    let changes = batch.take();
    assert_eq!((changes.len(), batch.len()), (expected, 0));
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let word = |what: &What| match what {
        What::Modify { path, .. } => format!("modify {}", text(path)),
        What::Rename { from, to } => format!("rename {} {}", text(from), text(to)),
        What::Delete { path } => format!("delete {}", text(path)),
        What::Gap { root } => format!("gap {}", text(root)),
    };
    changes.iter().for_each(|change| change.check().unwrap());
    changes.iter().map(|change| word(&change.what)).collect()
}

#[test]
fn many_events_of_a_file_are_one_change_that_rests_from_the_last() {
    let mut batch = Batch::default();
    let view = empty();
    for kind in [Kind::Created, Kind::Modified, Kind::Modified, Kind::Closed, Kind::Attributes] {
        batch.add(changed("a", kind), &view);
        batch.add(changed("b", kind), &view);
    }
    let changes = batch.take();
    assert_eq!(changes.len(), 2);
    let crate::changelog::When { at, due, priority, .. } = changes[1].when;
    assert_eq!((at.nanoseconds(), due.nanoseconds(), priority), (10, 1010, 7));
    assert!(changes[0].when.latest >= changes[0].when.due);
}

#[test]
fn the_order_of_what_matters_is_kept() {
    use Kind::{Closed, Created, Deleted};
    // Written under another name and renamed into place, as editors do.
    let events =
        vec![changed("new", Closed), moved(Some("new"), Some("file"), false), changed("file", Closed)];
    assert_eq!(short(&empty(), events), ["modify new", "rename new file", "modify file"]);
    let events = vec![changed("a", Created), changed("a", Deleted), changed("a", Created)];
    assert_eq!(short(&empty(), events), ["delete a", "modify a"]);
    // A modification before a rename is not merged with one after it.
    let events = vec![
        changed("a", Closed),
        moved(Some("a"), Some("b"), false),
        changed("a", Closed),
        changed("b", Closed),
    ];
    assert_eq!(short(&empty(), events), ["modify a", "rename a b", "modify a", "modify b"]);
    let events = vec![changed("d/x", Closed), moved(Some("d"), Some("e"), true), changed("d/x", Closed)];
    assert_eq!(short(&empty(), events), ["modify d/x", "rename d e", "modify d/x"]);
}

#[test]
fn an_old_name_that_stands_for_something_again_is_looked_at() {
    let view = Tree { files: &[b"a"], directories: &[b"d"], ..empty() };
    let events = vec![moved(Some("a"), Some("b"), false), moved(Some("d"), Some("e"), true)];
    assert_eq!(short(&view, events), ["rename a b", "modify a", "rename d e", "gap d"]);
    // New files were reported before the deletion of the old directory and must not be cancelled by it.
    let deleted = Event::Changed { path: b"d".into(), change: Kind::Deleted, directory: true };
    let events = vec![changed("d/new", Kind::Created), deleted, moved(Some("d"), None, true)];
    assert_eq!(short(&view, events), ["modify d/new", "delete d", "gap d", "delete d", "gap d"]);
}

#[test]
fn what_comes_from_outside_is_looked_through_and_what_leaves_is_gone() {
    let events = vec![
        moved(None, Some("file"), false),
        moved(None, Some("dir"), true),
        moved(Some("other"), None, true),
        moved(None, None, true),
        Event::Changed { path: b"new".into(), change: Kind::Created, directory: true },
        Event::Changed { path: b"old".into(), change: Kind::Deleted, directory: true },
        changed("left out~", Kind::Closed),
        Event::Gap(EventLoss::Overflow),
        Event::Gap(EventLoss::Overflow),
    ];
    assert_eq!(short(&empty(), events), ["modify file", "gap dir", "delete other", "delete old", "gap "]);
}

#[test]
fn paths_that_cannot_be_are_no_changes() {
    let long = "x/".repeat(3000);
    assert_eq!(short(&empty(), vec![changed(&long, Kind::Closed)]), Vec::<String>::new());
    let events = vec![moved(Some("a"), Some("a/b"), true)];
    assert_eq!(short(&empty(), events), ["gap a", "gap a/b"]);
}
