//! Decoding against ISA-L: as many data blocks lost as the redundancy can bear.

use std::time::Instant;

use anyhow::ensure;

use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::isal::{self, Encoder, Path};
use crate::ours::{self, Ours, run_again};

/// A stripe of ISA-L's Cauchy code with its first min(k, m) data blocks lost.
struct Loss {
    k: usize,
    lost: usize,
    rows: Vec<u8>,
}

impl Loss {
    fn new(k: usize, m: usize) -> Self {
        Self { k, lost: m.min(k), rows: isal::redundancy_rows(isal::Generator::Cauchy, k, m) }
    }

    /// Columns that survive and are read: the data that is left, then redundancy from its first.
    fn sources(&self) -> Vec<usize> {
        (self.lost..self.k).chain(self.k..self.k + self.lost).collect()
    }

    /// What a user of ISA-L does, as its own example shows: invert the k × k rows of the survivors,
    /// keep the rows of the lost blocks, make tables.
    fn isal_decoder(&self) -> Encoder {
        let Self { k, lost, rows } = self;
        let (k, lost) = (*k, *lost);
        let mut survivors = vec![0_u8; k * k];
        for (row, column) in survivors.chunks_exact_mut(k).zip(self.sources()) {
            match column.checked_sub(k) {
                None => row[column] = 1,
                Some(redundancy) => row.copy_from_slice(&rows[redundancy * k..][..k]),
            }
        }
        let inverse = isal::invert(&survivors, k).expect("a Cauchy code is MDS");
        Encoder::new(Path::Dispatched, k, lost, &inverse[..lost * k])
    }
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Planning {
    /// The pass over the data; matrices were inverted before.
    Before,
    /// Inverting, compiling and the pass: the first stripe after a loss.
    Included,
}

/// Restores the lost blocks and races.
pub(super) fn decode(
    (k, m): (usize, usize),
    len: usize,
    planning: Planning,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let loss = Loss::new(k, m);
    let lost: Vec<usize> = (0..loss.lost).collect();
    let stripes = Blocks::painted("decode", k, len);
    let data = stripes.as_slices();
    let mut redundancy = Blocks::zeroed(m, len);
    Encoder::new(Path::Dispatched, k, m, &loss.rows).encode(&data, &mut redundancy.as_mut_slices());
    let redundancy = redundancy.as_slices();
    let all: Vec<&[u8]> = data.iter().chain(&redundancy).copied().collect();
    let wanted = &data[..loss.lost];

    let isal_sources: Vec<&[u8]> = loss.sources().into_iter().map(|column| all[column]).collect();
    let isal = loss.isal_decoder();
    let mut isal_out = Blocks::zeroed(loss.lost, len);
    isal.encode(&isal_sources, &mut isal_out.as_mut_slices());
    ensure!(isal_out.as_slices() == wanted, "ISA-L did not restore the data");

    let code = ours::code(&format!("cauchy-isal:{k}+{m}:w8"))?;
    let surviving: Vec<usize> = (loss.lost..k + m).collect();
    let engine = Ours::on_threads(1)?;
    let ours = engine.repairer(&code, &lost, &surviving)?;
    let our_sources: Vec<&[u8]> = ours.plan().inputs().iter().map(|&column| all[column]).collect();
    let mut our_out = Blocks::zeroed(loss.lost, len);
    ours.run(&our_sources, &mut our_out.as_mut_slices())?;
    ensure!(our_out.as_slices() == wanted, "we did not restore the data");

    let (mut our_out, mut isal_out) = (our_out.as_mut_slices(), isal_out.as_mut_slices());
    let time_left = || end.saturating_duration_since(Instant::now());
    if planning == Planning::Before {
        let mut isal_call = isal.bind(&isal_sources, &mut isal_out);
        let contenders = vec![
            Contender::new("gabion", || run_again(&ours, &our_sources, &mut our_out)),
            Contender::new("isal", move || isal_call.run()),
        ];
        return Ok(race(contenders, time_left()));
    }
    // The code itself is known before anything is lost, as ISA-L's matrix is.
    let contenders = vec![
        Contender::new("gabion", || {
            let ours = engine.repairer(&code, &lost, &surviving).expect("it did so above");
            run_again(&ours, &our_sources, &mut our_out);
        }),
        Contender::new("isal", || {
            loss.isal_decoder().encode(&isal_sources, &mut isal_out);
        }),
    ];
    Ok(race(contenders, time_left()))
}
