//! `gabion bench AREA`.

mod engine;

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
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.area {
            Area::Engine(args) => args.run(),
        }
    }
}
