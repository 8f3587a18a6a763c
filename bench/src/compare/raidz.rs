//! RAID-Z: parity and the seven reconstructions, beside figures of OpenZFS that were measured elsewhere.

use std::time::Instant;

use anyhow::ensure;
use gabion_engine::raidz::Reconstruction;

use super::bars::OPENZFS;
use super::encode::check_encoder;
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::ours::{self, Ours, run_again};

/// Data columns of the published figures.
pub(super) const COLUMNS: usize = 8;
/// Bytes of a column when 16 MiB of data lie in them.
pub(super) const LARGE: usize = (16 << 20) / COLUMNS;

/// Operation on a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Generation of this many parities.
    Generate(usize),
    /// Reconstruction of the first data columns from other data and these parities.
    Reconstruct(Reconstruction),
}

impl Operation {
    /// MiB of data per second that OpenZFS 2.4.99 reached: its vector kernels without assertions over linear buffers,
    /// best of several runs on one core of an Emerald Rapids server; with data in L2, and with 16 MiB of it.
    fn published(self) -> (f64, f64) {
        match self {
            Operation::Generate(1) => (39957.0, 14745.0),
            Operation::Generate(2) => (22097.0, 9961.0),
            Operation::Generate(_) => (11260.0, 7353.0),
            Operation::Reconstruct(Reconstruction::P) => (42621.0, 14180.0),
            Operation::Reconstruct(Reconstruction::Q) => (25547.0, 10544.0),
            Operation::Reconstruct(Reconstruction::R) => (24446.0, 10645.0),
            Operation::Reconstruct(Reconstruction::PQ) => (19154.0, 7283.0),
            Operation::Reconstruct(Reconstruction::PR) => (16493.0, 7123.0),
            Operation::Reconstruct(Reconstruction::QR) => (13275.0, 6767.0),
            Operation::Reconstruct(Reconstruction::PQR) => (9252.0, 4927.0),
        }
    }

    /// The published figure as a timing.
    fn published_timing(self, len: usize) -> Timing {
        let (cached, large) = self.published();
        let rate = if len == LARGE { large } else { cached };
        let seconds = (COLUMNS * len) as f64 / (rate * (1 << 20) as f64);
        Timing { name: OPENZFS, seconds, spread: 0.0 }
    }
}

/// Runs one operation over columns of `len` bytes; the second timing is the published one.
pub(super) fn raidz(operation: Operation, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("raidz", COLUMNS, len);
    let data = stripe.as_slices();
    let parities = match operation {
        Operation::Generate(count) => count,
        Operation::Reconstruct(_) => 3,
    };
    let code = ours::code(&format!("raidz:{COLUMNS}+{parities}"))?;
    let engine = Ours::on_threads(1)?;
    let generator = engine.encoder(&code)?;
    let mut parity = Blocks::zeroed(parities, len);
    check_encoder(&generator, &code, &data, &mut parity.as_mut_slices())?;
    let mut timings = match operation {
        Operation::Generate(_) => {
            let pass = |out: &mut Vec<&mut [u8]>| run_again(&generator, &data, out);
            race(vec![Contender::new("gabion", pass)], &mut parity.as_mut_slices(), end)
        }
        Operation::Reconstruct(with) => {
            let ours = engine.reconstruction(&code, with)?;
            let columns: Vec<&[u8]> = data.iter().copied().chain(parity.as_slices()).collect();
            let inputs: Vec<&[u8]> = ours.plan().inputs().iter().map(|&column| columns[column]).collect();
            let lost = with.parities().len();
            let mut restored = Blocks::zeroed(lost, len);
            ours.run(&inputs, &mut restored.as_mut_slices())?;
            ensure!(restored.as_slices() == data[..lost], "we did not restore the data");
            let pass = |out: &mut Vec<&mut [u8]>| run_again(&ours, &inputs, out);
            race(vec![Contender::new("gabion", pass)], &mut restored.as_mut_slices(), end)
        }
    };
    timings.push(operation.published_timing(len));
    Ok(timings)
}
