//! Conformance suite for back ends: the CPU kernel sets of this crate and the devices of others.
//!
//! Expected bytes come from [`Reference`] or from the encoded data. The caller provides buffers, so that a test can put
//! guard pages around them; a failed check panics with back end, plan and length.

mod bytes;

pub use bytes::from_bytes;

use crate::code::Code;
use crate::error::Error;
use crate::field::Field;
use crate::kernel::{Backend, Reference};
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use std::fmt::Debug;

/// Source of buffers: `len` bytes at an address of the caller's choice.
pub trait Buffers {
    /// One buffer.
    type Block: AsMut<[u8]> + AsRef<[u8]>;
    /// A buffer of exactly `len` bytes.
    fn block(&mut self, len: usize) -> Self::Block;
}

/// Deterministic random number generator for tests (SplitMix64).
#[derive(Debug, Clone)]
pub struct TestRng(pub u64);

impl TestRng {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }

    /// Fills a buffer.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Lengths around every register and step of the vector kernels, short lengths, and a page.
pub fn boundary_lengths() -> Vec<usize> {
    let steps = [8, 16, 32, 64, 128, 256, 512, 1024, 4096];
    let around = steps.into_iter().flat_map(|step| [step - 1, step, step + 1]);
    let mut lengths: Vec<usize> = (0..4).chain(around).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Random plans of every field and layout at boundary lengths, in both modes.
pub fn random_plans<B: Buffers>(backends: &[&dyn Backend], buffers: &mut B, seed: u64, rounds: usize) {
    let mut random = TestRng(seed);
    for _ in 0..rounds {
        for (field, layout) in shapes(&mut random) {
            let (outputs, inputs) = (random.below(9), random.below(13));
            let few = random.below(3) == 0;
            let matrix = Matrix::from_fn(field, outputs, inputs, |_, _| {
                // Some kernels treat zeros, ones and small numbers specially.
                let any = random.next_u64() & field.mask();
                if few { any & 3 } else { any }
            });
            let mode = if random.below(2) == 0 { Mode::Write } else { Mode::Add };
            let plan = Plan::new(matrix.expect("a small matrix"), layout, mode).expect("a valid layout");
            let lengths = boundary_lengths();
            let len = lengths[random.below(lengths.len())].next_multiple_of(plan.granule());
            same_as_reference(backends, &plan, len, buffers, &mut random);
        }
    }
}

/// Every field in each of its layouts.
fn shapes(random: &mut TestRng) -> Vec<(Field, Layout)> {
    let words = Field::WORDS.map(|field| (field, Layout::Words));
    let mut packets = |field| (field, Layout::Packets { bytes: 1 + random.below(100) });
    let packets: Vec<_> = Field::all().map(&mut packets).collect();
    words.into_iter().chain(packets).collect()
}

/// Runs one plan at one length on all back ends and compares with the reference.
pub fn same_as_reference<B: Buffers>(
    backends: &[&dyn Backend],
    plan: &Plan,
    len: usize,
    buffers: &mut B,
    random: &mut TestRng,
) {
    let trial = Trial::new(plan, len, buffers, random);
    let mut want = trial.painted.clone();
    run(&Reference, plan, &trial.inputs(), &mut want);
    trial.compare(backends, &want, buffers);
}

/// As [`same_as_reference`] for plans of many outputs: the reference computes the outputs `rows` alone; for all others
/// the back ends are compared with the first of them.
fn same_as_reference_in_rows<B: Buffers>(
    backends: &[&dyn Backend],
    plan: &Plan,
    rows: &[usize],
    len: usize,
    buffers: &mut B,
    random: &mut TestRng,
) {
    let Some(&first) = backends.first() else { return };
    let trial = Trial::new(plan, len, buffers, random);
    let mut want = trial.painted.clone();
    run(first, plan, &trial.inputs(), &mut want);
    let coefficient = |row: usize, column| plan.coefficient(rows[row], column);
    let matrix = Matrix::from_fn(plan.field(), rows.len(), plan.inputs().len(), coefficient);
    let some = Plan::new(matrix.expect("some rows"), plan.layout(), plan.mode()).expect("the plan's layout");
    let mut truth: Vec<Vec<u8>> = rows.iter().map(|&row| trial.painted[row].clone()).collect();
    run(&Reference, &some, &trial.inputs(), &mut truth);
    for (&row, truth) in rows.iter().zip(&truth) {
        assert_same(first, plan, row, &want[row], truth);
    }
    trial.compare(backends, &want, buffers);
}

/// Blocks for one plan.
struct Trial<'a, T> {
    plan: &'a Plan,
    inputs: Vec<T>,
    /// Previous contents of the outputs, to be added to or overwritten.
    painted: Vec<Vec<u8>>,
    len: usize,
}

