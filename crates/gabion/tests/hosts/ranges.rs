//! Writes through mounts on two hosts into one protected file: workers read the stripes that were written, and the
//! whole file where a range may be missing. After each case a scrub finds no damage, and nothing is undone.

use crate::network::Network;
use crate::worker::Follower;
use gabion_platform::mapping::SharedMapping;
use gabion_testkit::until;
use gabion_vault::changelog::monitors::{KnownMonitor, MonitorState};
use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const SIZE: usize = 8 << 20;
const STRIPE: usize = 2 * (64 << 10);
const PAGE: usize = 4096;

/// A protected file, mounted on two hosts.
struct Site {
    network: Network,
    mounts: [Follower; 2],
    at: [PathBuf; 2],
    /// What the file has to contain.
    expected: Vec<u8>,
    /// Stripes that were written since the file was protected.
    touched: BTreeSet<usize>,
    writes: usize,
}

impl Site {
    fn new(test: &str) -> Option<Site> {
        let network = Network::new(test, 2)?;
        let policy = "[default]\ncode = \"2+1\"\nblock = \"64KiB\"\nquiet = \"0s\"\n";
        std::fs::write(network.tree().join(".gabion/policy.toml"), policy).unwrap();
        let expected: Vec<u8> = (0..SIZE).map(|at| (at * 31 % 251) as u8).collect();
        std::fs::write(network.tree().join("file"), &expected).unwrap();
        network.expect(0, 0, &["protect", "tree"]);
        let [(first, one), (second, two)] = [1, 2].map(|host| network.mount(host, &["--workers", "0"]));
        let (mounts, at) = ([first, second], [one, two]);
        Some(Site { network, mounts, at, expected, touched: BTreeSet::new(), writes: 0 })
    }

    fn open(&self, mount: usize) -> File {
        open(&self.at[mount])
    }

    /// Expects other bytes in a range, and returns them.
    fn next(&mut self, at: usize, length: usize) -> Vec<u8> {
        self.writes += 1;
        let bytes = vec![(self.writes % 255) as u8 + 1; length];
        self.expected[at..at + length].copy_from_slice(&bytes);
        self.touched.extend(at / STRIPE..=(at + length - 1) / STRIPE);
        bytes
    }

    fn write(&mut self, file: &File, at: usize) {
        let bytes = self.next(at, PAGE);
        file.write_all_at(&bytes, at as u64).unwrap();
    }

    /// An offset, another one at each call.
    fn somewhere(&self) -> usize {
        self.writes * 7919 % (SIZE / PAGE) * PAGE
    }

    /// Lets a worker work off what is pending. Returns the bytes that it read. If that takes so long that a mount which
    /// does not answer is given up, a scan stays pending.
    fn work(&self) -> usize {
        let mut read = 0;
        self.network.with_vault(|vault| {
            until("no file is pending", || {
                let output = self.network.gabion(0, &["work", "tree", "--json"]).output().unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
                read += last["encoded_bytes"].as_u64().unwrap_or_else(|| panic!("{last}")) as usize;
                vault.changelog.entries(None, 9).unwrap().iter().all(|entry| entry.path.is_empty())
            });
        });
        read
    }

    /// Expects that the worker reads little more than the stripes that were written.
    fn expect_stripes(&mut self, what: &str) {
        let (read, touched) = (self.work(), self.touched.len() * STRIPE);
        assert!(read > 0 && read * 10 <= touched * 11, "{what}: {read} of {touched} bytes");
        self.check(what);
    }

    fn expect_all(&mut self, what: &str) {
        let read = self.work();
        assert!(read >= SIZE, "{what}: {read} bytes");
        self.check(what);
    }

    /// Expects that the redundancy is of what was written.
    fn check(&mut self, what: &str) {
        assert!(std::fs::read(self.network.tree().join("file")).unwrap() == self.expected, "{what}");
        self.network.expect(0, 0, &["scrub", "tree"]);
        self.touched.clear();
    }

