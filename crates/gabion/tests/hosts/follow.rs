//! A worker that stays, on one host with the embedded changelog.

use crate::worker::Follower;
use gabion_testkit::{PATIENCE, until};
use gabion_vault::changelog::{Change, When};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    /// An empty vault.
    fn new() -> Fixture {
        let fixture = Fixture { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(fixture.tree()).unwrap();
        fixture.expect(0, &["protect", "tree", "--code", "2+1"]);
        fixture
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command.current_dir(self.dir.path()).args(args).env_remove("GABION_REPOSITORY");
        command
    }

    fn expect(&self, code: i32, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "gabion {}: {output:?}", args.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    fn vault(&self) -> Vault {
        Vault::open(&Location::find(&self.tree(), None).unwrap(), Clock::System).unwrap()
    }

    fn write(&self, names: &[&str]) {
        names.iter().for_each(|name| std::fs::write(self.tree().join(name), name.repeat(1000)).unwrap());
        let vault = self.vault();
        let when = When::now(vault.clock.now(), 0);
        let changes: Vec<Change> = names.iter().map(|name| Change::modify_whole(*name, when)).collect();
        vault.changelog.record(&changes).unwrap();
    }

    fn wait_until_done(&self) {
        let vault = self.vault();
        until("nothing is pending", || vault.changelog.pending().unwrap().entries() == 0);
    }
}

#[test]
fn a_worker_follows_until_it_is_stopped() {
    let fixture = Fixture::new();
    let place = fixture.dir.path().join("notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut buffer = [0; 512];
        let got = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..got].to_vec()).unwrap()
    };
    let mut command = fixture.command(&["work", "tree", "--follow", "--json"]);
    command.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "1000000");
    let mut worker = Follower::spawn(command, fixture.dir.path(), "worker");
    worker.wait_for("started");
    until("READY=1", || heard().contains("READY=1"));
    until("WATCHDOG=1", || heard().contains("WATCHDOG=1"));
    for names in [&["a", "b"][..], &["c"]] {
        fixture.write(names);
        fixture.wait_until_done();
    }
    until("it says what it did", || worker.encoded() == 3);
    // A removed file, and one that is gone before anybody looks.
    std::fs::remove_file(fixture.tree().join("a")).unwrap();
    let vault = fixture.vault();
    vault.changelog.record(&[Change::delete("a", When::now(vault.clock.now(), 0))]).unwrap();
    fixture.wait_until_done();
    until("it says that it removed redundancy", || worker.events().iter().any(|event| event["removed"] == 1));
    // An idle worker prints nothing.
    let events = worker.events().len();
    let listed: serde_json::Value =
        serde_json::from_str(&fixture.expect(0, &["work", "tree", "--list", "--json"])).unwrap();
    assert_eq!(
        (&listed["workers"][0]["claims"], &listed["workers"][0]["resident"]),
        (&0.into(), &true.into())
    );
    assert!(fixture.expect(0, &["status", "tree"]).contains("\nworkers\n"));
    assert_eq!(worker.events().len(), events);
    worker.stop();
    until("STOPPING=1", || heard().contains("STOPPING=1"));
    assert_eq!(fixture.expect(0, &["work", "tree", "--list"]), "no workers\n", "it has left");
    fixture.expect(0, &["scrub", "tree"]);
}

/// The tree with its repository is away for a while, as a network file system is. The worker does not go on in what it
/// has open, and finds it again.
#[test]
fn a_repository_that_is_away_is_waited_for() {
    let fixture = Fixture::new();
    let mut worker = Follower::spawn(
        fixture.command(&["work", "tree", "--follow", "--json"]),
        fixture.dir.path(),
        "worker",
    );
    worker.wait_for("started");
    let away = fixture.dir.path().join("away");
    std::fs::rename(fixture.tree(), &away).unwrap();
    worker.wait_for("interrupted");
    std::fs::rename(&away, fixture.tree()).unwrap();
    fixture.write(&["a"]);
    worker.wait_for("continued");
    fixture.wait_until_done();
    worker.stop();
    assert_eq!(worker.errors().matches("cannot work").count(), 1, "{}", worker.errors());
    fixture.expect(0, &["status", "tree"]);
}

/// A path that is no vault is refused at once: it would be waited for forever.
#[test]
fn a_worker_without_a_vault_ends() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gabion"))
        .args(["work", "--follow"])
        .arg(dir.path())
        .env_remove("GABION_REPOSITORY")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A worker that was killed on this host leaves no claims: the next one takes its work over without waiting.
#[test]
fn a_drain_waits_for_no_dead_worker() {
    let fixture = Fixture::new();
    let args = ["work", "tree", "--follow", "--json", "--threads", "1", "--limit", "1KiB/s"];
    let mut worker = Follower::spawn(fixture.command(&args), fixture.dir.path(), "worker");
    worker.wait_for("started");
    fixture.write(&["a", "b", "c"]);
    let vault = fixture.vault();
    until("it holds claims", || vault.changelog.pending().unwrap().claimed > 0);
    worker.kill();
    let text = fixture.expect(0, &["work", "tree", "--drain", "--timeout", "5m"]);
    assert!(text.contains("0 claims left"), "{text}");
    let text = fixture.expect(0, &["work", "tree"]);
    assert!(text.contains("draining") && text.contains("encoded 0 files"), "{text}");
    fixture.expect(0, &["work", "tree", "--resume"]);
    assert!(fixture.expect(0, &["work", "tree"]).contains("encoded 3 files"));
}

/// On one host, too: a running worker obeys a limit, and works on when it is removed. This file would take hours.
#[test]
fn limits_hold_for_running_workers() {
    let fixture = Fixture::new();
    fixture.expect(0, &["work", "tree", "--set-limits", "--limit", "1KiB/s"]);
    let args = ["work", "tree", "--follow", "--json", "--threads", "1"];
    let mut worker = Follower::spawn(fixture.command(&args), fixture.dir.path(), "worker");
    worker.wait_for("started");
    std::fs::write(fixture.tree().join("large"), vec![7; 4 << 20]).unwrap();
    let vault = fixture.vault();
    vault.changelog.record(&[Change::modify_whole("large", When::now(vault.clock.now(), 0))]).unwrap();
    until("it holds a claim", || vault.changelog.pending().unwrap().claimed == 1);
    // The place of a second worker is taken.
    fixture.expect(0, &["work", "tree", "--set-limits", "--limit", "1KiB/s", "--at-once", "1"]);
    fixture.write(&["small"]);
    let text = fixture.expect(0, &["work", "tree"]);
    assert!(text.contains("as many workers at work as its limits allow"), "{text}");
    let text = fixture.expect(0, &["work", "tree", "--list"]);
    assert!(text.ends_with(": 1.00 KiB/s, 1 worker at once\n"), "{text}");
    let text = fixture.expect(0, &["work", "tree", "--remove-limits"]);
    assert!(text.ends_with(": none\n"), "{text}");
    fixture.wait_until_done();
    worker.stop();
    fixture.expect(0, &["scrub", "tree"]);
}
