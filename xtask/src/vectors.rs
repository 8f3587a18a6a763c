//! `cargo xtask vectors`: the test vectors, written anew by the other implementations.

use std::process::ExitCode;

use anyhow::Result;

use crate::packages::{self, Need};
use crate::shell::Cmd;
use crate::steps::Steps;

/// Write the test vectors in vectors/ anew, with the other implementations
///
/// The vectors are data in the repository: run this only to add some or to check, with
/// `git diff vectors/` afterwards, that the other implementations still give the same bytes.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run() -> Result<ExitCode> {
    let mut steps = Steps::new();
    let result = write(&mut steps);
    print!("\n{}", steps.table());
    result.map(|()| ExitCode::SUCCESS)
}

fn write(steps: &mut Steps) -> Result<()> {
    steps.step("Debian packages", || packages::ensure(&[Need::Workspace]))?;
    // The bench runs vectors/raidz.py itself, so every file has one writer.
    let vectors = Cmd::cargo("run --release -p gabion-bench -- vectors vectors");
    steps.command("vectors", &vectors)
}
