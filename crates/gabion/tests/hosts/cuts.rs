//! The server is away, or a host is cut off from it.

use crate::network::Network;
use gabion_testkit::until;
use gabion_vault::world::Stopwatch;

/// A worker that is cut off in the middle of its work says so once, and finishes when the network is healed.
#[test]
fn a_host_that_was_cut_off_finishes() {
    let Some(network) = Network::new("a_host_that_was_cut_off_finishes", 1) else { return };
    let mut worker = network.follower(1, "64KiB/s");
    worker.wait_for("started");
    network.write(20, 32 << 10, 1);
    network.with_vault(|vault| until("it holds claims", || Network::claims(vault, 1) > 0));
    network.cut(1);
    let began = Stopwatch::start();
    worker.wait_for("interrupted");
    let noticed = began.seconds();
    network.heal(1);
    worker.wait_for("continued");
    let continued = began.seconds();
    network.wait_until_done();
    println!(
        "interrupted after {noticed:.1} s, continued after {continued:.1} s, done after {:.1} s",
        began.seconds()
    );
    worker.stop();
    // Once for each interruption; a busy machine may need more than one.
    let count = |text: &str| worker.errors().matches(text).count();
    assert!(count("cannot work") >= 1, "{}", worker.errors());
    assert_eq!(count("cannot work"), count("working again"), "{}", worker.errors());
    network.assert_whole();
}

/// Also a worker that is started while the server is away waits for it.
#[test]
fn a_server_that_is_away_is_waited_for() {
    let Some(mut network) = Network::new("a_server_that_is_away_is_waited_for", 2) else { return };
    let mut first = network.follower(1, "1GiB/s");
    first.wait_for("started");
    network.write(10, 4096, 1);
    network.wait_until_done();
    network.kill_server();
    first.wait_for("interrupted");
    let mut second = network.follower(2, "1GiB/s");
    second.wait_for("interrupted");
    network.start_server();
    first.wait_for("continued");
    second.wait_for("started");
    network.write(10, 4096, 2);
    network.wait_until_done();
    first.stop();
    second.stop();
    assert_eq!(first.encoded() + second.encoded(), 20);
    network.assert_whole();
}

/// `--drain` on another host than the worker's: it gives back what it has not begun, and the rest waits.
#[test]
fn a_drained_host_is_left_without_claims() {
    let Some(network) = Network::new("a_drained_host_is_left_without_claims", 2) else { return };
    let mut worker = network.follower(1, "64KiB/s");
    worker.wait_for("started");
    network.write(20, 64 << 10, 1);
    network.with_vault(|vault| until("it holds claims", || Network::claims(vault, 1) > 0));
    let drained = network.expect(2, 0, &["work", "tree", "--drain", &Network::name(1), "--timeout", "5m"]);
    let text = String::from_utf8(drained.stdout).unwrap();
    assert!(text.contains("host1: 0 claims left"), "{text}");
    worker.wait_for("draining");
    network.with_vault(|vault| {
        assert_eq!(Network::claims(vault, 1), 0);
        assert!(vault.changelog.pending().unwrap().entries() > 0, "the rest waits");
    });
    let listed = network.expect(2, 0, &["work", "tree", "--list"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("host1") && text.contains("draining"), "{text}");
    network.expect(1, 0, &["work", "tree", "--resume"]);
    network.wait_until_done();
    worker.stop();
    network.assert_whole();
}
