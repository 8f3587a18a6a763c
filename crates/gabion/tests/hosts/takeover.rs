//! Workers that die or are stopped while they hold claims.

use crate::network::Network;
use gabion_testkit::until;
use gabion_vault::world::Stopwatch;
use rustix::process::Signal;

const FILES: usize = 40;
const SIZE: usize = 64 << 10;

/// At this rate a file takes a second, so that a worker holds claims whenever one looks.
const LIMIT: &str = "64KiB/s";

/// The work of a worker that was killed on one host is done by the one on another host, in some seconds.
#[test]
fn work_of_a_dead_host_is_taken_over() {
    let Some(network) = Network::new("work_of_a_dead_host_is_taken_over", 2) else { return };
    let mut workers = [network.follower(1, LIMIT), network.follower(2, "4MiB/s")];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    network.write(FILES, SIZE, 1);
    network.with_vault(|vault| {
        until("the first worker holds claims", || Network::claims(vault, 1) > 0);
        workers[0].kill();
        let killed = Stopwatch::start();
        until("its claims are taken over", || Network::claims(vault, 1) == 0);
        println!("taken over after {:.1} s", killed.seconds());
    });
    network.wait_until_done();
    workers[1].stop();
    assert!(workers[0].encoded() + workers[1].encoded() >= FILES as u64 - 1, "all but what it died over");
    network.assert_whole();
}

/// A worker that is suspended past its leases finds newer redundancy in place of its own, and leaves it alone.
#[test]
fn a_worker_that_was_suspended_overwrites_nothing() {
    let Some(network) = Network::new("a_worker_that_was_suspended_overwrites_nothing", 2) else { return };
    let mut workers = [network.follower(1, LIMIT), network.follower(2, "4MiB/s")];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    network.write(FILES, SIZE, 1);
    network.with_vault(|vault| {
        until("the first worker holds claims", || Network::claims(vault, 1) > 0);
        workers[0].signal(Signal::STOP);
        until("its claims are taken over", || Network::claims(vault, 1) == 0);
    });
    network.write(FILES, SIZE / 2, 2);
    network.wait_until_done();
    workers[0].signal(Signal::CONT);
    // It works again when it has dealt with its old claims.
    network.write(FILES, SIZE / 4, 3);
    network.wait_until_done();
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}
