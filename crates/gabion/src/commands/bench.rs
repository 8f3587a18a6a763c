//! `gabion bench AREA`.

mod engine;
mod rebuild;
mod vault;

use clap::Subcommand;
use gabion::exit::Outcome;

/// Arguments of `gabion bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    area: Area,
}

#[derive(Subcommand)]
enum Area {
    /// Coding, repair, update, region multiplication and signatures, in memory
    Engine(engine::Args),
    /// The protector: protect, scrub and changelog on real files, beside the disk and other tools
    Vault(vault::Args),
    /// Rebuild of a lost target of a pool, and reads without it, beside the machine's limits
    Rebuild(rebuild::Args),
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.area {
            Area::Engine(args) => args.run(),
            Area::Vault(args) => args.run(),
            Area::Rebuild(args) => args.run(),
        }
    }
}
