//! The interfaces of the engine for other languages and programs, beside the engine itself and what they replace.

mod cases;
mod worker;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use gabion_engine::{Code, ReedSolomon};

use super::cases::Shape;
use super::race::{Contender, Timing, race, race_in_batches};
use crate::blocks::Blocks;
use crate::isal::{self, Build, Call, Encoder, Generator};
use crate::libgabion::Codec;
use crate::ours::{self, Ours, run_again};
pub(super) use cases::cases;
use worker::Worker;

/// Files and programs of a comparison.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The directory with libgabion_c.so and libgabion_isal.so.
    pub(super) libraries: PathBuf,
    /// A virtual environment with gabion, zfec and PyECLib.
    pub(super) python: Option<PathBuf>,
}

impl Places {
    pub(super) fn libgabion(&self) -> PathBuf {
        self.libraries.join("libgabion_c.so")
    }

    pub(super) fn drop_in(&self) -> PathBuf {
        self.libraries.join("libgabion_isal.so")
    }
}

/// Batches of contenders in other processes: their caches are cold after each turn of another one.
const BATCH: Duration = Duration::from_millis(20);

type Outputs<'a> = Vec<&'a mut [u8]>;

/// The simple interface beside a plan.
pub(super) fn simple((k, m): Shape, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("simple", k, len);
    let data = stripe.as_slices();
    let (mut out, mut expected) = (Blocks::zeroed(m, len), Blocks::zeroed(m, len));
    let rs = ReedSolomon::new(k, m)?;
    let plan = Ours::on_threads(1)?.encoder(rs.code())?;
    plan.run(&data, &mut expected.as_mut_slices())?;
    rs.encode_to(&data, &mut out.as_mut_slices())?;
    ensure!(out.as_slices() == expected.as_slices(), "the simple interface gives other bytes");
    let mut outputs = out.as_mut_slices();
    let contenders = vec![
        Contender::new("gabion", |out: &mut Outputs<'_>| {
            rs.encode_to(&data, out).expect("the same call went well before the race");
        }),
        Contender::new(cases::PLAN, |out: &mut Outputs<'_>| run_again(&plan, &data, out)),
    ];
    Ok(race(contenders, &mut outputs, end))
}

/// The C interface beside a plan.
pub(super) fn c(places: &Places, (k, m): Shape, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("c", k, len);
    let data = stripe.as_slices();
    let (mut out, mut expected) = (Blocks::zeroed(m, len), Blocks::zeroed(m, len));
    let code: Code = format!("{k}+{m}").parse()?;
    let plan = Ours::on_threads(1)?.encoder(&code)?;
    plan.run(&data, &mut expected.as_mut_slices())?;
    let codec = Codec::new(&places.libgabion(), (k, m))?;
    let addresses = Codec::addresses(&data);
    codec.encode(&data, &addresses, &mut out.as_mut_slices());
    ensure!(out.as_slices() == expected.as_slices(), "the C interface gives other bytes");
    let mut outputs = out.as_mut_slices();
    let contenders = vec![
        Contender::new("gabion", |out: &mut Outputs<'_>| codec.encode(&data, &addresses, out)),
        Contender::new(cases::PLAN, |out: &mut Outputs<'_>| run_again(&plan, &data, out)),
    ];
    Ok(race(contenders, &mut outputs, end))
}

/// The drop-in library beside ISA-L, with tables made once from the same matrix.
pub(super) fn drop_in(
    generator: Generator,
    (k, m): Shape,
    len: usize,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("drop-in", k, len);
    let data = stripe.as_slices();
    let rows = isal::redundancy_rows(generator, k, m);
    let [ours, theirs] = [Build::DropIn, Build::Newest]
        .map(|build| Encoder::of_build(build, isal::Path::Dispatched, k, m, &rows));
    let (mut out, mut expected) = (Blocks::zeroed(m, len), Blocks::zeroed(m, len));
    ours.encode(&data, &mut out.as_mut_slices());
    theirs.encode(&data, &mut expected.as_mut_slices());
    ensure!(out.as_slices() == expected.as_slices(), "the drop-in library gives other bytes");
    let mut call = ours.bind(&data, out.as_mut_slices());
    let contenders = vec![
        Contender::new("gabion", Call::run),
        Contender::new(super::bars::ISAL, |call: &mut Call<'_>| call.run_with(&theirs)),
    ];
    Ok(race(contenders, &mut call, end))
}

/// liberasurecode with the drop-in library and with the ISA-L of the system.
pub(super) fn liberasurecode(
    (places, python): (&Places, &Path),
    operation: &'static str,
    shape: Shape,
    len: usize,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let directory = tempfile::tempdir()?;
    std::os::unix::fs::symlink(places.drop_in().canonicalize()?, directory.path().join("libisal.so.2"))?;
    let ours = Worker::start(python, operation, shape, len, Some(directory.path()))?;
    let theirs = Worker::start(python, operation, shape, len, None)?;
    ensure!(ours.found == theirs.found && !ours.found.is_empty(), "other bytes than with ISA-L");
    let workers = [("gabion", ours), (cases::WITH_ISAL, theirs)];
    Ok(race_in_batches(workers.map(|(name, worker)| worker.contender(name)).into(), &mut (), BATCH, end))
}

/// The Python package beside the engine in Rust, zfec and PyECLib. `new` takes new objects for the redundancy.
pub(super) fn python(
    python: &Path,
    new: bool,
    (k, m): Shape,
    len: usize,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let data = worker::stripe(k, len);
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let code = ours::code(&format!("{k}+{m}"))?;
    let plan = Ours::on_threads(1)?.encoder(&code)?;
    let mut out = Blocks::zeroed(m, len);
    let mut outputs = out.as_mut_slices();
    plan.run(&slices, &mut outputs)?;
    let start = |case| Worker::start(python, case, (k, m), len, None);
    let [ours, other] = [start("gabion")?, start("gabion-new")?];
    ensure!(ours.found == other.found && !ours.found.is_empty(), "two ways of encoding give other bytes");
    let mut rust = move || run_again(&plan, &slices, &mut outputs);
    let ours = if new { other } else { ours };
    let contenders = vec![
        ours.contender("gabion"),
        Contender::new(cases::RUST, move |(): &mut ()| rust()),
        start("zfec")?.contender(cases::ZFEC).rarely(),
        start("pyeclib")?.contender(cases::PYECLIB),
    ];
    Ok(race_in_batches(contenders, &mut (), BATCH, end))
}
