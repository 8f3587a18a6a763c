//! Changelogs that move, hosts that drain, and copies of the catalogue, while something fails.

use crate::network::Network;
use crate::suspended::Traced;
use gabion_testkit::kill::{can_kill, sample};

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
