//! `cargo xtask`: the project's own tasks.
//!
//! Every task prints the commands it runs as they would be typed, so that any step can be repeated
//! by hand.

#![forbid(unsafe_code)]

mod aarch64;
mod compare;
mod crates;
mod dependencies;
mod flaky;
mod gpu_check;
mod ladder;
mod package;
mod packages;
mod programs;
mod python;
mod readme;
mod shell;
mod steps;
mod test;
mod tidy;
mod tools;
mod vectors;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

/// The project's own tasks.
///
/// Start with `cargo xtask test`: it checks everything that can be checked on this machine.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Test(test::Args),
    Flaky(flaky::Args),
    #[command(hide = true)]
    Burn(flaky::BurnArgs),
    Tidy(tidy::Args),
    Package(package::Args),
    Python(python::Args),
    Compare(compare::Args),
    Vectors(vectors::Args),
    Readme(readme::Args),
    Aarch64(aarch64::Args),
    GpuCheck(gpu_check::Args),
}

/// The repository's root; every task works there, wherever it was called.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository's root")
}

fn run(task: &Task) -> anyhow::Result<ExitCode> {
    std::env::set_current_dir(root()).with_context(|| format!("entering {}", root().display()))?;
    match task {
        Task::Test(args) => test::run(args),
        Task::Flaky(args) => flaky::run(args),
        Task::Burn(_) => Ok(flaky::burn()),
        Task::Tidy(args) => tidy::run(args),
        Task::Package(args) => package::run(args),
        Task::Python(args) => python::run(args),
        Task::Compare(args) => compare::run(args),
        Task::Vectors(_) => vectors::run(),
        Task::Readme(args) => readme::run(args),
        Task::Aarch64(args) => aarch64::run(args),
        Task::GpuCheck(args) => gpu_check::run(args),
    }
}

fn main() -> ExitCode {
    // Exit codes: 0 fine, 1 a task ran and found something wrong, 2 (clap's own) a wrong call.
    run(&Cli::parse().task).unwrap_or_else(|error| {
        eprintln!("\nerror: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_task_explains_itself() {
        for task in Cli::command().get_subcommands() {
            let about = task.get_long_about().or_else(|| task.get_about());
            assert!(about.is_some_and(|text| text.to_string().len() > 20), "{}", task.get_name());
        }
    }
}
