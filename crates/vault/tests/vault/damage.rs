//! Damage of every kind: found, located, repaired; beyond that, named and not made worse.

use super::playground::{Playground, QUIET, Seed, flip, rot};
use gabion_vault::catalogue::{CatalogueError, Entry, Piece, State};
use gabion_vault::{repair, scrub};

const BLOCK: u64 = 4096;

/// Bytes of the header of a redundancy file without attributes. One section of frames per column follows.
const HEADER: u64 = 256;

/// A file of several segments' worth would be large; with blocks of 4 KiB, columns have 4096 rows. Some stripes are enough.
fn content(seed: &mut Seed, stripes: u64) -> Vec<u8> {
    seed.bytes((4 * BLOCK * stripes) as usize - 100)
}

#[test]
fn one_flipped_bit_is_found_located_and_repaired() {
    let ground = Playground::new("4+2");
    let content = content(&mut Seed(1), 3);
    ground.write("a/file", &content);
    ground.protect_all();
    ground.assert_clean();
    flip(&ground.path("a/file"), 30_000);
    let report = ground.scrub();
    let [trouble] = &report.trouble[..] else { panic!("{report:?}") };
    assert_eq!((trouble.path.as_slice(), trouble.state), (&b"a/file"[..], State::Damaged));
    assert!(!trouble.changed);
    let [problem] = &trouble.problems[..] else { panic!("{trouble:?}") };
    assert_eq!(problem.piece, Piece::Data);
    assert!(problem.range.contains(&30_000) && problem.range.end - problem.range.start <= BLOCK);
    let done = ground.repair("a/file");
    assert_eq!((done.state, done.data_blocks, done.redundancy_blocks), (State::Protected, 1, 0));
    assert_eq!(ground.read("a/file"), content);
    ground.assert_clean();
    // What it replaced is not lost.
    let replaced = std::fs::read(done.replaced.unwrap()).unwrap();
    assert_eq!(replaced[30_000], !content[30_000]);
    // The repair is no change to protect again.
    assert!(ground.protect_all().seen.changes.is_empty());
}

#[test]
fn up_to_m_bad_blocks_of_every_stripe_are_repaired_wherever_they_are() {
    for seed in 0..60 {
        let mut chance = Seed(seed);
        let ground = Playground::new("4+2");
        let stripes = 1 + chance.below(6);
        let content = content(&mut chance, stripes);
        ground.write("file", &content);
        ground.protect_all();
        let pristine = std::fs::read(ground.redundancy("file")).unwrap();
        let (path, redundancy) = (ground.path("file"), ground.redundancy("file"));
        let block = cut_block(&content, stripes);
        let column = block * stripes;
        for stripe in 0..stripes {
            let mut columns: Vec<u64> = (0..6).collect();
            for _ in 0..chance.below(3) {
                let hit = columns.swap_remove(chance.below(columns.len() as u64) as usize);
                let within = chance.below(block);
                if hit < 4 {
                    let offset = hit * column + stripe * block + within;
                    flip(&path, offset.min(content.len() as u64 - 1));
                } else {
                    // Anywhere in the frame: block, table or check.
                    let frame = block + 16 * 6;
                    let within = chance.below(frame);
                    flip(&redundancy, HEADER + ((hit - 4) * stripes + stripe) * frame + within);
                }
            }
        }
        // One of the two headers as well.
        if chance.below(2) == 0 {
            let header = if chance.below(2) == 0 { 0 } else { pristine.len() as u64 - HEADER };
            flip(&redundancy, header + chance.below(HEADER));
        }
        let done = ground.repair("file");
        assert_eq!(done.state, State::Protected, "seed {seed}: {done:?}");
        assert_eq!(ground.read("file"), content, "seed {seed}");
        assert_eq!(std::fs::read(&redundancy).unwrap(), pristine, "seed {seed}");
        ground.assert_clean();
    }
}

