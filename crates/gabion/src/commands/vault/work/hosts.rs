//! `gabion work --drain`, `--resume`, `--list` and limits of hosts.

use crate::output::{OutputArgs, ago, bytes, files, print_json, span, stopped_by_signal, table};
use anyhow::bail;
use gabion::exit::Outcome;
use gabion::report::work::{WorkersReport, seconds_left};
use gabion_vault::changelog::tasks::{Amounts, KnownTask};
use gabion_vault::changelog::{ALL_HOSTS, KnownWorker, Limits, WorkerId};
use gabion_vault::portions::work_name;
use gabion_vault::vault::Vault;
use gabion_vault::worker::expire_dead;
use gabion_vault::world::{Stopwatch, host};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which the claims of a draining host are counted.
const POLL: Duration = Duration::from_millis(200);

/// The host that an option names: this one if it names none.
fn named(host_name: &str) -> String {
    if host_name.is_empty() { host() } else { host_name.to_owned() }
}

/// Sends the workers of a host away, and waits until they hold no claims.
pub(super) fn drain(
    vault: &Vault,
    host: &str,
    timeout: Option<Duration>,
    output: &OutputArgs,
) -> anyhow::Result<Outcome> {
    let (host, stop, began) = (named(host), stopped_by_signal()?, Stopwatch::start());
    vault.changelog.set_draining(&host, true)?;
    let mut last = None;
    let outcome = loop {
        // Claims of killed workers end with their leases, those of this host at once.
        expire_dead(&*vault.changelog)?;
        let workers = vault.changelog.workers(vault.clock.now())?;
        let claims: u64 = workers.iter().filter(|it| it.worker.host() == host).map(|it| it.claims).sum();
        let is_there = |task: &&KnownTask| task.workers.iter().any(|worker| worker.host() == host);
        let claims = claims + known_tasks(vault)?.iter().filter(is_there).count() as u64;
        if last != Some(claims) {
            let count = if claims == 1 { "1 claim".to_owned() } else { format!("{claims} claims") };
            output.print_line(format!("{host}: {count} left"));
            last = Some(claims);
        }
        if claims == 0 {
            break Outcome::Fine;
        }
        if timeout.is_some_and(|timeout| began.elapsed() >= timeout) || stop.load(Ordering::Relaxed) {
            errln!(
                "gabion: {host} still holds {claims} claims; it claims nothing more until `gabion work DIR --resume {host}`"
            );
            break Outcome::Found;
        }
        std::thread::sleep(POLL);
    };
    if output.json {
        print_report(vault)?;
    } else if outcome == Outcome::Fine {
        output.print_line(format!("its workers claim nothing until `gabion work DIR --resume {host}`"));
    }
    Ok(outcome)
}

/// Lets the workers of a host claim again.
pub(super) fn resume(vault: &Vault, host: &str, output: &OutputArgs) -> anyhow::Result<Outcome> {
    let host = named(host);
    let was_draining = vault.changelog.draining_hosts()?.contains(&host);
    vault.changelog.set_draining(&host, false)?;
    if output.json {
        print_report(vault)?;
    } else if was_draining {
        output.print_line(format!("{host}: its workers claim again"));
    } else {
        output.print_line(format!("{host} was not draining"));
    }
    Ok(Outcome::Fine)
}

/// Sets or removes limits of a host or of all hosts.
pub(super) fn set_limits(
    vault: &Vault,
    (host, all_hosts): (&str, bool),
    limits: Option<Limits>,
    output: &OutputArgs,
) -> anyhow::Result<Outcome> {
    if all_hosts && !host.is_empty() {
        bail!("--all-hosts and the host {host} exclude each other");
    }
    if limits == Some(Limits::default()) {
        bail!("--set-limits needs --limit RATE, --at-once N or both; --remove-limits removes limits");
    }
    if limits.is_some_and(|limits| limits.rate == Some(0)) {
        bail!("a rate of 0 would stop the workers in the middle of their files: use --drain");
    }
    let host = if all_hosts { ALL_HOSTS.to_owned() } else { named(host) };
    if !all_hosts && (host == ALL_HOSTS || host.contains(|it: char| it == '/' || it.is_control())) {
        bail!("{host:?} is not the name of a host; --all-hosts means all of them");
    }
    let were = vault.changelog.limits()?.remove(&host);
    vault.changelog.set_limits(&host, limits)?;
    if output.json {
        print_report(vault)?;
    } else if limits.or(were).is_none() {
        output.print_line(format!("{} had no limits", shown(&host)));
    } else {
        output.print_line(limits_line(&host, limits));
    }
    Ok(Outcome::Fine)
}

