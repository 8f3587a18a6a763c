//! A server that encodes data in memory and distributes it over seven nodes with four disks each, and that decodes
//! with lost disks: PErasure's table II, with hosts in namespaces and directories as disks.

use super::node::{self, Order, Work};
use crate::commands::figures::{BenchOptions, Line};
use crate::commands::files::drop_caches;
use anyhow::{Context, Result, bail, ensure};
use gabion::compute::{Compute, DeviceChoice};
use gabion_device::Options;
use gabion_engine::conformance::TestRng;
use gabion_testkit::Hosts;
use gabion_vault::coder::Coder;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

const NODES: usize = 7;
const DISKS: usize = 4;
/// k + m, one column for each disk.
const COLUMNS: usize = NODES * DISKS;

/// Bytes of a block; the paper has 160 stripes.
const BLOCK: usize = 1 << 20;

/// Stripes with different content; the others repeat them.
const DIFFERENT: usize = 4;

/// Blocks that wait for a disk.
const AHEAD: usize = 4;

/// A namespace on a bridge for the server and each node, and programs that serve the disks of the nodes.
struct Cluster {
    programs: Vec<Child>,
    hosts: Hosts,
    _place: tempfile::TempDir,
    stripes: usize,
}

impl Cluster {
    fn new(request: &BenchOptions) -> Result<Cluster> {
        let hosts = Hosts::new(NODES + 1).context("hosts are network namespaces, which need root")?;
        let place = request.place()?;
        let stripes = if request.quick { 16 } else { 160 };
        let mut cluster = Cluster { programs: Vec::new(), hosts, _place: place, stripes };
        for number in 1..=NODES {
            let directory = cluster._place.path().join(format!("node{number}"));
            std::fs::create_dir(&directory)?;
            let mut program = cluster.hosts.command(number, std::env::current_exe()?);
            program.args(["hosts", "--node", &Cluster::address(number).to_string(), "--dir"]).arg(directory);
            cluster.programs.push(program.stdout(Stdio::null()).spawn()?);
        }
        Ok(cluster)
    }

    fn address(node: usize) -> SocketAddr {
        SocketAddr::new(Hosts::address(node).into(), node::PORT)
    }

    /// What a disk is to do.
    fn order(&self, column: usize, work: Work) -> (SocketAddr, Order) {
        let (blocks, block) = (self.stripes as u64, BLOCK as u64);
        (Cluster::address(column / DISKS + 1), Order { work, disk: (column % DISKS) as u8, blocks, block })
    }

