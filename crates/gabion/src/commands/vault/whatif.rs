//! `gabion whatif`.

use super::placed::Placed;
use super::{Effort, FIRST, Which};
use crate::output::{OutputArgs, bytes, files, print_json};
use gabion::exit::Outcome;
use gabion::report::WhatIfReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::whatif::{what_if, what_if_placed};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion whatif /srv/photos --lose repository
  gabion whatif pool --lose disk1 disk4
  gabion whatif /mnt/mfs/data --lose 10.0.0.7:9422      a chunk server of MooseFS

Computed from the placement that is recorded in the headers of redundancy files. A plain \
directory has two targets, data and repository; `gabion pool status` lists those of a pool. On MooseFS and GlusterFS \
the names of chunk servers and bricks are targets, too (`gabion doctor` lists them): then the file system is asked \
where each file and its redundancy lie, and the worst stripe of a file counts. Offline targets of a pool \
count as lost too, and all its files are counted, protected or not. If no \
target with the current namespace is left, all files of a pool are lost.
Exit codes: 0 no file would be lost, 1 the state of some files is unknown, 3 files would be lost.";

/// Arguments of `gabion whatif`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// The targets that fail
    #[arg(long, value_name = "TARGET", required = true, num_args = 1..)]
    lose: Vec<String>,
    /// List all files that would be lost, not only the first ten
    #[arg(long)]
    files: bool,
    /// A directory with tools of the file system that are not in PATH
    #[arg(long, value_name = "DIR")]
    tools: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open_to_examine()?;
        let known = vault.storage.targets();
        let targets: Vec<Vec<u8>> = self.lose.iter().map(|name| name.clone().into_bytes()).collect();
        let is_known = |target: &Vec<u8>| known.iter().any(|it| it.name == *target);
        // Names of targets of a parallel file system, if the tree is on one.
        let placed = match vault.pool.is_none() && !targets.iter().any(is_known) {
            true => Placed::of(&vault, &self.lose, &self.tools)?,
            false => None,
        };
        for target in targets.iter().filter(|_| placed.is_none()) {
            let names: Vec<String> =
                known.iter().map(|it| DisplayPath::bytes(&it.name).to_string()).collect();
            anyhow::ensure!(
                is_known(target),
                "there is no target {}; there are {}",
                DisplayPath::bytes(target),
                names.join(", ")
            );
        }
        let names = if self.files || self.output.json { usize::MAX } else { FIRST };
        let answer = self.output.run(&Effort::ALL, |context| match &placed {
            Some(placed) => what_if_placed(&vault, &inside, placed, names, context),
            None => what_if(&vault, &inside, &targets, names, context),
        })??;
        if self.output.json {
            print_json(&WhatIfReport::new(&self.lose, &answer));
        } else {
            let classes = [
                ("unaffected", answer.unaffected),
                ("exposed", answer.exposed),
                ("degraded", answer.degraded),
                ("lost", answer.lost),
            ];
            let words =
                ["lose nothing", "keep their data, lose redundancy", "can be reconstructed", "are lost"];
            for ((word, (number, size)), meaning) in classes.iter().zip(words) {
                self.output.print_line(format!(
                    "{word:<11} {:>16}  {:>12}  {meaning}",
                    files(*number),
                    bytes(*size)
                ));
            }
            if answer.namespace_lost {
                outln!("no target with the current namespace would be left: all files would be lost");
            }
            answer.names.iter().for_each(|name| outln!("  lost: {}", DisplayPath::bytes(name)));
            if answer.lost.0 > answer.names.len() as u64 {
                outln!("  and {} more; --files lists all", files(answer.lost.0 - answer.names.len() as u64));
            }
            if answer.unknown > 0 {
                let reason =
                    if placed.is_some() { "are at unknown places" } else { "have no readable header" };
                outln!("{} {reason}", files(answer.unknown));
            }
        }
        Ok(match (answer.namespace_lost || answer.lost.0 > 0, answer.unknown) {
            (true, _) => Outcome::Unrecoverable,
            (false, 0) => Outcome::Fine,
            (false, _) => Outcome::Found,
        })
    }
}
