//! Rebuilds of pools that several hosts share.

use crate::network::Network;
use crate::worker::Follower;
use gabion_testkit::until;
use gabion_vault::format::Metadata;
use gabion_vault::storage::pool::{NewTarget, Options, Pool};
use gabion_vault::world::Timestamp;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// Each file has two data columns, at most one of them on the first target: another target has nine or more, of 4 MiB
/// each, which are three portions.
const FILES: usize = 36;
const SIZE: usize = 8 << 20;
const TARGETS: usize = 5;

/// At this rate a portion takes a quarter of a minute.
const SLOW: &str = "2MiB/s";

fn content(number: usize) -> Vec<u8> {
    (0..SIZE).map(|at| (at * 7 + number * 13 + at / 4096) as u8).collect()
}

fn name(number: usize) -> String {
    format!("file {number}")
}

fn target(network: &Network, number: usize) -> PathBuf {
    network.tree().with_file_name(format!("d{number}"))
}

/// A protected pool, two workers with nothing to do, and the name of a lost target.
fn fixture(test: &str) -> Option<(Network, [Follower; 2], String)> {
    let network = Network::new(test, 2)?;
    let targets: Vec<NewTarget> =
        (0..TARGETS).map(|number| NewTarget { path: target(&network, number), domain: None }).collect();
    let pool = Pool::create("tank", &targets, 2, 64 << 10, 1, Options::default()).unwrap();
    for number in 0..FILES {
        let file = name(number);
        pool.put(
            file.as_bytes(),
            &mut &content(number)[..],
            &Metadata::default(),
            Timestamp::from_nanoseconds(5),
        )
        .unwrap();
    }
    let stub = |number| pool.stub(name(number).as_bytes()).unwrap();
    let data: Vec<String> =
        (0..FILES).flat_map(|number| stub(number).targets).map(|it| it.to_string()).collect();
    let others = (1..TARGETS).map(|number| format!("d{number}"));
    let lost = others.max_by_key(|target| data.iter().filter(|it| *it == target).count()).unwrap();
    drop(pool);
    network.expect(0, 0, &["protect", "d0", "--changelog", "redis://10.99.0.1:6379/"]);
    let worker = |host| {
        let args = ["work", "d0", "--follow", "--json", "--threads", "1", "--limit", SLOW];
        let command = network.gabion(host, &args);
        Follower::spawn(command, network.tree().parent().unwrap(), &Network::name(host))
    };
    let mut workers = [worker(1), worker(2)];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    std::fs::rename(network.tree().with_file_name(&lost), network.tree().with_file_name("lost")).unwrap();
    Some((network, workers, lost))
}

fn rebuild(network: &Network) -> Child {
    let args = ["pool", "rebuild", "d0", "--json", "--threads", "1", "--limit", SLOW];
    network.gabion(0, &args).stdout(Stdio::piped()).spawn().unwrap()
}

/// Whether both workers are at portions of the rebuild.
fn is_helped(network: &Network) -> bool {
    let output = network.expect(0, 0, &["work", "d0", "--list", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hosts = &report["tasks"][0]["hosts"];
    [1, 2]
        .iter()
        .all(|&host| hosts.as_array().is_some_and(|hosts| hosts.contains(&Network::name(host).into())))
}

fn end(command: Child) -> (Option<i32>, Value) {
    let output = command.wait_with_output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

/// Everything is where it belongs, and is what it was.
fn assert_whole(network: &Network, lost: &str) {
    network.expect(0, 0, &["scrub", "d0"]);
    let status = network.expect(2, 1, &["pool", "status", "d0"]).stdout;
    let status = String::from_utf8(status).unwrap();
    assert!(
        status.contains(&format!("files: {FILES} whole, 0 pending, 0 to be moved, 0 degraded, 0 lost")),
        "{status}"
    );
    let pool = Pool::open_at(&[target(network, 0)], Options::default()).unwrap();
    for number in 0..FILES {
        let stub = pool.stub(name(number).as_bytes()).unwrap();
        assert!(stub.targets.iter().all(|target| target != lost), "{stub:?}");
        let mut read = Vec::new();
        pool.get(name(number).as_bytes(), &mut read).unwrap();
        assert!(read == content(number), "{number}");
    }
}

#[test]
fn hosts_share_a_rebuild() {
    let Some((network, mut workers, lost)) = fixture("hosts_share_a_rebuild") else { return };
    let rebuild = rebuild(&network);
    until("both workers help", || is_helped(&network));
    let (code, report) = end(rebuild);
    assert_eq!(code, Some(0), "{report}");
    workers.iter_mut().for_each(|worker| worker.stop());
    let helped: Vec<u64> = workers.iter().map(|worker| worker.sum("helped")).collect();
    println!("helped {helped:?}: {report}");
    assert!(helped.iter().sum::<u64>() >= 1, "{helped:?}");
    // As many columns as the target had: each file has three on five targets.
    assert!(report["files"].as_u64().unwrap() >= FILES as u64 / 5, "{report}");
    assert_whole(&network, &lost);
}

/// Portions of killed and of suspended workers are done by others, whatever these do afterwards. A file whose
/// redundancy a suspended one has locked is left for the next run, and keeps nobody waiting for ever.
#[test]
fn a_rebuild_survives_its_workers() {
    let Some((network, mut workers, lost)) = fixture("a_rebuild_survives_its_workers") else { return };
    let rebuild = rebuild(&network);
    until("both workers help", || is_helped(&network));
    workers[0].kill();
    workers[1].signal(rustix::process::Signal::STOP);
    let (code, report) = end(rebuild);
    let failed = report["failed"].as_array().unwrap();
    println!("{failed:?}");
    assert_eq!(code, Some(if failed.is_empty() { 0 } else { 1 }), "{report}");
    assert!(failed.iter().all(|it| it["why"].as_str().unwrap().contains("locked for 30 s")), "{failed:?}");
    workers[1].signal(rustix::process::Signal::CONT);
    let args = ["pool", "rebuild", "d0", "--json"];
    let (code, report) = end(network.gabion(0, &args).stdout(Stdio::piped()).spawn().unwrap());
    assert_eq!(code, Some(0), "{report}");
    workers[1].stop();
    assert_whole(&network, &lost);
}
