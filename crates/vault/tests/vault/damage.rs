//! Damage of every kind is found, located and repaired; irreparable damage is reported and not made worse.

use super::fixture::{Fixture, QUIET, TestRng, flip, rot};
use gabion_vault::catalogue::{CatalogueError, Entry, Piece, State};
use gabion_vault::{repair, scrub};

const BLOCK: u64 = 4096;

/// Header size of a redundancy file without attributes. One section of frames per column follows.
const HEADER: u64 = 256;

/// With blocks of 4 KiB a full segment has 4096 rows, which would be large; a few stripes suffice.
fn content(seed: &mut TestRng, stripes: u64) -> Vec<u8> {
    seed.bytes((4 * BLOCK * stripes) as usize - 100)
}

#[test]
fn one_flipped_bit_is_found_located_and_repaired() {
    let fixture = Fixture::new("4+2");
    let content = content(&mut TestRng(1), 3);
    fixture.write("a/file", &content);
    fixture.protect_all();
    fixture.assert_clean();
    flip(&fixture.path("a/file"), 30_000);
    let report = fixture.scrub();
    let [damage] = &report.damage[..] else { panic!("{report:?}") };
    assert_eq!((damage.path.as_slice(), damage.state), (&b"a/file"[..], State::Damaged));
    assert!(!damage.changed);
    let [problem] = &damage.problems[..] else { panic!("{damage:?}") };
    assert_eq!(problem.piece, Piece::Data);
    assert!(problem.range.contains(&30_000) && problem.range.end - problem.range.start <= BLOCK);
    let done = fixture.repair("a/file");
    assert_eq!((done.state, done.data_blocks, done.redundancy_blocks), (State::Protected, 1, 0));
    assert_eq!(fixture.read("a/file"), content);
    fixture.assert_clean();
    // The replaced content is kept.
    let replaced = std::fs::read(done.replaced.unwrap()).unwrap();
    assert_eq!(replaced[30_000], !content[30_000]);
    // The repair leaves nothing to protect again.
    assert!(fixture.protect_all().seen.changes.is_empty());
}

#[test]
fn up_to_m_bad_blocks_of_every_stripe_are_repaired_wherever_they_are() {
    for seed in 0..60 {
        let mut rng = TestRng(seed);
        let fixture = Fixture::new("4+2");
        let stripes = 1 + rng.below(6);
        let content = content(&mut rng, stripes);
        fixture.write("file", &content);
        fixture.protect_all();
        let pristine = std::fs::read(fixture.redundancy("file")).unwrap();
        let (path, redundancy) = (fixture.path("file"), fixture.redundancy("file"));
        let block = cut_block(&content, stripes);
        let column = block * stripes;
        for stripe in 0..stripes {
            let mut columns: Vec<u64> = (0..6).collect();
            for _ in 0..rng.below(3) {
                let hit = columns.swap_remove(rng.below(columns.len() as u64) as usize);
                let within = rng.below(block);
                if hit < 4 {
                    let offset = hit * column + stripe * block + within;
                    flip(&path, offset.min(content.len() as u64 - 1));
                } else {
                    // Anywhere in the frame: block, table or check.
                    let frame = block + 16 * 6;
                    let within = rng.below(frame);
                    flip(&redundancy, HEADER + ((hit - 4) * stripes + stripe) * frame + within);
                }
            }
        }
        // In some cases also one of the two headers.
        if rng.below(2) == 0 {
            let header = if rng.below(2) == 0 { 0 } else { pristine.len() as u64 - HEADER };
            flip(&redundancy, header + rng.below(HEADER));
        }
        let done = fixture.repair("file");
        assert_eq!(done.state, State::Protected, "seed {seed}: {done:?}");
        assert_eq!(fixture.read("file"), content, "seed {seed}");
        assert_eq!(std::fs::read(&redundancy).unwrap(), pristine, "seed {seed}");
        fixture.assert_clean();
    }
}

/// Block size of the only segment.
fn cut_block(content: &[u8], stripes: u64) -> u64 {
    (content.len() as u64).div_ceil(4 * stripes).next_multiple_of(64)
}

