//! `gabion doctor`, and the process in which it looks at the path.

use crate::output::{bytes, print_json, table};
use anyhow::Context;
use gabion::exit::Outcome;
use gabion::report::{DoctorReport, path_text, system_path_text};
use gabion_cluster::layout::{Component, State, Target};
use gabion_cluster::probe::{FileKind, Looked, Prober};
use gabion_cluster::survey::{Options, Survey};
use gabion_cluster::tool::Limits;
use gabion_vault::policy::DurationText as Span;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Command that looks at the path.
const PROBE: &str = "probe-path";

const EXAMPLES: &str = "\
Examples:
  gabion doctor /mnt/mfs/results.h5     where a file lies, and whether its targets answer
  gabion doctor /scratch --json | jq '.unknown'
  gabion doctor /gpfs/fs1 --tools /usr/lpp/mmfs/bin --deadline 60s

Reads the table of mounts, attributes of the path, and the output of the file system's own tools, which have to be \
installed. Changes nothing, and reads no content: a file that was migrated to tape is not recalled. Each tool has a \
deadline; what it does not answer in time is unknown.
Exit codes: 0 everything is known and all targets are online, 1 something is unknown or not online, 2 there is no such \
path. A plain file system does not tell where bytes lie: that is always 1.";

/// Arguments of `gabion doctor`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A file or directory
    path: PathBuf,
    /// Time that each tool has to answer
    #[arg(long, value_name = "TIME", default_value = "10s")]
    deadline: Span,
    /// A directory with tools of the file system that are not in PATH
    #[arg(long, value_name = "DIR")]
    tools: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        // By text: looking the path up may never return.
        let path = std::path::absolute(&self.path).with_context(|| system_path_text(&self.path))?;
        let options = options(self.deadline.0, self.tools)?;
        let survey = Survey::of(&path, &options).with_context(|| system_path_text(&path))?;
        if self.json {
            print_json(&DoctorReport::new(&path, &survey));
        } else {
            print(&path, &survey);
        }
        Ok(if survey.needs_attention() { Outcome::Found } else { Outcome::Fine })
    }
}

/// Options of surveys by this program.
pub(super) fn options(deadline: Duration, tools: Vec<PathBuf>) -> anyhow::Result<Options> {
    let program = std::env::current_exe().context("finding this program")?;
    let prober = Prober { program, arguments: vec![PROBE.into()] };
    Ok(Options { prober, limits: Limits { deadline, ..Limits::default() }, tools })
}

fn print(path: &std::path::Path, survey: &Survey) {
    let file = survey.found.as_ref().map_or("does not answer".to_owned(), |found| match found.kind {
        FileKind::File => format!("file, {}", bytes(found.size)),
        FileKind::Directory => "directory".to_owned(),
        FileKind::Other => "neither file nor directory".to_owned(),
    });
    outln!("{:<15} {} ({file})", "path", system_path_text(path));
    let mount = survey.mount.as_ref().map_or("unknown".to_owned(), |mount| {
        let source = path_text(mount.source.as_bytes());
        format!("{source} at {}, type {}", system_path_text(&mount.point), path_text(mount.kind.as_bytes()))
    });
    outln!("{:<15} {}", "file system", survey.system.name());
    outln!("{:<15} {mount}", "mount");
    survey.properties.iter().for_each(|(name, value)| outln!("{name:<15} {}", path_text(value.as_bytes())));
    if let Some(layout) = &survey.layout {
        outln!("\nlayout");
        if layout.components.is_empty() {
            outln!("  no bytes are allocated");
        }
        print_table(
            &["bytes", "column", "copy", "target", "state", "object"],
            rows(&layout.components),
            1..3,
        );
    }
    if let Some(targets) = &survey.targets {
        outln!("\ntargets");
        print_table(
            &["target", "state", "domain", "labels", "used", "total"],
            targets.iter().map(row).collect(),
            4..6,
        );
    }
    outln!("\nsources of changes");
    for source in &survey.changes {
        let word = source.available.map_or("unknown", |available| if available { "yes" } else { "no" });
        outln!("  {:<24} {word:<8} {}", source.name, path_text(source.detail.as_bytes()));
    }
    if !survey.unknown.is_empty() {
        outln!("\nunknown");
        let width = survey.unknown.iter().map(|unknown| unknown.subject.len()).max().unwrap_or(0);
        for unknown in &survey.unknown {
            outln!("  {:<width$}  {}", unknown.subject, path_text(unknown.reason.as_bytes()));
        }
    }
}

fn print_table(head: &[&str], rows: Vec<Vec<String>>, numbers: std::ops::Range<usize>) {
    if rows.is_empty() {
        return;
    }
    let head = head.iter().map(|word| (*word).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    table(&rows, |at| numbers.contains(&at)).iter().for_each(|line| outln!("{line}"));
}

/// One row per object, or one for a component without objects.
fn rows(components: &[Component]) -> Vec<Vec<String>> {
    let known =
        |text: &Option<String>| text.as_ref().map_or("unknown".to_owned(), |text| path_text(text.as_bytes()));
    let mut rows = Vec::new();
    for component in components {
        let end = component.end.map_or("end".to_owned(), |end| end.to_string());
        let mut range = format!("{}-{end}", component.start);
        if let Some(striping) = component.striping {
            range += &format!(", {} in turn over {}", bytes(striping.unit), striping.columns);
        }
        for flag in &component.flags {
            range += &format!(", {}", path_text(flag.as_bytes()));
        }
        if component.placements.is_empty() {
            rows.push(vec![range, String::new(), String::new(), "none".to_owned()]);
            continue;
        }
        for (at, placement) in component.placements.iter().enumerate() {
            let optional = |text: &Option<String>| text.as_ref().map_or("-".to_owned(), |_| known(text));
            rows.push(vec![
                if at == 0 { range.clone() } else { String::new() },
                placement.column.to_string(),
                (u64::from(component.mirror) + u64::from(placement.copy)).to_string(),
                known(&placement.target),
                optional(&placement.state),
                optional(&placement.object),
            ]);
        }
    }
    rows
}

fn row(target: &Target) -> Vec<String> {
    let amount = |amount: Option<u64>| amount.map_or("-".to_owned(), bytes);
    let text = |text: &str| if text.is_empty() { "-".to_owned() } else { path_text(text.as_bytes()) };
    vec![
        text(&target.name),
        match target.state {
            State::Online | State::Unknown => target.state.word().to_owned(),
            State::Restricted | State::Offline => target.state.word().to_uppercase(),
        },
        text(target.domain.as_deref().unwrap_or_default()),
        text(&target.labels.join(",")),
        amount(target.used),
        amount(target.total),
    ]
}

/// Arguments of the process that looks at a path.
#[derive(clap::Args)]
pub(crate) struct ProbeArgs {
    path: PathBuf,
    attributes: Vec<OsString>,
}

impl ProbeArgs {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        // Without the version of a report: the reader is this program.
        outln!("{}", serde_json::to_string(&Looked::at(&self.path, &self.attributes))?);
        Ok(Outcome::Fine)
    }
}
