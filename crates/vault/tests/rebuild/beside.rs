//! Rebuild and repair while programs use the files of a pool.

use super::fixture::{Fixture, QUIET, Seed};
use gabion_vault::coder::Coders;
use gabion_vault::format::Metadata;
use gabion_vault::live::{Live, LiveEntry, LiveFile};
use gabion_vault::pool_rebuild::{RebuildOptions, RebuildReport, rebuild};
use gabion_vault::repair::repair;
use gabion_vault::run::RunContext;
use gabion_vault::world::Timestamp;
use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

fn start(fixture: &Fixture) -> Live {
    Live::start(fixture.pool.clone(), Coders::new().unwrap()).unwrap()
}

fn open(live: &Live, name: &str) -> LiveFile {
    match live.find(name.as_bytes()).unwrap() {
        Some(LiveEntry::File(stub)) => live.open(*stub),
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

/// A pool with equal files, the first of which has data on the given target.
fn equal_files(count: usize, bytes: usize) -> (Fixture, Vec<String>, usize) {
    let mut fixture = Fixture::new(&[None; 8], 3, 2);
    let names: Vec<String> = (0..count).map(|number| format!("file {number}")).collect();
    for (seed, name) in names.iter().enumerate() {
        fixture.put(name, &Seed(seed as u64 + 40).bytes(bytes));
    }
    fixture.protect();
    // The vault is on the first one.
    let number = (2..=8).find(|number| fixture.data(&names[0]).contains(&format!("d{number}")));
    (fixture, names, number.unwrap())
}

/// Rebuilds, and runs an action at the n-th check for cancellation: between two stripes or files, or at the end if
/// there are fewer checks.
fn rebuild_and_at(fixture: &Fixture, nth: usize, act: &(dyn Fn() + Sync)) -> RebuildReport {
    let asked = AtomicUsize::new(0);
    let stopped = || {
        if asked.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            act();
        }
        false
    };
    let _lock = fixture.vault.lock("test").unwrap();
    let report =
        rebuild(&fixture.vault, &RebuildOptions::default(), RunContext { stopped: &stopped, ..QUIET })
            .unwrap();
    if asked.load(Ordering::SeqCst) < nth {
        act();
    }
    report
}

/// An open file finds its moved columns before it writes to them.
#[test]
fn writes_to_open_files_follow_moved_columns() {
    for retired in [false, true] {
        let (mut fixture, names, number) = equal_files(8, 100_000);
        let live = start(&fixture);
        let files: Vec<LiveFile> = names.iter().map(|name| open(&live, name)).collect();
        match retired {
            true => fixture.pool.retire(&format!("d{number}")).unwrap(),
            false => fixture.lose(number),
        }
        fixture.rebuild_all("before anything is written");
        for (name, file) in names.iter().zip(&files) {
            let written = Seed(number as u64).bytes(50_000);
            write(file, name, 10_000, &written);
            close(file, name);
            fixture.files.get_mut(name).unwrap()[10_000..60_000].copy_from_slice(&written);
        }
        drop(live);
        fixture.assert_right("what was written is there");
        fixture.protect();
        fixture.assert_whole("after all of it");
    }
}

/// A file that was never protected is read from its moved columns as well: nothing could be reconstructed.
#[test]
fn reads_of_open_files_follow_moved_columns() {
    for protected in [false, true] {
        let mut fixture = Fixture::new(&[None; 8], 3, 2);
        fixture.put("file", &Seed(6).bytes(100_000));
        if protected {
            fixture.protect();
        }
        let live = start(&fixture);
        let file = open(&live, "file");
        let number = (2..=8).find(|number| fixture.data("file").contains(&format!("d{number}"))).unwrap();
        fixture.pool.retire(&format!("d{number}")).unwrap();
        fixture.rebuild_all("it is moved");
        let mut found = vec![0; 100_000];
        let names = || vec![b"file".to_vec()];
        assert_eq!(file.read(&names, 0, &mut found, true).unwrap(), 100_000, "protected: {protected}");
        assert!(found == fixture.files["file"]);
        assert!(!file.stub().targets.contains(&format!("d{number}").parse().unwrap()));
        close(&file, "file");
    }
}

/// Columns of a file that is being written do not move.
#[test]
fn files_that_are_being_written_are_rebuilt_when_they_rest() {
    let (mut fixture, names, number) = equal_files(1, 100_000);
    let name = &names[0];
    let live = start(&fixture);
    let file = open(&live, name);
    let mut content = fixture.files[name].clone();
    write(&file, name, 0, &[1; 30_000]);
    fixture.pool.retire(&format!("d{number}")).unwrap();
    let report = fixture.rebuild();
    assert!(!report.is_whole() && !report.has_losses(), "{report:?}");
    assert!(report.failed[0].1.to_string().contains("written"), "{report:?}");
    write(&file, name, 30_000, &[2; 30_000]);
    close(&file, name);
    content[..30_000].fill(1);
    content[30_000..60_000].fill(2);
    fixture.files.insert(name.clone(), content);
    fixture.rebuild_all("it rests");
    fixture.assert_right("it rests");
    assert!(!fixture.on(number).contains(name));
    drop(live);
    fixture.protect();
    fixture.assert_whole("protected again");
}

/// A program starts to write at any point of a rebuild.
#[test]
fn writers_may_come_at_any_moment_of_a_rebuild() {
    for retired in [false, true] {
        for nth in [1, 2, 3, 5, 8] {
            let told = format!("retired: {retired}, moment {nth}");
            let (mut fixture, names, number) = equal_files(3, 50_000);
            let live = start(&fixture);
            let files: Vec<LiveFile> = names.iter().map(|name| open(&live, name)).collect();
            match retired {
                true => fixture.pool.retire(&format!("d{number}")).unwrap(),
                false => fixture.lose(number),
            }
            rebuild_and_at(&fixture, nth, &|| {
                names.iter().zip(&files).for_each(|(name, file)| write(file, name, 5_000, &[1; 20_000]));
            });
            for (name, file) in names.iter().zip(&files) {
                write(file, name, 25_000, &[2; 20_000]);
                close(file, name);
                let content = fixture.files.get_mut(name).unwrap();
                content[5_000..25_000].fill(1);
                content[25_000..45_000].fill(2);
            }
            drop(live);
            fixture.assert_right(&told);
            fixture.protect();
            fixture.rebuild_all(&told);
            fixture.assert_whole(&told);
        }
    }
}

/// A file that is renamed during a rebuild does not count as removed.
#[test]
fn files_that_get_another_name_meanwhile_are_named() {
    for removed in [false, true] {
        let (mut fixture, names, number) = equal_files(1, 100_000);
        fixture.lose(number);
        let pool = fixture.pool.clone();
        let report = rebuild_and_at(&fixture, 3, &|| {
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

/// A target that is retired while a file is being put receives nothing more: whoever empties it then finds everything.
#[test]
fn nothing_appears_on_a_target_that_was_retired_meanwhile() {
    struct Retiring<'a>(&'a Fixture, std::io::Cursor<Vec<u8>>);
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
        let fixture = Fixture::new(&[None; 5], 3, 2);
        // Nine of ten choices of three targets include one of the two.
        let mut content = Retiring(&fixture, std::io::Cursor::new(vec![7; 50_000]));
        if let Err(error) =
            fixture.pool.put(b"file", &mut content, &Metadata::default(), Timestamp::from_nanoseconds(5))
        {
            assert!(error.to_string().contains("left service"), "{error}");
            assert!(fixture.pool.stub(b"file").is_err());
            refused += 1;
        }
        fixture
            .pool
            .put(b"again", &mut &[7; 50_000][..], &Metadata::default(), Timestamp::from_nanoseconds(5))
            .unwrap();
        let mut files = vec![fixture.pool.stub(b"again").unwrap()];
        files.extend(fixture.pool.stub(b"file"));
        assert!(files.iter().all(|stub| stub.targets.iter().all(|name| name != "d2" && name != "d3")));
        assert!(fixture.pool.sweep(false).unwrap().orphans.is_empty());
    }
    assert!(refused > 0);
}

/// A target that returns during a rebuild gets a column that it already has: one of them stays.
#[test]
fn a_column_rebuilt_in_its_old_place_stays() {
    for lost in [[2, 3], [4, 5], [3, 6]] {
        let mut fixture = Fixture::new(&[None; 6], 3, 2);
        for seed in 0..12 {
            fixture.put(&format!("file {seed}"), &Seed(seed).bytes(30_000));
        }
        fixture.protect();
        lost.iter().for_each(|&number| fixture.lose(number));
        let (away, there) = (fixture.dir.path().join(format!("away{}", lost[1])), fixture.target(lost[1]));
        let asked = AtomicUsize::new(0);
        let stopped = || {
            if asked.fetch_add(1, Ordering::SeqCst) == 1 {
                fs::rename(&away, &there).unwrap();
            }
            false
        };
        let only = RebuildOptions { targets: vec![format!("d{}", lost[0])], ..RebuildOptions::default() };
        let lock = fixture.vault.lock("test").unwrap();
        rebuild(&fixture.vault, &only, RunContext { stopped: &stopped, ..QUIET }).unwrap();
        drop(lock);
        fixture.open();
        fixture.assert_right("some columns were made in their own places");
        for name in fixture.files.keys() {
            for (column, target) in fixture.pool.stub(name.as_bytes()).unwrap().targets.iter().enumerate() {
                let object = fixture.object(name, column);
                assert!(
                    *target == format!("d{}", lost[0]) || object.exists(),
                    "{name}: {}",
                    object.display()
                );
            }
        }
    }
}

/// Bytes written during an examination are no damage.
#[test]
fn repair_leaves_alone_what_was_written_since_it_looked() {
    for missing in [false, true] {
        let (mut fixture, names, _) = equal_files(1, 100_000);
        let name = &names[0];
        if missing {
            fs::remove_file(fixture.object(name, 0)).unwrap();
        }
        let live = start(&fixture);
        let file = open(&live, name);
        let asked = AtomicUsize::new(0);
        let stopped = || {
            if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                // One block of a stripe, which redundancy could restore.
                write(&file, name, 4 * 4096, &[9; 4096]);
                close(&file, name);
            }
            false
        };
        let lock = fixture.vault.lock("test").unwrap();
        let done = repair(&fixture.vault, name.as_bytes(), RunContext { stopped: &stopped, ..QUIET });
        drop(lock);
        assert!(asked.load(Ordering::SeqCst) > 0, "it was never written");
        fixture.files.get_mut(name).unwrap()[4 * 4096..5 * 4096].fill(9);
        fixture.assert_right(&format!("missing: {missing}: {done:?}"));
        drop(live);
        fixture.protect();
        fixture.assert_whole("protected again");
    }
}

/// A writer and a repair of a file start at the same time. In either order the written bytes persist.
#[test]
fn writers_and_repairs_do_not_undo_each_other() {
    let (mut fixture, names, _) = equal_files(1, 60_000);
    let name = &names[0];
    let live = start(&fixture);
    let mut chance = Seed(3);
    let (mut repaired, mut refused) = (0, 0);
    for round in 0..25u8 {
        let told = format!("round {round}");
        let column = chance.below(3) as usize;
        fs::remove_file(fixture.object(name, column)).unwrap();
        let file = open(&live, name);
        let (spins, barrier) = (chance.below(400_000), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                (0..spins).for_each(|_| std::hint::spin_loop());
                write(&file, name, 0, &[round; 60_000]);
                close(&file, name);
            });
            let _lock = fixture.vault.lock("test").unwrap();
            barrier.wait();
            match repair(&fixture.vault, name.as_bytes(), QUIET) {
                Ok(_) => repaired += 1,
                Err(_) => refused += 1,
            }
        });
        fixture.files.insert(name.clone(), vec![round; 60_000]);
        fixture.assert_right(&told);
        fixture.protect();
        assert!(fixture.scrub().damage.is_empty(), "{told}");
    }
    println!("{repaired} were repaired, {refused} were refused");
    fixture.pool.sweep(true).unwrap();
    fixture.assert_whole("at the end");
}