    /// Seconds until all disks have done their work alone, all at once.
    fn alone(&self, work: Work) -> Result<f64> {
        let began = Instant::now();
        let content = Arc::new(vec![0x5a; BLOCK]);
        self.hosts.within(0, || {
            std::thread::scope(|scope| {
                let disk = |column: usize| {
                    let (address, order) = self.order(column, work);
                    let content = content.clone();
                    scope.spawn(move || node::run(address, order, || Ok(content.clone()), |_| Ok(())))
                };
                let disks: Vec<_> = (0..COLUMNS).map(disk).collect();
                disks.into_iter().try_for_each(|disk| disk.join().unwrap_or_else(|_| bail!("a thread died")))
            })
        })??;
        Ok(began.elapsed().as_secs_f64())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // It may have ended.
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// Data of some stripes.
fn data(k: usize) -> Vec<Vec<Vec<u8>>> {
    let mut random = TestRng(k as u64);
    let mut block = || {
        let mut block = vec![0; BLOCK];
        random.fill(&mut block);
        block
    };
    (0..DIFFERENT).map(|_| (0..k).map(|_| block()).collect()).collect()
}

type Times = (f64, Duration);

/// Encodes and distributes. Returns the seconds, and those of coding.
fn encode(cluster: &Cluster, coder: &Coder, data: &[Vec<Vec<u8>>]) -> Result<Times> {
    let k = coder.code().k();
    let (began, mut coding) = (Instant::now(), Duration::ZERO);
    cluster.hosts.within(0, || {
        std::thread::scope(|scope| -> Result<()> {
            let (mut senders, mut disks) = (Vec::new(), Vec::new());
            for column in 0..COLUMNS {
                let (sender, blocks) = sync_channel::<Arc<Vec<u8>>>(AHEAD);
                let (address, order) = cluster.order(column, Work::Write);
                senders.push(sender);
                let next = move || blocks.recv().context("the server ended");
                disks.push(scope.spawn(move || node::run(address, order, next, |_| Ok(()))));
            }
            let data: Vec<Vec<Arc<Vec<u8>>>> =
                data.iter().map(|stripe| stripe.iter().cloned().map(Arc::new).collect()).collect();
            for number in 0..cluster.stripes {
                let stripe = &data[number % DIFFERENT];
                let mut redundancy = vec![vec![0; BLOCK]; COLUMNS - k];
                let inputs: Vec<&[u8]> = stripe.iter().map(|block| &block[..]).collect();
                let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
                let start = Instant::now();
                coder.encode(&inputs, &mut outputs)?;
                coding += start.elapsed();
                let blocks = stripe.iter().cloned().chain(redundancy.into_iter().map(Arc::new));
                for (sender, block) in senders.iter().zip(blocks) {
                    sender.send(block).ok().context("a disk ended")?;
                }
            }
            drop(senders);
            disks.into_iter().try_for_each(|disk| disk.join().unwrap_or_else(|_| bail!("a thread died")))
        })
    })??;
    Ok((began.elapsed().as_secs_f64(), coding))
}

/// Reads k columns without those of `lost` disks, restores these, and compares the data. Returns the seconds, and those
/// of coding.
fn decode(cluster: &Cluster, coder: &Coder, data: &[Vec<Vec<u8>>], lost: &[usize]) -> Result<Times> {
    let k = coder.code().k();
    let (began, mut coding) = (Instant::now(), Duration::ZERO);
    cluster.hosts.within(0, || {
        std::thread::scope(|scope| -> Result<()> {
            let mut columns: Vec<Option<Receiver<Vec<u8>>>> = (0..COLUMNS).map(|_| None).collect();
            let mut disks = Vec::new();
            for column in (0..COLUMNS).filter(|column| !lost.contains(column)).take(k) {
                let (sender, blocks) = sync_channel(AHEAD);
                let (address, order) = cluster.order(column, Work::Read);
                columns[column] = Some(blocks);
                let take = move |block: &[u8]| sender.send(block.to_vec()).ok().context("the server ended");
                disks.push(scope.spawn(move || node::run(address, order, || Ok(Arc::default()), take)));
            }
            for number in 0..cluster.stripes {
                let block = |column: &Option<Receiver<Vec<u8>>>| match column {
                    Some(blocks) => blocks.recv().map(Some).context("a disk ended"),
                    None => Ok(None),
                };
                let stripe = columns.iter().map(block).collect::<Result<Vec<Option<Vec<u8>>>>>()?;
                let blocks: Vec<Option<&[u8]>> = stripe.iter().map(Option::as_deref).collect();
                let mut restored = vec![vec![0; BLOCK]; lost.len()];
                let mut outputs: Vec<&mut [u8]> = restored.iter_mut().map(|block| &mut block[..]).collect();
                let start = Instant::now();
                coder.repair(&blocks, lost, &mut outputs)?;
                coding += start.elapsed();
                let right = &data[number % DIFFERENT];
                let is_right =
                    lost.iter().zip(&restored).all(|(&at, block)| right.get(at).is_none_or(|it| it == block));
                ensure!(is_right, "stripe {number} was restored wrongly");
            }
            disks.into_iter().try_for_each(|disk| disk.join().unwrap_or_else(|_| bail!("a thread died")))
        })
    })??;
    Ok((began.elapsed().as_secs_f64(), coding))
}

pub(super) fn of_perasure(request: &BenchOptions) -> Result<Vec<Line>> {
    let cluster = Cluster::new(request)?;
    let mut lines = Vec::new();
    for choice in [DeviceChoice::Cpu, DeviceChoice::Cuda(0)] {
        let compute = match Compute::open(Options { choice, ..Options::default() }, None) {
            Ok(compute) => compute,
            Err(error) => {
                errln!("gabion-bench: left out: coding on a GPU: {error}");
                continue;
            }
        };
        for m in [2, 4, 6, 8] {
            lines.extend(of_code(&cluster, &compute, COLUMNS - m, m)?);
        }
    }
    Ok(lines)
}

fn of_code(cluster: &Cluster, compute: &Compute, k: usize, m: usize) -> Result<[Line; 2]> {
    let coder = compute.coders(1)?.get(&format!("{k}+{m}"))?;
    let data = data(k);
    let mut lost = Vec::new();
    let mut random = TestRng(m as u64);
    while lost.len() < m {
        let column = random.below(COLUMNS);
        if !lost.contains(&column) {
            lost.push(column);
        }
    }
    let network = cluster.alone(Work::Discard)?;
    let disk = cluster.alone(Work::Fill)?;
    let encoded = encode(cluster, &coder, &data)?;
    ensure!(drop_caches()?, "the page cache can only be dropped by root");
    let decoded = decode(cluster, &coder, &data, &lost)?;
    let line = |what: &str, (seconds, coding): Times| {
        let case = format!("{what} {k}+{m}, {}", compute.choice());
        let conditions = format!(
            "{} MiB of data in memory, blocks of 1 MiB with signatures, {NODES} nodes with {DISKS} directories on one disk each, fsync \
             included; coding {:.2} s, alone: network {network:.2} s, disks {disk:.2} s",
            cluster.stripes * k,
            coding.as_secs_f64()
        );
        let against = ("coding alone", coding.as_secs_f64());
        Line::new("hosts", &case, (seconds, "s"), against, None, conditions).inverted()
    };
    Ok([line("encode and distribute", encoded), line("read and decode", decoded)])
}
