//! `gabion shard`.

use gabion::exit::Outcome;

/// Arguments of `gabion shard`.
#[derive(clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        anyhow::bail!("not written yet")
    }
}
