//! Random operations on the pool and on a directory in memory, which must stay equal.

use super::fixture::{Fixture, Mount, TestRng, can_mount, drop_caches};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const OPERATIONS: usize = 500;
const MAX_SIZE: u64 = 60_000;

/// Does the same at both places; both must say the same.
fn both<T>(places: [&Path; 2], told: &str, act: impl Fn(&Path) -> io::Result<T>) -> Option<[T; 2]> {
    match places.map(&act) {
        [Ok(one), Ok(other)] => Some([one, other]),
        [Err(one), Err(other)] if one.raw_os_error() == other.raw_os_error() => None,
        [one, other] => panic!("{told}: {:?} and {:?}", one.err(), other.err()),
    }
}

/// What is in a tree, by path.
fn tree(root: &Path, below: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let full = root.join(&path);
        let stat = fs::symlink_metadata(&full).unwrap();
        let what = if stat.is_dir() {
            tree(root, &path, found);
            String::new()
        } else if stat.is_symlink() {
            fs::read_link(&full).unwrap().display().to_string()
        } else {
            let content = fs::read(&full).unwrap();
            assert_eq!(content.len() as u64, stat.len(), "{path}");
            let sum = content.iter().enumerate().fold(7u64, |sum, (at, byte)| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*byte) ^ at as u64)
            });
            format!("{} bytes, {sum:x}", content.len())
        };
        found.insert(path, format!("{:o} {what}", stat.mode()));
    }
}

fn assert_same(pool: &Path, reference: &Path, told: &str) {
    let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
    tree(pool, "", &mut one);
    tree(reference, "", &mut other);
    assert_eq!(one, other, "{told}");
}

struct Run {
    chance: TestRng,
    /// Files that are open at both places, whatever became of their names.
    open: Vec<[File; 2]>,
}

impl Run {
    fn name(&mut self) -> String {
        let directory = ["", "d0/", "d1/", "d0/e/"][self.chance.below(4) as usize];
        format!("{directory}f{}", self.chance.below(7))
    }

    fn directory(&mut self) -> &'static str {
        ["d0", "d1", "d0/e", "d2", "d2/e"][self.chance.below(5) as usize]
    }

    fn step(&mut self, places: [&Path; 2], told: &str) {
        let (name, other) = (self.name(), self.name());
        let offset = self.chance.below(MAX_SIZE);
        let count = self.chance.below(20_000) as usize;
        let bytes = self.chance.bytes(count);
        match self.chance.below(19) {
            0..=2 => {
                both(places, told, |root| fs::write(root.join(&name), &bytes));
            }
            3..=4 => {
                both(places, told, |root| {
                    File::options().write(true).open(root.join(&name))?.write_all_at(&bytes, offset)
                });
            }
            5 => {
                both(places, told, |root| {
                    let file = File::options().append(true).open(root.join(&name))?;
                    io::Write::write_all(&mut &file, &bytes)?;
                    file.sync_all()
                });
            }
            6 => {
                both(places, told, |root| {
                    File::options().write(true).open(root.join(&name))?.set_len(offset)
                });
            }
            7..=8 => {
                both(places, told, |root| fs::rename(root.join(&name), root.join(&other)));
            }
            9 => {
                let (from, to) = (self.directory(), self.directory());
                both(places, told, |root| fs::rename(root.join(from), root.join(to)));
            }
            10..=11 => {
                let directory = self.directory();
                both(places, told, |root| fs::create_dir(root.join(directory)));
            }
            12 => {
                let directory = self.directory();
                both(places, told, |root| fs::remove_dir(root.join(directory)));
            }
            13 => {
                both(places, told, |root| fs::remove_file(root.join(&name)));
            }
            14 => {
                both(places, told, |root| symlink(&other, root.join(&name)));
            }
            15 => {
                let mode = 0o700 | self.chance.below(0o100) as u32;
                both(places, told, |root| {
                    fs::set_permissions(root.join(&name), fs::Permissions::from_mode(mode))
                });
            }
            16 => {
                let time = UNIX_EPOCH + Duration::from_nanos(self.chance.next() >> 4);
                let set = both(places, told, |root| {
                    File::options().write(true).open(root.join(&name))?.set_modified(time)?;
                    fs::metadata(root.join(&name))?.modified()
                });
                set.into_iter().for_each(|[one, other]| assert_eq!(one, other, "{told}"));
            }
            17 => {
                let opened =
                    both(places, told, |root| File::options().read(true).write(true).open(root.join(&name)));
                self.open.extend(opened);
                if self.open.len() > 4 {
                    let at = self.chance.below(5) as usize;
                    self.open.swap_remove(at);
                }
            }
            _ => self.use_open(&bytes, offset, told),
        }
    }

    fn use_open(&mut self, bytes: &[u8], offset: u64, told: &str) {
        if self.open.is_empty() {
            return;
        }
        let at = self.chance.below(self.open.len() as u64) as usize;
        let [one, other] = &self.open[at];
        for file in [one, other] {
            file.write_all_at(bytes, offset).unwrap();
        }
        let read = |file: &File| {
            let mut content = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut content, 0).unwrap();
            content
        };
        assert!(read(one) == read(other), "{told}: an open file");
    }
}

#[test]
fn the_pool_is_like_any_directory() {
    if !can_mount("the_pool_is_like_any_directory") {
        return;
    }
    for seed in 0..3 {
        let fixture = Fixture::new(6, 3, 2, 4096);
        let reference = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut mount: Mount = fixture.mount();
        let mut run = Run { chance: TestRng(seed), open: Vec::new() };
        for step in 0..OPERATIONS {
            let told = format!("seed {seed}, step {step}");
            run.step([&mount.path(""), reference.path()], &told);
            if step % 125 == 124 {
                drop_caches();
                assert_same(&mount.path(""), reference.path(), &told);
            }
        }
        run.open.clear();
        mount.unmount();
        fixture.assert_converges();
        let left = fixture.pool().sweep(false).unwrap();
        assert!(left.orphans.is_empty(), "seed {seed}: {left:?}");
        mount = fixture.mount();
        assert_same(&mount.path(""), reference.path(), &format!("seed {seed}, mounted again"));
        mount.unmount();
    }
}
