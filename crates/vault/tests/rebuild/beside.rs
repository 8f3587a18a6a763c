//! Programs use the files of a pool while those are rebuilt and repaired.

use super::playground::{Ground, QUIET, Seed};
use gabion_vault::coder::Coders;
use gabion_vault::format::Metadata;
use gabion_vault::live::{Found, Live, LiveFile};
use gabion_vault::pool_rebuild::{Options, Report, rebuild};
use gabion_vault::repair::repair;
use gabion_vault::run::RunContext;
use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

fn start(ground: &Ground) -> Live {
    Live::start(ground.pool.clone(), Coders::new().unwrap()).unwrap()
}

fn open(live: &Live, name: &str) -> LiveFile {
    match live.find(name.as_bytes()).unwrap() {
        Some(Found::File(stub)) => live.open(*stub),
        other => panic!("{name}: {other:?}"),
    }
}

fn write(file: &LiveFile, name: &str, offset: u64, bytes: &[u8]) {
    let names = || vec![name.as_bytes().to_vec()];
    file.write(&names, offset, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn close(file: &LiveFile, name: &str) {
    let names = || vec![name.as_bytes().to_vec()];
    assert!(file.close(&names).unwrap().is_none(), "{name} has its name");
}

/// A pool with equal files, the first of which has data on the target of the number that is given as well.
fn equal_files(count: usize, bytes: usize) -> (Ground, Vec<String>, usize) {
    let mut ground = Ground::new(&[None; 8], 3, 2);
    let names: Vec<String> = (0..count).map(|number| format!("file {number}")).collect();
    for (seed, name) in names.iter().enumerate() {
        ground.put(name, &Seed(seed as u64 + 40).bytes(bytes));
    }
    ground.protect();
    // The vault is on the first one.
    let number = (2..=8).find(|number| ground.data(&names[0]).contains(&format!("d{number}")));
    (ground, names, number.unwrap())
}

/// Rebuilds, and does something when it asks for the n-th time whether it shall stop: between two stripes, or two files; at the end if it asks less often.
fn rebuild_and_at(ground: &Ground, nth: usize, act: &(dyn Fn() + Sync)) -> Report {
    let asked = AtomicUsize::new(0);
    let stopped = || {
        if asked.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            act();
        }
        false
    };
    let _lock = ground.vault.lock("test").unwrap();
    let report =
        rebuild(&ground.vault, &Options::default(), RunContext { stopped: &stopped, ..QUIET }).unwrap();
    if asked.load(Ordering::SeqCst) < nth {
        act();
    }
    report
}

/// A file that a program has open learns where its columns went before it writes to them.
#[test]
fn what_is_written_to_open_files_goes_where_their_columns_went() {
    for retired in [false, true] {
        let (mut ground, names, number) = equal_files(8, 100_000);
        let live = start(&ground);
        let files: Vec<LiveFile> = names.iter().map(|name| open(&live, name)).collect();
        match retired {
            true => ground.pool.retire(&format!("d{number}")).unwrap(),
            false => ground.lose(number),
        }
        ground.rebuild_all("before anything is written");
        for (name, file) in names.iter().zip(&files) {
            let written = Seed(number as u64).bytes(50_000);
            write(file, name, 10_000, &written);
            close(file, name);
            ground.files.get_mut(name).unwrap()[10_000..60_000].copy_from_slice(&written);
        }
        drop(live);
        ground.assert_right("what was written is there");
        ground.protect();
        ground.assert_whole("after all of it");
    }
}

/// A file that was never protected is read where its columns went, too: nothing could be made again.
#[test]
fn open_files_are_read_where_their_columns_went() {
    for protected in [false, true] {
        let mut ground = Ground::new(&[None; 8], 3, 2);
        ground.put("file", &Seed(6).bytes(100_000));
        if protected {
            ground.protect();
        }
        let live = start(&ground);
        let file = open(&live, "file");
        let number = (2..=8).find(|number| ground.data("file").contains(&format!("d{number}"))).unwrap();
        ground.pool.retire(&format!("d{number}")).unwrap();
        ground.rebuild_all("it is moved");
        let mut found = vec![0; 100_000];
        let names = || vec![b"file".to_vec()];
        assert_eq!(file.read(&names, 0, &mut found, true).unwrap(), 100_000, "protected: {protected}");
        assert!(found == ground.files["file"]);
        assert!(!file.stub().targets.contains(&format!("d{number}")));
        close(&file, "file");
    }
}

/// Columns of a file that is being written stay where they are: what is written goes there.
#[test]
fn files_that_are_being_written_are_rebuilt_when_they_rest() {
    let (mut ground, names, number) = equal_files(1, 100_000);
    let name = &names[0];
    let live = start(&ground);
    let file = open(&live, name);
    let mut content = ground.files[name].clone();
    write(&file, name, 0, &[1; 30_000]);
    ground.pool.retire(&format!("d{number}")).unwrap();
    let report = ground.rebuild();
    assert!(!report.is_whole() && !report.has_losses(), "{report:?}");
    assert!(report.failed[0].1.to_string().contains("written"), "{report:?}");
    write(&file, name, 30_000, &[2; 30_000]);
    close(&file, name);
    content[..30_000].fill(1);
    content[30_000..60_000].fill(2);
    ground.files.insert(name.clone(), content);
    ground.rebuild_all("it rests");
    ground.assert_right("it rests");
    assert!(!ground.on(number).contains(name));
    drop(live);
    ground.protect();
    ground.assert_whole("protected again");
}

/// A program begins to write at any moment of a rebuild.
#[test]
fn writers_may_come_at_any_moment_of_a_rebuild() {
    for retired in [false, true] {
        for nth in [1, 2, 3, 5, 8] {
            let told = format!("retired: {retired}, moment {nth}");
            let (mut ground, names, number) = equal_files(3, 50_000);
            let live = start(&ground);
            let files: Vec<LiveFile> = names.iter().map(|name| open(&live, name)).collect();
            match retired {
                true => ground.pool.retire(&format!("d{number}")).unwrap(),
                false => ground.lose(number),
            }
            rebuild_and_at(&ground, nth, &|| {
                names.iter().zip(&files).for_each(|(name, file)| write(file, name, 5_000, &[1; 20_000]));
            });
            for (name, file) in names.iter().zip(&files) {
                write(file, name, 25_000, &[2; 20_000]);
                close(file, name);
                let content = ground.files.get_mut(name).unwrap();
                content[5_000..25_000].fill(1);
                content[25_000..45_000].fill(2);
            }
            drop(live);
            ground.assert_right(&told);
            ground.protect();
            ground.rebuild_all(&told);
            ground.assert_whole(&told);
        }
    }
}

/// A file that gets another name while it is rebuilt is not taken for one that was removed.
#[test]
fn files_that_get_another_name_meanwhile_are_named() {
    for removed in [false, true] {
        let (mut ground, names, number) = equal_files(1, 100_000);
        ground.lose(number);
        let pool = ground.pool.clone();
        let report = rebuild_and_at(&ground, 3, &|| {
            match removed {
                true => pool.remove(names[0].as_bytes()),
                false => pool.rename(names[0].as_bytes(), b"elsewhere"),
            }
            .unwrap();
        });
        assert_eq!(report.is_whole(), removed, "{report:?}");
        assert!(!report.has_losses());
        let told = report.failed.first().map(|(_, why)| why.to_string());
        assert_eq!(told.is_some_and(|told| told.contains("elsewhere")), !removed, "{report:?}");
    }
}

/// A target that is retired while a file is put on it gets nothing any more: who empties it then finds all there is.
#[test]
fn nothing_appears_on_a_target_that_was_retired_meanwhile() {
    struct Retiring<'a>(&'a Ground, std::io::Cursor<Vec<u8>>);
    impl std::io::Read for Retiring<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.1.position() == 0 {
                ["d2", "d3"].iter().for_each(|target| self.0.pool.retire(target).unwrap());
            }
            self.1.read(buffer)
        }
    }
    let mut refused = 0;
    for _ in 0..12 {
        let ground = Ground::new(&[None; 5], 3, 2);
        // Nine of ten choices of three targets have one of the two.
        let mut content = Retiring(&ground, std::io::Cursor::new(vec![7; 50_000]));
        if let Err(error) = ground.pool.put(b"file", &mut content, &Metadata::default(), 5) {
            assert!(error.to_string().contains("left service"), "{error}");
            assert!(ground.pool.stub(b"file").is_err());
            refused += 1;
        }
        ground.pool.put(b"again", &mut &[7; 50_000][..], &Metadata::default(), 5).unwrap();
        let mut files = vec![ground.pool.stub(b"again").unwrap()];
        files.extend(ground.pool.stub(b"file"));
        assert!(files.iter().all(|stub| stub.targets.iter().all(|name| name != "d2" && name != "d3")));
        assert!(ground.pool.sweep(false).unwrap().orphans.is_empty());
    }
    assert!(refused > 0);
}