/// Bytes of a block of the only segment.
fn cut_block(content: &[u8], stripes: u64) -> u64 {
    (content.len() as u64).div_ceil(4 * stripes).next_multiple_of(64)
}

#[test]
fn beyond_m_the_loss_is_named_and_nothing_made_worse() {
    let ground = Playground::new("4+2");
    let content = content(&mut Seed(7), 4);
    ground.write("file", &content);
    ground.protect_all();
    let column = cut_block(&content, 4) * 4;
    // Three columns of stripe 0, one of stripe 2.
    for hit in 0..3 {
        flip(&ground.path("file"), hit * column + 5);
    }
    flip(&ground.path("file"), 2 * cut_block(&content, 4) + 9);
    let damaged = ground.read("file");
    let report = ground.scrub();
    let [trouble] = &report.trouble[..] else { panic!("{report:?}") };
    assert_eq!(trouble.state, State::Lost);
    let lost: Vec<_> = trouble.problems.iter().filter(|problem| problem.piece == Piece::Lost).collect();
    assert_eq!(lost.len(), 3, "{trouble:?}");
    let done = ground.repair("file");
    assert_eq!((done.state, done.data_blocks), (State::Lost, 1));
    assert_eq!(done.lost.len(), 3);
    let after = ground.read("file");
    // What could be repaired was; what could not is as it was found, not zeros.
    for (at, (&now, &was)) in after.iter().zip(&content).enumerate() {
        let lost = done.lost.iter().any(|range| range.contains(&(at as u64)));
        assert_eq!(now, if lost { damaged[at] } else { was }, "byte {at}");
    }
    assert_eq!(ground.state("file"), State::Lost);
}

#[test]
fn a_fifth_of_a_file_comes_back_wherever_it_was_overwritten_whatever_the_size() {
    let ground = Playground::with_policy("[default]\ncode = \"8+2\"\n");
    let mut chance = Seed(11);
    let contents: Vec<_> = [100_000, 300_001, 1 << 20, 3_000_000].map(|size| chance.bytes(size)).into();
    for (number, content) in contents.iter().enumerate() {
        ground.write(&number.to_string(), content);
    }
    ground.protect_all();
    for _ in 0..20 {
        for (number, content) in contents.iter().enumerate() {
            let name = number.to_string();
            let piece = vec![0x55; content.len() / 5];
            let start = chance.below((content.len() - piece.len()) as u64);
            rot(&ground.path(&name), start, &piece);
            let done = ground.repair(&name);
            assert_eq!(done.state, State::Protected, "{} bytes from {start}: {done:?}", content.len());
            assert_eq!(&ground.read(&name), content);
        }
    }
    ground.assert_clean();
}

#[test]
fn overwritten_truncated_and_extended_files_come_back() {
    let ground = Playground::new("4+2");
    let mut chance = Seed(3);
    let content = content(&mut chance, 40);
    let third = content.len() / 3;
    type Hurt = fn(&mut Vec<u8>, usize);
    let hurts: [(&str, Hurt); 4] = [
        ("overwritten", |bytes, third| bytes[third..2 * third].fill(0x55)),
        ("cut", |bytes, third| bytes.truncate(2 * third)),
        ("grown", |bytes, _| bytes.extend(b"more and more")),
        ("emptied", |bytes, third| bytes.drain(..third).for_each(drop)),
    ];
    for (name, _) in &hurts {
        ground.write(name, &content);
    }
    ground.protect_all();
    for (name, hurt) in &hurts {
        let mut bytes = content.clone();
        hurt(&mut bytes, third);
        ground.write(name, &bytes);
    }
    let found = ground.scrub().trouble;
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|trouble| trouble.changed));
    for name in ["overwritten", "cut", "grown"] {
        let done = ground.repair(name);
        assert_eq!(done.state, State::Protected, "{done:?}");
        assert!(ground.read(name) == content, "{name}");
        if name == "grown" {
            // What was behind the end is not lost.
            assert!(std::fs::read(done.replaced.unwrap()).unwrap().ends_with(b"more and more"));
        }
    }
    // Everything moved: there is nothing to repair from, and it is left alone.
    let before = ground.read("emptied");
    assert_eq!(ground.repair("emptied").state, State::Lost);
    assert!(ground.read("emptied")[..before.len()] == before[..]);
}

