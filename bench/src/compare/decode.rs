//! Decoding against ISA-L: as many blocks lost as the redundancy can repair, data first.

use std::time::Instant;

use anyhow::ensure;
use gabion_engine::conformance::TestRng;
use gabion_engine::{Code, Repairer};

use super::bars::ISAL;
use super::cases::{Choice, Shape};
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::isal::{self, Call, Encoder, Path};
use crate::ours::{self, Ours, run_again};

/// Part of the work that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planning {
    /// The pass over the data; matrices were inverted before.
    Before,
    /// All work for a stripe with the same loss as the one before: ISA-L keeps nothing, we keep the plan.
    Included,
    /// The same, with another loss in every pass, so that nothing can be kept.
    Fresh,
}

/// Number of different losses: more than plans are kept for, few enough to verify each.
const LOSSES: usize = 600;

/// The lost data columns, and the k columns that survive.
struct Loss {
    lost: Vec<usize>,
    surviving: Vec<usize>,
}

impl Loss {
    /// The first m columns.
    fn first((k, m): Shape) -> Self {
        let lost = m.min(k);
        Self { lost: (0..lost).collect(), surviving: (lost..k).chain(k..k + lost).collect() }
    }

    /// Any m columns, as many data columns among them as there can be.
    fn random((k, m): Shape, random: &mut TestRng) -> Self {
        let lost = m.min(k);
        let mut data: Vec<usize> = (0..k).collect();
        let mut redundancy: Vec<usize> = (k..k + m).collect();
        let mut surviving = draw(&mut data, k - lost, random);
        surviving.extend(draw(&mut redundancy, lost, random));
        data.sort_unstable();
        surviving.sort_unstable();
        Self { lost: data, surviving }
    }
}

/// Takes `count` of the items.
fn draw(items: &mut Vec<usize>, count: usize, random: &mut TestRng) -> Vec<usize> {
    (0..count).map(|_| items.swap_remove(random.below(items.len()))).collect()
}

/// Decoder of ISA-L, after its own example: inverts the k × k rows of the survivors, keeps the rows of the lost blocks,
/// and prepares tables.
fn isal_decoder(rows: &[u8], k: usize, loss: &Loss) -> Encoder {
    let mut survivors = vec![0_u8; k * k];
    for (row, &column) in survivors.chunks_exact_mut(k).zip(&loss.surviving) {
        match column.checked_sub(k) {
            None => row[column] = 1,
            Some(redundancy) => row.copy_from_slice(&rows[redundancy * k..][..k]),
        }
    }
    let inverse = isal::invert(&survivors, k).expect("a Cauchy code is MDS");
    let wanted: Vec<u8> = loss.lost.iter().flat_map(|column| &inverse[column * k..][..k]).copied().collect();
    Encoder::new(Path::Dispatched, k, loss.lost.len(), &wanted)
}

/// The same data with the redundancy of either side: each decodes what it encoded.
struct Stripes<'a> {
    code: Code,
    repairer: Repairer,
    ours: Vec<&'a [u8]>,
    isal_rows: Vec<u8>,
    isal: Vec<&'a [u8]>,
}

impl Stripes<'_> {
    fn isal_pass(&self, loss: &Loss, out: &mut [&mut [u8]]) {
        let sources: Vec<&[u8]> = loss.surviving.iter().map(|&column| self.isal[column]).collect();
        isal_decoder(&self.isal_rows, self.code.k(), loss).encode(&sources, out);
    }

    fn our_pass(&self, loss: &Loss, out: &mut [&mut [u8]]) -> anyhow::Result<()> {
        ours::restore(&self.repairer, &loss.lost, &loss.surviving, &self.ours, out)
    }

    fn check(&self, loss: &Loss, out: &mut [&mut [u8]]) -> anyhow::Result<()> {
        let restored = |out: &[&mut [u8]]| {
            let mut pairs = loss.lost.iter().zip(out);
            pairs.all(|(&column, block)| self.ours[column] == &**block)
        };
        out.iter_mut().for_each(|block| block.fill(0));
        self.our_pass(loss, out)?;
        ensure!(restored(out), "we did not restore the data");
        out.iter_mut().for_each(|block| block.fill(0));
        self.isal_pass(loss, out);
        ensure!(restored(out), "ISA-L did not restore the data");
        Ok(())
    }
}

