//! `gabion manual`.

use super::Cli;
use anyhow::Context;
use clap::CommandFactory;
use gabion::exit::Outcome;
use gabion_vault::display_path::DisplayPath;
use std::path::PathBuf;

/// Writes a page for each command, for example into `/usr/local/share/man/man1`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory, which is created if necessary
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let told = || format!("writing pages into {}", DisplayPath::path(&self.directory));
        std::fs::create_dir_all(&self.directory).with_context(told)?;
        let command = Cli::command().disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.directory).with_context(told)?;
        Ok(Outcome::Fine)
    }
}