#[test]
fn a_file_that_is_gone_comes_back_where_redundancy_suffices() {
    for (code, comes_back) in [("2+2", true), ("1+1", true), ("4+2", false)] {
        let ground = Playground::new(code);
        let content = Seed(5).bytes(50_000);
        ground.write("deep/er/file", &content);
        ground.protect_all();
        std::fs::remove_dir_all(ground.path("deep")).unwrap();
        let done = ground.repair("deep/er/file");
        assert_eq!(done.state == State::Protected, comes_back, "{code}");
        assert_eq!(ground.path("deep/er/file").exists(), comes_back);
        if comes_back {
            assert!(ground.read("deep/er/file") == content);
        }
    }
}

/// The second repair of a file within a second wrote over what the first had kept.
#[test]
fn what_repairs_replace_is_kept_however_soon_they_follow() {
    let ground = Playground::new("4+2");
    ground.write("file", &content(&mut Seed(6), 3));
    ground.protect_all();
    let kept: Vec<_> = [b"one", b"two"]
        .map(|work| {
            rot(&ground.path("file"), 30_000, work);
            ground.repair("file").replaced.unwrap()
        })
        .into();
    let held = |path| std::fs::read(path).unwrap()[30_000..30_003].to_vec();
    assert_eq!(kept.iter().map(held).collect::<Vec<_>>(), [b"one", b"two"]);
}

/// Of a file with two names one was repaired, and the other was called damaged although nothing was left to repair.
#[test]
fn what_was_mended_by_another_name_is_no_longer_called_damaged() {
    let ground = Playground::new("4+2");
    ground.write("a", &content(&mut Seed(5), 3));
    std::fs::hard_link(ground.path("a"), ground.path("b")).unwrap();
    ground.protect_all();
    flip(&ground.path("a"), 30_000);
    assert_eq!(ground.scrub().trouble.len(), 2);
    assert_eq!(ground.repair("a").state, State::Protected);
    let entry = || ground.vault.catalogue.find(b"b").unwrap().unwrap();
    assert_eq!((entry().state, entry().columns), (State::Damaged, 1));
    let plan = repair::plan(&ground.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    assert_eq!((entry().state, entry().columns), (State::Protected, 2));
    assert_eq!(ground.vault.catalogue.problems(b"b").unwrap(), []);
}

#[test]
fn times_links_and_holes_survive_a_repair() {
    let ground = Playground::new("4+2");
    let mut content = vec![0; 4 << 20];
    content[3 << 20..][..10_000].copy_from_slice(&Seed(1).bytes(10_000));
    let file = std::fs::File::create(ground.path("sparse")).unwrap();
    file.set_len(content.len() as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &content[3 << 20..][..10_000], 3 << 20).unwrap();
    std::fs::hard_link(ground.path("sparse"), ground.path("other name")).unwrap();
    let allocated =
        || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(ground.path("sparse")).unwrap());
    let (before, time) = (allocated(), file.metadata().unwrap().modified().unwrap());
    ground.protect_all();
    rot(&ground.path("sparse"), 1 << 20, &[7; 300_000]);
    assert!(allocated() > before);
    assert_eq!(ground.repair("sparse").state, State::Protected);
    assert!(ground.read("sparse") == content);
    assert_eq!(allocated(), before, "holes were filled");
    let metadata = std::fs::metadata(ground.path("sparse")).unwrap();
    assert_eq!(metadata.modified().unwrap(), time);
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&metadata), 2);
    assert!(ground.read("other name") == content);
    ground.assert_clean();
}

