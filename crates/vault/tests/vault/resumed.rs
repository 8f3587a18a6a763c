//! Interrupted repairs, and changes of the file before they are finished.

use super::fixture::{Fixture, QUIET, TestRng, rot};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::protect::work;
use gabion_vault::repair::{self, Plan, Repaired};
use std::fs;
use std::os::unix::fs::FileExt;

const SIZE: usize = 400_000;

/// Two bad blocks, and a repair that failed after writing its mark. Then the first block is restored, as if the repair
/// had come that far.
fn interrupted(content: &[u8]) -> Fixture {
    let mut fixture = Fixture::new("4+2");
    fixture.write("file", content);
    fixture.protect_all();
    rot(&fixture.path("file"), 1000, &[1; 10]);
    rot(&fixture.path("file"), 300_000, &[2; 10]);
    super::faulty::repair_that_cannot_write(&mut fixture, "file");
    write(&fixture, 1000, &content[1000..1010]);
    fixture
}

fn write(fixture: &Fixture, offset: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(fixture.path("file")).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn plan(fixture: &Fixture) -> Plan {
    let options = repair::Options { keep_changed: true, ..repair::Options::default() };
    repair::plan(&fixture.vault, b"", options, QUIET).unwrap()
}

/// Repairs all files of a plan that keeps changed files.
fn repair_unchanged(fixture: &Fixture) -> Vec<Repaired> {
    plan(fixture).files.iter().map(|it| fixture.repair(std::str::from_utf8(&it.path).unwrap())).collect()
}

/// Regression: a resumed repair wrote all blocks that differ and reverted the owner's later changes, although changed
/// files were to be kept. It may write only blocks with the recorded content or with content that the repair itself
/// wrote.
#[test]
fn an_interrupted_repair_keeps_what_was_written_since() {
    let mut content = TestRng(1).bytes(SIZE);
    for (offset, edit) in
        [(100_000, &b"edited"[..]), (SIZE as u64, b"appended"), (1002, b"where it was repaired")]
    {
        let fixture = interrupted(&content);
        write(&fixture, offset, edit);
        let failed = fixture.protect().done.failed;
        assert!(failed.len() == 1 && failed[0].1.to_string().contains("`gabion repair`"), "{failed:?}");
        let [done] = &repair_unchanged(&fixture)[..] else { panic!("{offset}: nothing was finished") };
        assert!(done.lost.is_empty() && done.data_blocks == 1, "{offset}: {done:?}");
        let before = content.clone();
        content.resize(content.len().max(offset as usize + edit.len()), 0);
        content[offset as usize..][..edit.len()].copy_from_slice(edit);
        assert!(fixture.read("file") == content, "{offset}: an edit was reverted, or damage left");
        assert!(fixture.protect_all().affected.is_empty());
        fixture.assert_clean();
        content = before;
    }
}

#[test]
fn an_interrupted_repair_is_finished_where_nothing_was_written() {
    let content = TestRng(2).bytes(SIZE);
    let fixture = interrupted(&content);
    let [done] = &repair_unchanged(&fixture)[..] else { panic!("nothing was finished") };
    assert_eq!((done.state, done.data_blocks), (State::Protected, 1));
    assert!(fixture.read("file") == content);
    assert!(fixture.protect_all().affected.is_empty());
    fixture.assert_clean();
}

/// Regression: `protect` deferred a file with an interrupted repair for one second. When the repair was finished within
/// that second, the next `protect` recorded no change, and ended with the deferred entry pending, exit code 1.
#[test]
fn nothing_is_pending_when_an_interrupted_repair_was_finished() {
    let fixture = interrupted(&TestRng(5).bytes(SIZE));
    let left = fixture.protect();
    assert_eq!((left.done.failures, left.pending), (1, 1), "{left:?}");
    assert_eq!(repair_unchanged(&fixture).len(), 1);
    let report = fixture.protect_all();
    assert_eq!(report.pending, 0, "{report:?}");
    fixture.assert_clean();
}

/// The same for an entry that needs a scan, deferred by another worker.
#[test]
fn a_gap_that_was_put_off_is_closed_by_the_next_protect() {
    let fixture = Fixture::new("4+2");
    fixture.write("part/file", &TestRng(6).bytes(SIZE));
    fixture.write("whole/file", &TestRng(6).bytes(SIZE));
    fixture.protect_all();
    fs::rename(fixture.path("whole"), fixture.path("moved")).unwrap();
    let when = When::now(fixture.clock.now(), 0);
    let changes = [Change::gap("part", when), Change::rename("whole", "moved", when)];
    fixture.vault.changelog.record(&changes).unwrap();
    let done = work(&fixture.vault, QUIET).unwrap();
    assert!(done.for_scan.len() == 3 && done.failures == 0, "{done:?}");
    assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 2);
    let report = fixture.protect_all();
    assert_eq!((report.pending, report.done.encoded), (0, 0), "{report:?}");
    assert!(!fixture.redundancy("whole").exists() && fixture.redundancy("moved/file").exists());
    fixture.assert_clean();
}