fn redundancy(rows: &[u8], m: usize, data: &[&[u8]]) -> Blocks {
    let mut blocks = Blocks::zeroed(m, data[0].len());
    Encoder::new(Path::Dispatched, data.len(), m, rows).encode(data, &mut blocks.as_mut_slices());
    blocks
}

/// Restores the lost blocks and races.
pub(super) fn decode(
    shape: Shape,
    len: usize,
    planning: Planning,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let (k, m) = shape;
    let data = Blocks::pseudo_random("decode", k, len);
    let data = data.as_slices();
    // The code itself is known before anything is lost, as ISA-L's matrix is.
    let code = ours::code(&Choice::Default.identity(shape))?;
    let isal_rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    let our_redundancy = redundancy(&ours::redundancy_rows(&code)?, m, &data);
    let isal_redundancy = redundancy(&isal_rows, m, &data);
    let [ours, isal] = [&our_redundancy, &isal_redundancy]
        .map(|redundancy| data.iter().copied().chain(redundancy.as_slices()).collect());
    let engine = Ours::on_threads(1)?;
    let repairer = engine.any_repair(&code);
    let stripes = Stripes { code, repairer, ours, isal, isal_rows };
    let mut random = TestRng(1);
    let losses: Vec<Loss> = match planning {
        Planning::Fresh => (0..LOSSES).map(|_| Loss::random(shape, &mut random)).collect(),
        _ => vec![Loss::first(shape)],
    };
    let mut out = Blocks::zeroed(m.min(k), len);
    for loss in &losses {
        stripes.check(loss, &mut out.as_mut_slices())?;
    }
    match planning {
        Planning::Before => race_prepared(&engine, &stripes, &losses[0], out.as_mut_slices(), end),
        Planning::Included | Planning::Fresh => {
            Ok(race_unprepared(&stripes, &losses, out.as_mut_slices(), end))
        }
    }
}

fn race_prepared(
    engine: &Ours,
    stripes: &Stripes<'_>,
    loss: &Loss,
    out: Vec<&mut [u8]>,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let ours = engine.repairer(&stripes.code, &loss.lost, &loss.surviving)?;
    let inputs: Vec<&[u8]> = ours.plan().inputs().iter().map(|&column| stripes.ours[column]).collect();
    let isal = isal_decoder(&stripes.isal_rows, stripes.code.k(), loss);
    let sources: Vec<&[u8]> = loss.surviving.iter().map(|&column| stripes.isal[column]).collect();
    let contenders = vec![
        Contender::new("gabion", |call: &mut Call<'_>| run_again(&ours, &inputs, call.outputs())),
        Contender::new(ISAL, Call::run),
    ];
    Ok(race(contenders, &mut isal.bind(&sources, out), end))
}

fn race_unprepared(
    stripes: &Stripes<'_>,
    losses: &[Loss],
    mut out: Vec<&mut [u8]>,
    end: Instant,
) -> Vec<Timing> {
    let (mut our_losses, mut isal_losses) = (losses.iter().cycle(), losses.iter().cycle());
    let contenders = vec![
        Contender::new("gabion", |out: &mut Vec<&mut [u8]>| {
            let loss = our_losses.next().expect("there is one");
            stripes.our_pass(loss, out).expect("it did so before the race");
        }),
        Contender::new(ISAL, |out: &mut Vec<&mut [u8]>| {
            stripes.isal_pass(isal_losses.next().expect("there is one"), out);
        }),
    ];
    race(contenders, &mut out, end)
}

#[cfg(test)]
mod tests {
    use super::Loss;
    use gabion_engine::conformance::TestRng;

    #[test]
    fn a_loss_leaves_k_columns() {
        let mut random = TestRng(7);
        for shape in [(4, 2), (10, 4), (3, 5), (30, 33)] {
            let (k, m) = shape;
            for loss in [Loss::first(shape), Loss::random(shape, &mut random)] {
                assert_eq!((loss.lost.len(), loss.surviving.len()), (m.min(k), k));
                let lost = |column: &usize| loss.lost.contains(column);
                assert!(loss.lost.iter().all(|&column| column < k) && !loss.surviving.iter().any(lost));
                assert!(loss.surviving.is_sorted_by(|a, b| a < b) && loss.surviving[k - 1] < k + m);
            }
        }
    }
}