#[test]
fn stale_and_foreign_redundancy_is_not_believed() {
    let ground = Playground::new("4+2");
    let (old, new) = (Seed(1).bytes(60_000), Seed(2).bytes(60_000));
    ground.write("file", &old);
    ground.write("other", &new);
    ground.protect_all();
    let before = std::fs::read(ground.redundancy("file")).unwrap();
    ground.write("file", &new);
    ground.protect_all();
    let after = std::fs::read(ground.redundancy("file")).unwrap();
    // A write of one frame was lost: it is the one that was there before.
    let block = 60_000u64.div_ceil(4 * 4).next_multiple_of(64) as usize;
    let frame = block + 16 * 6;
    rot(&ground.redundancy("file"), HEADER, &before[HEADER as usize..][..frame]);
    assert_eq!(ground.state("file"), State::Damaged);
    assert_eq!(ground.repair("file").state, State::Protected);
    assert!(std::fs::read(ground.redundancy("file")).unwrap() == after);
    // Another file's redundancy in its place says so by what it protects.
    std::fs::copy(ground.redundancy("other"), ground.redundancy("file")).unwrap();
    ground.assert_clean();
    ground.write("file", &old);
    assert_eq!(
        ground.state("file"),
        State::Damaged,
        "somebody wrote to it: it has the content that its owner gave it"
    );
}

/// All frames of a stripe are spoilt, blocks and tables. The header's sum still vouches for the data, which nothing happened to.
#[test]
fn data_that_no_frame_speaks_of_is_vouched_for_by_the_header() {
    for (size, strong) in [(3000, false), (200_000, false), (200_000, true)] {
        let policy = format!("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nstrong = {strong}\n");
        let ground = Playground::with_policy(&policy);
        let content = Seed(size).bytes(size as usize);
        ground.write("file", &content);
        ground.protect_all();
        let whole = std::fs::read(ground.redundancy("file")).unwrap();
        // The frames of some stripes in both columns, headers left alone.
        let column = (whole.len() - 2 * HEADER as usize) / 2;
        let spoil = || {
            for start in [HEADER, HEADER + column as u64] {
                rot(&ground.redundancy("file"), start, &vec![0xee; 20_000.min(column)]);
            }
        };
        spoil();
        assert_eq!(ground.state("file"), State::Damaged, "{size} bytes, strong: {strong}");
        let done = ground.repair("file");
        assert_eq!((done.state, done.data_blocks), (State::Protected, 0));
        assert!(done.redundancy_blocks > 0 && ground.read("file") == content);
        assert_eq!(std::fs::read(ground.redundancy("file")).unwrap(), whole);
        ground.assert_clean();
        // With a byte of that data gone as well, nothing vouches for it.
        spoil();
        flip(&ground.path("file"), 100);
        assert_eq!(ground.state("file"), State::Lost);
    }
}

/// Frames of the version before lie where those of this one should: a write of redundancy was lost. They are whole and agree with
/// each other; the data that they call wrong is newer and right, and a repair took it back to what it was.
#[test]
fn older_frames_do_not_take_newer_data_back() {
    for (seed, rotten) in (0..24).map(|seed| (seed, seed % 2 == 1)) {
        let mut chance = Seed(seed);
        let ground = Playground::new("4+2");
        let stripes = 2 + chance.below(6);
        let mut content = content(&mut chance, stripes);
        ground.write("file", &content);
        ground.protect_all();
        let older = std::fs::read(ground.redundancy("file")).unwrap();
        let block = cut_block(&content, stripes);
        let frame = block + 16 * 6;
        // Changed in some stripes, whose frames are then lost in part of them.
        let changed: Vec<u64> = (0..stripes).filter(|_| chance.below(2) == 0).chain([0]).collect();
        for stripe in &changed {
            let at = (chance.below(4) * block * stripes + stripe * block + chance.below(block)) as usize;
            let at = at.min(content.len() - 1);
            content[at] ^= 0x55;
        }
        ground.write("file", &content);
        assert_eq!(ground.protect_all().done.encoded, 1);
        let newer = std::fs::read(ground.redundancy("file")).unwrap();
        assert_eq!(newer.len(), older.len());
        let mut lost: Vec<u64> = changed.iter().copied().filter(|_| chance.below(2) == 0).collect();
        lost.push(changed[0]);
        for stripe in lost {
            for column in 0..2 {
                let at = HEADER + (column * stripes + stripe) * frame;
                rot(&ground.redundancy("file"), at, &older[at as usize..][..frame as usize]);
            }
        }
        // A block of data that is really bad, in a stripe that was not changed, is told apart.
        let intact = (0..stripes).find(|stripe| !changed.contains(stripe));
        if let (true, Some(stripe)) = (rotten, intact) {
            flip(&ground.path("file"), stripe * block + 3);
        }
        let done = ground.repair("file");
        assert_eq!(ground.read("file"), content, "seed {seed}: {done:?}");
        assert_eq!(std::fs::read(ground.redundancy("file")).unwrap(), newer, "seed {seed}: {done:?}");
        assert_eq!(done.state, State::Protected, "seed {seed}: {done:?}");
        ground.assert_clean();
    }
}