/// Regression: the mark held only the path, so a new file in the place of the damaged one was never protected, and was
/// "repaired".
#[test]
fn another_file_in_its_place_ends_an_interrupted_repair() {
    let fixture = interrupted(&TestRng(3).bytes(SIZE));
    let new = TestRng(4).bytes(SIZE);
    fixture.write("new", &new);
    fs::rename(fixture.path("new"), fixture.path("file")).unwrap();
    let planned = plan(&fixture);
    assert!(planned.files.is_empty() && planned.kept.len() == 1, "{planned:?}");
    assert!(fixture.protect_all().affected.is_empty());
    assert!(fixture.read("file") == new);
    fixture.assert_clean();
}

/// Regression: a repair killed between creating and writing its mark left an empty mark. It counted as a mark of an
/// earlier format without block hashes, and the next repair reverted the owner's changes. Nothing was repaired then, so
/// nothing has to be finished.
#[test]
fn an_empty_mark_is_no_interrupted_repair() {
    let fixture = Fixture::new("4+2");
    let content = TestRng(7).bytes(SIZE);
    fixture.write("file", &content);
    fixture.protect_all();
    rot(&fixture.path("file"), 1000, &[1; 10]);
    let marks = fixture.root().join(".gabion/repairing");
    fs::create_dir_all(&marks).unwrap();
    fs::write(marks.join(blake3::hash(b"file").to_hex().as_str()), b"").unwrap();
    write(&fixture, 300_000, b"edited");
    let planned = plan(&fixture);
    assert!(planned.files.is_empty() && planned.kept.len() == 1, "{planned:?}");
    assert!(fixture.read("file")[300_000..].starts_with(b"edited"));
    assert!(fixture.protect().done.failed.is_empty());
}

/// Regression: a file written while it was examined has data of two versions, and `scrub` reported it as damaged.
#[test]
fn a_file_that_is_written_while_it_is_scrubbed_is_not_damaged() {
    use gabion_vault::run::{Progress, RunContext};
    use gabion_vault::scrub::{self, Options, Selection};
    let fixture = Fixture::new("4+2");
    let content = TestRng(5).bytes(30 << 20);
    fixture.write("file", &content);
    fixture.protect_all();
    // Written when its first part was examined.
    let path = fixture.path("file");
    let progress = |step: Progress| {
        if matches!(step, Progress::Done(0, _)) {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"new", content.len() as u64 - 10).unwrap();
        }
    };
    let context = RunContext { threads: 1, progress: &progress, ..QUIET };
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    let report = scrub::scrub(&fixture.vault, b"", options, context).unwrap();
    assert!(report.damage.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!((report.changing, report.files), (1, 0));
    assert!(fixture.vault.catalogue.affected().unwrap().is_empty());
    fixture.protect_all();
    fixture.assert_clean();
}

/// Regression: replaced content was kept without limit. It is now counted and removed after a while.
#[test]
fn replaced_content_is_kept_for_a_while() {
    use gabion_vault::replaced;
    use gabion_vault::world::SECOND;
    let fixture = Fixture::new("4+2");
    fixture.write("file", &TestRng(6).bytes(SIZE));
    fixture.protect_all();
    rot(&fixture.path("file"), 1000, &[1; 10]);
    fixture.repair("file");
    let runs = || replaced::runs(&fixture.vault.repository).unwrap();
    let [run] = &runs()[..] else { panic!("{:?}", runs()) };
    assert!(run.files == 1 && run.bytes > 0 && run.at == fixture.clock.now(), "{run:?}");
    let day = 86_400 * SECOND;
    for (days, left) in [(0, 1), (29, 1), (2, 0)] {
        fixture.clock.set(fixture.clock.now() + days * day);
        fixture.protect_all();
        assert_eq!(runs().len(), left, "after {days} more days");
    }
    assert_eq!(fs::read_dir(fixture.root().join(".gabion/replaced")).unwrap().count(), 0);
}

