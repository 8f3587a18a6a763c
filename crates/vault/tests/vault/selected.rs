//! Protection of selected files beside what is pending for others.

use super::fixture::{Fixture, QUIET};
use gabion_vault::changelog::{Change, When};
use gabion_vault::protect::selected::{SelectedReport, Selection, protect_selected};
use gabion_vault::world::SECOND;

fn select(fixture: &Fixture, paths: &[&str]) -> SelectedReport {
    let _lock = fixture.vault.lock("test").unwrap();
    let paths = paths.iter().map(|path| path.as_bytes().to_vec());
    let selection = Selection::of(&fixture.vault, paths);
    protect_selected(&fixture.vault, &selection, QUIET).unwrap()
}

fn pending(fixture: &Fixture) -> Vec<String> {
    let entries = fixture.vault.changelog.entries(None, 100).unwrap();
    entries.into_iter().map(|entry| String::from_utf8(entry.path).unwrap()).collect()
}

/// Due work of others stays theirs, even a deletion and a scan of the whole tree; the selected file does not wait for
/// its quiet period.
#[test]
fn only_entries_of_the_selection_are_carried_out() {
    let fixture = Fixture::new("4+2");
    for name in ["d/one", "d/two", "gone", "old"] {
        fixture.write(name, &[1; 5000]);
    }
    fixture.protect_all();
    fixture.write("d/one", &[2; 6000]);
    fixture.write("d/two", &[2; 6000]);
    std::fs::remove_file(fixture.path("gone")).unwrap();
    std::fs::rename(fixture.path("old"), fixture.path("new")).unwrap();
    let now = fixture.vault.clock.now();
    let rests = When::after_rest(now, 3600 * SECOND, 7200 * SECOND, 100);
    let changes = [
        Change::modify("d/one", 0..6000, rests),
        Change::modify("d/two", 0..6000, When::now(now, 255)),
        Change::delete("gone", When::now(now, 255)),
        Change::rename("old", "new", When::now(now, 255)),
        Change::gap("", When::now(now, 255)),
    ];
    fixture.vault.changelog.record(&changes).unwrap();
    let report = select(&fixture, &["d/one"]);
    assert_eq!((report.done.encoded, report.pending, report.affected_files), (1, 0, 0), "{report:?}");
    assert_eq!(pending(&fixture), ["", "d/two", "gone", "new"]);
    assert!(fixture.redundancy("gone").exists() && fixture.redundancy("old").exists());
    fixture.protect_all();
    assert_eq!(pending(&fixture), [""; 0]);
    fixture.assert_clean();
}

/// Names of one file share what is known of it; a directory and a file in it are one selection.
#[test]
fn a_selection_may_name_files_twice() {
    let fixture = Fixture::new("4+2");
    fixture.write("d/one", &[1; 5000]);
    std::fs::hard_link(fixture.path("d/one"), fixture.path("d/link")).unwrap();
    let report = select(&fixture, &["d/one", "d", "d/one", "d/link"]);
    assert_eq!((report.seen.files, report.pending, report.done.failures), (2, 0, 0), "{report:?}");
    assert_eq!(report.done.encoded + report.done.adopted, 2);
    assert_eq!(select(&fixture, &["d"]).done.encoded, 0);
    fixture.assert_clean();
}
