//! `gabion-bench hosts`: one deployment on several hosts.

mod changelog;
mod cluster;
mod deployment;
mod memory;
mod node;
mod ranges;
mod shares;

use super::figures::{BenchOptions, Line};
use anyhow::{Result, bail};
use gabion::exit::Outcome;
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  gabion-bench hosts
  gabion-bench hosts --dir /dev/shm --only 'large file'
  gabion-bench hosts --quick --json

Hosts are network namespaces on this machine, with a `gabion work --follow --threads 1` each, limited to a rate, and a Redis server on \
one of them; all share the file system of --dir. What one host and several encode is compared in turns. `changelog` compares durable \
changes per second of four clients of a Redis server with the embedded changelog, and `operations` single calls. `memory` \
is that of a worker in a deployment of 10,000,000 files, 100,000 with --quick. `ranges` counts what a worker reads after writes through mounts on two hosts into one file. `cluster` encodes in memory, on the CPU and on a GPU, and distributes over seven nodes with four \
disks each, as PErasure does. Needs root and the packages iproute2 and redis-server. \
What was encoded is verified after each run.";

/// The cases by name, in the order in which they run.
const CASES: [&str; 8] =
    ["two workers", "scaling", "large file", "changelog", "operations", "memory", "ranges", "cluster"];

/// Arguments of `gabion-bench hosts`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    request: BenchOptions,
    /// Serve the disks of a node of `cluster` in --dir
    #[arg(long, value_name = "ADDRESS", hide = true)]
    node: Option<SocketAddr>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Outcome> {
        let request = &self.request;
        if let Some(address) = self.node {
            node::serve(address, &request.dir)?;
        }
        request.run(&CASES, |case| -> Result<Vec<Line>> {
            match case {
                "two workers" => shares::two_workers(request),
                "scaling" => shares::scaling(request),
                "large file" => shares::large_file(request),
                "changelog" => changelog::durable(request),
                "operations" => changelog::operations(request),
                "memory" => memory::of_a_worker(request),
                "ranges" => ranges::two_hosts(request),
                "cluster" => cluster::of_perasure(request),
                other => bail!("no case {other:?}; there are: {}", CASES.join(", ")),
            }
        })
    }
}
