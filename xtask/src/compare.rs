//! `cargo xtask compare`: Gabion beside other libraries, on this machine.

use std::process::ExitCode;

use anyhow::Result;

use crate::packages::{self, Need};
use crate::shell::Cmd;

/// Measure Gabion beside ISA-L and Jerasure on this machine
///
/// Installs the Debian packages it needs (or says which are missing), builds the benchmark in
/// release mode and hands it all arguments: `--grid` walks many shapes, sizes and alignments (with
/// `--random COUNT` such as lie between these), `--isal PATH`
/// races against another ISA-L than the one built in. `cargo xtask compare -- --help` is the benchmark's own
/// help. The benchmark's exit code is passed on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Arguments of `gabion-bench compare`, passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    packages::ensure(&[Need::Workspace])?;
    let cmd = Cmd::cargo("run --release -p gabion-bench -- compare").args(args.args.clone());
    println!("    {cmd}");
    let code = cmd.status()?.code();
    // Killed by a signal: no code to pass on.
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
