//! `gabion status`.

use super::approve::carried_out_by;
use super::events::filesystem_wide_watch;
use super::protect::{WRITE_ONCE_ADVICE, reason};
use super::status_metrics;
use super::work::hosts;
use super::{Effort, FIRST, Which, ranges};
use crate::commands::daemon::print_source;
use crate::commands::served;
use crate::output::{OutputArgs, ago, bytes, count, files, print_json};
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::report::status::StatusReport;
use gabion::shell::{self, ApproveCommand};
use gabion_platform::display_path::DisplayPath;
use gabion_platform::local_time::local;
use gabion_vault::catalogue::State;
use gabion_vault::changelog::monitors::{KnownMonitor, MonitorState};
use gabion_vault::guard::Judgement;
use gabion_vault::mark::described;
use gabion_vault::status::{Affected, Status, status};
use gabion_vault::storage::TargetState;
use gabion_vault::vault::Vault;
use gabion_vault::world::Timestamp;

const EXAMPLES: &str = "\
Examples:
  gabion status /srv/photos
  gabion status /srv/photos/2026 --files
  gabion status /srv/photos --json | jq .lost
  gabion status /srv/photos --format prometheus > /var/lib/prometheus/node-exporter/gabion.prom

The table has a row for each configured number of redundancy blocks per stripe and a column for the actual number: how many \
more blocks can be lost before data is lost. Files that changed since they were protected are in column 0. The scrub of a file is \
overdue when its last complete verification is older than the interval of its policy (scrub = \"30d\").
Exit codes: 0 all is protected, 1 changes are held, files are pending, damaged, degraded, overdue for a scrub, or write-once and changed, or the \
namespace of a pool is on too few targets, or what a monitor of a lost host changed may be unknown, 3 data lost.";

/// Arguments of `gabion status`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// List all affected files, not only the first ten
    #[arg(long)]
    files: bool,
    /// Do not scan the tree; changes since the last protect are not counted
    #[arg(long)]
    no_scan: bool,
    /// Format of the output: `prometheus` prints metrics, for the textfile collector of the node exporter
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "json")]
    format: Format,
    #[command(flatten)]
    output: OutputArgs,
}

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Prometheus,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open_to_examine()?;
        let names = if self.files || self.output.json { usize::MAX } else { FIRST };
        let status = self
            .output
            .run(&Effort::ALL, |context| status(&vault, &inside, !self.no_scan, names, context))??;
        let daemon = served::by(&vault)
            .and_then(|(mut client, note)| client.ask(&Request::Status { source: Some(note.source) }).ok());
        let workers = vault.changelog.workers(vault.clock.now()).ok();
        if self.output.json {
            print_json(&StatusReport::new(&vault, &status, daemon.as_ref(), workers.as_deref()));
        } else if self.format == Format::Prometheus {
            out!("{}", status_metrics::text(&vault, &status));
        } else {
            self.print(&vault, &status);
            if let Some(workers) = workers.filter(|workers| !workers.is_empty()) {
                outln!("workers");
                hosts::lines(&workers, &vault).iter().for_each(|line| outln!("{line}"));
            }
            if let Some(daemon) = &daemon {
                outln!("daemon     process {} keeps it protected:", daemon["process"]);
                print_source(&daemon["sources"][0], vault.clock.now());
            }
        }
        let affected = status.states.keys().any(|&state| state != State::Protected);
        Ok(match () {
            () if status.files(State::Lost) > 0 => Outcome::Unrecoverable,
            () if affected || status.pending.0 > 0 || status.overdue.files > 0 => Outcome::Found,
            () if status.held().is_some() => Outcome::Found,
            () if !status.write_once().is_empty() || status.lost_monitors().next().is_some() => {
                Outcome::Found
            }
            () if status.mirrors.as_ref().is_some_and(|mirrors| !mirrors.are_complete()) => Outcome::Found,
            () => Outcome::Fine,
        })
    }

    /// The change-set that waits for an approval, or for a run that carries it out.
    fn print_held(&self, vault: &Vault, status: &Status) {
        match &status.judgement {
            Some(Judgement::Held(held)) => {
                outln!("HELD       {}", reason(held));
                let tree = shell::word(&vault.root);
                outln!(
                    "  Their redundancy is kept. `gabion diff {tree}` lists them. If the change is intended:"
                );
                outln!("  {}", ApproveCommand::of_vault(vault).text(&held.digest));
            }
            Some(Judgement::Approved(digest)) => {
                outln!("approved   the change-set {digest}; {}", carried_out_by(vault));
            }
            Some(Judgement::Passed) | None => {}
        }
    }

    fn print(&self, vault: &Vault, status: &Status) {
        let now = vault.clock.now();
        print_matrix(status);
        outln!();
        match status.pending.0 {
            0 if self.no_scan => outln!("pending    not scanned ({} queued)", count(status.queued)),
            0 => outln!("pending    none"),
            pending => outln!(
                "pending    {} ({}){}",
                files(pending),
                bytes(status.pending.1),
                status
                    .oldest
                    .map_or(String::new(), |oldest| format!(", the oldest written {}", ago(now, oldest)))
            ),
        }
        self.print_held(vault, status);
        print_monitors(status, now);
        if !status.write_once().is_empty() {
            let changed = status.write_once();
            outln!(
                "write-once {} changed in violation of the policy; their redundancy is kept",
                files(changed.len() as u64)
            );
            let shown = if self.files { changed.len() } else { FIRST };
            changed.iter().take(shown).for_each(|path| outln!("  changed   {}", DisplayPath::bytes(path)));
            outln!("  {WRITE_ONCE_ADVICE}");
        }
        let grown = &status.changed_in_growth;
        if !grown.is_empty() {
            outln!(
                "changed    {} grew and changed in blocks that existed before, by a program or by corruption",
                files(grown.len() as u64)
            );
            let shown = if self.files { grown.len() } else { FIRST };
            for (path, ranges) in grown.iter().take(shown) {
                outln!("  changed   {}: {} ranges", DisplayPath::bytes(path), count(*ranges));
            }
        }
        for state in [State::Degraded, State::Damaged, State::Lost] {
            match status.states.get(&state) {
                None => outln!("{:<10} none", state.word()),
                Some((number, size)) => {
                    outln!("{:<10} {} ({})", state.word(), files(*number), bytes(*size))
                }
            }
        }
        for Affected { path, state, problems } in &status.affected {
            let of: Vec<_> = problems.iter().map(|it| &it.range).collect();
            let ranges =
                if of.is_empty() { String::new() } else { format!(": bytes {}", ranges(of.into_iter())) };
            outln!("  {:<9} {}{ranges}", state.word(), DisplayPath::bytes(path));
        }
        let affected: u64 =
            status.states.iter().filter(|(state, _)| **state != State::Protected).map(|it| it.1.0).sum();
        if affected > status.affected.len() as u64 {
            outln!("  and {} more; --files lists all", files(affected - status.affected.len() as u64));
        }
        let when = |time: Option<Timestamp>| {
            time.map_or("never".to_owned(), |time| format!("{} ({})", ago(now, time), local(time)))
        };
        outln!("protected  {}", when(status.last_protect));
        let never = match status.never_scrubbed {
            0 => String::new(),
            never => format!("; {} never", files(never)),
        };
        outln!("scrubbed   {}{never}", when(status.last_scrub));
        if let Some((path, verified)) = &status.overdue.oldest {
            let (number, path) = (status.overdue.files, DisplayPath::bytes(path).to_string());
            outln!("{}", overdue_scrubs(number, &path, &ago(now, *verified)));
        }
        let share = match status.data_bytes {
            0 => String::new(),
            data => format!(" ({:.1} %)", 100.0 * status.redundancy_bytes as f64 / data as f64),
        };
        outln!(
            "redundancy {} for {} of data{share}",
            bytes(status.redundancy_bytes),
            bytes(status.data_bytes)
        );
        if let Some(record) = &status.degraded_reads {
            let targets: Vec<String> =
                record.targets.iter().map(|(name, blocks)| format!("{name} ({blocks} blocks)")).collect();
            outln!(
                "degraded reads served: {} ({} reconstructed), the last {}, because of {}",
                count(record.reads),
                bytes(record.bytes),
                ago(now, record.last),
                targets.join(", ")
            );
        }
        match status.shared {
            None => outln!("shared     redundancy cannot be counted"),
            Some(shared) if shared.files > 0 => outln!(
                "shared     redundancy of {} with equal content, which saves {}",
                files(shared.files),
                bytes(shared.saved)
            ),
            Some(_) => {}
        }
        match status.displaced {
            None => outln!("displaced  cannot be listed"),
            Some((0, _)) => {}
            Some((number, size)) => outln!(
                "displaced  redundancy of {} ({}) whose names are not known now, in {}",
                files(number),
                bytes(size),
                DisplayPath::path(&vault.repository.path().join("displaced"))
            ),
        }
        match status.replaced.as_deref() {
            None => outln!("replaced   cannot be listed"),
            Some([]) => {}
            Some(runs @ [oldest, ..]) => {
                let (number, size) =
                    runs.iter().fold((0, 0), |sum, run| (sum.0 + run.files, sum.1 + run.bytes));
                outln!(
                    "replaced   {} ({}) kept from {} of repair, the oldest {}, in {}",
                    files(number),
                    bytes(size),
                    if runs.len() == 1 { "one run".to_owned() } else { format!("{} runs", runs.len()) },
                    ago(now, oldest.at),
                    DisplayPath::path(&vault.repository.path().join("replaced"))
                );
            }
        }
        if status.user_policies > 0 {
            outln!(
                "WARNING: {} about users' policies at the last scan: `gabion protect --dry-run` names them",
                if status.user_policies == 1 {
                    "1 warning".to_owned()
                } else {
                    format!("{} warnings", status.user_policies)
                }
            );
        }
        if let Some(why) = &status.filesystem_wide {
            outln!("NOTE: {}", filesystem_wide_watch(why));
        }
        for target in &status.targets {
            let space = target.space.map_or("does not answer".to_owned(), |(free, total)| {
                format!("{} of {} free", bytes(free), bytes(total))
            });
            let space = match target.state {
                TargetState::Retired => format!("{space}, retired"),
                TargetState::Returned => {
                    format!("{space}, came back and is not verified: gabion pool rebuild")
                }
                TargetState::Online | TargetState::Offline => space,
            };
            outln!("  {:<10} {space}, {}", DisplayPath::bytes(&target.name).to_string(), target.domain);
        }
        if let Some(mirrors) = status.mirrors.as_ref().filter(|mirrors| !mirrors.are_complete()) {
            let outdated = match &mirrors.outdated[..] {
                [] => String::new(),
                names => format!("; {} missed changes, `gabion protect` heals that", names.join(", ")),
            };
            outln!(
                "WARNING: the namespace is on {} targets, {} are required{outdated}",
                mirrors.current,
                mirrors.required
            );
        }
        outln!("survives");
        for kept in status.promises(vault) {
            outln!("  {:<29} {}", kept.loss.words(), kept.words);
        }
    }
}