/// A host, or all of them, in words.
fn shown(host: &str) -> &str {
    if host == ALL_HOSTS { "all hosts" } else { host }
}

/// A line like `limits of node2: 100 MiB/s, 2 workers at once`.
fn limits_line(host: &str, limits: Option<Limits>) -> String {
    let Limits { rate, at_once } = limits.unwrap_or_default();
    let rate = rate.map(|rate| format!("{}/s", bytes(rate)));
    let at_once = at_once.map(|at_once| match at_once {
        1 => "1 worker at once".to_owned(),
        _ => format!("{at_once} workers at once"),
    });
    let words: Vec<String> = rate.into_iter().chain(at_once).collect();
    let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    format!("limits of {}: {words}", shown(host))
}

/// Prints the known workers.
pub(super) fn list(vault: &Vault, output: &OutputArgs) -> anyhow::Result<Outcome> {
    if output.json {
        print_report(vault)?;
        return Ok(Outcome::Fine);
    }
    let workers = vault.changelog.workers(vault.clock.now())?;
    if workers.is_empty() {
        output.print_line("no workers");
    }
    lines(&workers, vault).iter().for_each(|line| output.print_line(line));
    known_tasks(vault)?.iter().for_each(|task| output.print_line(task_line(task)));
    for host in vault.changelog.draining_hosts()? {
        output.print_line(format!("{host} is draining"));
    }
    for (host, limits) in vault.changelog.limits()? {
        output.print_line(limits_line(&host, Some(limits)));
    }
    Ok(Outcome::Fine)
}

fn print_report(vault: &Vault) -> anyhow::Result<()> {
    let workers = vault.changelog.workers(vault.clock.now())?;
    let tasks = known_tasks(vault)?;
    let (draining, limits) = (vault.changelog.draining_hosts()?, vault.changelog.limits()?);
    print_json(&WorkersReport::new(&workers, &tasks, draining, &limits));
    Ok(())
}

/// Work that workers share; none with a changelog of one host.
fn known_tasks(vault: &Vault) -> anyhow::Result<Vec<KnownTask>> {
    Ok(vault.changelog.tasks().map_or(Ok(Vec::new()), |tasks| tasks.known_tasks())?)
}

/// A line like `scrub by node1 on node1, node2: 3 of 10 files, 1 of 4 GiB, 2 min left`.
fn task_line(task: &KnownTask) -> String {
    let Amounts { files: done, bytes: done_bytes, all_files, all_bytes } = task.amounts;
    let mut hosts: Vec<&str> = task.workers.iter().map(WorkerId::host).collect();
    hosts.dedup();
    let mut line = format!("{} by {}", work_name(task.kind), task.owner.host());
    if !hosts.is_empty() {
        line += &format!(", now on {}", hosts.join(", "));
    }
    line += &format!(": {done} of {}", files(all_files));
    if all_bytes > 0 {
        line += &format!(", {} of {}", bytes(done_bytes), bytes(all_bytes));
    }
    match seconds_left(task) {
        Some(seconds) => line + &format!(", about {} left", span(seconds)),
        None => line,
    }
}

/// A table of workers.
pub(in crate::commands) fn lines(workers: &[KnownWorker], vault: &Vault) -> Vec<String> {
    if workers.is_empty() {
        return Vec::new();
    }
    let head = ["host", "process", "claims", "since", ""].map(str::to_owned).to_vec();
    let now = vault.clock.now();
    let row = |it: &KnownWorker| {
        let process = it.worker.process().map_or_else(|| "?".to_owned(), |process| process.to_string());
        let state = match (it.is_draining, it.attends) {
            (true, _) => "draining",
            (false, true) => "",
            (false, false) => "not resident",
        };
        vec![
            it.worker.host().to_owned(),
            process,
            it.claims.to_string(),
            ago(now, it.since),
            state.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(workers.iter().map(row)).collect();
    table(&rows, |column| matches!(column, 1 | 2))
}
