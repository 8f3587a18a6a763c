//! The packets layout: against Jerasure at its best, and against ISA-L over the same data.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use gabion_engine::kernel::Threads;

use super::bars::{ISAL, JERASURE};
use super::cases::{MIDDLE, Shape};
use super::encode::{LimitedBy, limits};
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::isal::{self, Call, Encoder, Path};
use crate::jerasure::{self, Jerasure};
use crate::ours::{self, Ours, run_again};

/// Bytes of our packets, where blocks are long enough.
const PACKET: usize = 2048;
/// Width and packet of the bit matrices that Jerasure may choose from, besides our own.
const THEIRS: [(usize, usize); 7] =
    [(4, 1024), (4, 4096), (4, 8192), (8, 256), (8, 1024), (8, 2048), (8, 4096)];

fn identity((k, m): Shape, w: usize, packet: usize) -> String {
    format!("cauchy-good:{k}+{m}:w{w}:packets={packet}")
}

/// Encodes Jerasure's `cauchy-good` bit matrix by its schedules and races.
pub(super) fn packets((k, m): Shape, w: usize, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("packets", k, len);
    let data = stripe.as_slices();
    let engine = Ours::on_threads(1)?;
    let packet = PACKET.min(len / w);
    let ours = engine.encoder(&ours::code(&identity((k, m), w, packet))?)?;
    let library = Jerasure::acquire();
    let fits = |&(w, packet): &(usize, usize)| len.is_multiple_of(w * packet) && k + m <= 1 << w;
    let mut ways = Vec::new();
    for (w, packet) in std::iter::once((w, packet)).chain(THEIRS.into_iter().filter(fits)) {
        let way = Way::new(&library, (k, m), w, packet);
        ways.push(way.with_context(|| format!("Jerasure w{w} packets={packet}"))?);
    }
    let mut jerasure_out = Blocks::zeroed(m, len);
    for way in &ways {
        way.check(&engine, &data, &mut jerasure_out)?;
    }

    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    let isal = Encoder::new(Path::Dispatched, k, m, &rows);
    let mut outs: Vec<Blocks> = ways.iter().map(|_| Blocks::zeroed(m, len)).collect();
    let mut out = Blocks::zeroed(m, len);
    let mut call = isal.bind(&data, out.as_mut_slices());
    let pool = Threads::new(1)?;
    let by = if len <= MIDDLE { LimitedBy::Cache } else { LimitedBy::Memory };
    let mut contenders = vec![
        Contender::new("gabion", |call: &mut Call<'_>| run_again(&ours, &data, call.outputs())),
        Contender::new(ISAL, Call::run),
    ];
    contenders.extend(limits((k, m), by, &data, &pool, Call::outputs)?);
    for (way, out) in ways.iter().zip(&mut outs) {
        let mut pass = way.encoder.bind_schedule(way.packet, &data, out.as_mut_slices());
        contenders.push(Contender::new(JERASURE, move |_: &mut Call<'_>| pass()));
    }
    Ok(race(contenders, &mut call, end))
}

/// One choice of width and packet by Jerasure.
struct Way<'lib> {
    shape: Shape,
    w: usize,
    packet: usize,
    encoder: jerasure::Packets<'lib>,
}

impl<'lib> Way<'lib> {
    fn new(library: &'lib Jerasure, shape: Shape, w: usize, packet: usize) -> anyhow::Result<Self> {
        let (k, m) = shape;
        let rows = library.redundancy_rows(jerasure::Generator::Good, k, m, w).context("no such matrix")?;
        Ok(Self { shape, w, packet, encoder: library.packets(k, m, w, &rows) })
    }

    /// Checks that the code of the same name gives the same bytes.
    fn check(&self, engine: &Ours, data: &[&[u8]], out: &mut Blocks) -> anyhow::Result<()> {
        self.encoder.bind_schedule(self.packet, data, out.as_mut_slices())();
        let identity = identity(self.shape, self.w, self.packet);
        let ours = engine.encoder(&ours::code(&identity)?)?;
        let mut our_out = Blocks::zeroed(self.shape.1, data[0].len());
        ours.run(data, &mut our_out.as_mut_slices())?;
        ensure!(our_out.as_slices() == out.as_slices(), "{identity}: our bytes are not Jerasure's");
        Ok(())
    }
}