/// Running monitors of a deployment, and lost ones.
fn print_monitors(status: &Status, now: Timestamp) {
    for KnownMonitor { monitor, state } in &status.monitors {
        let (what, since) = (described(monitor), ago(now, monitor.since));
        match state {
            MonitorState::Running => outln!("monitor    {what}, began {since}"),
            MonitorState::Silent(time) => outln!(
                "EXPOSED: {what} (began {since}) has given no sign of life for {:.0} s: its last changes may be unknown",
                time.as_secs_f64()
            ),
            MonitorState::Lost => outln!(
                "EXPOSED: {what} (began {since}) ended uncleanly or is out of reach: its last changes may be unknown until \
                 a scan, by `gabion protect`, a watch or a mount with workers"
            ),
        }
    }
}

fn print_matrix(status: &Status) {
    let mut actual: Vec<u32> = status.matrix.keys().map(|(_, actual)| *actual).collect();
    actual.sort_unstable();
    actual.dedup();
    let mut configured: Vec<u32> = status.matrix.keys().map(|(configured, _)| *configured).collect();
    configured.sort_unstable();
    configured.dedup();
    if configured.is_empty() {
        outln!("nothing is protected");
        return;
    }
    let head: String = actual.iter().map(|actual| format!("{actual:>26}")).collect();
    outln!("wanted \\ actual{head}");
    for configured in configured {
        let cells = actual.iter().map(|&actual| match status.matrix.get(&(configured, actual)) {
            Some((number, size)) => format!("{:>26}", format!("{} ({})", count(*number), bytes(*size))),
            None => format!("{:>26}", "."),
        });
        outln!("{configured:>15}{}", cells.collect::<String>());
    }
}

/// Warning of overdue scrubs.
pub(in crate::commands) fn overdue_scrubs(number: u64, oldest: &str, verified: &str) -> String {
    let files = files(number);
    format!(
        "WARNING: the scrub of {files} is overdue by the policy, the oldest {oldest}, verified {verified}: `gabion scrub --due`"
    )
}
