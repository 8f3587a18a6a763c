//! The conformance suite over every supported kernel set, with guard pages around buffers.

mod guarded;

use gabion_engine::conformance::{
    Buffers, PatternLimits, boundary_lengths, partial_and_update_agree_with_encode, random_plans,
    refuses_wrong_buffers, same_as_reference, survives_losses,
};
use gabion_engine::kernel::{Backend, KernelSet, Threads, Tier, TieredKernelSet, kernel_sets};
use gabion_engine::matrix::Matrix;
use gabion_engine::{Code, Engine, Error, Field, Layout, Mode, Plan};
use gabion_testkit::rounds;
use guarded::{Edge, Guarded};
use std::sync::LazyLock;

/// The supported kernel sets, with plans compiled at once and never; unsupported ones are printed as skipped.
fn backends() -> Vec<&'static dyn Backend> {
    static BACKENDS: LazyLock<Vec<TieredKernelSet>> = LazyLock::new(|| {
        let (supported, missing): (Vec<_>, Vec<_>) = kernel_sets().iter().partition(|row| row.supported());
        for row in missing {
            println!("SKIP {}: this CPU lacks {}", row.name(), row.needs());
        }
        let tiers = |row: &'static KernelSet| [row.at(Tier::Generic), row.at(Tier::Code)];
        supported.into_iter().flat_map(tiers).collect()
    });
    BACKENDS.iter().map(|backend| backend as &dyn Backend).collect()
}

/// The generic kernels, which prepare a plan in microseconds, and the compiled ones, which take a thousand times as
/// long, each with its number of plans.
fn tiers() -> [(Vec<&'static dyn Backend>, Effort); 2] {
    let named =
        |suffix: &str| backends().into_iter().filter(|backend| backend.name().ends_with(suffix)).collect();
    let generic = Effort { rounds: rounds(60), limits: PatternLimits { exhaustive: 5000, samples: 60 } };
    let code = Effort { rounds: rounds(6), limits: PatternLimits { exhaustive: 50, samples: 6 } };
    [(named("-generic"), generic), (named("-code"), code)]
}

struct Effort {
    rounds: usize,
    limits: PatternLimits,
}

/// The adaptive tier starts with the generic kernel and switches to compiled code between calls.
#[test]
fn a_plan_that_works_enough_is_compiled_without_a_change_of_bytes() {
    let mut random = gabion_engine::conformance::TestRng(4);
    for code in ["10+4", "40+20"] {
        let plan = code.parse::<Code>().unwrap().encode_plan().unwrap();
        for _ in 0..12 {
            let rows: Vec<&dyn Backend> =
                kernel_sets().iter().filter(|row| row.supported()).map(|row| row as _).collect();
            same_as_reference(&rows, &plan, 4096, &mut Guarded(Edge::End), &mut random);
        }
    }
}

/// The prepared maps of these matrices would take gigabytes.
#[test]
fn matrices_that_no_kernel_could_prepare_are_refused_with_numbers() {
    for (field, rows, columns, limit) in
        [(Field::GF64, 1025, 1024, 1 << 20), (Field::GF32, 2049, 2048, 1 << 22)]
    {
        let matrix = Matrix::from_fn(field, rows, columns, |_, _| 3).unwrap();
        let plan = Plan::new(matrix, Layout::Words, Mode::Write).unwrap();
        for backend in backends() {
            let refused = backend.compile(&plan).err();
            assert_eq!(refused, Some(Error::MatrixTooLarge { rows, columns, limit }), "{}", backend.name());
        }
    }
}

/// Every aarch64 CPU that runs Linux has NEON, emulated ones too: no kernel set may be skipped there.
#[cfg(target_arch = "aarch64")]
#[test]
fn no_row_is_skipped_on_aarch64() {
    assert!(kernel_sets().iter().all(|row| row.supported()));
}

fn random_plans_match(edge: Edge) {
    for (backends, effort) in tiers() {
        random_plans(&backends, &mut Guarded(edge), 0x6761_6269_6f6e, effort.rounds);
    }
}

// Separate tests, since they are the longest and tests run in parallel.
#[test]
fn random_plans_match_the_reference_at_the_end_of_pages() {
    random_plans_match(Edge::End);
}

#[test]
fn random_plans_match_the_reference_at_the_start_of_pages() {
    random_plans_match(Edge::Start);
}

#[test]
fn every_boundary_length_of_every_words_field() {
    let mut random = gabion_engine::conformance::TestRng(5);
    for field in Field::WORDS {
        for mode in [Mode::Write, Mode::Add] {
            let plan = Plan::multiply(field, 0xb5c0_fbcf_ec4d_3b2f & field.mask(), mode).unwrap();
            for len in boundary_lengths() {
                let len = len.next_multiple_of(plan.granule());
                same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::End), &mut random);
            }
        }
    }
}