    /// One host writes a page while a long write of the other one is under way, so that the versions which the other
    /// one sees before and after it do not tell. `then` happens as soon as the page is written.
    fn write_within(&mut self, then: impl FnOnce(&mut Site)) {
        let slow = File::options()
            .write(true)
            .custom_flags(OFlags::DSYNC.bits() as i32)
            .open(self.at[1].join("file"))
            .unwrap();
        let quick = self.open(0);
        let large = self.next(0, SIZE / 2);
        let at = SIZE / 2 + self.writes % 16 * STRIPE;
        let small = self.next(at, PAGE);
        let source = File::open(self.network.tree().join("file")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| slow.write_all_at(&large, 0).unwrap());
            // It has begun, and takes until the bytes are on the disk.
            let mut begin = [0];
            until("the long write has begun", || {
                assert_eq!(source.read_at(&mut begin, 0).unwrap(), 1);
                begin[0] == large[0]
            });
            quick.write_all_at(&small, at as u64).unwrap();
            then(self);
        });
        slow.sync_all().unwrap();
    }

    fn protect(&self) {
        self.network.expect(0, 0, &["protect", "tree"]);
    }

    /// Waits until the first mount has recorded everything and has its mark, and nothing is pending.
    fn settle(&mut self, what: &str) {
        self.open(0).sync_all().unwrap();
        self.network.with_vault(|vault| {
            let monitors = vault.changelog.monitors().unwrap();
            let is_running = |it: &KnownMonitor| it.state == MonitorState::Running;
            until("nothing is lost or pending", || {
                self.protect();
                let known = monitors.known_monitors().unwrap();
                known.iter().filter(|it| is_running(it)).count() == 2
                    && known.iter().all(is_running)
                    && vault.changelog.pending().unwrap().entries() == 0
            });
        });
        self.check(what);
    }

    fn end(mut self) {
        self.mounts.iter_mut().for_each(Follower::end);
        self.protect();
        self.check("at the end");
        self.network.assert_clean();
    }
}

fn open(mount: &Path) -> File {
    File::options().read(true).write(true).open(mount.join("file")).unwrap()
}

fn sync(files: &[File; 2]) {
    files.iter().for_each(|file| file.sync_all().unwrap());
}

#[test]
fn only_what_was_written_on_any_host_is_read() {
    let Some(mut site) = Site::new("only_what_was_written_on_any_host_is_read") else { return };
    let mut files = [site.open(0), site.open(1)];
    for round in 0..3 {
        for number in 0..12 {
            let at = site.somewhere();
            site.write(&files[number % 2], at);
        }
        sync(&files);
        site.expect_stripes(&format!("by turns, round {round}"));
    }
    // Both at once, within the same steps of timestamps.
    let offsets: Vec<usize> = (0..16).map(|number| (number * 7 + 3) * 13 % (SIZE / PAGE) * PAGE).collect();
    let contents: Vec<Vec<u8>> = offsets.iter().map(|&at| site.next(at, PAGE)).collect();
    std::thread::scope(|scope| {
        for (mount, file) in files.iter().enumerate() {
            let (offsets, contents) = (&offsets, &contents);
            scope.spawn(move || {
                for number in (mount..offsets.len()).step_by(2) {
                    file.write_all_at(&contents[number], offsets[number] as u64).unwrap();
                }
            });
        }
    });
    sync(&files);
    site.expect_stripes("at once");
    // A mount that joins later, by a mapping.
    let [first, second] = files;
    drop(second);
    site.mounts[1].end();
    let (mount, at) = site.network.mount(2, &["--workers", "0"]);
    (site.mounts[1], site.at[1]) = (mount, at);
    files = [first, site.open(1)];
    site.write(&files[0], 40 * STRIPE);
    let page = site.next(50 * STRIPE, PAGE);
    let mut mapping = SharedMapping::new(&files[1], SIZE).unwrap();
    page.iter().enumerate().for_each(|(number, &byte)| mapping.store(50 * STRIPE + number, byte));
    mapping.sync().unwrap();
    drop(mapping);
    sync(&files);
    site.expect_stripes("by a mapping");
    drop(files);
    site.end();
}