impl<'a, T: AsMut<[u8]> + AsRef<[u8]>> Trial<'a, T> {
    fn new<B: Buffers<Block = T>>(
        plan: &'a Plan,
        len: usize,
        buffers: &mut B,
        random: &mut TestRng,
    ) -> Trial<'a, T> {
        let mut filled = |random: &mut TestRng| {
            let mut block = buffers.block(len);
            random.fill(block.as_mut());
            block
        };
        let inputs = plan.inputs().iter().map(|_| filled(random)).collect();
        let painted = plan.outputs().iter().map(|_| filled(random).as_ref().to_vec()).collect();
        Trial { plan, inputs, painted, len }
    }

    fn inputs(&self) -> Vec<&[u8]> {
        self.inputs.iter().map(AsRef::as_ref).collect()
    }

    /// Checks that every back end computes `want`.
    fn compare<B: Buffers<Block = T>>(&self, backends: &[&dyn Backend], want: &[Vec<u8>], buffers: &mut B) {
        for &backend in backends {
            let mut outputs: Vec<T> = want.iter().map(|_| buffers.block(self.len)).collect();
            for (output, paint) in outputs.iter_mut().zip(&self.painted) {
                output.as_mut().copy_from_slice(paint);
            }
            run(backend, self.plan, &self.inputs(), &mut outputs);
            for (row, (got, want)) in outputs.iter().zip(want).enumerate() {
                assert_same(backend, self.plan, row, got.as_ref(), want);
            }
        }
    }
}

fn assert_same(backend: &dyn Backend, plan: &Plan, row: usize, got: &[u8], want: &[u8]) {
    let differs = got.iter().zip(want).position(|(a, b)| a != b);
    let len = want.len();
    assert_eq!(differs, None, "{}: output {row} of {len} bytes, {plan:?}", backend.name());
}

fn run(backend: &dyn Backend, plan: &Plan, inputs: &[&[u8]], outputs: &mut [impl AsMut<[u8]>]) {
    let kernel = must(backend, plan, backend.compile(plan));
    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(AsMut::as_mut).collect();
    must(backend, plan, kernel.run(inputs, &mut outputs));
}

fn must<T>(backend: &dyn Backend, plan: &Plan, result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {error}, {plan:?}", backend.name()))
}

/// Encodes with `code` and repairs every pattern of m losses if there are at most `exhaustive`, otherwise `samples`
/// seeded patterns of 1 to m losses.
pub fn survives_losses<B: Buffers>(
    backends: &[&dyn Backend],
    code: &Code,
    len: usize,
    buffers: &mut B,
    limits: PatternLimits,
) {
    let mut random = TestRng(len as u64 ^ code.blocks() as u64);
    let mut stripe: Vec<B::Block> = (0..code.blocks()).map(|_| buffers.block(len)).collect();
    stripe[..code.k()].iter_mut().for_each(|block| random.fill(block.as_mut()));
    let plan = code.encode_plan().expect("an encode plan");
    let (data, redundancy) = stripe.split_at_mut(code.k());
    let data: Vec<&[u8]> = data.iter().map(|block| block.as_ref()).collect();
    run(&Reference, &plan, &data, redundancy);
    let stripe: Vec<&[u8]> = stripe.iter().map(|block| block.as_ref()).collect();
    for lost in loss_patterns(code, limits, &mut random) {
        let surviving: Vec<usize> = (0..code.blocks()).filter(|column| !lost.contains(column)).collect();
        let plan = code.repair_plan(&lost, &surviving).expect("m losses are survivable");
        let inputs: Vec<&[u8]> = plan.inputs().iter().map(|&column| stripe[column]).collect();
        for backend in backends {
            let mut outputs: Vec<B::Block> = lost.iter().map(|_| buffers.block(len)).collect();
            run(*backend, &plan, &inputs, &mut outputs);
            for (output, &column) in outputs.iter().zip(&lost) {
                let whole = output.as_ref() == stripe[column];
                assert!(whole, "{}: {code} lost {lost:?}, column {column} is wrong", backend.name());
            }
        }
    }
}

/// Number of loss patterns to try.
#[derive(Debug, Clone, Copy)]
pub struct PatternLimits {
    /// Maximum number of patterns that are tried exhaustively.
    pub exhaustive: usize,
    /// Number of samples otherwise.
    pub samples: usize,
}

/// The loss patterns to try on a code.
pub fn loss_patterns(code: &Code, limits: PatternLimits, random: &mut TestRng) -> Vec<Vec<usize>> {
    let (n, m) = (code.blocks(), code.m());
    // C(n, m) by a product that is an integer at every step; stops once it is too large.
    let count = (0..m).try_fold(1usize, |count, i| {
        let count = count.checked_mul(n - i)? / (i + 1);
        (count <= limits.exhaustive).then_some(count)
    });
    match count {
        Some(_) => combinations(n, m),
        None => (0..limits.samples).map(|_| sample(n, 1 + random.below(m), random)).collect(),
    }
}

/// All subsets of 0..n of m elements, in order.
fn combinations(n: usize, m: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..m {
        let extended = all.iter().flat_map(|set: &Vec<usize>| {
            let next = set.last().map_or(0, |last| last + 1);
            (next..n).map(move |element| [&set[..], &[element]].concat())
        });
        all = extended.collect();
    }
    all
}

