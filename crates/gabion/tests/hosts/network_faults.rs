//! Networks that fail while something is done.

use crate::network::Network;
use crate::portions::{SIZE, shared_task, workers};
use gabion_testkit::until;
use std::process::Stdio;

/// A command that a person typed does not wait for the network. It says what happened, and can be repeated.
#[test]
fn a_protect_that_is_cut_off_says_so_and_is_repeated() {
    let Some(network) = Network::new("a_protect_that_is_cut_off_says_so_and_is_repeated", 1) else { return };
    network.write_files(20, 32 << 10, 1);
    network.truth();
    let mut protect = network.gabion(1, &["protect", "tree", "--threads", "1", "--limit", "64KiB/s"]);
    let protect = protect.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    network.with_vault(|vault| until("it holds claims", || Network::claims(vault, 1) > 0));
    network.cut(1);
    network.truth();
    let output = protect.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the server 10.99.0.1:6379 is away"), "{said}");
    network.truth();
    network.heal(1);
    network.truth();
    network.expect(1, 0, &["protect", "tree"]);
    network.assert_whole();
}

/// Either host of two that encode one file: the owner of the task, and the one that helps it.
#[test]
fn a_host_that_is_cut_off_in_a_shared_file_is_replaced() {
    for is_owner in [true, false] {
        let Some(network) = Network::new("a_host_that_is_cut_off_in_a_shared_file_is_replaced", 2) else {
            return;
        };
        let mut workers = workers(&network);
        network.write(1, SIZE, 1);
        let host = network.with_vault(|vault| {
            until("both hosts are at the file", || shared_task(vault).is_some());
            let task = shared_task(vault).expect("it takes seconds");
            if (task.owner.host() == Network::name(1)) == is_owner { 1 } else { 2 }
        });
        network.cut(host);
        network.truth();
        network.wait_until_done();
        network.truth();
        network.heal(host);
        // Both work again.
        network.write(20, 64 << 10, 2);
        network.truth();
        network.wait_until_done();
        workers.iter_mut().for_each(|worker| worker.stop());
        network.assert_whole();
    }
}

/// Nothing goes from one worker to the other but through the server and the storage.
#[test]
fn hosts_that_are_cut_from_each_other_share_all_work() {
    let Some(network) = Network::new("hosts_that_are_cut_from_each_other_share_all_work", 2) else { return };
    network.cut_from_each_other();
    let mut workers = workers(&network);
    network.write(1, SIZE, 1);
    network.with_vault(|vault| until("both hosts are at the file", || shared_task(vault).is_some()));
    network.truth();
    network.wait_until_done();
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}

/// One packet in twenty is lost in either direction, and the rest is slow.
#[test]
fn lost_packets_and_a_slow_network_only_cost_time() {
    let Some(network) = Network::new("lost_packets_and_a_slow_network_only_cost_time", 2) else { return };
    let hosts = 0..network.hosts();
    hosts.clone().for_each(|host| {
        network.lose(host, 5);
        network.slow_down(host, "4mbit");
    });
    let mut workers = workers(&network);
    network.write(40, 256 << 10, 1);
    network.truth();
    network.wait_until_done();
    network.write(1, SIZE, 2);
    network.truth();
    network.wait_until_done();
    hosts.for_each(|host| network.heal(host));
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}
