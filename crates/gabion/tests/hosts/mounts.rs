//! Mounts and watches of one tree on several hosts.

use crate::network::Network;
use gabion_testkit::until;
use gabion_vault::changelog::monitors::MonitorState;
use gabion_vault::vault::Vault;
use rustix::fs::OFlags;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// What every host says of the monitors.
fn monitors(network: &Network, host: usize, code: i32) -> Vec<(String, String, String)> {
    monitors_of(network, "tree", host, code)
}

fn monitors_of(network: &Network, source: &str, host: usize, code: i32) -> Vec<(String, String, String)> {
    let output = network.expect(host, code, &["status", source, "--no-scan", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |monitor: &Value, field: &str| monitor[field].as_str().unwrap().to_owned();
    let of = |monitor: &Value| (text(monitor, "host"), text(monitor, "kind"), text(monitor, "state"));
    status["monitors"].as_array().unwrap().iter().map(of).collect()
}

fn expected(monitors: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    monitors.iter().map(|it| (it.0.to_owned(), it.1.to_owned(), it.2.to_owned())).collect()
}

/// State of the marks of a host.
fn states(vault: &Vault, host: usize) -> Vec<MonitorState> {
    let known = vault.changelog.monitors().unwrap().known_monitors().unwrap();
    let of_host = known.into_iter().filter(|it| it.monitor.name.host() == Network::name(host));
    of_host.map(|it| it.state).collect()
}

fn wait_until_silent(network: &Network, host: usize) {
    network.with_vault(|vault| {
        until("the mark is not renewed", || matches!(states(vault, host)[..], [MonitorState::Silent(_)]));
    });
}

fn write(path: &Path, content: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file
}

/// A mount that ends cleanly leaves nothing, one that is killed is known on its host at once.
#[test]
fn every_mount_has_a_mark_of_its_own() {
    let Some(network) = Network::new("every_mount_has_a_mark_of_its_own", 2) else { return };
    let (mut first, one) = network.mount(1, &["--workers", "0"]);
    let (mut second, two) = network.mount(2, &["--workers", "1"]);
    let mut watch = network.watch(0);
    let all = [("host0", "watch", "running"), ("host1", "mount", "running"), ("host2", "mount", "running")];
    (0..3).for_each(|host| assert_eq!(monitors(&network, host, 0), expected(&all)));
    write(&one.join("a"), b"one").sync_all().unwrap();
    write(&two.join("b"), b"two").sync_all().unwrap();
    second.end();
    assert_eq!(monitors(&network, 0, 0), expected(&all[..2]));
    watch.end();
    first.kill();
    // Without waiting for the lease, since the process was on this host.
    assert_eq!(monitors(&network, 1, 1), expected(&[("host1", "mount", "lost")]));
    let text = String::from_utf8(network.expect(2, 1, &["status", "tree"]).stdout).unwrap();
    assert!(text.contains("EXPOSED: mount on host1, process "), "{text}");
    network.expect(2, 0, &["protect", "tree"]);
    assert_eq!(monitors(&network, 1, 0), []);
    network.assert_clean();
}

/// A mount that is refused leaves no mark: nothing was changed through it.
#[test]
fn a_mount_that_never_began_is_not_lost() {
    let Some(network) = Network::new("a_mount_that_never_began_is_not_lost", 1) else { return };
    let at = network.tree().with_file_name("mnt1");
    std::fs::create_dir(&at).unwrap();
    let pool = network.pool(2);
    let no_fuse = |source: &str| {
        let mount = format!("mount --bind /dev/null /dev/fuse && exec \"$0\" mount {source} mnt1");
        let program = env!("CARGO_BIN_EXE_gabion");
        let output = network.on(1, "unshare").args(["-m", "sh", "-c", &mount, program]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot mount at"), "{said}");
    };
    for source in ["tree", &pool] {
        no_fuse(source);
        assert_eq!(monitors_of(&network, source, 1, 0), []);
    }
    let mut first = network.monitor(1, "mount", &pool, &["mnt1", "--json"]);
    first.wait_for("mounted");
    let other = network.tree().with_file_name("other");
    std::fs::create_dir(other).unwrap();
    network.expect(1, 2, &["mount", &pool, "other"]);
    assert_eq!(monitors_of(&network, &pool, 1, 0), expected(&[("host1", "mount", "running")]));
    first.end();
    // One that cannot work ends as any other does.
    let mut watch = network.watch(1);
    network.expect(1, 2, &["mount", "tree", "mnt1"]);
    assert_eq!(monitors(&network, 1, 0), expected(&[("host1", "watch", "running")]));
    watch.end();
}

/// What a host wrote and had not recorded when it died is found by the others, and until then they say so.
#[test]
fn changes_that_a_dead_host_has_not_recorded_are_found() {
    let Some(network) = Network::new("changes_that_a_dead_host_has_not_recorded_are_found", 2) else {
        return;
    };
    std::fs::write(network.tree().join("old"), vec![1; 100_000]).unwrap();
    network.expect(0, 0, &["protect", "tree"]);
    let (mut mount, at) = network.mount(1, &["--workers", "0"]);
    network.cut(1);
    drop(write(&at.join("new"), b"nobody was told"));
    let mut old = File::options().write(true).open(at.join("old")).unwrap();
    old.write_all(b"changed").unwrap();
    mount.kill();
    wait_until_silent(&network, 1);
    for host in [0, 2, 0] {
        assert_eq!(monitors(&network, host, 1), expected(&[("host1", "mount", "lost")]));
    }
    let report = network.expect(2, 0, &["protect", "tree", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(
        (&report["changes"]["added"]["files"], &report["changes"]["changed"]["files"]),
        (&1.into(), &1.into()),
        "{report}"
    );
    assert_eq!(monitors(&network, 0, 0), []);
    network.heal(1);
    network.assert_clean();
}

/// A mount that was cut off waits with changes: nobody would know of them if it died. It goes on when it is back.
#[test]
fn a_mount_that_was_cut_off_waits_and_comes_back() {
    let Some(network) = Network::new("a_mount_that_was_cut_off_waits_and_comes_back", 2) else { return };
    let (mut mount, at) = network.mount(1, &["--workers", "0"]);
    network.cut(1);
    drop(write(&at.join("before"), b"before the mark was lost"));
    wait_until_silent(&network, 1);
    assert_eq!(monitors(&network, 2, 1), expected(&[("host1", "mount", "lost")]));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| write(&at.join("late"), b"after").sync_all().unwrap());
        network.expect(2, 0, &["protect", "tree"]);
        assert_eq!(monitors(&network, 2, 0), []);
        assert!(network.redundancy("before").exists());
        assert!(!network.tree().join("late").exists(), "it was written while nobody would have noticed");
        network.heal(1);
        late.join().unwrap();
    });
    assert_eq!(monitors(&network, 2, 0), expected(&[("host1", "mount", "running")]));
    // It cannot know what was recorded for it while it was away.
    network.with_vault(|vault| {
        assert!(vault.changelog.entries(None, 9).unwrap().iter().any(|it| it.path.is_empty()))
    });
    assert!(mount.errors().contains("had no mark of this process"), "{}", mount.errors());
    mount.end();
    network.expect(2, 0, &["protect", "tree"]);
    assert_eq!(monitors(&network, 2, 0), []);
    network.assert_clean();
}

/// A watch notices that another host died, and scans without being asked.
#[test]
fn a_watch_scans_for_a_dead_host() {
    let Some(network) = Network::new("a_watch_scans_for_a_dead_host", 2) else { return };
    let mut watch = network.watch(2);
    until("the first scan", || watch.has_event("scanned"));
    let (mut mount, at) = network.mount(1, &["--workers", "0"]);
    network.cut(1);
    drop(write(&at.join("new"), b"nobody was told"));
    mount.kill();
    network.with_vault(|vault| {
        until("the loss is worked off", || states(vault, 1).is_empty());
    });
    let events = watch.events();
    assert!(events.iter().filter(|event| event["event"] == "scanned").count() >= 2, "{events:?}");
    let told = |event: &Value| event["why"].as_str().is_some_and(|why| why.contains("lost: mount on host1"));
    assert!(events.iter().any(told), "{events:?}");
    watch.end();
    network.heal(1);
    network.expect(0, 0, &["protect", "tree"]);
    network.assert_clean();
}

/// Programs on two hosts append to one file. Neither knows of what the other one has appended, and nothing is
/// overwritten. The place of each line is recorded.
#[test]
fn hosts_that_append_to_one_file_overwrite_nothing() {
    let Some(network) = Network::new("hosts_that_append_to_one_file_overwrite_nothing", 2) else { return };
    std::fs::write(network.tree().join("log"), vec![b'-'; 5000]).unwrap();
    network.expect(0, 0, &["protect", "tree"]);
    let (mut first, one) = network.mount(1, &["--workers", "0"]);
    let (mut second, two) = network.mount(2, &["--workers", "0"]);
    let mut expected = vec![b'-'; 5000];
    let append =
        |at: &Path, is_read: bool| File::options().append(true).read(is_read).open(at.join("log")).unwrap();
    // One after the other, through each kind of descriptor: also one that appends only since it was opened.
    let later = File::options().read(true).write(true).open(two.join("log")).unwrap();
    rustix::fs::fcntl_setfl(&later, OFlags::APPEND).unwrap();
    let mut logs = [append(&one, false), append(&two, false), append(&one, true), later];
    for round in 0..40 {
        for (number, log) in logs.iter_mut().enumerate() {
            let line = format!("line {round} of {number}, {}\n", "x".repeat(round * 7));
            assert_eq!(log.write(line.as_bytes()).unwrap(), line.len());
            expected.extend(line.as_bytes());
        }
    }
    assert!(std::fs::read(network.tree().join("log")).unwrap() == expected, "lines are lost");
    // It appends no more.
    rustix::fs::fcntl_setfl(&logs[3], OFlags::empty()).unwrap();
    logs[3].write_all_at(b"begin", 0).unwrap();
    expected[..5].copy_from_slice(b"begin");
    // At the same time.
    let lines = |log: &mut File, letter: &str| {
        (0..300).for_each(|_| log.write_all(format!("{}\n", letter.repeat(99)).as_bytes()).unwrap());
    };
    let [one_log, two_log, ..] = &mut logs;
    std::thread::scope(|scope| {
        scope.spawn(|| lines(one_log, "a"));
        scope.spawn(|| lines(two_log, "b"));
    });
    for log in &logs {
        log.sync_all().unwrap();
    }
    let content = std::fs::read(network.tree().join("log")).unwrap();
    assert!(content.starts_with(&expected), "what was there is lost");
    let lines: Vec<&[u8]> = content[expected.len()..].split_inclusive(|&byte| byte == b'\n').collect();
    assert_eq!(lines.len(), 600);
    assert!(lines.iter().all(|line| line.len() == 100 && line[..99].iter().all(|&byte| byte == line[0])));
    for at in [&one, &two] {
        assert!(std::fs::read(at.join("log")).unwrap() == content, "it is read through the mount");
    }
    let recorded = network.with_vault(|vault| vault.changelog.entries(None, 9).unwrap());
    let ranges = recorded.iter().find(|entry| entry.path == b"log").unwrap().ranges.clone();
    assert_eq!(ranges.as_slice(), [0..5, 5000..content.len() as u64], "what was really written");
    drop(logs);
    first.end();
    second.end();
    network.expect(0, 0, &["protect", "tree"]);
    assert!(std::fs::read(network.tree().join("log")).unwrap() == content);
    network.assert_clean();
}

/// A host writes a block while a write of another host to the same file is under way, and the worker of that mount
/// encodes the file. What it did not write itself is no corruption: it was reconstructed from the redundancy, and so
/// undone.
#[test]
fn hosts_that_write_one_file_at_once_lose_nothing() {
    const BLOCK: usize = 64 << 10;
    const BLOCKS: usize = 32;
    let Some(network) = Network::new("hosts_that_write_one_file_at_once_lose_nothing", 2) else { return };
    let policy = "[default]\ncode = \"2+1\"\nquiet = \"0s\"\n";
    std::fs::write(network.tree().join(".gabion/policy.toml"), policy).unwrap();
    let mut expected = vec![0; BLOCKS * BLOCK];
    std::fs::write(network.tree().join("file"), &expected).unwrap();
    network.expect(0, 0, &["protect", "tree"]);
    let (mut first, one) = network.mount(1, &["--workers", "1"]);
    let (mut second, two) = network.mount(2, &["--workers", "0"]);
    let source = File::open(network.tree().join("file")).unwrap();
    let slow =
        File::options().write(true).custom_flags(OFlags::DSYNC.bits() as i32).open(one.join("file")).unwrap();
    let quick = File::options().write(true).open(two.join("file")).unwrap();
    for round in 1..=20_u8 {
        let (large, small) = (vec![round; BLOCKS / 2 * BLOCK], [100 + round; 4096]);
        let at = (BLOCKS / 2 + usize::from(round) % 16) * BLOCK;
        std::thread::scope(|scope| {
            scope.spawn(|| slow.write_all_at(&large, 0).unwrap());
            // It has begun, and takes until the bytes are on the disk.
            let mut begin = [0];
            while begin != [round] {
                assert_eq!(source.read_at(&mut begin, 0).unwrap(), 1);
            }
            quick.write_all_at(&small, at as u64).unwrap();
        });
        expected[..large.len()].copy_from_slice(&large);
        expected[at..at + small.len()].copy_from_slice(&small);
        network.wait_until_done();
        assert!(
            std::fs::read(network.tree().join("file")).unwrap() == expected,
            "round {round}: a write is undone"
        );
    }
    drop((slow, quick));
    first.end();
    second.end();
    network.expect(0, 0, &["protect", "tree"]);
    assert!(std::fs::read(network.tree().join("file")).unwrap() == expected);
    network.assert_clean();
}
