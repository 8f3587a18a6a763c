//! Fixture: a pool with a vault, and a reference copy of every file.

pub(crate) use super::seed::Seed;
use gabion_vault::coder::Coders;
use gabion_vault::degraded::{DegradedReader, Report as Read, copy_out};
use gabion_vault::format::Metadata;
use gabion_vault::pool_rebuild::survey::{FileHealth, PoolOverview, overview};
use gabion_vault::pool_rebuild::{RebuildError, RebuildOptions, RebuildReport, rebuild};
use gabion_vault::protect;
use gabion_vault::run::RunContext;
use gabion_vault::scrub::{self, Selection, scrub};
use gabion_vault::status::{Status, status};
use gabion_vault::storage::pool::{NewTarget, Options, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use gabion_vault::world::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) const BLOCK: u64 = 4096;

pub(crate) const QUIET: RunContext<'static> =
    RunContext { threads: 2, rate: None, progress: &|_| {}, stopped: &|| false };

pub(crate) fn options() -> Options {
    Options { clock: Clock::System, deadline: gabion_testkit::PATIENCE }
}

/// Targets d1, d2, … in one directory, the pool on them, and its vault.
pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) pool: Pool,
    pub(crate) vault: Vault,
    pub(crate) count: usize,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Fixture {
    pub(crate) fn new(domains: &[Option<&str>], stripe: usize, redundancy: usize) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        Fixture::within(dir, domains, stripe, redundancy)
    }

    pub(crate) fn within(
        dir: tempfile::TempDir,
        domains: &[Option<&str>],
        stripe: usize,
        redundancy: usize,
    ) -> Fixture {
        let target = |(at, domain): (usize, &Option<&str>)| NewTarget {
            path: dir.path().join(format!("d{}", at + 1)),
            domain: domain.map(str::to_owned),
        };
        let targets: Vec<NewTarget> = domains.iter().enumerate().map(target).collect();
        let pool = Pool::create("tank", &targets, stripe, BLOCK, redundancy, options()).unwrap();
        let vault = Vault::create(&Location::of_pool(&pool).unwrap(), None, Clock::System).unwrap();
        Fixture { dir, pool, vault, count: domains.len(), files: BTreeMap::new() }
    }

    /// Eight targets, 3 + 2, and files of many sizes.
    pub(crate) fn filled(seed: u64) -> Fixture {
        let mut fixture = Fixture::new(&[None; 8], 3, 2);
        fixture.fill(seed);
        fixture
    }

    pub(crate) fn fill(&mut self, seed: u64) {
        let mut chance = Seed(seed);
        let sizes = [0, 1, 63, 4096, 5000, 12_288, 12_289, 40_000, 100_000, 300_001];
        // Placement depends on random file ids; with this many files every target gets some.
        for (number, size) in sizes.into_iter().chain([12_289; 6]).enumerate() {
            self.put(&format!("dir{}/file {number}", number % 2), &chance.bytes(size));
        }
        self.protect();
    }

    pub(crate) fn put(&mut self, name: &str, content: &[u8]) {
        let metadata = Metadata { mode: 0o640, ..Metadata::default() };
        self.pool.put(name.as_bytes(), &mut &content[..], &metadata, Timestamp::from_nanoseconds(5)).unwrap();
        self.files.insert(name.to_owned(), content.to_vec());
    }

    pub(crate) fn target(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("d{number}"))
    }

    /// Removes the disk.
    pub(crate) fn lose(&mut self, number: usize) {
        fs::rename(self.target(number), self.dir.path().join(format!("away{number}"))).unwrap();
        self.open();
    }

    pub(crate) fn restore_disk(&mut self, number: usize) {
        fs::rename(self.dir.path().join(format!("away{number}")), self.target(number)).unwrap();
        self.open();
    }

    /// Opens the pool as the next process does.
    pub(crate) fn open(&mut self) {
        let is_there = |path: &PathBuf| path.join("pool.toml").exists();
        let there = (1..=self.count).map(|number| self.target(number)).find(is_there).unwrap();
        self.pool = Pool::open_at(&[there], options()).unwrap();
        self.vault = Vault::of_pool(&self.pool, Clock::System).unwrap().0;
    }

    pub(crate) fn protect(&self) {
        let _lock = self.vault.lock("test").unwrap();
        let report = protect::protect(&self.vault, QUIET).unwrap();
        assert_eq!(report.done.failed, []);
    }

    pub(crate) fn try_rebuild(
        &self,
        targets: &[&str],
        agreed: Option<String>,
    ) -> Result<RebuildReport, RebuildError> {
        let _lock = self.vault.lock("test").unwrap();
        let targets = targets.iter().map(ToString::to_string).collect();
        rebuild(&self.vault, &RebuildOptions { targets, agreed, release: false }, QUIET)
    }

    pub(crate) fn rebuild(&self) -> RebuildReport {
        self.try_rebuild(&[], None).unwrap()
    }

    /// Rebuilds, and expects a complete result.
    pub(crate) fn rebuild_all(&self, told: &str) -> RebuildReport {
        let report = self.rebuild();
        assert!(report.is_whole(), "{told}: {report:?}");
        report
    }

    pub(crate) fn scrub(&self) -> scrub::Report {
        let options = scrub::Options { selection: Selection::All, from_medium: false, resume: false };
        scrub(&self.vault, b"", options, QUIET).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        status(&self.vault, b"", true, 1000, QUIET).unwrap()
    }

    pub(crate) fn overview(&self) -> PoolOverview {
        overview(&self.pool, &Coders::new().unwrap(), 1000).unwrap()
    }

    /// Content as a reader gets it, with the reads that it took.
    pub(crate) fn read(&self, name: &str) -> (Option<Vec<u8>>, Read) {
        let coders = Coders::new().unwrap();
        let reader = DegradedReader::open(&self.pool, &coders, name.as_bytes()).unwrap();
        let mut content = Vec::new();
        let got = copy_out(&reader, &mut content);
        (got.ok().map(|_| content), reader.report())
    }

    /// Every file equals its reference copy.
    pub(crate) fn assert_right(&self, told: &str) {
        for (name, content) in &self.files {
            assert!(self.read(name).0.as_ref() == Some(content), "{told}: {name}");
        }
    }

    /// Every file is readable without redundancy, healthy, and has its columns in separate domains on reachable
    /// targets.
    pub(crate) fn assert_whole(&self, told: &str) {
        for (name, content) in &self.files {
            let mut plain = Vec::new();
            self.pool.get(name.as_bytes(), &mut plain).unwrap_or_else(|error| panic!("{told}: {error}"));
            assert!(plain == *content, "{told}: {name}");
            let (checked, report) = self.read(name);
            assert!(checked.as_ref() == Some(content) && !report.is_degraded(), "{told}: {name}: {report:?}");
        }
        let scrubbed = self.scrub();
        assert!(scrubbed.damage.is_empty() && scrubbed.failed.is_empty(), "{told}: {scrubbed:?}");
        let status = self.status();
        assert!(status.affected.is_empty() && status.pending.0 == 0, "{told}: {status:?}");
        assert_eq!(status.matrix.keys().collect::<Vec<_>>(), [&(2, 2)], "{told}");
        self.assert_apart(told);
        let again = self.rebuild();
        assert!(again.is_whole() && again.plan.files.is_empty(), "{told}: {again:?}");
        assert_eq!((again.removed, again.swept), (0, 0), "{told}: {again:?}");
    }

    /// Data and redundancy columns of a file are all in separate domains.
    pub(crate) fn assert_apart(&self, told: &str) {
        let config = self.pool.config();
        let domain = |name: &str| {
            let member = config.target.iter().find(|member| member.name == name);
            member.unwrap().domain.clone()
        };
        for name in self.files.keys() {
            let stub = self.pool.stub(name.as_bytes()).unwrap();
            let mut domains: Vec<String> = stub.targets.iter().map(|name| domain(name)).collect();
            domains
                .extend(self.redundancy(name).into_iter().map(|(number, _)| domain(&format!("d{number}"))));
            let distinct: BTreeSet<&String> = domains.iter().collect();
            assert_eq!(distinct.len(), domains.len(), "{told}: {name} is in {domains:?}");
        }
    }

    /// The redundancy files of a file.
    pub(crate) fn redundancy(&self, name: &str) -> Vec<(usize, PathBuf)> {
        let id = self.pool.stub(name.as_bytes()).unwrap().id.to_string();
        let place = |number: usize| self.target(number).join("parity").join(&id[..2]).join(&id);
        let all = (1..=self.count).map(|number| (number, place(number)));
        all.filter(|(_, path)| path.exists()).collect()
    }

    /// Redundancy files on all reachable targets.
    pub(crate) fn redundancy_files(&self) -> usize {
        let of = |number: usize| ["parity", "redundancy"].map(|top| self.target(number).join(top));
        let tops = (1..=self.count).flat_map(of).filter(|top| top.exists());
        tops.map(|top| files_below(&top).len()).sum()
    }

    pub(crate) fn object(&self, name: &str, column: usize) -> PathBuf {
        let stub = self.pool.stub(name.as_bytes()).unwrap();
        let object = format!("{}.{column}", stub.id);
        self.dir.path().join(stub.targets[column].as_str()).join("objects").join(&object[..2]).join(object)
    }

    /// Targets with bytes of a file.
    pub(crate) fn data(&self, name: &str) -> Vec<String> {
        let stub = self.pool.stub(name.as_bytes()).unwrap();
        let has_bytes = |column: &usize| stub.object_bytes(*column, stub.size) > 0;
        (0..stub.targets.len()).filter(has_bytes).map(|column| stub.targets[column].to_string()).collect()
    }

    /// Files with columns on a target.
    pub(crate) fn on(&self, number: usize) -> BTreeSet<String> {
        let touched = |name: &&String| {
            self.data(name).contains(&format!("d{number}"))
                || self.redundancy(name).iter().any(|(holder, _)| *holder == number)
        };
        self.files.keys().filter(touched).cloned().collect()
    }

    /// Files that cannot be restored without these targets.
    pub(crate) fn beyond(&self, lost: &[usize]) -> BTreeSet<String> {
        let gone = |name: &str| lost.iter().any(|number| format!("d{number}") == name);
        let beyond = |name: &&String| {
            let data = self.data(name).iter().filter(|target| gone(target)).count();
            let left = self.redundancy(name).iter().filter(|(number, _)| !lost.contains(number)).count();
            data > left
        };
        self.files.keys().filter(beyond).cloned().collect()
    }

    /// Names of files with the given health, by the overview.
    pub(crate) fn named(&self, wanted: FileHealth) -> BTreeSet<String> {
        let found = self.overview().named;
        let of = found.into_iter().filter(|(_, health, _)| *health == wanted);
        of.map(|(path, ..)| String::from_utf8(path).unwrap()).collect()
    }
}

/// All files below a directory.
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

/// Inverts one byte of a file and restores its mtime: bit rot.
pub(crate) fn rot(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
    file.set_modified(modified).unwrap();
}

impl Fixture {
    /// Repairs a file in place.
    pub(crate) fn repair(&self, name: &str) {
        let _lock = self.vault.lock("test").unwrap();
        let done = gabion_vault::repair::repair(&self.vault, name.as_bytes(), QUIET).unwrap();
        assert_eq!(done.state, gabion_vault::catalogue::State::Protected, "{done:?}");
    }
}