/// Wide plans go through several groups of outputs and several tiles of input.
#[test]
fn wide_plans_match_the_reference() {
    let mut random = gabion_engine::conformance::TestRng(6);
    for (text, len) in
        [("40+17", 333), ("200+56", 65), ("64+9:w16", 130), ("30+5:w32", 132), ("9+4:w64", 520)]
    {
        let plan = text.parse::<Code>().unwrap().encode_plan().unwrap();
        same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::End), &mut random);
    }
}

/// Plans over GF(2^16) that are too large for the compiler run by transforms: whole registers, tails, buffers at the
/// edge of a page and each with a different misalignment; with outputs in one coset, inputs in one, and both sharing
/// one.
#[test]
fn plans_that_run_by_transforms_match_the_reference() {
    let mut random = gabion_engine::conformance::TestRng(16);
    for (text, len) in
        [("300+40:w16", 130), ("40+300:w16", 62), ("cauchy:200+100:w16", 258), ("500+9:w16", 1026)]
    {
        let code: Code = text.parse().unwrap();
        let plan = code.encode_plan().unwrap();
        for edge in [Edge::End, Edge::Start] {
            same_as_reference(&backends(), &plan, len, &mut Guarded(edge), &mut random);
        }
        same_as_reference(&backends(), &plan, 2 * len, &mut Shifted(0), &mut random);
        let changed: Vec<usize> = (0..code.k()).step_by(3).collect();
        let update = code.update_plan(&changed).unwrap();
        same_as_reference(&backends(), &update, len, &mut Guarded(Edge::End), &mut random);
        let limits = PatternLimits { exhaustive: 0, samples: 3 };
        survives_losses(&backends(), &code, 34, &mut Guarded(Edge::End), limits);
    }
    // So many coefficients that only the points are stored, also for the reference.
    let plan = "1000+300:w16".parse::<Code>().unwrap().encode_plan().unwrap();
    same_as_reference(&backends(), &plan, 6, &mut Guarded(Edge::End), &mut random);
    let code: Code = "280+20:w16".parse().unwrap();
    partial_and_update_agree_with_encode(&backends(), &code, 6, &mut Shifted(0));
}

/// Long enough that inputs exceed the tile and the tiles do not divide the length.
#[test]
fn long_blocks_match_across_tiles() {
    let mut random = gabion_engine::conformance::TestRng(7);
    let plan = "60+13".parse::<Code>().unwrap().encode_columns_plan(&(60..73).collect::<Vec<_>>()).unwrap();
    same_as_reference(&backends(), &plan, 12_345, &mut Guarded(Edge::Start), &mut random);
}

/// Blocks in the L2 cache with few unaligned outputs: inputs and outputs are prefetched.
#[test]
fn blocks_that_begin_anywhere_match() {
    let mut random = gabion_engine::conformance::TestRng(9);
    for text in ["8+2", "12+3", "13+2", "8+2:w4:packets=512"] {
        let code: Code = text.parse().unwrap();
        let (plan, len) = (code.encode_plan().unwrap(), 16_385_usize.next_multiple_of(code.granule()));
        same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::End), &mut random);
        same_as_reference(&backends(), &plan, len, &mut Shifted(0), &mut random);
    }
}

/// Blocks long enough for non-temporal stores: aligned, misaligned alike, and each differently.
#[test]
fn streamed_blocks_match() {
    let mut random = gabion_engine::conformance::TestRng(8);
    let plan = "3+2".parse::<Code>().unwrap().encode_plan().unwrap();
    let len = 900_001;
    same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::Start), &mut random);
    same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::End), &mut random);
    same_as_reference(&backends(), &plan, len, &mut Shifted(0), &mut random);
    // Packets longer than the prefetch distance, as long, and shorter; groups of three are not a power of two.
    for (text, groups) in
        [("3+2:w4:packets=2048", 110), ("3+2:w3:packets=256", 1171), ("cauchy-good:3+2:w4:packets=64", 3515)]
    {
        let code: Code = text.parse().unwrap();
        let (plan, len) = (code.encode_plan().unwrap(), groups * code.granule());
        same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::Start), &mut random);
        same_as_reference(&backends(), &plan, len, &mut Guarded(Edge::End), &mut random);
        same_as_reference(&backends(), &plan, len, &mut Shifted(0), &mut random);
    }
}

