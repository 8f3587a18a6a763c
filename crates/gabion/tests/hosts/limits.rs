//! Limits of hosts: set once, obeyed by all workers of the host together.

use crate::network::Network;
use crate::worker::Follower;
use gabion_testkit::until;
use gabion_vault::changelog::WorkerId;
use gabion_vault::world::Stopwatch;
use serde_json::{Value, json};
use std::time::Duration;

/// A resident worker without a limit of its own.
fn follower(network: &Network, host: usize, name: &str) -> Follower {
    let command = network.gabion(host, &["work", "tree", "--follow", "--json", "--threads", "1"]);
    Follower::spawn(command, &network.tree().join(".."), name)
}

fn limits(network: &Network, host: usize) -> Value {
    let output = network.expect(host, 0, &["work", "tree", "--list", "--json"]);
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["limits"].take()
}

/// A worker of a host that is at work with something else, for an hour.
fn occupy(network: &Network, host: usize, path: &str) {
    let worker = WorkerId(format!("{}/1/another", Network::name(host)));
    network.with_vault(|vault| {
        let (hour, now) = (Duration::from_secs(3600), vault.clock.now());
        let (claims, _) = vault.changelog.claim_paths(&worker, &[path.into()], hour, now).unwrap();
        assert_eq!(claims.len(), 1);
    });
}

fn release(network: &Network, host: usize) {
    network
        .with_vault(|vault| {
            vault
                .changelog
                .expire_dead_workers(&|it| it.0.starts_with(&format!("{}/1/", Network::name(host))))
        })
        .unwrap();
}

#[test]
fn a_rate_is_of_a_host_and_not_of_each_worker() {
    let Some(mut network) = Network::new("a_rate_is_of_a_host_and_not_of_each_worker", 2) else { return };
    let said = network.expect(2, 0, &["work", "tree", "--set-limits", "host1", "--limit", "1MiB/s"]);
    assert_eq!(String::from_utf8(said.stdout).unwrap(), "limits of host1: 1.00 MiB/s\n");
    network.expect(1, 0, &["work", "tree", "--set-limits", "--all-hosts", "--at-once", "7"]);
    network.kill_server();
    network.start_server();
    let all = json!({"host": null, "rate": null, "workers_at_once": 7});
    let of_host = json!({"host": "host1", "rate": 1 << 20, "workers_at_once": null});
    assert_eq!(limits(&network, 2), json!([all, of_host]));
    // Half of the rate is another worker's. Alone, this one would take three seconds.
    network.write_one("busy", 100, 1);
    occupy(&network, 1, "busy");
    let mut worker = follower(&network, 1, "worker");
    worker.wait_for("started");
    let began = Stopwatch::start();
    network.write_one("large", 3 << 20, 2);
    until("it is encoded", || worker.encoded() == 1);
    assert!(began.seconds() > 5.0, "{}", began.seconds());
    // A limit holds in the middle of a file: this one would take hours.
    network.expect(2, 0, &["work", "tree", "--set-limits", "host1", "--limit", "1KiB/s"]);
    network.write_one("larger", 4 << 20, 3);
    network.with_vault(|vault| {
        until("the worker is at it", || {
            let known = vault.changelog.workers(vault.clock.now()).unwrap();
            known.iter().any(|it| it.attends && it.claims > 0)
        });
    });
    network.expect(1, 0, &["work", "tree", "--remove-limits"]);
    until("it is encoded", || worker.encoded() == 2);
    assert_eq!(limits(&network, 1), json!([all]));
    release(&network, 1);
    network.wait_until_done();
    worker.stop();
    network.assert_whole();
}

#[test]
fn no_more_workers_of_a_host_work_at_once_than_may() {
    let Some(network) = Network::new("no_more_workers_of_a_host_work_at_once_than_may", 2) else { return };
    network.expect(2, 0, &["work", "tree", "--set-limits", "host1", "--at-once", "1"]);
    network.write_one("busy", 100, 1);
    occupy(&network, 1, "busy");
    let mut workers = [follower(&network, 1, "first"), follower(&network, 2, "second")];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    let pending = |left: u64| {
        network.with_vault(|vault| {
            until("the rest is done", || vault.changelog.pending().unwrap().entries() == left);
        });
    };
    network.write(20, 4096, 2);
    pending(1);
    assert_eq!(workers.each_ref().map(Follower::encoded), [0, 20], "the host is full");
    let once = network.expect(1, 0, &["work", "tree"]);
    assert!(String::from_utf8(once.stdout).unwrap().contains("encoded 0 files"), "nothing is due");
    // What a person types is not limited in the number of workers.
    std::fs::write(network.tree().join("typed"), [7; 4096]).unwrap();
    let typed = network.expect(1, 0, &["protect", "tree/typed"]);
    assert!(String::from_utf8(typed.stdout).unwrap().contains("encoded   1 file "));
    workers[1].stop();
    network.write(20, 4096, 4);
    release(&network, 1);
    pending(0);
    until("the other one has left its place", || workers[0].encoded() == 21);
    workers[0].stop();
    network.assert_clean();
}

#[test]
fn impossible_limits_are_refused() {
    let Some(network) = Network::new("impossible_limits_are_refused", 1) else { return };
    let refused: [&[&str]; 9] = [
        &["--set-limits"],
        &["--set-limits", "--limit", "0"],
        &["--set-limits", "--at-once", "0"],
        &["--set-limits", "a/b", "--at-once", "1"],
        &["--set-limits", "*", "--at-once", "1"],
        &["--set-limits", "a", "--all-hosts", "--at-once", "1"],
        &["--at-once", "1"],
        &["--all-hosts"],
        &["--remove-limits", "--limit", "1MiB/s"],
    ];
    for options in refused {
        network.expect(1, 2, &[&["work", "tree"], options].concat());
    }
    assert_eq!(limits(&network, 1), json!([]));
    let said = network.expect(1, 0, &["work", "tree", "--remove-limits", "node9"]);
    assert_eq!(String::from_utf8(said.stdout).unwrap(), "node9 had no limits\n");
}
