//! Kill -9 of the process that serves a mount: what was written is there, and redundancy converges.

use super::fixture::{Fixture, Mount, TestRng, can_mount};
use gabion_vault::storage::Storage;
use gabion_vault::storage::pool::config::Mirror;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const TARGETS: usize = 6;
const WRITERS: u64 = 3;

/// The child of tests below: it is told on standard input what to mount, and serves it until it is killed.
#[test]
#[ignore = "is run by the tests that kill it"]
fn child() {
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    if told.trim_end().is_empty() {
        return;
    }
    let _mount = Mount::new(Path::new(told.trim_end()), TARGETS);
    println!("\nready");
    // Until someone kills us, or dies.
    let mut rest = String::new();
    while std::io::stdin().read_line(&mut rest).is_ok_and(|bytes| bytes > 0) {}
}

fn serve(fixture: &Fixture) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(format!("{}\n", fixture.root().display()).as_bytes()).unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"), "the child mounts");
    child
}

/// What a program asked for and was not answered: it may have happened, or part of it.
enum Pending {
    Nothing,
    Write(u64, u64),
    Cut(u64),
}

/// One program: a file that it changes in many ways, and small files that it makes and syncs.
struct Writer {
    path: PathBuf,
    content: Vec<u8>,
    pending: Pending,
    small: BTreeMap<PathBuf, Vec<u8>>,
}

