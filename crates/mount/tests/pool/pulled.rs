//! Disks that are pulled out under a mounted pool, one after the other, as many as there is redundancy for; then one
//! comes back with what it had. Programs read and write all the time, and what they read is compared with a copy.

use super::disks::make_anew_without;
use super::fixture::{Fixture, Mount, PATIENCE, QUIET, TestRng, drop_caches};
use super::loops::{Disks, run};
use gabion_vault::world::Stopwatch;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

/// Files that are written before and after each event.
const ENOUGH: usize = 8;

/// The disks that go, in this order. The vault is on another one.
const FIRST: usize = 5;
const SECOND: usize = 7;

#[derive(Debug, Clone, Copy)]
enum Pull {
    /// `umount -l`: whoever has files open there keeps them, nobody else finds any.
    Unmounted,
    /// The medium is gone under a file system that is mounted, as if its cable were pulled: what is in memory still
    /// answers.
    Detached,
}

impl Pull {
    fn strike(self, disks: &Disks, number: usize) -> Result<(), String> {
        let (point, image) = (disks.point(number), disks.image(number));
        match self {
            Pull::Unmounted => run(Command::new("umount").arg("-l").arg(point)),
            Pull::Detached => {
                let found = Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(&image).output();
                let device = found.map_err(|error| error.to_string())?.stdout;
                let device = String::from_utf8_lossy(&device).trim().to_owned();
                let file = File::options().write(true).open(image).map_err(|error| error.to_string())?;
                // A write that comes between the two steps makes the image longer again: the device would then keep a
                // medium that takes writes and has lost everything before them, and what is synced to it cannot be
                // found. No disk goes like this.
                while sectors(&device)? > 0 {
                    file.set_len(0).map_err(|error| error.to_string())?;
                    run(Command::new("losetup").arg("-c").arg(&device))?;
                }
                Ok(())
            }
        }
    }
}

/// Size of a block device as the kernel knows it.
fn sectors(device: &str) -> Result<u64, String> {
    let path = device.replace("/dev/", "/sys/block/") + "/size";
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{path}: {text}"))
}

/// A file that was written since everything was protected.
struct Fresh {
    name: String,
    content: Vec<u8>,
    stage: usize,
}

/// What programs do, and what they must find.
#[derive(Default)]
struct Load {
    /// Protected: to be read whatever happens.
    kept: RwLock<BTreeMap<String, Vec<u8>>>,
    fresh: Mutex<Vec<Fresh>>,
    /// Errors that writers got, by stage.
    refused: Mutex<Vec<(usize, String)>>,
    /// Counts events; a file belongs to the stage in which it was begun.
    stage: AtomicUsize,
    /// Held by who writes a file, and exclusively by who wants no file to be open.
    gate: RwLock<()>,
    stop: AtomicBool,
}

impl Load {
    fn read(&self, mount: &Mount) {
        while !self.stop.load(Ordering::Relaxed) {
            drop_caches();
            for (name, content) in self.kept.read().unwrap().iter() {
                let found = fs::read(mount.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(found == *content, "{name}");
            }
        }
    }

    fn write(&self, mount: &Mount, mut chance: TestRng) {
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let _open = self.gate.read().unwrap();
            let (name, content) = (format!("w{number}"), chance.bytes(20_000));
            let stage = self.stage.load(Ordering::SeqCst);
            let written = File::create(mount.path(&name))
                .and_then(|mut file| file.write_all(&content).and_then(|()| file.sync_all()));
            match written {
                Ok(()) => self.fresh.lock().unwrap().push(Fresh { name, content, stage }),
                Err(error) => self.refused.lock().unwrap().push((stage, format!("{name}: {error}"))),
            }
        }
    }

