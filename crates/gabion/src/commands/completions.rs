//! `gabion completions`.

use super::Cli;
use clap::CommandFactory;
use clap_complete::Shell;
use gabion::exit::Outcome;

/// Prints the script. For bash, for example: `gabion completions bash > /etc/bash_completion.d/gabion`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "gabion", &mut script);
        out!("{}", String::from_utf8(script)?);
        Ok(Outcome::Fine)
    }
}