impl Writer {
    fn run(&mut self, seed: u64, count: &AtomicU64) {
        let mut chance = TestRng(seed);
        let Ok(file) = File::options().create(true).truncate(false).write(true).open(&self.path) else {
            return;
        };
        for number in 0.. {
            let bytes = chance.below(9000) as usize + 1;
            let bytes = chance.bytes(bytes);
            let size = self.content.len() as u64;
            let kind = chance.below(10);
            let done = match kind {
                0..=5 => {
                    let offset = if kind < 3 { size } else { chance.below(size + 5000) };
                    let end = offset + bytes.len() as u64;
                    self.pending = Pending::Write(offset, end);
                    file.write_all_at(&bytes, offset).map(|()| {
                        self.content.resize(self.content.len().max(end as usize), 0);
                        self.content[offset as usize..end as usize].copy_from_slice(&bytes);
                    })
                }
                6 => {
                    let to = chance.below(size + 1);
                    self.pending = Pending::Cut(to);
                    file.set_len(to).map(|()| self.content.truncate(to as usize))
                }
                7 => {
                    self.pending = Pending::Nothing;
                    file.sync_data()
                }
                _ => {
                    self.pending = Pending::Nothing;
                    let path = self.path.with_extension(format!("{seed}-{number}"));
                    let temporary = self.path.with_extension("temporary");
                    let made = File::create(&temporary).and_then(|mut file| {
                        file.write_all(&bytes)?;
                        file.sync_all()?;
                        fs::rename(&temporary, &path)
                    });
                    made.map(|()| drop(self.small.insert(path, bytes)))
                }
            };
            if done.is_err() {
                return;
            }
            self.pending = Pending::Nothing;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything that was answered is there; what was asked for last may be. It is taken over.
    fn check(&mut self, told: &str) {
        for (path, content) in &self.small {
            assert!(fs::read(path).unwrap() == *content, "{told}: {}", path.display());
        }
        let found = match fs::read(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.content.is_empty() => return,
            found => found.unwrap_or_else(|error| panic!("{told}: {}: {error}", self.path.display())),
        };
        let (size, len) = (self.content.len(), found.len());
        let same = |range: std::ops::Range<usize>| {
            let at = range.clone().find(|&at| found.get(at) != self.content.get(at));
            assert!(at.is_none(), "{told}: {}: byte {at:?} of {len}, {size} expected", self.path.display());
        };
        match self.pending {
            Pending::Nothing => {
                assert_eq!(len, size, "{told}");
                same(0..size);
            }
            Pending::Write(start, end) => {
                assert!(len >= size && len <= size.max(end as usize), "{told}: {len}, {size} to {end}");
                same(0..size.min(start as usize));
                same(size.min(end as usize)..size);
            }
            Pending::Cut(to) => {
                assert!(len == size || len == to as usize, "{told}: {len}, {size} to {to}");
                same(0..len);
            }
        }
        self.content = found;
    }
}

#[test]
fn a_mount_that_is_killed_loses_nothing() {
    if !can_mount("a_mount_that_is_killed_loses_nothing") {
        return;
    }
    let fixture = Fixture::new(TARGETS, 3, 2, 4096);
    let writer = |number: u64| Writer {
        path: fixture.mountpoint().join(format!("w{number}")),
        content: Vec::new(),
        pending: Pending::Nothing,
        small: BTreeMap::new(),
    };
    let mut writers: Vec<Writer> = (0..WRITERS).map(writer).collect();
    let mut chance = TestRng(7);
    for round in 0..5 {
        let mut child = serve(&fixture);
        let count = AtomicU64::new(0);
        let kill_after = 20 + chance.below(400);
        std::thread::scope(|scope| {
            for (number, writer) in writers.iter_mut().enumerate() {
                let count = &count;
                scope.spawn(move || writer.run(round * 100 + number as u64, count));
            }
            // On a machine that is too slow for so many, it is killed all the same.
            let mut waits = 0;
            while count.load(Ordering::Relaxed) < kill_after && waits < 50_000 {
                std::thread::sleep(std::time::Duration::from_micros(200));
                waits += 1;
            }
            child.kill().unwrap();
            child.wait().unwrap();
        });
        // The kernel keeps the mount of a dead process until someone takes it away.
        let gone = Command::new("umount").arg("-l").arg(fixture.mountpoint()).status().unwrap();
        assert!(gone.success());
        let told = format!("round {round}, after {kill_after} operations");
        let mount = fixture.mount();
        writers.iter_mut().for_each(|writer| writer.check(&told));
        mount.unmount();
        if round % 2 == 1 {
            fixture.assert_converges();
        }
    }
    fixture.pool().sweep(true).unwrap();
    fixture.assert_converges();
    let mount = fixture.mount();
    writers.iter_mut().for_each(|writer| writer.check("at the end"));
    mount.unmount();
}

/// The first write to a file that is not young waits until its stub says that it is being written. Killed while many
/// files are at that, each is as it was or as it was written, and redundancy of the version before changes nothing
/// about it.
#[test]
fn first_writes_that_are_killed_leave_the_old_or_the_new() {
    const FILES: usize = 60;
    if !can_mount("first_writes_that_are_killed_leave_the_old_or_the_new") {
        return;
    }
    let fixture = Fixture::new(TARGETS, 3, 2, 4096);
    let path = |number: usize| fixture.mountpoint().join(format!("file {number}"));
    let mut content: Vec<Vec<u8>> = (0..FILES).map(|number| TestRng(number as u64 + 1).bytes(9000)).collect();
    let mount = fixture.mount();
    for (number, content) in content.iter().enumerate() {
        let mut file = File::create(path(number)).unwrap();
        file.write_all(content).unwrap();
        // What was synced is not young any more.
        file.sync_all().unwrap();
    }
    mount.unmount();
    fixture.assert_converges();
    let mut chance = TestRng(11);
    for round in 0..4 {
        let mut child = serve(&fixture);
        let kill_after = chance.below(FILES as u64);
        let (next, count) = (AtomicU64::new(0), AtomicU64::new(0));
        // Within one block, which is written all at once.
        let (at, bytes) = (5000, chance.bytes(700));
        let write = || {
            let mut answered = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                let open = || File::options().write(true).open(path(number));
                match (number < FILES).then(|| open().and_then(|file| file.write_all_at(&bytes, at as u64))) {
                    Some(Ok(())) => answered.push(number),
                    Some(Err(_)) | None => return answered,
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let answered: Vec<usize> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
            // On a machine that is too slow for so many, it is killed all the same.
            let mut waits = 0;
            while count.load(Ordering::Relaxed) < kill_after && waits < 50_000 {
                std::thread::sleep(std::time::Duration::from_micros(200));
                waits += 1;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        let gone = Command::new("umount").arg("-l").arg(fixture.mountpoint()).status().unwrap();
        assert!(gone.success());
        let mount = fixture.mount();
        for (number, content) in content.iter_mut().enumerate() {
            let told = format!("round {round}, after {kill_after} writes, file {number}");
            let found = fs::read(path(number)).unwrap_or_else(|error| panic!("{told}: {error}"));
            let mut written = content.clone();
            written[at..at + bytes.len()].copy_from_slice(&bytes);
            let was_answered = answered.contains(&number);
            assert!(found == written || (found == *content && !was_answered), "{told}, {was_answered}");
            *content = found;
        }
        mount.unmount();
        fixture.assert_converges();
    }
    let mount = fixture.mount();
    for (number, content) in content.iter().enumerate() {
        assert!(fs::read(path(number)).unwrap() == *content, "file {number}, at the end");
    }
    mount.unmount();
}

/// A crash may leave a new name without its stub's bytes, on some mirrors or on all: nothing is there, and something
/// can be made.
#[test]
fn a_name_without_bytes_is_free() {
    if !can_mount("a_name_without_bytes_is_free") {
        return;
    }
    let fixture = Fixture::new(5, 2, 1, 4096);
    let config = fixture.pool().config();
    let mirrors = config.target.iter().filter(|member| member.mirror == Mirror::Current);
    let mirrors: Vec<PathBuf> =
        mirrors.map(|member| fixture.root().join(member.name.as_str()).join("tree")).collect();
    assert_eq!(mirrors.len(), 3);
    for (at, mirror) in mirrors.iter().enumerate() {
        std::fs::write(mirror.join("everywhere"), "").unwrap();
        std::fs::write(mirror.join("zeros"), [0; 600]).unwrap();
        if at == 1 {
            std::fs::write(mirror.join("somewhere"), "").unwrap();
        }
    }
    let mount = fixture.mount();
    for name in ["everywhere", "zeros", "somewhere"] {
        let path = mount.path(name);
        assert_eq!(std::fs::metadata(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound, "{name}");
        std::fs::write(&path, name).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), name);
        let stubs: Vec<Vec<u8>> =
            mirrors.iter().map(|mirror| std::fs::read(mirror.join(name)).unwrap()).collect();
        assert!(!stubs[0].is_empty() && stubs.iter().all(|stub| *stub == stubs[0]), "{name}");
    }
    mount.unmount();
    fixture.assert_converges();
}

/// A file was written, not synced, when the process that serves the mount died. Its stub kept the size from before,
/// and its length was told by its objects: `protect` called it protected, and when one target went it was cut to the
/// old size, read without an error, and protected so.
#[test]
fn a_file_whose_writer_died_keeps_its_length_when_a_target_goes() {
    if !can_mount("a_file_whose_writer_died_keeps_its_length_when_a_target_goes") {
        return;
    }
    for appended in [false, true] {
        let fixture = Fixture::new(TARGETS, 3, 2, 4096);
        let content = TestRng(3).bytes(40_000);
        let path = fixture.mountpoint().join("file");
        let begun = if appended { 5000 } else { 0 };
        if appended {
            let mount = fixture.mount();
            fs::write(&path, &content[..begun]).unwrap();
            mount.unmount();
            fixture.assert_converges();
        }
        let mut child = serve(&fixture);
        let file = File::options().create(true).append(true).open(&path).unwrap();
        (&file).write_all(&content[begun..]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(file);
        assert!(Command::new("umount").arg("-l").arg(fixture.mountpoint()).status().unwrap().success());
        // Before it is protected nobody can tell its length without the targets that have its end.
        let mut unknown = 0;
        for target in 1..=TARGETS {
            fixture.lose(target);
            let mut found = Vec::new();
            match fixture.pool().get(b"file", &mut found) {
                Ok(_) => assert!(found == content, "without target {target}, {} bytes", found.len()),
                Err(_) => unknown += 1,
            }
            fixture.bring_back(target);
        }
        assert!(unknown > 0, "some target has bytes of it");
        fixture.assert_converges();
        for target in 1..=TARGETS {
            fixture.lose(target);
            let found = fixture.pool().find(b"file").unwrap().unwrap();
            assert_eq!(found.size, content.len() as u64, "appended {appended}, without target {target}");
            fixture.bring_back(target);
        }
        fixture.assert_converges();
    }
}