/// A target that answers again in the midst of a rebuild gets a column that it has already: one of them stays.
#[test]
fn a_column_made_anew_in_its_own_place_stays() {
    for lost in [[2, 3], [4, 5], [3, 6]] {
        let mut ground = Ground::new(&[None; 6], 3, 2);
        for seed in 0..12 {
            ground.put(&format!("file {seed}"), &Seed(seed).bytes(30_000));
        }
        ground.protect();
        lost.iter().for_each(|&number| ground.lose(number));
        let (away, there) = (ground.dir.path().join(format!("away{}", lost[1])), ground.target(lost[1]));
        let asked = AtomicUsize::new(0);
        let stopped = || {
            if asked.fetch_add(1, Ordering::SeqCst) == 1 {
                fs::rename(&away, &there).unwrap();
            }
            false
        };
        let only = Options { targets: vec![format!("d{}", lost[0])], agreed: None };
        let lock = ground.vault.lock("test").unwrap();
        rebuild(&ground.vault, &only, RunContext { stopped: &stopped, ..QUIET }).unwrap();
        drop(lock);
        ground.open();
        ground.assert_right("some columns were made in their own places");
        for name in ground.files.keys() {
            for (column, target) in ground.pool.stub(name.as_bytes()).unwrap().targets.iter().enumerate() {
                let object = ground.object(name, column);
                assert!(
                    *target == format!("d{}", lost[0]) || object.exists(),
                    "{name}: {}",
                    object.display()
                );
            }
        }
    }
}