#[test]
fn damage_beyond_m_blocks_is_reported_and_not_made_worse() {
    let fixture = Fixture::new("4+2");
    let content = content(&mut TestRng(7), 4);
    fixture.write("file", &content);
    fixture.protect_all();
    let column = cut_block(&content, 4) * 4;
    // Three columns of stripe 0, one of stripe 2.
    for hit in 0..3 {
        flip(&fixture.path("file"), hit * column + 5);
    }
    flip(&fixture.path("file"), 2 * cut_block(&content, 4) + 9);
    let damaged = fixture.read("file");
    let report = fixture.scrub();
    let [damage] = &report.damage[..] else { panic!("{report:?}") };
    assert_eq!(damage.state, State::Lost);
    let lost: Vec<_> = damage.problems.iter().filter(|problem| problem.piece == Piece::Lost).collect();
    assert_eq!(lost.len(), 3, "{damage:?}");
    let done = fixture.repair("file");
    assert_eq!((done.state, done.data_blocks), (State::Lost, 1));
    assert_eq!(done.lost.len(), 3);
    let after = fixture.read("file");
    // Recoverable bytes are restored; the others are unchanged, not zeros.
    for (at, (&now, &was)) in after.iter().zip(&content).enumerate() {
        let lost = done.lost.iter().any(|range| range.contains(&(at as u64)));
        assert_eq!(now, if lost { damaged[at] } else { was }, "byte {at}");
    }
    assert_eq!(fixture.state("file"), State::Lost);
}

#[test]
fn a_fifth_of_a_file_comes_back_wherever_it_was_overwritten_whatever_the_size() {
    let fixture = Fixture::with_policy("[default]\ncode = \"8+2\"\n");
    let mut rng = TestRng(11);
    let contents: Vec<_> = [100_000, 300_001, 1 << 20, 3_000_000].map(|size| rng.bytes(size)).into();
    for (number, content) in contents.iter().enumerate() {
        fixture.write(&number.to_string(), content);
    }
    fixture.protect_all();
    for _ in 0..20 {
        for (number, content) in contents.iter().enumerate() {
            let name = number.to_string();
            let piece = vec![0x55; content.len() / 5];
            let start = rng.below((content.len() - piece.len()) as u64);
            rot(&fixture.path(&name), start, &piece);
            let done = fixture.repair(&name);
            assert_eq!(done.state, State::Protected, "{} bytes from {start}: {done:?}", content.len());
            assert_eq!(&fixture.read(&name), content);
        }
    }
    fixture.assert_clean();
}

#[test]
fn overwritten_truncated_and_extended_files_come_back() {
    let fixture = Fixture::new("4+2");
    let mut rng = TestRng(3);
    let content = content(&mut rng, 40);
    let third = content.len() / 3;
    type Hurt = fn(&mut Vec<u8>, usize);
    let hurts: [(&str, Hurt); 4] = [
        ("overwritten", |bytes, third| bytes[third..2 * third].fill(0x55)),
        ("cut", |bytes, third| bytes.truncate(2 * third)),
        ("grown", |bytes, _| bytes.extend(b"more and more")),
        ("emptied", |bytes, third| bytes.drain(..third).for_each(drop)),
    ];
    for (name, _) in &hurts {
        fixture.write(name, &content);
    }
    fixture.protect_all();
    for (name, hurt) in &hurts {
        let mut bytes = content.clone();
        hurt(&mut bytes, third);
        fixture.write(name, &bytes);
    }
    let found = fixture.scrub().damage;
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|damage| damage.changed));
    for name in ["overwritten", "cut", "grown"] {
        let done = fixture.repair(name);
        assert_eq!(done.state, State::Protected, "{done:?}");
        assert!(fixture.read(name) == content, "{name}");
        if name == "grown" {
            // Bytes behind the protected end are kept.
            assert!(std::fs::read(done.replaced.unwrap()).unwrap().ends_with(b"more and more"));
        }
    }
    // With nothing left to repair from, here or in a file with the same content, the file is not changed.
    ["overwritten", "cut", "grown"].iter().for_each(|name| std::fs::remove_file(fixture.path(name)).unwrap());
    let before = fixture.read("emptied");
    assert_eq!(fixture.repair("emptied").state, State::Lost);
    assert!(fixture.read("emptied")[..before.len()] == before[..]);
}

