//! A repair that was interrupted, and what happened to its file before it is finished.

use super::playground::{Playground, QUIET, Seed, rot};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::protect::work;
use gabion_vault::repair::{self, Plan, Repaired};
use std::fs;
use std::os::unix::fs::FileExt;

const SIZE: usize = 400_000;

/// Two bad blocks, and a repair that failed after it had marked the file. Then the first block was put right, as if the repair had come so far.
fn interrupted(content: &[u8]) -> Playground {
    let ground = Playground::new("4+2");
    ground.write("file", content);
    ground.protect_all();
    rot(&ground.path("file"), 1000, &[1; 10]);
    rot(&ground.path("file"), 300_000, &[2; 10]);
    // Nothing can be kept there, so nothing may be written.
    let replaced = ground.root().join(".gabion/replaced");
    fs::write(&replaced, b"in the way").unwrap();
    {
        let _lock = ground.vault.lock("test").unwrap();
        repair::repair(&ground.vault, b"file", QUIET).unwrap_err();
    }
    fs::remove_file(replaced).unwrap();
    write(&ground, 1000, &content[1000..1010]);
    ground
}

fn write(ground: &Playground, offset: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(ground.path("file")).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn plan(ground: &Playground) -> Plan {
    let options = repair::Options { keep_changed: true, ..repair::Options::default() };
    repair::plan(&ground.vault, b"", options, QUIET).unwrap()
}

/// Repairs all that a plan which keeps changed files has.
fn repair_unchanged(ground: &Playground) -> Vec<Repaired> {
    plan(ground).files.iter().map(|it| ground.repair(std::str::from_utf8(&it.path).unwrap())).collect()
}

/// An interrupted repair was finished by writing all blocks that differ, so that it reverted what its owner had written since, although changed
/// files were to be kept. Only blocks that hold what they held when it began, or what it wrote itself, are its own.
#[test]
fn an_interrupted_repair_keeps_what_was_written_since() {
    let mut content = Seed(1).bytes(SIZE);
    for (offset, edit) in
        [(100_000, &b"edited"[..]), (SIZE as u64, b"appended"), (1002, b"where it was repaired")]
    {
        let ground = interrupted(&content);
        write(&ground, offset, edit);
        let failed = ground.protect().done.failed;
        assert!(failed.len() == 1 && failed[0].1.contains("`gabion repair`"), "{failed:?}");
        let [done] = &repair_unchanged(&ground)[..] else { panic!("{offset}: nothing was finished") };
        assert!(done.lost.is_empty() && done.data_blocks == 1, "{offset}: {done:?}");
        let before = content.clone();
        content.resize(content.len().max(offset as usize + edit.len()), 0);
        content[offset as usize..][..edit.len()].copy_from_slice(edit);
        assert!(ground.read("file") == content, "{offset}: an edit was reverted, or damage left");
        assert!(ground.protect_all().affected.is_empty());
        ground.assert_clean();
        content = before;
    }
}

#[test]
fn an_interrupted_repair_is_finished_where_nothing_was_written() {
    let content = Seed(2).bytes(SIZE);
    let ground = interrupted(&content);
    let [done] = &repair_unchanged(&ground)[..] else { panic!("nothing was finished") };
    assert_eq!((done.state, done.data_blocks), (State::Protected, 1));
    assert!(ground.read("file") == content);
    assert!(ground.protect_all().affected.is_empty());
    ground.assert_clean();
}

/// `protect` left a file alone whose repair was interrupted, and put it off for a second. The repair was finished within that second, so the next `protect` found the file
/// as it was protected and recorded nothing: what had been put off was not due yet, and `protect` ended with a change pending, exit code 1.
#[test]
fn nothing_is_pending_when_an_interrupted_repair_was_finished() {
    let ground = interrupted(&Seed(5).bytes(SIZE));
    let left = ground.protect();
    assert_eq!((left.done.failures, left.pending), (1, 1), "{left:?}");
    assert_eq!(repair_unchanged(&ground).len(), 1);
    let report = ground.protect_all();
    assert_eq!(report.pending, 0, "{report:?}");
    ground.assert_clean();
}

/// As above, for what a scan is needed for: another worker had put it off.
#[test]
fn a_gap_that_was_put_off_is_closed_by_the_next_protect() {
    let ground = Playground::new("4+2");
    ground.write("part/file", &Seed(6).bytes(SIZE));
    ground.write("whole/file", &Seed(6).bytes(SIZE));
    ground.protect_all();
    fs::rename(ground.path("whole"), ground.path("moved")).unwrap();
    let when = When::now(ground.clock.now(), 0);
    let changes = [Change::gap("part", when), Change::rename("whole", "moved", when)];
    ground.vault.changelog.record(&changes).unwrap();
    let done = work(&ground.vault, QUIET).unwrap();
    assert!(done.for_scan.len() == 3 && done.failures == 0, "{done:?}");
    assert_eq!(ground.vault.changelog.pending().unwrap().entries(), 2);
    let report = ground.protect_all();
    assert_eq!((report.pending, report.done.encoded), (0, 0), "{report:?}");
    assert!(!ground.redundancy("whole").exists() && ground.redundancy("moved/file").exists());
    ground.assert_clean();
}

/// The mark of the repair had the path in it and nothing else: a new file in the place of the damaged one was never protected, and "repaired".
#[test]
fn another_file_in_its_place_ends_an_interrupted_repair() {
    let ground = interrupted(&Seed(3).bytes(SIZE));
    let new = Seed(4).bytes(SIZE);
    ground.write("new", &new);
    fs::rename(ground.path("new"), ground.path("file")).unwrap();
    let planned = plan(&ground);
    assert!(planned.files.is_empty() && planned.kept.len() == 1, "{planned:?}");
    assert!(ground.protect_all().affected.is_empty());
    assert!(ground.read("file") == new);
    ground.assert_clean();
}

/// A repair that was killed after it had made the file of its mark, and before it had written it, left an empty mark. That counted as a mark of an earlier
/// version, which says nothing about blocks: the next repair reverted all that its owner had written since. Nothing was repaired yet, so there is nothing
/// to finish.
#[test]
fn an_empty_mark_is_no_interrupted_repair() {
    let ground = Playground::new("4+2");
    let content = Seed(7).bytes(SIZE);
    ground.write("file", &content);
    ground.protect_all();
    rot(&ground.path("file"), 1000, &[1; 10]);
    let marks = ground.root().join(".gabion/repairing");
    fs::create_dir_all(&marks).unwrap();
    fs::write(marks.join(blake3::hash(b"file").to_hex().as_str()), b"").unwrap();
    write(&ground, 300_000, b"edited");
    let planned = plan(&ground);
    assert!(planned.files.is_empty() && planned.kept.len() == 1, "{planned:?}");
    assert!(ground.read("file")[300_000..].starts_with(b"edited"));
    assert!(ground.protect().done.failed.is_empty());
}

/// What a file holds that someone writes to while it is examined is of two versions: `scrub` called it damaged.
#[test]
fn a_file_that_is_written_while_it_is_scrubbed_is_not_damaged() {
    use gabion_vault::run::{Progress, RunContext};
    use gabion_vault::scrub::{self, Options, Selection};
    let ground = Playground::new("4+2");
    let content = Seed(5).bytes(30 << 20);
    ground.write("file", &content);
    ground.protect_all();
    // Written when the first part of it was examined.
    let path = ground.path("file");
    let progress = |step: Progress| {
        if matches!(step, Progress::Done(0, _)) {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"new", content.len() as u64 - 10).unwrap();
        }
    };
    let context = RunContext { threads: 1, progress: &progress, ..QUIET };
    let options = Options { selection: Selection::All, from_medium: false, resume: false };
    let report = scrub::scrub(&ground.vault, b"", options, context).unwrap();
    assert!(report.trouble.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!((report.changing, report.files), (1, 0));
    assert!(ground.vault.catalogue.affected().unwrap().is_empty());
    ground.protect_all();
    ground.assert_clean();
}

/// Repair replaced content without end: what it keeps is counted, and goes after a while.
#[test]
fn replaced_content_is_kept_for_a_while() {
    use gabion_vault::replaced;
    use gabion_vault::world::SECOND;
    let ground = Playground::new("4+2");
    ground.write("file", &Seed(6).bytes(SIZE));
    ground.protect_all();
    rot(&ground.path("file"), 1000, &[1; 10]);
    ground.repair("file");
    let runs = || replaced::runs(&ground.vault.repository).unwrap();
    let [run] = &runs()[..] else { panic!("{:?}", runs()) };
    assert!(run.files == 1 && run.bytes > 0 && run.at == ground.clock.now(), "{run:?}");
    let day = 86_400 * SECOND;
    for (days, left) in [(0, 1), (29, 1), (2, 0)] {
        ground.clock.set(ground.clock.now() + days * day);
        ground.protect_all();
        assert_eq!(runs().len(), left, "after {days} more days");
    }
    assert_eq!(fs::read_dir(ground.root().join(".gabion/replaced")).unwrap().count(), 0);
}

/// Rows of directories stayed in the catalogue for ever.
#[test]
fn directories_without_files_are_forgotten() {
    let ground = Playground::new("4+2");
    ["a/b/c/one", "a/two", "three"].iter().for_each(|name| ground.write(name, name.as_bytes()));
    ground.protect_all();
    let known = || -> Vec<Vec<u8>> {
        ground.vault.catalogue.directories(b"").unwrap().into_iter().map(|(_, path)| path).collect()
    };
    assert_eq!(known(), [&b""[..], b"a", b"a/b/c"]);
    fs::remove_dir_all(ground.path("a/b")).unwrap();
    ground.protect_all();
    assert_eq!(known(), [&b""[..], b"a"]);
    fs::rename(ground.path("a"), ground.path("d")).unwrap();
    ground.protect_all();
    assert_eq!(known(), [&b""[..], b"d"]);
}

/// A file that was gone is made anew with permissions for nobody else, and gets its own at the end. A repair that was killed before had a mark that was not
/// about the new file: the next repair left it so, and `protect` took what was there of it, zeros, for what its owner had written.
#[test]
fn a_file_that_was_gone_gets_its_permissions_and_bytes_from_the_next_repair() {
    use std::os::unix::fs::PermissionsExt;
    let content = Seed(5).bytes(100_000);
    // How much was written, and whether the repair had recorded which file it made.
    for (written, is_known) in [(0, false), (0, true), (60_000, true), (100_000, true)] {
        let ground = Playground::new("2+2");
        ground.write("file", &content);
        fs::set_permissions(ground.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
        ground.protect_all();
        fs::remove_file(ground.path("file")).unwrap();
        ground.repair("file");
        // As it was while the repair ran.
        let hash = blake3::hash(b"file").to_hex();
        let made = fs::File::options().write(true).open(ground.path("file")).unwrap();
        made.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        made.set_len(0).unwrap();
        if written > 0 {
            made.set_len(100_000).unwrap();
            made.write_all_at(&content[..written], 0).unwrap();
        }
        let inode = if is_known { std::os::unix::fs::MetadataExt::ino(&made.metadata().unwrap()) } else { 0 };
        let mut mark = b"gabrep2\n".to_vec();
        let code = ground.vault.catalogue.find(b"file").unwrap().unwrap().code;
        let coder = ground.vault.coders.get(&code).unwrap();
        let block = ground.vault.storage.block(coder.code(), 100_000, 64 << 10);
        let layout = ground.vault.storage.layout(b"file", coder.code(), block).unwrap();
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
        let marks = ground.root().join(".gabion/repairing");
        fs::create_dir_all(&marks).unwrap();
        fs::write(marks.join(hash.as_str()), mark).unwrap();
        let failed = ground.protect().done.failed;
        assert!(failed.len() == 1 && failed[0].1.contains("`gabion repair`"), "{written}: {failed:?}");
        let [done] = &repair_unchanged(&ground)[..] else { panic!("{written}: nothing was finished") };
        assert_eq!(done.state, State::Protected, "{written}: {done:?}");
        assert!(ground.read("file") == content, "{written}");
        let mode = fs::metadata(ground.path("file")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o640, "{written}");
        ground.protect_all();
        ground.assert_clean();
    }
}

/// `protect` follows a rename and is killed: redundancy has the new name, the catalogue the old one, where nothing is any more. `repair` and `scrub` called
/// the file lost, with exit code 3, though it is there with all that it had.
#[test]
fn a_name_from_before_a_rename_that_was_not_recorded_is_no_loss() {
    let ground = Playground::new("4+2");
    ground.write("old", &Seed(6).bytes(50_000));
    ground.protect_all();
    fs::rename(ground.path("old"), ground.path("new")).unwrap();
    fs::rename(ground.redundancy("old"), ground.redundancy("new")).unwrap();
    let plan = plan(&ground);
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    let report = ground.scrub();
    assert!(report.trouble.is_empty() && report.gone == 1, "{report:?}");
    ground.protect_all();
    ground.assert_clean();
}
