//! `gabion bench AREA`.

mod engine;
mod figures;
mod files;
#[cfg(feature = "gpu")]
mod gpu;
mod machine;
mod mount;
mod mounted;
mod paper;
mod rebuild;
mod vault;
mod watch;
mod workers;

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
    /// The machine itself: instructions, loads, streams and latency of memory, without any coding
    Machine(machine::Args),
    /// A GPU: kernels on data that is there, and whole runs from host memory
    #[cfg(feature = "gpu")]
    Gpu(gpu::Args),
    /// The protector: protect, scrub and changelog on real files, beside the disk and other tools
    Vault(vault::Args),
    /// The mount: reading and writing through it, beside the directory itself and mergerfs
    Mount(mount::Args),
    /// Live protection: what watching costs those who write
    Watch(watch::Args),
    /// Several workers: how evenly they share a backlog
    Workers(workers::Args),
    /// The experiments of the papers, run again with this engine
    Paper(paper::Args),
    /// Rebuild of a lost target of a pool, and reads without it, beside the machine's limits
    Rebuild(rebuild::Args),
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.area {
            Area::Engine(args) => args.run(),
            Area::Machine(args) => args.run(),
            #[cfg(feature = "gpu")]
            Area::Gpu(args) => args.run(),
            Area::Vault(args) => args.run(),
            Area::Mount(args) => args.run(),
            Area::Watch(args) => args.run(),
            Area::Workers(args) => args.run(),
            Area::Paper(args) => args.run(),
            Area::Rebuild(args) => args.run(),
        }
    }
}
