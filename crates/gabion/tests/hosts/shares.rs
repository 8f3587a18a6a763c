//! Two equal workers get equal shares of any backlog.

use crate::network::Network;
use crate::worker::Follower;

/// Backlogs: files, their size, and a rate limit at which a worker takes seconds for its half.
const BACKLOGS: [(usize, usize, &str); 3] =
    [(20, 4096, "16KiB/s"), (20, 16 << 20, "32MiB/s"), (600, 4096, "256KiB/s")];

/// The same for workers of which one may be there many seconds before the other, on a busy machine.
const SLOW: [&str; 3] = ["4KiB/s", "8MiB/s", "64KiB/s"];

fn assert_shared(workers: &mut [Follower; 2], files: usize) {
    workers.iter_mut().for_each(Follower::stop);
    let counts = [workers[0].encoded(), workers[1].encoded()];
    println!("{files} files: {counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), files as u64, "each file once: {counts:?}");
    let (least, most) = (files as u64 * 2 / 5, files as u64 * 3 / 5);
    assert!(counts.iter().all(|count| (least..=most).contains(count)), "{files} files: {counts:?}");
}

/// Regression: the first of two workers claimed 16 of 20 files.
#[test]
fn workers_that_wait_share_a_backlog() {
    let Some(network) = Network::new("workers_that_wait_share_a_backlog", 2) else { return };
    for (round, (files, size, limit)) in (1..).zip(BACKLOGS) {
        let mut workers = [network.follower(1, limit), network.follower(2, limit)];
        workers.iter_mut().for_each(|worker| worker.wait_for("started"));
        network.write(files, size, round);
        network.wait_until_done();
        assert_shared(&mut workers, files);
    }
    network.assert_whole();
}

#[test]
fn workers_that_start_at_once_share_a_backlog() {
    let Some(network) = Network::new("workers_that_start_at_once_share_a_backlog", 2) else { return };
    for (round, ((files, size, _), limit)) in (1..).zip(BACKLOGS.into_iter().zip(SLOW)) {
        network.write(files, size, round);
        let mut workers = [network.follower(1, limit), network.follower(2, limit)];
        workers.iter_mut().for_each(|worker| worker.wait_for("started"));
        network.wait_until_done();
        assert_shared(&mut workers, files);
    }
    network.assert_whole();
}
