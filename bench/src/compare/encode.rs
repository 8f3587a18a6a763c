//! Encoding in the words layout of GF(2^8), beside other libraries.

use std::time::Instant;

use anyhow::ensure;
use gabion::machine::fastest;
use gabion_bench::engine::Limit;
use gabion_engine::kernel::{Kernel, KernelSet, Threads};
use gabion_engine::{Code, Compiled};

use super::bars::{ISAL, MOST_FOR_LIMITS, ROOF, STREAM};
use super::cases::{Choice, LARGE, MIDDLE, Opponents, Shape};
use super::others::Others;
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::isal::{self, Build, Call, Encoder, Path};
use crate::jerasure::Jerasure;
use crate::ours::{self, Ours, run_again};

/// Race of encoders on one stripe. ISA-L has its own Cauchy matrix, the best that it offers for every shape.
pub(super) fn words(
    (k, m): Shape,
    len: usize,
    choice: Choice,
    opponents: Opponents,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("encode", k, len);
    let data = stripe.as_slices();
    let mut out = Blocks::zeroed(m, len);
    let code = ours::code(&choice.identity((k, m)))?;
    let ours = Ours::on_threads(1)?.encoder(&code)?;
    check_encoder(&ours, &code, &data, &mut out.as_mut_slices())?;

    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    ensure!(
        choice == Choice::Default || ours::redundancy_rows(&code)? == rows,
        "our matrix of this name is not ISA-L's"
    );
    let isal = Encoder::new(Path::Dispatched, k, m, &rows);
    let library = Jerasure::acquire();
    let mut others = match opponents {
        Opponents::Everybody => Some(Others::new(&library, (k, m), &rows, &data)?),
        Opponents::IsalOnly => None,
    };
    let pool = Threads::new(1)?;
    let mut call = isal.bind(&data, out.as_mut_slices());
    let mut contenders = vec![
        Contender::new("gabion", |call: &mut Call<'_>| run_again(&ours, &data, call.outputs())),
        Contender::new(ISAL, Call::run),
    ];
    let limited_by = match len {
        MIDDLE => Some(LimitedBy::Cache),
        LARGE => Some(LimitedBy::Memory),
        _ => None,
    };
    if let Some(by) = limited_by.filter(|_| choice == Choice::Default) {
        contenders.extend(limits((k, m), by, &data, &pool, Call::outputs)?);
    }
    if let Some(others) = &mut others {
        contenders.extend(others.contenders(&data));
    }
    Ok(race(contenders, &mut call, end))
}

/// Our kernels for AVX2.
const AVX2_KERNEL: &str = "avx2";

/// True if this CPU can run them.
pub(super) fn has_avx2() -> bool {
    KernelSet::named(AVX2_KERNEL).is_ok()
}

/// Race of encoders on one stripe with AVX2 on both sides.
pub(super) fn avx2((k, m): Shape, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("avx2", k, len);
    let data = stripe.as_slices();
    let mut out = Blocks::zeroed(m, len);
    let code = ours::code(&Choice::Default.identity((k, m)))?;
    let ours = Ours::with_kernel(AVX2_KERNEL)?.encoder(&code)?;
    check_encoder(&ours, &code, &data, &mut out.as_mut_slices())?;
    let isal = Encoder::new(Path::Avx2, k, m, &isal::redundancy_rows(isal::Generator::Cauchy, k, m));
    let mut call = isal.bind(&data, out.as_mut_slices());
    let contenders = vec![
        Contender::new("gabion", |call: &mut Call<'_>| run_again(&ours, &data, call.outputs())),
        Contender::new(ISAL, Call::run),
    ];
    Ok(race(contenders, &mut call, end))
}

/// Memory level of the blocks of a race.
pub(super) enum LimitedBy {
    Cache,
    Memory,
}

/// Limit of the machine for a code of this shape, if moving bytes is the limit; of several ways to move them the best
/// counts. `outputs` returns the blocks to write from the state that the contenders share.
pub(super) fn limits<'a, 'o: 'a, S: 'a>(
    (k, m): Shape,
    by: LimitedBy,
    data: &'a [&'a [u8]],
    pool: &'a Threads,
    outputs: impl Fn(&mut S) -> &mut [&'o mut [u8]] + Copy + 'a,
) -> anyhow::Result<Vec<Contender<'a, S>>> {
    let contender = |name, kernel: Box<dyn Kernel>, written: usize| {
        let pass =
            move |shared: &mut S| pool.run(&*kernel, 1, data, outputs(shared)).expect("the buffers fit");
        Contender::new(name, pass).scaled((k + m) as f64 / (k + written) as f64)
    };
    Ok(match by {
        _ if m > MOST_FOR_LIMITS => Vec::new(),
        LimitedBy::Cache => vec![contender(ROOF, Box::new(Limit::roof(fastest(), k, m)?), m)],
        LimitedBy::Memory => vec![
            contender(STREAM, Box::new(Limit::stream(fastest(), k, 1)?), 1),
            contender(STREAM, Box::new(Limit::stream(fastest(), k, m)?), m),
        ],
    })
}

/// Checks our output against ISA-L with our matrix, byte by byte. `out` is overwritten.
pub(super) fn check_encoder(
    ours: &Compiled,
    code: &Code,
    data: &[&[u8]],
    out: &mut [&mut [u8]],
) -> anyhow::Result<()> {
    let mut expected = Blocks::zeroed(out.len(), data[0].len());
    let isal = Encoder::new(Path::Dispatched, code.k(), out.len(), &ours::redundancy_rows(code)?);
    isal.encode(data, &mut expected.as_mut_slices());
    ours.run(data, out)?;
    let same = expected.as_slices().iter().zip(&*out).all(|(expected, found)| *expected == &**found);
    ensure!(same, "{code}: our bytes are not those of our matrix");
    Ok(())
}

/// The loaded ISA-L against the static one, on the same buffers.
pub(super) fn versions((k, m): Shape, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("versions", k, len);
    let data = stripe.as_slices();
    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    let [newest, bundled] =
        [Build::Newest, Build::Bundled].map(|build| Encoder::of_build(build, Path::Dispatched, k, m, &rows));
    let (mut out, mut expected) = (Blocks::zeroed(m, len), Blocks::zeroed(m, len));
    newest.encode(&data, &mut out.as_mut_slices());
    bundled.encode(&data, &mut expected.as_mut_slices());
    ensure!(out.as_slices() == expected.as_slices(), "the two builds differ");

    let mut call = newest.bind(&data, out.as_mut_slices());
    let contenders = vec![
        Contender::new(ISAL, Call::run),
        Contender::new("isal-bundled", |call: &mut Call<'_>| call.run_with(&bundled)),
    ];
    Ok(race(contenders, &mut call, end))
}