/// What someone writes to a file while it is examined is no damage.
#[test]
fn repair_leaves_alone_what_was_written_since_it_looked() {
    for missing in [false, true] {
        let (mut ground, names, _) = equal_files(1, 100_000);
        let name = &names[0];
        if missing {
            fs::remove_file(ground.object(name, 0)).unwrap();
        }
        let live = start(&ground);
        let file = open(&live, name);
        let asked = AtomicUsize::new(0);
        let stopped = || {
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                // One block of a stripe, which redundancy could bring back.
                write(&file, name, 4 * 4096, &[9; 4096]);
                close(&file, name);
            }
            false
        };
        let lock = ground.vault.lock("test").unwrap();
        let done = repair(&ground.vault, name.as_bytes(), RunContext { stopped: &stopped, ..QUIET });
        drop(lock);
        assert!(asked.load(Ordering::SeqCst) > 0, "it was never written");
        ground.files.get_mut(name).unwrap()[4 * 4096..5 * 4096].fill(9);
        ground.assert_right(&format!("missing: {missing}: {done:?}"));
        drop(live);
        ground.protect();
        ground.assert_whole("protected again");
    }
}

/// Writers and repairs of a file begin at the same time. Whoever is first, what was written is there.
#[test]
fn writers_and_repairs_do_not_undo_each_other() {
    let (mut ground, names, _) = equal_files(1, 60_000);
    let name = &names[0];
    let live = start(&ground);
    let mut chance = Seed(3);
    let (mut repaired, mut refused) = (0, 0);
    for round in 0..25u8 {
        let told = format!("round {round}");
        let column = chance.below(3) as usize;
        fs::remove_file(ground.object(name, column)).unwrap();
        let file = open(&live, name);
        let (spins, barrier) = (chance.below(400_000), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                (0..spins).for_each(|_| std::hint::spin_loop());
                write(&file, name, 0, &[round; 60_000]);
                close(&file, name);
            });
            let _lock = ground.vault.lock("test").unwrap();
            barrier.wait();
            match repair(&ground.vault, name.as_bytes(), QUIET) {
                Ok(_) => repaired += 1,
                Err(_) => refused += 1,
            }
        });
        ground.files.insert(name.clone(), vec![round; 60_000]);
        ground.assert_right(&told);
        ground.protect();
        assert!(ground.scrub().damage.is_empty(), "{told}");
    }
    println!("{repaired} were repaired, {refused} were refused");
    ground.pool.sweep(true).unwrap();
    ground.assert_whole("at the end");
}
