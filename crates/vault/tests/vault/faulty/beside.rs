//! Repairs beside programs that open, write, rename and link the same file.

use super::super::fixture::{Fixture, QUIET, TestRng, rot};
use super::adapter::{InjectedFault, Plan, Point};
use super::faulty;
use gabion_vault::catalogue::State;
use gabion_vault::repair::{self, RepairError};
use gabion_vault::world::Timestamp;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;

const SIZE: usize = 400_000;

/// A protected file with two bad blocks; the block at 200 000 is undamaged.
fn damaged() -> (Fixture, Plan, Vec<u8>) {
    let (fixture, plan) = faulty("4+2");
    let content = TestRng(1).bytes(SIZE);
    fixture.write("file", &content);
    fixture.protect_all();
    rot(&fixture.path("file"), 1000, &[1; 10]);
    rot(&fixture.path("file"), 300_000, &[2; 10]);
    (fixture, plan, content)
}

/// What a program does.
type Deed<'a> = &'a dyn Fn(&Fixture);

const WRITTEN: &[u8] = b"written by a program meanwhile";

fn write(path: &Path, offset: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(WRITTEN, offset).unwrap();
    file.sync_all().unwrap();
}

/// Repairs, protects and repairs what is damaged then, as an administrator would. What a program wrote at `offset`
/// must still be there.
fn assert_kept(fixture: &Fixture, offset: u64, content: &[u8]) {
    let options = repair::Options { keep_changed: true, ..repair::Options::default() };
    for _ in 0..2 {
        for damage in repair::plan(&fixture.vault, b"", options, QUIET).unwrap().files {
            fixture.repair(std::str::from_utf8(&damage.path).unwrap());
        }
        fixture.protect_all();
    }
    let mut expected = content.to_vec();
    if offset > 300_000 {
        // Damage in a block that others have written to cannot be told from what they wrote.
        expected[300_000..300_010].fill(2);
    }
    expected[offset as usize..][..WRITTEN.len()].copy_from_slice(WRITTEN);
    assert!(fixture.read("file") == expected, "what was written at {offset} is not there");
    fixture.assert_clean();
}

fn is_busy(error: &RepairError) -> bool {
    matches!(error, RepairError::Io(error) if error.kind() == ErrorKind::ResourceBusy)
}

/// Regression: a repair gave the file the mtime of the protected version although a program had written to it
/// meanwhile. The next repair took the program's bytes for damage and reverted them.
#[test]
fn what_a_program_writes_between_two_blocks_of_a_repair_is_kept() {
    for (offset, at) in [(200_000, Point::Write), (200_000, Point::Finish), (300_005, Point::Write)] {
        let (fixture, plan, content) = damaged();
        // With a reader there is no lease that keeps the writer out.
        let _reader = File::open(fixture.path("file")).unwrap();
        let (path, mut count) = (fixture.path("file"), 0);
        plan.set(move |point, _| {
            count += u64::from(point == at);
            if point == at && count == if at == Point::Write { 2 } else { 1 } {
                write(&path, offset);
            }
            None
        });
        let error = repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
        assert!(is_busy(&error), "{error}");
        plan.clear();
        let failed = fixture.protect().done.failed;
        assert!(failed.len() == 1 && failed[0].1.to_string().contains("`gabion repair`"), "{failed:?}");
        assert_kept(&fixture, offset, &content);
    }
}

/// A program that opens the file during a repair waits for a moment, and what it writes is kept, whenever it comes.
#[test]
fn what_a_program_writes_that_opens_the_file_during_a_repair_is_kept() {
    for at in [Point::Write, Point::Finish, Point::Read] {
        let (fixture, plan, content) = damaged();
        let (begin, begun) = channel();
        let (mut is_over, mut phase) = (false, 0);
        plan.set(move |point, _| {
            phase += u64::from(point == Point::Finish);
            // Reads after the last write verify the file.
            if point == at && !is_over && (at != Point::Read || phase > 0) {
                is_over = true;
                begin.send(()).unwrap();
            }
            None
        });
        let path = fixture.path("file");
        let program = std::thread::spawn(move || {
            begun.recv().unwrap();
            write(&path, 200_000);
        });
        let done = repair::repair(&fixture.vault, b"file", QUIET);
        assert!(done.as_ref().is_ok() || done.as_ref().is_err_and(is_busy), "{done:?}");
        plan.clear();
        program.join().unwrap();
        assert_kept(&fixture, 200_000, &content);
    }
}

#[test]
fn a_file_that_is_open_for_writing_is_not_repaired() {
    let (fixture, _, content) = damaged();
    let before = fixture.read("file");
    let writer = File::options().write(true).open(fixture.path("file")).unwrap();
    let error = repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
    assert!(is_busy(&error) && error.to_string().contains("open for writing"), "{error}");
    assert!(fixture.read("file") == before);
    drop(writer);
    assert_eq!(fixture.repair("file").state, State::Protected);
    assert!(fixture.read("file") == content);
}

