//! Scrubs and repairs that several hosts share.

use crate::network::Network;
use crate::worker::Follower;
use gabion_testkit::until;
use gabion_vault::changelog::WorkerId;
use gabion_vault::changelog::tasks::{Amounts, Held, LONGEST_LEASE, NewTask, TaskId, TaskKind};
use gabion_vault::vault::Vault;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::SystemTime;

/// Three portions of a scrub with one thread.
const FILES: usize = 12;
const SIZE: usize = 16 << 20;

/// At this rate a portion takes six seconds.
const LIMIT: &str = "16MiB/s";

/// Changes bytes of a file, as a disk does: its times stay.
fn rot(path: &Path, at: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let modified: SystemTime = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"rotten", at).unwrap();
    file.set_modified(modified).unwrap();
}

fn name(number: usize) -> String {
    format!("{number:04}")
}

/// Two workers with nothing to do on protected files, of which some are damaged.
fn fixture(test: &str, files: usize, size: usize, damaged: &[usize]) -> Option<(Network, [Follower; 2])> {
    let network = Network::new(test, 2)?;
    network.write(files, size, 7);
    network.expect(0, 0, &["protect", "tree"]);
    damaged.iter().for_each(|number| rot(&network.tree().join(name(*number)), 1000));
    let mut workers = [network.follower(1, LIMIT), network.follower(2, LIMIT)];
    workers.iter_mut().for_each(|worker| worker.wait_for("started"));
    Some((network, workers))
}

fn begin(network: &Network, command: &str, more: &[&str]) -> Child {
    let args = [&[command, "tree", "--json", "--threads", "1", "--limit", LIMIT][..], more].concat();
    network.gabion(0, &args).stdout(Stdio::piped()).spawn().unwrap()
}