/// Regression: rows of directories stayed in the catalogue for ever.
#[test]
fn directories_without_files_are_forgotten() {
    let fixture = Fixture::new("4+2");
    ["a/b/c/one", "a/two", "three"].iter().for_each(|name| fixture.write(name, name.as_bytes()));
    fixture.protect_all();
    let known = || -> Vec<Vec<u8>> {
        fixture.vault.catalogue.directories(b"").unwrap().into_iter().map(|(_, path)| path).collect()
    };
    assert_eq!(known(), [&b""[..], b"a", b"a/b/c"]);
    fs::remove_dir_all(fixture.path("a/b")).unwrap();
    fixture.protect_all();
    assert_eq!(known(), [&b""[..], b"a"]);
    fs::rename(fixture.path("a"), fixture.path("d")).unwrap();
    fixture.protect_all();
    assert_eq!(known(), [&b""[..], b"d"]);
}

/// Regression: a deleted file is restored with private permissions and gets its own at the end. The mark of a killed
/// repair did not identify the new file: the next repair left it, and `protect` took its zeros for the owner's content.
#[test]
fn a_file_that_was_gone_gets_its_permissions_and_bytes_from_the_next_repair() {
    use std::os::unix::fs::PermissionsExt;
    let content = TestRng(5).bytes(100_000);
    // Number of bytes written, and whether the repair had recorded the new file's inode.
    for (written, is_known) in [(0, false), (0, true), (60_000, true), (100_000, true)] {
        let fixture = Fixture::new("2+2");
        fixture.write("file", &content);
        fs::set_permissions(fixture.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
        fixture.protect_all();
        fs::remove_file(fixture.path("file")).unwrap();
        fixture.repair("file");
        // State while the repair was running.
        let hash = blake3::hash(b"file").to_hex();
        let made = fs::File::options().write(true).open(fixture.path("file")).unwrap();
        made.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        made.set_len(0).unwrap();
        if written > 0 {
            made.set_len(100_000).unwrap();
            made.write_all_at(&content[..written], 0).unwrap();
        }
        let inode = if is_known { std::os::unix::fs::MetadataExt::ino(&made.metadata().unwrap()) } else { 0 };
        drop(made);
        let mut mark = b"gabrep2\n".to_vec();
        let code = fixture.vault.catalogue.find(b"file").unwrap().unwrap().code;
        let coder = fixture.vault.coders.get(&code).unwrap();
        let block = fixture.vault.storage.block(coder.code(), 100_000, 64 << 10);
        let layout = fixture.vault.storage.layout(b"file", coder.code(), block).unwrap();
        let stripes = layout.geometry.cut(100_000).runs(1).count() as u64;
        for number in [inode, u64::MAX, stripes * 2] {
            mark.extend(number.to_le_bytes());
        }
        for (stripe, column) in (0..stripes).flat_map(|stripe| [(stripe, 0_u32), (stripe, 1)]) {
            mark.extend(stripe.to_le_bytes());
            mark.extend(column.to_le_bytes());
            mark.extend(0_u32.to_le_bytes());
        }
        let check = blake3::hash(&mark);
        mark.extend(check.as_bytes());
        let marks = fixture.root().join(".gabion/repairing");
        fs::create_dir_all(&marks).unwrap();
        fs::write(marks.join(hash.as_str()), mark).unwrap();
        let failed = fixture.protect().done.failed;
        assert!(
            failed.len() == 1 && failed[0].1.to_string().contains("`gabion repair`"),
            "{written}: {failed:?}"
        );
        let [done] = &repair_unchanged(&fixture)[..] else { panic!("{written}: nothing was finished") };
        assert_eq!(done.state, State::Protected, "{written}: {done:?}");
        assert!(fixture.read("file") == content, "{written}");
        let mode = fs::metadata(fixture.path("file")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o640, "{written}");
        fixture.protect_all();
        fixture.assert_clean();
    }
}

/// Regression: `protect` was killed after following a rename: redundancy has the new name, the catalogue the old one.
/// `repair` and `scrub` reported the complete file as lost, exit code 3.
#[test]
fn a_name_from_before_a_rename_that_was_not_recorded_is_no_loss() {
    let fixture = Fixture::new("4+2");
    fixture.write("old", &TestRng(6).bytes(50_000));
    fixture.protect_all();
    fs::rename(fixture.path("old"), fixture.path("new")).unwrap();
    fs::rename(fixture.redundancy("old"), fixture.redundancy("new")).unwrap();
    let plan = plan(&fixture);
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    let report = fixture.scrub();
    assert!(report.damage.is_empty() && report.gone == 1, "{report:?}");
    fixture.protect_all();
    fixture.assert_clean();
}
