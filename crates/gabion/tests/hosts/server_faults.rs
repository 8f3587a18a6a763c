//! The server dies, forgets, or refuses.

use crate::network::Network;
use crate::portions::{SIZE, shared_task, workers};
use crate::worker::Follower;
use gabion_testkit::until;
use rustix::process::Signal;

/// At this rate a file takes half a second.
const SLOW: &str = "64KiB/s";
const SMALL: usize = 32 << 10;

fn slow_workers(network: &Network) -> [Follower; 2] {
    let mut workers = [network.follower(1, SLOW), network.follower(2, SLOW)];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    workers
}

/// Waits until workers hold claims and some are done.
fn wait_until_begun(network: &Network, files: u64) {
    network.with_vault(|vault| {
        until("some files are done and others claimed", || {
            let pending = vault.changelog.pending().unwrap();
            pending.entries() < files && pending.claimed > 0
        });
    });
}

/// Kills the server, starts it again with its files, and expects that everything gets done.
fn finish_with_another_server(network: &mut Network, workers: &mut [Follower]) {
    network.kill_server();
    network.truth();
    network.start_server();
    network.truth();
    network.wait_until_done();
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}

/// A server keeps what it acknowledged when it is killed: everything goes on where it was.
#[test]
fn a_server_that_is_killed_comes_back_with_everything() {
    let test = "a_server_that_is_killed_comes_back_with_everything";
    let Some(mut network) = Network::new(test, 2) else { return };
    let mut workers = slow_workers(&network);
    network.write(40, SMALL, 1);
    wait_until_begun(&network, 40);
    finish_with_another_server(&mut network, &mut workers);
}

/// The same while two hosts encode one file.
#[test]
fn a_shared_file_survives_a_killed_server() {
    let Some(mut network) = Network::new("a_shared_file_survives_a_killed_server", 2) else { return };
    let mut workers = workers(&network);
    network.write(1, SIZE, 1);
    network.with_vault(|vault| until("both hosts are at the file", || shared_task(vault).is_some()));
    finish_with_another_server(&mut network, &mut workers);
}

/// Nothing is left of what was pending, of claims, of the catalogue. A watch finds out, and scans.
#[test]
fn a_server_that_lost_everything_is_scanned_for() {
    let Some(mut network) = Network::new("a_server_that_lost_everything_is_scanned_for", 2) else { return };
    network.be_quick();
    let mut watch = network.watch(1);
    let mut worker = network.follower(2, "1GiB/s");
    worker.wait_for("started");
    network.write_files(20, 64 << 10, 1);
    network.wait_until_protected();
    network.write_files(10, 32 << 10, 2);
    network.with_vault(|vault| {
        until("the watch recorded them", || vault.changelog.pending().unwrap().entries() >= 10);
    });
    network.kill_server();
    network.truth();
    network.forget_server();
    network.start_server();
    network.truth();
    network.wait_until_protected();
    network.write_files(5, 4096, 3);
    network.wait_until_protected();
    watch.end();
    worker.stop();
    network.assert_whole();
}

/// A replica that takes over lacks the last changes, which were acknowledged. What it is told next may hide that.
#[test]
fn a_replica_that_lacks_the_last_changes_is_not_trusted() {
    for is_hidden in [false, true] {
        let test = "a_replica_that_lacks_the_last_changes_is_not_trusted";
        let Some(mut network) = Network::new(test, 2) else { return };
        network.be_quick();
        let mut watch = network.watch(1);
        network.write_files(20, 64 << 10, 1);
        network.wait_until_protected();
        let replica = network.replica();
        network.write_files(10, 32 << 10, 2);
        network.with_vault(|vault| {
            until("the watch recorded them", || vault.changelog.pending().unwrap().entries() >= 10);
        });
        if is_hidden {
            watch.signal(Signal::STOP);
        }
        network.fail_over(replica);
        network.truth();
        if is_hidden {
            // The promoted server counts past what the watch knows.
            (0..20).for_each(|_| network.record_gap("nothing"));
            watch.signal(Signal::CONT);
        }
        network.wait_until_protected();
        network.truth();
        watch.end();
        network.assert_whole();
    }
}

/// What workers hold when a replica takes over that knows nothing of it, and knows as pending what they have done.
#[test]
fn workers_survive_a_replica_that_lacks_their_claims() {
    let Some(mut network) = Network::new("workers_survive_a_replica_that_lacks_their_claims", 2) else {
        return;
    };
    network.write(40, SMALL, 1);
    let replica = network.replica();
    let mut workers = slow_workers(&network);
    wait_until_begun(&network, 40);
    network.truth();
    network.fail_over(replica);
    network.truth();
    network.wait_until_done();
    network.truth();
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}

/// Ways in which a server refuses, how they are begun and ended, and a word of what a worker says.
type Refusal = (fn(&mut Network), fn(&mut Network), &'static str);

const REFUSALS: [Refusal; 2] = [
    (
        |network| {
            network.set("maxmemory", "1gb");
            network.set("maxmemory-policy", "allkeys-lru");
            network.refuses(true);
        },
        |network| {
            network.set("maxmemory-policy", "noeviction");
            network.set("maxmemory", "0");
            network.refuses(false);
        },
        "allkeys-lru",
    ),
    (
        |network| network.change_password("battery-staple"),
        |network| {
            network.tell_password();
            network.refuses(false);
        },
        "authentication failed",
    ),
];

/// A server that would forget, or lets nobody in: workers say so and wait, and go on by themselves.
#[test]
fn a_server_that_refuses_is_waited_for() {
    for (begin, end, said) in REFUSALS {
        let Some(mut network) = Network::with_another_address("a_server_that_refuses_is_waited_for", 1)
        else {
            return;
        };
        let mut worker = network.follower(1, SLOW);
        worker.wait_for("started");
        network.write(20, SMALL, 1);
        network.with_vault(|vault| until("it holds claims", || Network::claims(vault, 1) > 0));
        begin(&mut network);
        worker.wait_for("interrupted");
        assert!(worker.errors().contains(said), "{said}: {}", worker.errors());
        network.truth();
        network.expect(1, 2, &["protect", "tree"]);
        network.truth();
        end(&mut network);
        network.truth();
        worker.wait_for("continued");
        network.wait_until_done();
        worker.stop();
        network.assert_whole();
    }
}

/// A server without memory takes no changes, and says so. What it has stays, and can be asked for.
#[test]
fn a_server_that_is_full_loses_nothing() {
    loses_nothing("a_server_that_is_full_loses_nothing", "maxmemory", "OOM");
}

/// As does one that has lost the replicas that it needs for a write.
#[test]
fn a_server_without_its_replicas_loses_nothing() {
    loses_nothing("a_server_without_its_replicas_loses_nothing", "min-replicas-to-write", "NOREPLICAS");
}

/// With a setting of 1 the server takes no changes.
fn loses_nothing(test: &str, setting: &str, said: &str) {
    let Some(network) = Network::new(test, 1) else { return };
    let mut worker = network.follower(1, SLOW);
    worker.wait_for("started");
    network.write(20, SMALL, 1);
    network.with_vault(|vault| until("it holds claims", || Network::claims(vault, 1) > 0));
    network.set(setting, "1");
    worker.wait_for("interrupted");
    assert!(worker.errors().contains(said), "{}", worker.errors());
    network.truth();
    network.write_files(25, 4096, 2);
    let refused = network.expect(1, 2, &["protect", "tree"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains(said));
    network.truth();
    network.set(setting, "0");
    worker.wait_for("continued");
    network.wait_until_done();
    network.expect(1, 0, &["protect", "tree"]);
    worker.stop();
    network.assert_whole();
}