fn end(command: Child) -> (Option<i32>, Value) {
    let output = command.wait_with_output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn paths(report: &Value, list: &str) -> Vec<String> {
    let name = |file: &Value| file["path"].as_str().unwrap().to_owned();
    let mut paths: Vec<String> = report[list].as_array().unwrap().iter().map(name).collect();
    paths.sort();
    paths
}

/// Waits until a number of workers are at portions of the only task.
fn wait_for_workers(vault: &Vault, count: usize) {
    until(&format!("{count} workers are at it"), || {
        let tasks = vault.changelog.tasks().unwrap().known_tasks().unwrap();
        tasks.first().is_some_and(|task| task.workers.len() >= count)
    });
}

/// Every host knows the damage.
fn assert_known(network: &Network, damaged: usize) {
    for host in 0..3 {
        let output = network.gabion(host, &["status", "tree", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(if damaged > 0 { 1 } else { 0 }), "{status}");
        assert_eq!(paths(&status, "damaged").len(), damaged, "host {host}: {status}");
    }
}

#[test]
fn hosts_share_a_scrub_and_a_repair() {
    let damaged = [0, 5, 11];
    let Some((network, mut workers)) = fixture("hosts_share_a_scrub_and_a_repair", FILES, SIZE, &damaged)
    else {
        return;
    };
    let scrub = begin(&network, "scrub", &[]);
    network.with_vault(|vault| wait_for_workers(vault, 2));
    // Any host knows how far it is.
    let list = network.expect(2, 0, &["work", "tree", "--list"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("scrub by host0, now on host"), "{list}");
    assert!(list.contains(&format!("of {FILES} files")), "{list}");
    println!("{list}");
    let (code, report) = end(scrub);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["files"], FILES, "{report}");
    assert_eq!(paths(&report, "damage"), damaged.map(name));
    assert_known(&network, damaged.len());
    // The examination is shared as the scrub is.
    let (code, report) = end(begin(&network, "repair", &["--yes"]));
    assert_eq!((code, &report["examined"]), (Some(0), &FILES.into()), "{report}");
    assert_eq!(paths(&report, "repaired"), damaged.map(name));
    assert_known(&network, 0);
    workers.iter_mut().for_each(|worker| worker.stop());
    let helped: Vec<u64> = workers.iter().map(|worker| worker.sum("helped_bytes")).collect();
    println!("helped {helped:?}");
    assert!(helped.iter().sum::<u64>() >= 4 * SIZE as u64, "{helped:?}");
    network.assert_whole();
}

/// What a dead worker had begun is done by another one, and nothing is left out.
#[test]
fn a_scrub_survives_its_workers() {
    let all: Vec<usize> = (0..FILES).collect();
    let Some((network, mut workers)) = fixture("a_scrub_survives_its_workers", FILES, SIZE, &all) else {
        return;
    };
    let scrub = begin(&network, "scrub", &[]);
    network.with_vault(|vault| wait_for_workers(vault, 3));
    workers.iter_mut().for_each(|worker| worker.kill());
    let (code, report) = end(scrub);
    assert_eq!((code, &report["files"]), (Some(1), &FILES.into()), "{report}");
    assert_eq!(paths(&report, "damage").len(), FILES);
    assert_known(&network, FILES);
}

/// Opens a task and waits until workers have done it. Returns the results.
fn ask(vault: &Vault, number: u8, kind: u8, about: &[u8], contents: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (tasks, task) = (vault.changelog.tasks().unwrap(), TaskId([number; 16]));
    let owner = WorkerId("test".to_owned());
    let (kind, amounts) = (TaskKind(kind), Amounts::default());
    let new = NewTask { id: task, kind, priority: 1, owner: &owner, about, amounts };
    tasks.open_task(&new, LONGEST_LEASE).unwrap();
    assert!(tasks.add_portions(task, contents.len() as u64, contents).unwrap());
    let numbers: Vec<u64> = (0..contents.len() as u64).collect();
    let mut results = Vec::new();
    until("all portions are done", || {
        assert_eq!(tasks.keep(&[Held::Task(task, Amounts::default())], LONGEST_LEASE).unwrap(), [true]);
        results = tasks.collect(task, &numbers).unwrap().unwrap().results;
        results.len() == contents.len()
    });
    tasks.close_task(task).unwrap();
    results.into_iter().map(|(_, result)| result).collect()
}

fn content(paths: &[&[u8]]) -> Vec<u8> {
    paths.iter().flat_map(|path| [&(path.len() as u32).to_le_bytes()[..], path].concat()).collect()
}

/// A portion of a repair: files as they were when the repair was planned.
fn planned(network: &Network, names: &[&str]) -> Vec<u8> {
    let one = |name: &&str| {
        let version = std::fs::metadata(network.tree().join(name)).ok().map(|found| {
            let mtime = found.mtime() * 1_000_000_000 + found.mtime_nsec();
            (found.len(), mtime, found.ino())
        });
        (name.as_bytes().to_vec(), serde_json::json!({ "version": version, "unfinished": false }))
    };
    serde_json::to_vec(&names.iter().map(one).collect::<Vec<_>>()).unwrap()
}

/// A worker does for others what a task says, and nothing else, whatever it says.
#[test]
fn workers_repair_for_others() {
    let Some((network, mut workers)) = fixture("workers_repair_for_others", 3, 64 << 10, &[0, 2]) else {
        return;
    };
    let outside = network.tree().join("../outside");
    std::fs::write(&outside, b"outside").unwrap();
    network.with_vault(|vault| {
        let wrong = [
            content(&[b"../outside"]),
            content(&[b"/etc/passwd"]),
            content(&[b"gone", b"\xff"]),
            vec![255; 40],
            Vec::new(),
            planned(&network, &["../outside"]),
            planned(&network, &["/etc/passwd", "gone", ".gabion/vault.toml"]),
        ];
        for (number, kind) in [b's', b'p', b'r', b'e', b'?'].into_iter().enumerate().take(4) {
            let results = ask(vault, number as u8, kind, b"", &wrong);
            println!("{}: {results:?}", char::from(kind));
            let repairs = results.iter().filter_map(|it| serde_json::from_slice::<Vec<Value>>(it).ok());
            assert!(repairs.flatten().all(|result| result.get("Err").is_some()));
        }
        // Two files in one portion, as many workers as like to. A portion whose worker was too slow is done again, and
        // nothing is left to write.
        let portions = [planned(&network, &["0000"]), planned(&network, &["0001", "0002"])];
        let results = ask(vault, 9, b'r', b"", &portions);
        let results: Vec<Vec<Value>> =
            results.iter().map(|result| serde_json::from_slice(result).unwrap()).collect();
        assert_eq!(results.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
        let blocks: Vec<u64> =
            results.iter().flatten().map(|result| result["Ok"]["data_blocks"].as_u64().unwrap()).collect();
        assert!(blocks[0] <= 1 && blocks[1] == 0 && blocks[2] <= 1, "{blocks:?}");
    });
    workers.iter_mut().for_each(|worker| worker.stop());
    assert_eq!(std::fs::read(&outside).unwrap(), b"outside");
    network.assert_whole();
}