/// As before, but data of the very stripe is bad as well: which is right cannot be told, and nothing of the file is touched.
#[test]
fn what_cannot_be_told_from_older_frames_is_left_alone() {
    let ground = Playground::new("4+2");
    let mut content = content(&mut Seed(5), 3);
    ground.write("file", &content);
    ground.protect_all();
    let older = std::fs::read(ground.redundancy("file")).unwrap();
    content[7] ^= 1;
    ground.write("file", &content);
    ground.protect_all();
    let frame = cut_block(&content, 3) as usize + 16 * 6;
    for at in [HEADER as usize, HEADER as usize + 3 * frame] {
        rot(&ground.redundancy("file"), at as u64, &older[at..][..frame]);
    }
    flip(&ground.path("file"), 9);
    let before = ground.read("file");
    assert_eq!(ground.state("file"), State::Damaged);
    let done = ground.repair("file");
    assert_eq!((done.state, done.data_blocks), (State::Damaged, 0));
    assert!(done.notes.iter().any(|note| note.contains("left alone")), "{done:?}");
    assert_eq!(ground.read("file"), before);
}

/// A share was all there is as long as no file had ever been scrubbed: they all have the same time, namely none.
#[test]
fn a_share_is_a_share_and_the_oldest_come_first() {
    let ground = Playground::new("4+2");
    for number in 0..30 {
        ground.write(&format!("{number:02}"), &Seed(number + 1).bytes(3000));
    }
    ground.protect_all();
    let vault = &ground.vault;
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

/// Attributes were asked for with an empty buffer, which the answer was then taken to fill: no file had any, and what was restored
/// had lost its access control list.
#[test]
fn attributes_and_access_control_lists_come_back() {
    let ground = Playground::new("1+2");
    let content = Seed(8).bytes(20_000);
    ["restored", "bare"].iter().for_each(|name| ground.write(name, &content));
    let path = ground.path("restored");
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
    ground.protect_all();
    std::fs::remove_file(&path).unwrap();
    let done = ground.repair("restored");
    assert_eq!((done.state, done.notes.len()), (State::Protected, 0), "{done:?}");
    assert!(ground.read("restored") == content);
    for (name, value) in attributes {
        let mut found = vec![0; 4096];
        let bytes = rustix::fs::getxattr(&path, name, &mut found[..]).unwrap();
        assert!(found[..bytes] == *value, "{name}");
    }
    // An attribute alone is a change, too.
    rustix::fs::setxattr(ground.path("bare"), "user.note", b"late", rustix::fs::XattrFlags::empty()).unwrap();
    let report = ground.protect_all();
    assert_eq!((report.done.encoded, report.done.stripes.0), (1, 0));
    std::fs::remove_file(ground.path("bare")).unwrap();
    ground.repair("bare");
    let mut found = [0; 16];
    assert_eq!(rustix::fs::getxattr(ground.path("bare"), "user.note", &mut found[..]).unwrap(), 4);
}
