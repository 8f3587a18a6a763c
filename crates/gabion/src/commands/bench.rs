//! `gabion bench AREA`.

mod engine;
#[cfg(feature = "gpu")]
mod gpu;
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
    /// A GPU: kernels on data that is there, and whole runs from host memory
    #[cfg(feature = "gpu")]
    Gpu(gpu::Args),
    /// The protector: protect, scrub and changelog on real files, beside the disk and other tools
    Vault(vault::Args),
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.area {
            Area::Engine(args) => args.run(),
            #[cfg(feature = "gpu")]
            Area::Gpu(args) => args.run(),
            Area::Vault(args) => args.run(),
        }
    }
}