    /// Waits until enough files were written that were begun in this stage.
    fn wait(&self, stage: usize) {
        let begun = Stopwatch::start();
        let enough = || self.fresh.lock().unwrap().iter().filter(|it| it.stage == stage).count() >= ENOUGH;
        while !enough() && !self.stop.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < PATIENCE, "stage {stage}: {:?}", self.refused.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// While nobody writes, looks at what was written, and protects it.
    fn settle(&self, stage: usize, fixture: &Fixture, mount: &Mount) {
        let _nobody_writes = self.gate.write().unwrap();
        drop_caches();
        for Fresh { name, content, stage: begun } in self.fresh.lock().unwrap().drain(..) {
            match fs::read(mount.path(&name)) {
                Ok(found) => {
                    assert!(found == content, "{name}");
                    self.kept.write().unwrap().insert(name, content);
                }
                // It had no redundancy yet when its disk went.
                Err(error) => assert!(begun < stage, "{name}, begun in stage {begun} of {stage}: {error}"),
            }
        }
        for entry in fs::read_dir(mount.path("")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !self.kept.read().unwrap().contains_key(&name) {
                // Nothing of it is left, or its writer was told that writing failed.
                fs::remove_file(mount.path(&name)).unwrap();
            }
        }
        let begun = Stopwatch::start();
        loop {
            fixture.protect();
            let status = gabion_vault::status::status(&fixture.vault(), b"", true, 10, QUIET).unwrap();
            if status.pending.0 == 0 {
                break;
            }
            // A file counts as open for a moment after it was closed.
            assert!(begun.elapsed() < PATIENCE, "{status:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Writes to files that miss columns.
    fn change(&self, mount: &Mount, chance: &mut TestRng) {
        for (name, content) in self.kept.write().unwrap().iter_mut().filter(|(_, it)| it.len() > 10_000) {
            let bytes = chance.bytes(9000);
            let file = File::options().write(true).open(mount.path(name)).unwrap();
            file.write_all_at(&bytes, 500)
                .and_then(|()| file.sync_all())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            content[500..9500].copy_from_slice(&bytes);
        }
    }
}

/// Ends the load also when the one who directs it fails.
struct Stopping<'a>(&'a Load);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// `FIRST` goes, `SECOND` goes, `FIRST` comes back stale.
fn pull_under_load(test: &str, first: Pull, second: Pull, seed: u64) {
    let Some((fixture, disks)) = Fixture::on_disks(test) else { return };
    let mount = fixture.mount();
    let mut chance = TestRng(seed);
    let load = Load::default();
    for number in 0..10 {
        let (name, content) = (format!("f{number}"), chance.bytes(number * 7001));
        fs::write(mount.path(&name), &content).unwrap();
        load.fresh.lock().unwrap().push(Fresh { name, content, stage: 0 });
    }
    load.settle(0, &fixture, &mount);
    std::thread::scope(|scope| {
        let _stopping = Stopping(&load);
        let programs = [
            scope.spawn(|| {
                let _stopping = Stopping(&load);
                load.read(&mount);
            }),
            scope.spawn(|| {
                let _stopping = Stopping(&load);
                load.write(&mount, TestRng(seed + 1));
            }),
        ];
        load.wait(0);
        for (stage, event) in [Some((first, FIRST)), Some((second, SECOND)), None].into_iter().enumerate() {
            let stage = stage + 1;
            load.settle(stage - 1, &fixture, &mount);
            match event {
                Some((pull, number)) => {
                    pull.strike(&disks, number).unwrap_or_else(|why| panic!("{pull:?} {number}: {why}"))
                }
                None => {
                    load.change(&mount, &mut chance);
                    disks.mount(FIRST).unwrap();
                }
            }
            load.stage.store(stage, Ordering::SeqCst);
            load.wait(stage);
        }
        load.stop.store(true, Ordering::Relaxed);
        programs.into_iter().for_each(|program| program.join().unwrap());
    });
    load.settle(3, &fixture, &mount);
    let refused = load.refused.into_inner().unwrap();
    println!("{test}: writers were refused {refused:?}");
    // Who finds a fault may be told; those who come after it find another disk.
    let told = |stage| refused.iter().filter(|(at, _)| *at + 1 == stage || *at == stage).count();
    assert!((1..=3).all(|stage| told(stage) <= 6), "{refused:?}");
    let kept = load.kept.into_inner().unwrap();
    mount.unmount();
    make_anew_without(SECOND, &fixture, &disks);
    let mount = fixture.mount();
    for (name, content) in &kept {
        assert!(fs::read(mount.path(name)).unwrap() == *content, "{name}, mounted again");
    }
    mount.unmount();
}

#[test]
fn disks_unmounted_one_by_one_stop_nobody() {
    pull_under_load("disks_unmounted_one_by_one", Pull::Unmounted, Pull::Unmounted, 51);
}

#[test]
fn a_disk_whose_medium_is_gone_stops_nobody() {
    pull_under_load("a_disk_whose_medium_is_gone", Pull::Unmounted, Pull::Detached, 52);
}