#[test]
fn a_file_that_is_gone_comes_back_where_redundancy_suffices() {
    for (code, comes_back) in [("2+2", true), ("1+1", true), ("4+2", false)] {
        let fixture = Fixture::new(code);
        let content = TestRng(5).bytes(50_000);
        fixture.write("deep/er/file", &content);
        fixture.protect_all();
        std::fs::remove_dir_all(fixture.path("deep")).unwrap();
        let done = fixture.repair("deep/er/file");
        assert_eq!(done.state == State::Protected, comes_back, "{code}");
        assert_eq!(fixture.path("deep/er/file").exists(), comes_back);
        if comes_back {
            assert!(fixture.read("deep/er/file") == content);
        }
    }
}

/// Regression: a second repair of a file within one second overwrote the content that the first had kept.
#[test]
fn replaced_content_is_kept_for_repairs_in_quick_succession() {
    let fixture = Fixture::new("4+2");
    fixture.write("file", &content(&mut TestRng(6), 3));
    fixture.protect_all();
    let kept: Vec<_> = [b"one", b"two"]
        .map(|work| {
            rot(&fixture.path("file"), 30_000, work);
            fixture.repair("file").replaced.unwrap()
        })
        .into();
    let held = |path| std::fs::read(path).unwrap()[30_000..30_003].to_vec();
    assert_eq!(kept.iter().map(held).collect::<Vec<_>>(), [b"one", b"two"]);
}

/// Regression: of a file with two names one was repaired, and the other was still reported as damaged.
#[test]
fn repair_under_one_name_clears_the_damage_of_its_hard_links() {
    let fixture = Fixture::new("4+2");
    fixture.write("a", &content(&mut TestRng(5), 3));
    std::fs::hard_link(fixture.path("a"), fixture.path("b")).unwrap();
    fixture.protect_all();
    flip(&fixture.path("a"), 30_000);
    assert_eq!(fixture.scrub().damage.len(), 2);
    assert_eq!(fixture.repair("a").state, State::Protected);
    let entry = || fixture.vault.catalogue.find(b"b").unwrap().unwrap();
    assert_eq!((entry().state, entry().columns), (State::Damaged, 1));
    let plan = repair::plan(&fixture.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    assert_eq!((entry().state, entry().columns), (State::Protected, 2));
    assert_eq!(fixture.vault.catalogue.problems(b"b").unwrap(), []);
}

#[test]
fn times_links_and_holes_survive_a_repair() {
    let fixture = Fixture::new("4+2");
    let mut content = vec![0; 4 << 20];
    content[3 << 20..][..10_000].copy_from_slice(&TestRng(1).bytes(10_000));
    let file = std::fs::File::create(fixture.path("sparse")).unwrap();
    file.set_len(content.len() as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &content[3 << 20..][..10_000], 3 << 20).unwrap();
    std::fs::hard_link(fixture.path("sparse"), fixture.path("other name")).unwrap();
    let allocated =
        || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(fixture.path("sparse")).unwrap());
    let (before, time) = (allocated(), file.metadata().unwrap().modified().unwrap());
    drop(file);
    fixture.protect_all();
    rot(&fixture.path("sparse"), 1 << 20, &[7; 300_000]);
    assert!(allocated() > before);
    assert_eq!(fixture.repair("sparse").state, State::Protected);
    assert!(fixture.read("sparse") == content);
    assert_eq!(allocated(), before, "holes were filled");
    let metadata = std::fs::metadata(fixture.path("sparse")).unwrap();
    assert_eq!(metadata.modified().unwrap(), time);
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&metadata), 2);
    assert!(fixture.read("other name") == content);
    fixture.assert_clean();
}

#[test]
fn stale_and_foreign_redundancy_is_not_believed() {
    let fixture = Fixture::new("4+2");
    let (old, new) = (TestRng(1).bytes(60_000), TestRng(2).bytes(60_000));
    fixture.write("file", &old);
    fixture.write("other", &new);
    fixture.protect_all();
    let before = std::fs::read(fixture.redundancy("file")).unwrap();
    fixture.write("file", &new);
    fixture.protect_all();
    let after = std::fs::read(fixture.redundancy("file")).unwrap();
    // A lost write: one frame is of the earlier version.
    let block = 60_000u64.div_ceil(4 * 4).next_multiple_of(64) as usize;
    let frame = block + 16 * 6;
    rot(&fixture.redundancy("file"), HEADER, &before[HEADER as usize..][..frame]);
    assert_eq!(fixture.state("file"), State::Damaged);
    assert_eq!(fixture.repair("file").state, State::Protected);
    assert!(std::fs::read(fixture.redundancy("file")).unwrap() == after);
    // Redundancy of another file is recognised by its identity.
    std::fs::copy(fixture.redundancy("other"), fixture.redundancy("file")).unwrap();
    fixture.assert_clean();
    fixture.write("file", &old);
    assert_eq!(
        fixture.state("file"),
        State::Damaged,
        "somebody wrote to it: it has the content that its owner gave it"
    );
}

