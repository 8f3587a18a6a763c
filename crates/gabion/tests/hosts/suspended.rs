//! A worker that is stopped for longer than its lease, after each of its steps, and goes on.

use crate::network::Network;
use gabion_testkit::kill::{Change, can_kill, sample};
use gabion_testkit::until;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// Calls after which it is stopped: requests to the server, changes of files, what makes them durable, and names.
const STEPS: &[&str] =
    &["sendto", "pwrite64", "ftruncate", "fsync", "fdatasync", "syncfs", "unlinkat", "renameat2"];

const WORK: &[&str] = &["work", "tree", "--threads", "1"];

/// Steps that are visited besides those that give names.
const USUAL: usize = 16;

/// A program on the first worker's host, traced.
pub(crate) struct Traced {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Traced {
    /// Its calls go to a file with this number.
    pub(crate) fn new(network: &Network, number: usize, expression: &str, args: &[&str]) -> Traced {
        let log = network.tree().join(format!("../trace{number}"));
        let mut command = network.on(1, "strace");
        command.args(["-f", "-s", "0", "-o"]).arg(&log).args(["-e", expression, "--"]);
        command.arg(env!("CARGO_BIN_EXE_gabion")).args(args);
        Traced { child: command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap(), log }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it is stopped. False if it ended before.
    pub(crate) fn is_stopped(&mut self) -> bool {
        let mut is_stopped = false;
        until("it is stopped or has ended", || {
            let is_over = self.child.try_wait().unwrap().is_some();
            is_stopped = self.text().contains("stopped by SIGSTOP");
            is_stopped || is_over
        });
        is_stopped
    }

    pub(crate) fn wake(&self) {
        let tracer = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).unwrap();
        let worker = children.trim().parse().unwrap();
        kill_process(Pid::from_raw(worker).unwrap(), Signal::CONT).unwrap();
    }

    fn end(self) {
        self.end_with(&[0]);
    }

    /// Waits for its end, and expects one of these exit codes.
    pub(crate) fn end_with(self, codes: &[i32]) -> i32 {
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(code.is_some_and(|code| codes.contains(&code)), "{code:?}: {said}");
        code.unwrap_or_default()
    }

    /// The steps of a run: the largest number of each call in any thread.
    pub(crate) fn steps(&self) -> Vec<Change> {
        let mut counts: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
        for line in self.text().lines() {
            let Some((thread, call)) = line.split_once(' ') else { continue };
            let name = call.trim_start().split('(').next().unwrap_or_default();
            if let Some(known) = STEPS.iter().find(|known| **known == name) {
                *counts.entry((known, thread.to_owned())).or_default() += 1;
            }
        }
        let mut most: BTreeMap<&'static str, u32> = BTreeMap::new();
        counts.into_iter().for_each(|((name, _), count)| {
            let known = most.entry(name).or_default();
            *known = count.max(*known);
        });
        most.into_iter().flat_map(|(call, count)| (1..=count).map(move |nth| Change { call, nth })).collect()
    }
}

/// The other worker finds the file as it is then. What the first one does when it goes on must not count, wherever it
/// was: also right before the rename, after it had asked whether the claim was still its own.
#[test]
fn a_worker_that_is_stopped_at_any_step_overwrites_nothing() {
    let test = "a_worker_that_is_stopped_at_any_step_overwrites_nothing";
    if !can_kill(test) {
        return;
    }
    let Some(network) = Network::new(test, 2) else { return };
    network.write_one("first", 64 << 10, 1);
    let mut recorded = Traced::new(&network, 0, &format!("trace={}", STEPS.join(",")), WORK);
    recorded.child.wait().unwrap();
    let (names, steps) = recorded.steps().into_iter().partition(|step: &Change| step.call == "renameat2");
    let steps: Vec<Change> = sample(test, steps, USUAL).into_iter().chain(names).collect();
    let mut overtaken = 0;
    for (number, Change { call, nth }) in steps.into_iter().enumerate() {
        // Every other file has redundancy that is to be replaced.
        let name = format!("file{number}");
        if number % 2 == 1 {
            network.write_one(&name, 48 << 10, 7);
            network.expect(0, 0, &["protect", "tree"]);
        }
        network.write_one(&name, 64 << 10, 2 * number as u64);
        let expression = format!("inject={call}:signal=STOP:when={nth}");
        let mut worker = Traced::new(&network, number + 1, &expression, WORK);
        if worker.is_stopped() {
            let is_held = network.with_vault(|vault| Network::claims(vault, 1) > 0);
            network.write_one(&name, 32 << 10, 2 * number as u64 + 1);
            // The worker may hold a lock of its host's database.
            network.truth_of([0, 2]);
            network.with_vault(|vault| {
                until("another worker has done it", || {
                    network.expect(2, 0, &["work", "tree"]);
                    vault.changelog.pending().unwrap().entries() == 0
                });
            });
            overtaken += usize::from(is_held);
            let published = std::fs::read(network.redundancy(&name)).unwrap();
            worker.wake();
            worker.end();
            let found = std::fs::read(network.redundancy(&name)).unwrap();
            assert!(found == published, "it was overwritten after {nth} {call}");
            network.truth();
        } else {
            worker.end();
        }
        network.wait_until_done();
    }
    println!("{overtaken} times it held the claim");
    assert!(overtaken >= 4, "{overtaken}");
    network.assert_whole();
}
