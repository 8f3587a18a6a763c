//! `cargo xtask flaky`: runs test suites again and again on a busy machine and counts failures per test.
//!
//! A test that fails once in fifty runs is worse than none: CI refuses a good change, and people learn to try again.
//! The load makes races visible that an idle machine hides.

mod load;
mod suite;
mod tally;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use crate::programs::{self, Name};
use crate::test::{skipped, strict};
use crate::{python, tools};
use load::Load;
use suite::{End, Suite};
use tally::Tally;

/// Suites whose tests depend on processes, disks, the kernel's events or the clock.
const SUITES: &[&str] = &[
    "gabion-testkit:lib",
    "gabion-platform:lib",
    "gabion-platform:descriptors",
    "gabion-platform:ignored_directories",
    "gabion-platform:sources",
    "gabion-changelog:changelog",
    "gabion-vault:monitor",
    "gabion-vault:rebuild",
    "gabion-vault:storage",
    "gabion-vault:vault",
    "gabion-mount:lib",
    "gabion-mount:pool",
    "gabion:crash",
    "gabion:histories",
    "gabion:hosts",
    "gabion:power",
    "gabion:shard",
    "gabion:vault",
    "gabion:watch",
    "gabion:mount",
    "gabion:daemon",
];

/// Run test suites many times under load and count failures per test
///
/// Builds the suites once, keeps the processors busy with processes that only compute, and runs every suite --runs
/// times, whatever fails. Prints runs and failures per test; the output of every run that failed is kept below
/// target/flaky. Exit code 1 if a test failed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each suite runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of processes that burn processor time meanwhile
    #[arg(long, default_value_t = 8)]
    busy: u32,
    /// How many suites run side by side
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    /// A suite to run, as in gabion-vault:monitor; `lib` and `bins` are the tests within the sources. May be given
    /// several times [default: the suites that touch processes, disks or time]
    #[arg(long, value_name = "CRATE:SUITE")]
    suite: Vec<Name>,
    /// Seconds after which a run of one suite is ended; tests without a result have failed then
    #[arg(long, default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Run only tests whose names contain this
    filter: Option<String>,
}

/// The process that `flaky` starts to burn processor time: ends when its standard input does.
#[derive(clap::Args)]
pub(crate) struct BurnArgs {}

pub(crate) fn burn() -> ExitCode {
    load::burn()
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let names = if args.suite.is_empty() { default_suites()? } else { args.suite.clone() };
    let kept = fresh_directory()?;
    let log = kept.join("skipped.txt");
    let prepare = |cmd| strict(python::known_if_there(tools::known_if_there(cmd)), &log);
    let suites: Vec<Suite> = suite::build(&names, args.filter.as_deref(), &prepare)?;
    ensure!(suites.iter().any(|suite| !suite.tests.is_empty()), "no test has such a name");
    let _load = Load::start(args.busy)?;
    let tally = Mutex::new(Tally::default());
    let wanted = || suites.iter().filter(|suite| !suite.tests.is_empty());
    let runs = (1..=args.runs).flat_map(|round| wanted().map(move |suite| (round, suite))).collect();
    let run = |(round, suite): (u32, &Suite)| -> Result<()> {
        let output = kept.join(format!("{}-{round}.txt", suite.name.to_string().replace(':', "-")));
        let end = suite.run(&output, args.limit)?;
        let text = fs::read(&output).with_context(|| format!("reading {}", output.display()))?;
        let mut tally = tally.lock().expect("no thread panics with the results");
        let failed = tally.add(suite, &String::from_utf8_lossy(&text), &end, &output);
        println!("run {round} of {}, {}: {}", args.runs, suite.name, summary(&end, &failed));
        if failed.is_empty() {
            fs::remove_file(&output).with_context(|| format!("removing {}", output.display()))?;
        }
        Ok(())
    };
    programs::side_by_side(runs, args.at_once, run).into_iter().collect::<Result<()>>()?;
    let tally = tally.into_inner().expect("no thread panics with the results");
    print!("\n{tally}{}", skipped(&fs::read_to_string(&log).unwrap_or_default()));
    Ok(if tally.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn summary(end: &End, failed: &[String]) -> String {
    match (failed, end) {
        ([], _) => "ok".to_owned(),
        (failed, End::Exited(_)) => format!("FAILED: {}", failed.join(", ")),
        (failed, End::Limit) => format!("FAILED, ended at the limit: {}", failed.join(", ")),
    }
}

fn default_suites() -> Result<Vec<Name>> {
    SUITES.iter().map(|name| name.parse().map_err(anyhow::Error::msg)).collect()
}

/// The directory for outputs, without those of earlier runs.
fn fresh_directory() -> Result<PathBuf> {
    let path = crate::root().join("target/flaky");
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{SUITES, default_suites};

    /// A suite that is renamed must be renamed in the list too; otherwise the command fails for whoever needs it next.
    #[test]
    fn the_suites_of_the_list_exist() {
        for name in default_suites().unwrap() {
            assert!(name.exists(), "{name}");
        }
        assert!(SUITES.is_sorted_by_key(|name| !name.contains('-')), "libraries first");
    }
}
