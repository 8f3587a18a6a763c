//! `gabion bench`: refers to the program that measures.

use gabion::exit::Outcome;

/// Arguments of `gabion bench`, for the message.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let arguments = match self.arguments.join(" ") {
            none if none.is_empty() => "--help".to_owned(),
            arguments => arguments,
        };
        anyhow::bail!(
            "benches are a program of their own; in the source tree, type: cargo run --release -p gabion-bench -- {arguments}"
        )
    }
}