#[test]
fn a_file_that_is_open_for_reading_gets_its_bytes_and_its_time() {
    let (fixture, _, content) = damaged();
    let before = fs::metadata(fixture.path("file")).unwrap().modified().unwrap();
    let _reader = File::open(fixture.path("file")).unwrap();
    assert_eq!(fixture.repair("file").state, State::Protected);
    assert!(fixture.read("file") == content);
    assert_eq!(fs::metadata(fixture.path("file")).unwrap().modified().unwrap(), before);
}

/// Regression: the mark of an interrupted repair was found by the file's name only. Under another name half of the
/// repair was protected as a new version, damage included.
#[test]
fn half_a_repair_is_no_version_under_another_name() {
    for linked in [true, false] {
        for protect_between in [true, false] {
            let (fixture, plan, content) = damaged();
            fixture.write("stays", b"another file");
            fixture.protect_all();
            let mut count = 0;
            plan.set(move |point, _| {
                count += u64::from(point == Point::Write);
                (count == 2).then_some(InjectedFault::Eio)
            });
            repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
            plan.clear();
            let (old, new) = (fixture.path("file"), fixture.path("other name"));
            match linked {
                true => fs::hard_link(old, new).unwrap(),
                false => fs::rename(old, new).unwrap(),
            }
            if protect_between {
                let failed = fixture.protect().done.failed;
                let unfinished = failed.iter().filter(|(_, why)| why.to_string().contains("`gabion repair`"));
                assert!(unfinished.count() >= 1, "{failed:?}");
            }
            assert_eq!(repair::follow_renamed(&fixture.vault).unwrap(), []);
            let options = repair::Options { keep_changed: true, ..repair::Options::default() };
            let listed = repair::plan(&fixture.vault, b"", options, QUIET).unwrap();
            let [damage] = &listed.files[..] else { panic!("linked: {linked}: {listed:?}") };
            let name = std::str::from_utf8(&damage.path).unwrap();
            assert_eq!(name, if linked { "file" } else { "other name" });
            assert_eq!(fixture.repair(name).state, State::Protected);
            let report = fixture.protect_all();
            assert_eq!(report.pending, 0, "linked: {linked}: {report:?}");
            assert!(fixture.read("other name") == content, "linked: {linked}");
            fixture.assert_clean();
            assert_eq!(fs::read_dir(fixture.root().join(".gabion/repairing")).unwrap().count(), 0);
        }
    }
}

/// Regression: a file that was renamed while it was repaired was reported lost.
#[test]
fn a_file_that_is_renamed_during_its_repair_is_not_lost() {
    for at in [Point::Write, Point::Finish] {
        let (fixture, plan, content) = damaged();
        let (old, new) = (fixture.path("file"), fixture.path("other name"));
        let mut is_renamed = false;
        plan.set(move |point, _| {
            if point == at && !std::mem::replace(&mut is_renamed, true) {
                fs::rename(&old, &new).unwrap();
            }
            None
        });
        let error = repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
        assert!(is_busy(&error), "{error}");
        plan.clear();
        assert_eq!(repair::follow_renamed(&fixture.vault).unwrap(), []);
        assert_eq!(fixture.repair("other name").state, State::Protected);
        fixture.protect_all();
        assert!(fixture.read("other name") == content);
        fixture.assert_clean();
    }
}

