//! Pool fixture.

use gabion_vault::format::Metadata;
use gabion_vault::storage::pool::{NewTarget, Options, Pool, PoolError};
use gabion_vault::world::Clock;
use gabion_vault::world::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(crate) const BLOCK: u64 = 4096;

/// Directories d1, d2, … and the pool on them.
#[derive(Clone)]
pub(crate) struct PoolFixture {
    pub(crate) pool: Pool,
    pub(crate) count: usize,
    dir: Rc<tempfile::TempDir>,
}

pub(crate) fn options() -> Options {
    Options { clock: Clock::System, deadline: gabion_testkit::PATIENCE }
}

pub(crate) fn metadata() -> Metadata {
    Metadata { mode: 0o640, uid: 0, gid: 0, ..Metadata::default() }
}

/// Bytes that differ from position to position.
pub(crate) fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as u8
    };
    (0..count).map(|_| step(&mut state)).collect()
}

impl PoolFixture {
    /// Each target in a separate domain.
    pub(crate) fn new(count: usize, stripe: usize, redundancy: usize) -> PoolFixture {
        let domains: Vec<Option<&str>> = vec![None; count];
        PoolFixture::with_domains(&domains, stripe, redundancy)
    }

    /// The same on tmpfs, for tests with many durable changes.
    pub(crate) fn in_memory(count: usize, stripe: usize, redundancy: usize) -> PoolFixture {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let domains: Vec<Option<&str>> = vec![None; count];
        PoolFixture::at(tempfile::tempdir_in(parent).unwrap(), &domains, stripe, redundancy)
    }

    pub(crate) fn with_domains(domains: &[Option<&str>], stripe: usize, redundancy: usize) -> PoolFixture {
        PoolFixture::at(tempfile::tempdir().unwrap(), domains, stripe, redundancy)
    }

    fn at(dir: tempfile::TempDir, domains: &[Option<&str>], stripe: usize, redundancy: usize) -> PoolFixture {
        let dir = Rc::new(dir);
        let target = |(at, domain): (usize, &Option<&str>)| NewTarget {
            path: dir.path().join(format!("d{}", at + 1)),
            domain: domain.map(str::to_owned),
        };
        let targets: Vec<NewTarget> = domains.iter().enumerate().map(target).collect();
        let pool = Pool::create("tank", &targets, stripe, BLOCK, redundancy, options()).unwrap();
        PoolFixture { pool, count: domains.len(), dir }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn target(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("d{number}"))
    }

    /// Removes the disk.
    pub(crate) fn lose(&self, number: usize) {
        fs::rename(self.target(number), self.dir.path().join(format!("away{number}"))).unwrap();
    }

    /// Restores the disk unchanged.
    pub(crate) fn restore_disk(&self, number: usize) {
        fs::rename(self.dir.path().join(format!("away{number}")), self.target(number)).unwrap();
    }

    pub(crate) fn put(&self, path: &str, content: &[u8]) {
        let written = self
            .pool
            .put(path.as_bytes(), &mut &content[..], &metadata(), Timestamp::from_nanoseconds(5))
            .unwrap();
        assert!(written.faults.is_empty(), "{:?}", written.faults);
    }

    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>, PoolError> {
        let mut content = Vec::new();
        self.pool.get(path.as_bytes(), &mut content).map(|_| content)
    }

    /// The pool as seen by another process that knows only this target.
    pub(crate) fn reopened(&self, number: usize) -> Pool {
        Pool::open_at(&[self.target(number)], options()).unwrap()
    }

    /// All objects, by target and name, with their sizes.
    pub(crate) fn objects(&self) -> BTreeMap<(usize, String), u64> {
        let mut found = BTreeMap::new();
        for number in 1..=self.count {
            for path in files_below(&self.target(number).join("objects")) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                found.insert((number, name), fs::metadata(&path).unwrap().len());
            }
        }
        found
    }

    /// Path of the object of a column.
    pub(crate) fn object(&self, path: &str, column: usize) -> PathBuf {
        let stub = self.pool.stub(path.as_bytes()).unwrap();
        let name = format!("{}.{column}", stub.id);
        self.root().join(stub.targets[column].as_str()).join("objects").join(&name[..2]).join(name)
    }

    /// Stubs of a path on all mirrors that have it.
    pub(crate) fn stubs(&self, path: &str) -> Vec<PathBuf> {
        let all = (1..=self.count).map(|number| self.target(number).join("tree").join(path));
        all.filter(|path| path.exists()).collect()
    }
}

pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// All names of a pool, directories with a trailing slash.
pub(crate) fn all_names(pool: &Pool, below: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for (name, listed) in pool.list(below).unwrap() {
        let path = gabion_vault::tree::join(below, &name);
        let shown = String::from_utf8_lossy(&path).into_owned();
        match listed.unwrap().stub {
            Some(_) => names.push(shown),
            None => {
                names.push(format!("{shown}/"));
                names.extend(all_names(pool, &path));
            }
        }
    }
    names
}
