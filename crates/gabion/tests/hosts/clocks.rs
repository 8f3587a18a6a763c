//! Hosts whose clocks differ by minutes.

use crate::network::Network;
use gabion_testkit::until;
use gabion_vault::world::Stopwatch;

/// Seconds by which the clocks of the server and of two workers are ahead.
const CLOCKS: [[i64; 3]; 3] = [[0, 600, -600], [-300, 300, 0], [3600, 0, 0]];

/// At this rate a file takes half a second.
const LIMIT: &str = "64KiB/s";
const SIZE: usize = 32 << 10;

/// A lease was judged by the clock of the host that asked: a worker whose clock was ahead took what it liked from
/// others.
#[test]
fn no_worker_is_robbed_by_one_whose_clock_is_ahead() {
    for clocks in CLOCKS {
        let test = "no_worker_is_robbed_by_one_whose_clock_is_ahead";
        let Some(network) = Network::with_clocks(test, &clocks) else { return };
        let mut workers = [network.follower(1, LIMIT), network.follower(2, LIMIT)];
        workers.iter_mut().for_each(|worker| worker.wait_for("started"));
        network.write(40, SIZE, 1);
        network.truth();
        network.wait_until_done();
        workers.iter_mut().for_each(|worker| worker.stop());
        let counts = [workers[0].encoded(), workers[1].encoded()];
        println!("{clocks:?}: {counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), 40, "each file once: {counts:?}");
        assert!(counts.iter().all(|&count| count > 0), "both are due: {counts:?}");
        network.assert_whole();
    }
}

/// Claims of a dead host end when their leases do, whoever looks.
#[test]
fn work_of_a_dead_host_is_taken_over_whatever_its_clock_says() {
    for clocks in CLOCKS {
        for dead in [1, 2] {
            let test = "work_of_a_dead_host_is_taken_over_whatever_its_clock_says";
            let Some(network) = Network::with_clocks(test, &clocks) else { return };
            let mut workers = [network.follower(1, LIMIT), network.follower(2, LIMIT)];
            workers.iter_mut().for_each(|worker| worker.wait_for("started"));
            network.write(40, SIZE, 1);
            network.with_vault(|vault| {
                until("it holds claims", || Network::claims(vault, dead) > 0);
                workers[dead - 1].kill();
                let killed = Stopwatch::start();
                network.truth();
                until("its claims are taken over", || Network::claims(vault, dead) == 0);
                println!("{clocks:?}: taken over after {:.1} s", killed.seconds());
            });
            network.wait_until_done();
            workers[2 - dead].stop();
            network.assert_whole();
        }
    }
}

/// A person may type a command on any host.
#[test]
fn commands_do_not_depend_on_the_clock_of_their_host() {
    let test = "commands_do_not_depend_on_the_clock_of_their_host";
    let Some(network) = Network::with_clocks(test, &[0, 600, -600]) else { return };
    for (round, host) in (1..).zip([1, 2, 0, 2, 1]) {
        network.write_files(5, 4096, round);
        network.truth();
        network.expect(host, 0, &["protect", "tree"]);
        network.truth();
        network.expect(host, 0, &["scrub", "tree"]);
    }
    network.assert_whole();
}
