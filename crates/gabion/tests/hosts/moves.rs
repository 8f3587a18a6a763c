//! Changelogs that move, hosts that drain, and copies of the catalogue, while something fails.

use crate::network::Network;
use crate::suspended::Traced;
use gabion_testkit::kill::{can_kill, sample};
use gabion_testkit::until;

const SERVER: &str = "redis://10.99.0.1:6379/";

/// Requests to the server after which it dies, in each direction.
const USUAL: usize = 5;

/// The server dies at any request of a move, and comes back when the move is over. The vault is on one side or the
/// other, and nothing is lost.
#[test]
fn a_move_survives_the_death_of_the_server() {
    let test = "a_move_survives_the_death_of_the_server";
    if !can_kill(test) {
        return;
    }
    let Some(mut network) = Network::new(test, 1) else { return };
    network.write(10, 4096, 1);
    network.expect(1, 0, &["protect", "tree"]);
    let settings = network.tree().join(".gabion/vault.toml");
    let is_shared = || std::fs::read_to_string(&settings).unwrap().contains("redis://");
    let (mut number, mut failed) = (0, 0);
    for to in ["embedded", SERVER] {
        let arguments = ["changelog", "move", "tree", "--to", to];
        let mut recorded = Traced::new(&network, number, "trace=sendto", &arguments);
        assert!(recorded.child.wait().unwrap().success());
        let steps = sample(test, recorded.steps(), USUAL);
        for step in steps {
            // Back to where this direction begins.
            if is_shared() != (to == "embedded") {
                let back = if to == "embedded" { SERVER } else { "embedded" };
                network.expect(1, 0, &["changelog", "move", "tree", "--to", back]);
            }
            number += 1;
            network.write_files(10, 4096, number as u64 + 1);
            let expression = format!("inject=sendto:signal=STOP:when={}", step.nth);
            let mut moving = Traced::new(&network, number, &expression, &arguments);
            assert!(moving.is_stopped(), "{step:?}");
            network.kill_server();
            moving.wake();
            failed += moving.end_with(&[0, 2]) / 2;
            network.start_server();
            network.truth();
            network.expect(1, 0, &["protect", "tree"]);
            network.assert_whole();
        }
        if is_shared() == (to == "embedded") {
            network.expect(1, 0, &arguments);
        }
    }
    println!("{failed} moves failed");
    assert!(failed > 0);
}

/// A changelog does not move while anybody is known who would go on with the former one.
#[test]
fn a_changelog_in_use_does_not_move() {
    let Some(mut network) = Network::new("a_changelog_in_use_does_not_move", 2) else { return };
    let moving = |to| ["changelog", "move", "tree", "--to", to];
    let refused = |network: &Network, host, more: &[&str], to| {
        let output = network.expect(host, 2, &[&moving(to)[..], more].concat());
        String::from_utf8(output.stderr).unwrap()
    };
    network.write(10, 4096, 1);
    let (mut mount, _) = network.mount(1, &["--workers", "0"]);
    let mut watch = network.watch(2);
    let mut worker = network.follower(1, "64KiB/s");
    worker.wait_for("started");
    let why = refused(&network, 0, &[], "embedded");
    for who in ["mount on host1, process", "watch on host2, process", "worker on host1, process"] {
        assert!(why.contains(who), "{why}");
    }
    watch.end();
    worker.stop();
    let why = refused(&network, 0, &[], "embedded");
    assert!(why.contains("mount on host1") && !why.contains("worker") && !why.contains("watch"), "{why}");
    mount.kill();
    // The dead of this host are forgotten at once, those of others after a while.
    network.expect(1, 0, &[&moving("embedded")[..], &["--wait"]].concat());

    let (mut mount, _) = network.mount(1, &["--workers", "0"]);
    let mut worker = network.follower(1, "64KiB/s");
    worker.wait_for("started");
    let why = refused(&network, 1, &[], SERVER);
    assert!(why.contains("a mount, process") && why.contains("worker on host1"), "{why}");
    let why = refused(&network, 1, &["--force"], SERVER);
    assert!(why.contains("a mount, process"), "it certainly lives: {why}");
    mount.end();
    worker.stop();
    network.expect(1, 0, &moving(SERVER));

    // Whoever is ignored is lost, and whether anybody is there is unknown without the server.
    let (mut mount, _) = network.mount(2, &["--workers", "0"]);
    refused(&network, 0, &[], "embedded");
    network.expect(0, 0, &[&moving("embedded")[..], &["--force"]].concat());
    mount.kill();
    network.expect(1, 0, &moving(SERVER));
    network.kill_server();
    let why = refused(&network, 0, &["--wait"], "embedded");
    assert!(why.contains("who uses the vault is unknown"), "{why}");
    network.expect(1, 0, &[&moving("embedded")[..], &["--force"]].concat());
    network.expect(1, 0, &["protect", "tree"]);
    network.expect(1, 0, &["scrub", "tree"]);
    network.start_server();
}

/// A worker that was in the middle of nothing while the changelog moved goes on with the new one.
#[test]
fn a_worker_notices_that_the_changelog_moved() {
    let Some(network) = Network::new("a_worker_notices_that_the_changelog_moved", 2) else { return };
    let mut worker = network.follower(1, "64KiB/s");
    worker.wait_for("started");
    network.expect(0, 0, &["changelog", "move", "tree", "--to", "embedded", "--force"]);
    until("it notices", || worker.errors().contains("the changelog was moved to embedded"));
    until("it works again", || worker.errors().contains("working again"));
    worker.stop();
}

/// A drain that could not be asked for is not in force, and one that was is after the server was killed.
#[test]
fn a_drain_is_in_force_or_was_refused() {
    let Some(mut network) = Network::new("a_drain_is_in_force_or_was_refused", 2) else { return };
    let mut worker = network.follower(1, "64KiB/s");
    worker.wait_for("started");
    let drain = ["work", "tree", "--drain", &Network::name(1), "--timeout", "5m"];
    network.kill_server();
    network.expect(2, 2, &drain);
    network.start_server();
    network.write(10, 4096, 1);
    network.wait_until_done();
    network.expect(2, 0, &drain);
    network.kill_server();
    network.truth();
    network.start_server();
    network.write(10, 4096, 2);
    network.truth();
    let list = network.expect(2, 0, &["work", "tree", "--list"]);
    assert!(String::from_utf8(list.stdout).unwrap().contains("draining"));
    assert!(network.with_vault(|vault| vault.changelog.pending().unwrap().entries()) == 10);
    network.expect(2, 0, &["work", "tree", "--resume", &Network::name(1)]);
    network.wait_until_done();
    worker.stop();
    network.assert_whole();
}

/// Whoever removes a copy that is in use has it made again.
#[test]
fn a_copy_of_the_catalogue_may_be_removed_in_use() {
    let Some(network) = Network::new("a_copy_of_the_catalogue_may_be_removed_in_use", 2) else { return };
    let mut workers = [network.follower(1, "64KiB/s"), network.follower(2, "64KiB/s")];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    for round in 1..4 {
        network.write(20, 8192, round);
        std::fs::remove_dir_all(network.cache(1)).unwrap();
        network.truth();
        network.wait_until_done();
        network.truth();
    }
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}