/// Regression: whatever a program did between the examination of a file and its repair, for example while a person was
/// asked, was reverted.
#[test]
fn what_a_program_does_after_the_plan_is_kept() {
    let changes: [(&str, Deed<'_>); 5] = [
        ("write", &|fixture| write(&fixture.path("file"), 200_000)),
        ("write to what is damaged", &|fixture| write(&fixture.path("file"), 300_005)),
        ("append", &|fixture| {
            let file = File::options().append(true).open(fixture.path("file")).unwrap();
            std::io::Write::write_all(&mut &file, WRITTEN).unwrap();
        }),
        ("cut", &|fixture| {
            File::options().write(true).open(fixture.path("file")).unwrap().set_len(1234).unwrap();
        }),
        ("replace", &|fixture| {
            fixture.write("new", WRITTEN);
            fs::rename(fixture.path("new"), fixture.path("file")).unwrap();
        }),
    ];
    for keep_changed in [true, false] {
        for (what, change) in changes {
            let (fixture, _, _) = damaged();
            let options = repair::Options { keep_changed, ..repair::Options::default() };
            let plan = repair::plan(&fixture.vault, b"", options, QUIET).unwrap();
            assert_eq!(plan.files.len(), 1);
            change(&fixture);
            let there = fixture.read("file");
            let results = repair::repair_all(&fixture.vault, &plan, QUIET);
            let [Some(Err(why))] = &results[..] else { panic!("{what}: {results:?}") };
            assert!(why.to_string().contains("since it was examined"), "{what}: {why}");
            assert!(fixture.read("file") == there, "{what}");
            // Nothing was begun, so nothing has to be finished.
            fixture.protect_all();
            assert!(fixture.read("file") == there, "{what}");
            fixture.assert_clean();
        }
    }
}

/// Regression: a file that was renamed, or whose directory was, after it was examined was reported lost, and an empty
/// file was made under its former name.
#[test]
fn a_file_that_is_renamed_after_the_plan_is_not_lost() {
    for of_directory in [false, true] {
        let (fixture, _) = faulty("4+2");
        let content = TestRng(1).bytes(SIZE);
        fixture.write("d/file", &content);
        fixture.write("d/other", b"stays");
        fixture.protect_all();
        rot(&fixture.path("d/file"), 1000, &[1; 10]);
        let options = repair::Options { missing: true, ..repair::Options::default() };
        let plan = repair::plan(&fixture.vault, b"", options, QUIET).unwrap();
        let (from, to) = if of_directory { ("d", "e") } else { ("d/file", "d/moved") };
        fs::rename(fixture.path(from), fixture.path(to)).unwrap();
        let results = repair::repair_all(&fixture.vault, &plan, QUIET);
        assert!(matches!(&results[..], [Some(Err(_))]), "{results:?}");
        assert!(!fixture.path("d/file").exists(), "nothing is made");
        fixture.protect_all();
        let name = if of_directory { "e/file" } else { "d/moved" };
        assert_eq!(fixture.repair(name).state, State::Protected);
        assert!(fixture.read(name) == content);
        fixture.protect_all();
        fixture.assert_clean();
    }
}

/// Regression: two names of a file were planned, the first was repaired, and what a program had written through the
/// second since an interruption was then reverted.
#[test]
fn what_a_program_writes_to_a_file_with_two_names_is_kept() {
    let (fixture, plan) = faulty("4+2");
    let content = TestRng(1).bytes(SIZE);
    fixture.write("file", &content);
    fs::hard_link(fixture.path("file"), fixture.path("second")).unwrap();
    fixture.protect_all();
    rot(&fixture.path("file"), 1000, &[1; 10]);
    rot(&fixture.path("file"), 300_000, &[2; 10]);
    plan.set(|point, _| (point == Point::Finish).then_some(InjectedFault::Eio));
    repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
    plan.clear();
    write(&fixture.path("second"), 200_000);
    let options = repair::Options { keep_changed: true, ..repair::Options::default() };
    for _ in 0..3 {
        let listed = repair::plan(&fixture.vault, b"", options, QUIET).unwrap();
        repair::repair_all(&fixture.vault, &listed, QUIET);
        let mut expected = content.clone();
        expected[200_000..][..WRITTEN.len()].copy_from_slice(WRITTEN);
        assert!(fixture.read("file") == expected);
        fixture.protect();
    }
    fixture.assert_clean();
}

/// Regression: a block that a killed repair, or a power cut, had left half written was taken for what a user wrote
/// since, if it does not begin at the start of a page: the damage in its other half was accepted.
#[test]
fn a_block_that_is_half_restored_is_finished() {
    let (fixture, plan) = faulty("4+2");
    let content = TestRng(1).bytes(SIZE);
    fixture.write("file", &content);
    fixture.protect_all();
    let (start, end) = (300_000, 312_000);
    rot(&fixture.path("file"), 1000, &[1; 10]);
    rot(&fixture.path("file"), start as u64, &vec![2; end - start]);
    let mut count = 0;
    plan.set(move |point, _| {
        count += u64::from(point == Point::Write);
        (count == 2).then_some(InjectedFault::Eio)
    });
    repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
    plan.clear();
    // One page and a sector of another.
    let file = File::options().write(true).open(fixture.path("file")).unwrap();
    for sector in [(303_104, 4096), (308_224, 512)] {
        file.write_all_at(&content[sector.0..][..sector.1], sector.0 as u64).unwrap();
    }
    drop(file);
    let done = fixture.repair("file");
    assert_eq!((done.state, &done.notes[..]), (State::Protected, &[][..]), "{done:?}");
    assert!(fixture.read("file") == content);
    fixture.protect_all();
    fixture.assert_clean();
}

/// Regression: the change of a renamed file waited for the end of its repair, and then for ever.
#[test]
fn nothing_is_pending_when_the_repair_of_a_renamed_file_was_finished() {
    let (fixture, plan, content) = damaged();
    plan.set(|point, _| (point == Point::Finish).then_some(InjectedFault::Eio));
    repair::repair(&fixture.vault, b"file", QUIET).unwrap_err();
    plan.clear();
    // All blocks and the time are right already.
    let protected = fixture.vault.catalogue.find(b"file").unwrap().unwrap().generation.mtime;
    let time = std::time::UNIX_EPOCH + protected.since(Timestamp::EPOCH);
    File::options().write(true).open(fixture.path("file")).unwrap().set_modified(time).unwrap();
    fs::rename(fixture.path("file"), fixture.path("other name")).unwrap();
    let left = fixture.protect();
    assert_eq!((left.done.failures, left.pending), (1, 1), "{left:?}");
    assert_eq!(repair::follow_renamed(&fixture.vault).unwrap(), []);
    assert_eq!(fixture.repair("other name").state, State::Protected);
    let report = fixture.protect_all();
    assert_eq!(report.pending, 0, "{report:?}");
    assert!(fixture.read("other name") == content);
    fixture.assert_clean();
}