/// All frames of a stripe are damaged, blocks and tables. The root in the header still confirms the intact data.
#[test]
fn the_header_confirms_data_without_frames() {
    for (size, strong) in [(3000, false), (200_000, false), (200_000, true)] {
        let policy = format!("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nstrong = {strong}\n");
        let fixture = Fixture::with_policy(&policy);
        let content = TestRng(size).bytes(size as usize);
        fixture.write("file", &content);
        fixture.protect_all();
        let whole = std::fs::read(fixture.redundancy("file")).unwrap();
        // Frames of some stripes in both columns; headers are intact.
        let column = (whole.len() - 2 * HEADER as usize) / 2;
        let spoil = || {
            for start in [HEADER, HEADER + column as u64] {
                rot(&fixture.redundancy("file"), start, &vec![0xee; 20_000.min(column)]);
            }
        };
        spoil();
        assert_eq!(fixture.state("file"), State::Damaged, "{size} bytes, strong: {strong}");
        let done = fixture.repair("file");
        assert_eq!((done.state, done.data_blocks), (State::Protected, 0));
        assert!(done.redundancy_blocks > 0 && fixture.read("file") == content);
        assert_eq!(std::fs::read(fixture.redundancy("file")).unwrap(), whole);
        fixture.assert_clean();
        // With one byte of that data damaged as well, nothing confirms it.
        spoil();
        flip(&fixture.path("file"), 100);
        assert_eq!(fixture.state("file"), State::Lost);
    }
}

/// Regression: a write of redundancy was lost, so frames of the earlier version remained. They are intact and agree
/// with each other, and contradict newer, correct data, which a repair reverted.
#[test]
fn stale_frames_do_not_revert_newer_data() {
    for (seed, rotten) in (0..24).map(|seed| (seed, seed % 2 == 1)) {
        let mut rng = TestRng(seed);
        let fixture = Fixture::new("4+2");
        let stripes = 2 + rng.below(6);
        let mut content = content(&mut rng, stripes);
        fixture.write("file", &content);
        fixture.protect_all();
        let older = std::fs::read(fixture.redundancy("file")).unwrap();
        let block = cut_block(&content, stripes);
        let frame = block + 16 * 6;
        // Some stripes change, and some of their frames are lost.
        let changed: Vec<u64> = (0..stripes).filter(|_| rng.below(2) == 0).chain([0]).collect();
        for stripe in &changed {
            let at = (rng.below(4) * block * stripes + stripe * block + rng.below(block)) as usize;
            let at = at.min(content.len() - 1);
            content[at] ^= 0x55;
        }
        fixture.write("file", &content);
        assert_eq!(fixture.protect_all().done.encoded, 1);
        let newer = std::fs::read(fixture.redundancy("file")).unwrap();
        assert_eq!(newer.len(), older.len());
        let mut lost: Vec<u64> = changed.iter().copied().filter(|_| rng.below(2) == 0).collect();
        lost.push(changed[0]);
        for stripe in lost {
            for column in 0..2 {
                let at = HEADER + (column * stripes + stripe) * frame;
                rot(&fixture.redundancy("file"), at, &older[at as usize..][..frame as usize]);
            }
        }
        // Real damage of data in an unchanged stripe is distinguished.
        let intact = (0..stripes).find(|stripe| !changed.contains(stripe));
        if let (true, Some(stripe)) = (rotten, intact) {
            flip(&fixture.path("file"), stripe * block + 3);
        }
        let done = fixture.repair("file");
        assert_eq!(fixture.read("file"), content, "seed {seed}: {done:?}");
        assert_eq!(std::fs::read(fixture.redundancy("file")).unwrap(), newer, "seed {seed}: {done:?}");
        assert_eq!(done.state, State::Protected, "seed {seed}: {done:?}");
        fixture.assert_clean();
    }
}