fn sample(n: usize, size: usize, random: &mut TestRng) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..n).collect();
    for i in 0..size {
        let other = i + random.below(n - i);
        columns.swap(i, other);
    }
    columns.truncate(size);
    columns.sort_unstable();
    columns
}

/// Buffers that do not fit are refused with numbers, and outputs are unchanged.
pub fn refuses_wrong_buffers(backend: &dyn Backend) {
    let code: Code = "4+2:w16".parse().expect("a code");
    let plan = code.encode_plan().expect("a plan");
    let kernel = must(backend, &plan, backend.compile(&plan));
    let block = &[7u8; 64][..];
    let refused = |inputs: &[&[u8]], lengths: &[usize], want: Error| {
        let mut outputs: Vec<Vec<u8>> = lengths.iter().map(|&len| vec![0xa5; len]).collect();
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
        assert_refused(backend, kernel.run(inputs, &mut slices), want);
        assert!(outputs.iter().flatten().all(|&byte| byte == 0xa5), "{}: wrote anyway", backend.name());
    };
    let count = |inputs, outputs| Error::BufferCount { want_inputs: 4, want_outputs: 2, inputs, outputs };
    refused(&[block; 3], &[64, 64], count(3, 2));
    refused(&[block; 4], &[64], count(4, 1));
    refused(&[block; 4], &[64, 62], Error::BufferLength { index: 5, len: 62, want: 64 });
    let ragged = [block, &block[1..], block, block];
    refused(&ragged, &[64, 64], Error::BufferLength { index: 1, len: 63, want: 64 });
    refused(&[&block[..63]; 4], &[63, 63], Error::BufferGranule { len: 63, granule: 2 });
}

fn assert_refused(backend: &dyn Backend, got: Result<(), Error>, want: Error) {
    assert_eq!(got, Err(want), "{}", backend.name());
}

/// Sums of partial products equal the encoding; an update of some blocks equals the encoding of the new data.
pub fn partial_and_update_agree_with_encode<B: Buffers>(
    backends: &[&dyn Backend],
    code: &Code,
    len: usize,
    buffers: &mut B,
) where
    B::Block: Debug,
{
    let mut random = TestRng(17);
    let mut data: Vec<B::Block> = (0..code.k()).map(|_| buffers.block(len)).collect();
    data.iter_mut().for_each(|block| random.fill(block.as_mut()));
    let encode = code.encode_plan().expect("a plan");
    let encoded = |data: &[B::Block]| {
        let mut redundancy = vec![vec![0; len]; code.m()];
        let inputs: Vec<&[u8]> = data.iter().map(|block| block.as_ref()).collect();
        run(&Reference, &encode, &inputs, &mut redundancy);
        redundancy
    };
    let before = encoded(&data);
    for backend in backends {
        let mut sums = vec![vec![0; len]; code.m()];
        for (column, block) in data.iter().enumerate() {
            let plan = code.partial_plan(column).expect("a plan");
            let mut products = vec![vec![0; len]; code.m()];
            run(*backend, &plan, &[block.as_ref()], &mut products);
            for (sum, product) in sums.iter_mut().zip(&products) {
                sum.iter_mut().zip(product).for_each(|(a, b)| *a ^= b);
            }
        }
        assert_eq!(sums, before, "{}: {code} partial products", backend.name());
    }
    let changed: Vec<usize> = (0..code.k()).step_by(2).collect();
    let mut differences = Vec::new();
    for &column in &changed {
        let mut difference = vec![0; len];
        random.fill(&mut difference);
        let block = data[column].as_mut();
        block.iter_mut().zip(&difference).for_each(|(a, b)| *a ^= b);
        differences.push(difference);
    }
    let plan = code.update_plan(&changed).expect("a plan");
    let inputs: Vec<&[u8]> = differences.iter().map(|block| &block[..]).collect();
    let after = encoded(&data);
    for backend in backends {
        let mut redundancy = before.clone();
        run(*backend, &plan, &inputs, &mut redundancy);
        assert_eq!(redundancy, after, "{}: {code} update of {changed:?}", backend.name());
    }
}

/// Every run increases `launches`, the counter of the device: nothing is computed elsewhere.
pub fn every_run_is_launched<B: Buffers>(backend: &dyn Backend, buffers: &mut B, launches: &dyn Fn() -> u64) {
    let mut random = TestRng(23);
    for text in ["10+4", "3+2:w16", "cauchy-good:6+3:w5:packets=24", "raidz:5+3"] {
        let code: Code = text.parse().expect("a code");
        for plan in [
            code.encode_plan(),
            code.update_plan(&[1]),
            code.repair_plan(&[0], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10][..code.k()]),
        ] {
            let plan = plan.expect("a plan");
            let len = 1000usize.next_multiple_of(plan.granule());
            let before = launches();
            same_as_reference(&[backend], &plan, len, buffers, &mut random);
            assert!(launches() > before, "{}: {code} ran, but not on the device", backend.name());
        }
    }
}
