//! Large files that several hosts encode together.

use crate::network::Network;
use crate::worker::Follower;
use gabion_testkit::until;
use gabion_vault::changelog::tasks::KnownTask;
use gabion_vault::vault::Vault;
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;

/// Four portions.
pub(crate) const SIZE: usize = 256 << 20;

/// At this rate a portion takes four seconds.
const LIMIT: &str = "16MiB/s";

pub(crate) fn workers(network: &Network) -> [Follower; 2] {
    let mut workers = [network.follower(1, LIMIT), network.follower(2, LIMIT)];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    workers
}

/// The tasks at which two workers are.
pub(crate) fn shared_task(vault: &Vault) -> Option<KnownTask> {
    let tasks = vault.changelog.tasks().unwrap().known_tasks().unwrap();
    tasks.into_iter().find(|task| task.workers.len() == 2)
}

#[test]
fn two_hosts_encode_one_file() {
    let Some(network) = Network::new("two_hosts_encode_one_file", 2) else { return };
    let mut workers = workers(&network);
    network.write(1, SIZE, 1);
    network.with_vault(|vault| {
        until("both hosts are at the file", || shared_task(vault).is_some());
        let task = shared_task(vault);
        let sum = |task: &KnownTask| (task.portions, task.amounts.all_files, task.amounts.all_bytes);
        // It may be done by now. The owner tells the amounts every second.
        assert!(task.is_none_or(|task| task.portions == 4 && [0, SIZE as u64].contains(&sum(&task).2)));
    });
    network.wait_until_done();
    workers.iter_mut().for_each(|worker| worker.stop());
    let helped: Vec<u64> = workers.iter().map(|worker| worker.sum("helped_bytes")).collect();
    let encoded: Vec<u64> = workers.iter().map(|worker| worker.sum("encoded")).collect();
    println!("encoded {encoded:?}, helped {helped:?}");
    assert_eq!(encoded.iter().sum::<u64>(), 1);
    let (owner, other) = if encoded[0] == 1 { (0, 1) } else { (1, 0) };
    assert_eq!(helped[owner], 0);
    assert!((SIZE as u64 / 4..SIZE as u64).contains(&helped[other]), "{helped:?}");
    network.assert_whole();
}

/// A worker that was given up may write as long as it likes: what is published is another file.
#[test]
fn a_suspended_helper_overwrites_nothing() {
    let Some(network) = Network::new("a_suspended_helper_overwrites_nothing", 2) else { return };
    let mut workers = workers(&network);
    network.write(1, SIZE, 1);
    let helper = network.with_vault(|vault| {
        until("both hosts are at the file", || shared_task(vault).is_some());
        let task = shared_task(vault).expect("it takes seconds");
        usize::from(task.owner.host() == Network::name(1))
    });
    workers[helper].signal(Signal::STOP);
    let drafts = workers[helper].open_inodes();
    network.wait_until_done();
    let redundancy = network.redundancy("0000");
    let published = std::fs::metadata(&redundancy).unwrap().ino();
    assert!(!drafts.contains(&published), "{} is open for a helper that was given up", redundancy.display());
    workers[helper].signal(Signal::CONT);
    // Both work again.
    network.write(20, 64 << 10, 2);
    network.wait_until_done();
    workers.iter_mut().for_each(|worker| worker.stop());
    network.assert_whole();
}