/// What changes a file otherwise than by writes through a mount is seen, and the file read as a whole.
#[test]
fn other_changes_between_writes_of_mounts_are_noticed() {
    let Some(mut site) = Site::new("other_changes_between_writes_of_mounts_are_noticed") else { return };
    let files = [site.open(0), site.open(1)];
    let beside = File::options().write(true).open(site.network.tree().join("file")).unwrap();
    site.write(&files[0], STRIPE);
    site.write(&beside, 9 * STRIPE);
    site.write(&files[1], 5 * STRIPE);
    sync(&files);
    site.expect_all("beside the mounts");

    site.write(&files[0], STRIPE);
    files[1].set_len((SIZE / 2) as u64).unwrap();
    files[1].set_len(SIZE as u64).unwrap();
    site.expected[SIZE / 2..].fill(0);
    site.write(&files[0], 3 * STRIPE);
    sync(&files);
    site.expect_all("truncated and grown");

    // Each host writes by a name that the other one does not know.
    std::fs::hard_link(site.at[0].join("file"), site.at[0].join("link")).unwrap();
    let link = File::options().write(true).open(site.at[0].join("link")).unwrap();
    site.write(&link, 2 * STRIPE);
    site.write(&files[1], 4 * STRIPE);
    sync(&files);
    site.protect();
    site.check("by another name");
    drop(link);
    std::fs::remove_file(site.at[0].join("link")).unwrap();
    site.protect();

    // One host renames what the other one has open.
    std::fs::rename(site.at[1].join("file"), site.at[1].join("other")).unwrap();
    site.write(&files[0], 6 * STRIPE);
    site.write(&files[1], 7 * STRIPE);
    sync(&files);
    site.network.with_vault(|vault| {
        let entries = vault.changelog.entries(None, 9).unwrap();
        assert!(entries.iter().any(|entry| entry.path.is_empty()), "nobody looks for it: {entries:?}");
    });
    std::fs::rename(site.at[1].join("other"), site.at[1].join("file")).unwrap();
    site.protect();
    site.check("renamed by another host");
    drop(files);
    site.end();
}

/// A range that its mount has not recorded: the version tells nothing, since another host was writing, too.
#[test]
fn ranges_are_not_trusted_while_a_mount_does_not_answer() {
    let test = "ranges_are_not_trusted_while_a_mount_does_not_answer";
    let Some(mut site) = Site::new(test) else { return };
    site.write_within(|site| site.mounts[0].signal(Signal::STOP));
    site.expect_all("suspended");
    site.mounts[0].signal(Signal::CONT);
    site.settle("it goes on");

    site.network.cut(1);
    site.write_within(|_| ());
    site.expect_all("cut off");
    site.network.heal(1);
    site.settle("it is back");

    site.network.cut(1);
    site.write_within(|site| site.mounts[0].kill());
    site.expect_all("killed");
    site.network.heal(1);
    // Its mark is given up: what began before does not count, also without it.
    site.network.expect(1, 1, &["status", "tree"]);
    (site.mounts[0], site.at[0]) = site.network.mount(1, &["--workers", "0"]);
    site.settle("given up");
    site.end();
}

/// The server comes back without ranges that it had acknowledged.
#[test]
fn ranges_that_a_server_forgot_are_missed() {
    let Some(mut site) = Site::new("ranges_that_a_server_forgot_are_missed") else { return };
    let files = [site.open(0), site.open(1)];
    site.write(&files[0], STRIPE);
    sync(&files);
    let replica = site.network.replica();
    site.write(&files[1], 3 * STRIPE);
    site.write_within(|_| ());
    sync(&files);
    site.network.fail_over(replica);
    site.write(&files[0], 5 * STRIPE);
    sync(&files);
    site.expect_all("after the loss");
    site.protect();
    site.check("after a scan");
    site.write(&files[0], 7 * STRIPE);
    site.write(&files[1], 8 * STRIPE);
    sync(&files);
    site.protect();
    site.check("later");
    drop(files);
    site.end();
}