/// Each buffer is one byte further from an aligned address than the previous one.
struct Shifted(usize);

#[derive(Debug)]
struct ShiftedBlock {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffers for Shifted {
    type Block = ShiftedBlock;

    fn block(&mut self, len: usize) -> ShiftedBlock {
        let bytes = vec![0; len + 128];
        self.0 += 1;
        let start = bytes.as_ptr().align_offset(64) + self.0 % 64;
        ShiftedBlock { bytes, start, len }
    }
}

impl AsRef<[u8]> for ShiftedBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl AsMut<[u8]> for ShiftedBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[test]
fn every_loss_is_survived() {
    for text in [
        "1+0",
        "1+1",
        "1+4",
        "4+2",
        "10+4",
        "5+5",
        "3+7",
        "rs-vandermonde:10+4",
        "rs-isal:8+3",
        "cauchy:6+3:w8",
        "cauchy-isal:10+4",
        "cauchy-good:7+3",
        "raidz:8+1",
        "raidz:8+2",
        "raidz:8+3",
        "subspace:10+4:w4",
        "subspace:13+3:w4",
        "subspace:5+11:w4",
        "subspace:6+3:w16",
        "subspace:5+3:w32",
        "subspace:4+3:w64",
        "subspace:6+3:w5:packets=8",
        "subspace:4+3:w8:packets=3",
        "rs-vandermonde:10+4:w4",
        "cauchy:6+3:w4",
        "cauchy-good:10+4:w4:packets=24",
        "cauchy:6+3:w16",
        "rs-vandermonde:5+3:w16",
        "cauchy:5+3:w32",
        "cauchy-good:4+2:w64",
        "rs-vandermonde:4+3:w8:packets=3",
        "cauchy-good:6+2:w5:packets=8",
        "cauchy:5+3:w7:packets=17",
        "cauchy:4+2:w16:packets=9",
        "cauchy:3+2:w32:packets=5",
        "cauchy:3+2:w64:packets=2",
        "45+8",
        "64+16",
        "30+33",
        "200+56",
        "253+3",
        "rs-vandermonde:45+8",
        "cauchy-isal:252+4",
        "raidz:250+3",
    ] {
        let code: Code = text.parse().unwrap();
        let len = 67usize.next_multiple_of(code.granule());
        for (backends, effort) in tiers() {
            survives_losses(&backends, &code, len, &mut Guarded(Edge::End), effort.limits);
        }
    }
}

#[test]
fn partial_products_and_updates() {
    for text in [
        "6+3",
        "3+6:w16",
        "rs-vandermonde:6+3",
        "cauchy:6+3:w4",
        "raidz:7+3",
        "cauchy:5+2:w16",
        "cauchy:5+2:w32",
        "cauchy:3+2:w64",
        "cauchy-good:6+3:w6:packets=11",
    ] {
        let code: Code = text.parse().unwrap();
        let len = 1029usize.next_multiple_of(code.granule());
        partial_and_update_agree_with_encode(&backends(), &code, len, &mut Guarded(Edge::End));
    }
}

#[test]
fn wrong_buffers_are_refused() {
    for backend in backends() {
        refuses_wrong_buffers(backend);
    }
    refuses_wrong_buffers(&gabion_engine::kernel::Reference);
}

/// Splitting a call among threads must not change its results.
#[test]
fn threads_do_not_change_the_result() {
    for text in ["10+4", "6+3:w16", "cauchy-good:6+3:w5:packets=1000", "raidz:8+3"] {
        let code: Code = text.parse().unwrap();
        let plan = code.encode_plan().unwrap();
        let len = 400_001usize.next_multiple_of(code.granule());
        let data: Vec<Vec<u8>> = (0..code.k() as u64)
            .map(|seed| {
                let mut block = vec![0; len];
                gabion_engine::conformance::TestRng(seed).fill(&mut block);
                block
            })
            .collect();
        let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
        let encode = |threads| {
            let engine = Engine::new(threads).unwrap();
            let mut redundancy = vec![vec![0u8; len]; code.m()];
            let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
            engine.compile(&plan).unwrap().run(&inputs, &mut outputs).unwrap();
            redundancy
        };
        let alone = encode(1);
        assert!(alone.iter().flatten().any(|&byte| byte != 0));
        for threads in [2, 3, 7] {
            assert_eq!(encode(threads), alone, "{text} on {threads} threads");
        }
    }
    assert!(Threads::new(0).unwrap().count() >= 1);
}