/// As above, but with damaged data in the same stripe: it is undecidable which is correct, and the file is not changed.
#[test]
fn ambiguous_stale_frames_change_nothing() {
    let fixture = Fixture::new("4+2");
    let mut content = content(&mut TestRng(5), 3);
    fixture.write("file", &content);
    fixture.protect_all();
    let older = std::fs::read(fixture.redundancy("file")).unwrap();
    content[7] ^= 1;
    fixture.write("file", &content);
    fixture.protect_all();
    let frame = cut_block(&content, 3) as usize + 16 * 6;
    for at in [HEADER as usize, HEADER as usize + 3 * frame] {
        rot(&fixture.redundancy("file"), at as u64, &older[at..][..frame]);
    }
    flip(&fixture.path("file"), 9);
    let before = fixture.read("file");
    assert_eq!(fixture.state("file"), State::Damaged);
    let done = fixture.repair("file");
    assert_eq!((done.state, done.data_blocks), (State::Damaged, 0));
    assert!(done.notes.iter().any(|note| note.contains("left alone")), "{done:?}");
    assert_eq!(fixture.read("file"), before);
}

/// Regression: as long as no file had been scrubbed, any share selected all files, since all had the same time.
#[test]
fn a_scrub_by_share_takes_the_oldest_first() {
    let fixture = Fixture::new("4+2");
    for number in 0..30 {
        fixture.write(&format!("{number:02}"), &TestRng(number + 1).bytes(3000));
    }
    fixture.protect_all();
    let vault = &fixture.vault;
    let options =
        scrub::Options { selection: scrub::Selection::Percent(10), from_medium: false, resume: true };
    for run in 1..=10 {
        let report = scrub::scrub(vault, b"", options, QUIET).unwrap();
        assert_eq!((report.files, report.stopped), (3, false), "run {run}");
    }
    let mut never = 0;
    let count = |page: Vec<(Vec<u8>, Entry)>| -> Result<(), CatalogueError> {
        never += page.iter().filter(|(_, entry)| entry.scrubbed_at.is_none()).count();
        Ok(())
    };
    vault.catalogue.each_page(b"", count).unwrap();
    assert_eq!(never, 0, "after ten tenths everything was scrubbed");
}

/// Regression: extended attributes were queried with an empty buffer and always seemed absent, so restored files lost
/// their access control lists.
#[test]
fn attributes_and_access_control_lists_come_back() {
    let fixture = Fixture::new("1+2");
    let content = TestRng(8).bytes(20_000);
    ["restored", "bare"].iter().for_each(|name| fixture.write(name, &content));
    let path = fixture.path("restored");
    // Version 2; user::rw-, user:4242:r--, group::r--, mask::r--, other::---.
    let entries =
        [(1u16, 6u16, u32::MAX), (2, 4, 4242), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let entry = |&(tag, rights, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat();
    let attributes: [(&str, &[u8]); 4] = [
        ("user.note", b"of somebody"),
        ("user.empty", b""),
        ("user.large", &[7; 2000]),
        ("system.posix_acl_access", &list),
    ];
    for (name, value) in attributes {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    fixture.protect_all();
    std::fs::remove_file(&path).unwrap();
    let done = fixture.repair("restored");
    assert_eq!((done.state, done.notes.len()), (State::Protected, 0), "{done:?}");
    assert!(fixture.read("restored") == content);
    for (name, value) in attributes {
        let mut found = vec![0; 4096];
        let bytes = rustix::fs::getxattr(&path, name, &mut found[..]).unwrap();
        assert!(found[..bytes] == *value, "{name}");
    }
    // A changed attribute alone is a change.
    rustix::fs::setxattr(fixture.path("bare"), "user.note", b"late", rustix::fs::XattrFlags::empty())
        .unwrap();
    let report = fixture.protect_all();
    assert_eq!((report.done.encoded, report.done.stripes.0), (1, 0));
    std::fs::remove_file(fixture.path("bare")).unwrap();
    fixture.repair("bare");
    let mut found = [0; 16];
    assert_eq!(rustix::fs::getxattr(fixture.path("bare"), "user.note", &mut found[..]).unwrap(), 4);
}
