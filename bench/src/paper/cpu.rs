//! Experiments on the CPU: papers 001 and 002, and the CPU part of 003.

use super::race::{Contender, memory_for, race};
use super::tables::Tables;
use super::{Comparison, Experiment, Form, PaperError, Place, Point, Run};
use crate::engine::{Case, Explained, Operation};
use gabion::machine::fastest;
use gabion_engine::kernel::{Backend, KernelSet, Threads, Tier, kernel_sets};
use gabion_engine::raidz::Reconstruction;
use gabion_engine::{Code, Error, Field, Mode, Plan};

const RATE: &str = "GB/s";

const HASWELL: &str = "Intel Xeon E5-2660 v3 (Haswell), one core";
const PHI: &str = "Xeon E5620 × 2 (128-bit SIMD, 8 threads) and Xeon Phi 5110P (512-bit SIMD, 180 threads)";

/// Comparisons with 256-bit registers in table 6-2 of the thesis: quantity, speed relative to tables, group of our
/// bars.
macro_rules! raidz_comparisons {
    ($(($what:literal, $theirs:literal, $group:literal)),+ $(,)?) => {
        [$(Comparison {
            what: concat!($what, ", 256-bit"),
            unit: "×",
            theirs: $theirs,
            ours: |points| bar(points, "256-bit", $group),
        }),+]
    };
}

const RAIDZ_COMPARISONS: [Comparison; 10] = raidz_comparisons![
    ("generate P", 2.6, "gen p"),
    ("reconstruct by P", 2.2, "rec p"),
    ("generate PQ", 4.3, "gen pq"),
    ("reconstruct by Q", 8.8, "rec q"),
    ("reconstruct by PQ", 7.1, "rec pq"),
    ("generate PQR", 8.8, "gen pqr"),
    ("reconstruct by R", 32.3, "rec r"),
    ("reconstruct by PR", 69.1, "rec pr"),
    ("reconstruct by QR", 60.2, "rec qr"),
    ("reconstruct by PQR", 95.8, "rec pqr"),
];

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "001-regions",
        source: "Galois field arithmetic with 512-bit SIMD, figures 5 to 9",
        title: "A region times a constant",
        their_machine: PHI,
        form: Form::Bytes { x: "bytes of the region", y: RATE },
        comparisons: &[],
        run: regions,
    },
    Experiment {
        name: "001-speedups",
        source: "Galois field arithmetic with 512-bit SIMD, table 1",
        title: "Peak speed over one thread that looks products up, w = 4",
        their_machine: PHI,
        form: Form::Bars { y: "times as fast" },
        comparisons: &[
            Comparison {
                what: "table, all threads (theirs: 8 on the CPU)",
                unit: "×",
                theirs: 5.5,
                ours: |p| bar(p, "table", ALL_THREADS),
            },
            Comparison {
                what: "table, all threads (theirs: the Phi)",
                unit: "×",
                theirs: 55.4,
                ours: |p| bar(p, "table", ALL_THREADS),
            },
            Comparison {
                what: "128-bit SIMD, one thread",
                unit: "×",
                theirs: 10.6,
                ours: |p| bar(p, "128-bit", ONE_THREAD),
            },
            Comparison {
                what: "512-bit SIMD, one thread",
                unit: "×",
                theirs: 7.2,
                ours: |p| bar(p, "512-bit", ONE_THREAD),
            },
            Comparison {
                what: "128-bit SIMD, all threads",
                unit: "×",
                theirs: 52.2,
                ours: |p| bar(p, "128-bit", ALL_THREADS),
            },
            Comparison {
                what: "512-bit SIMD, all threads",
                unit: "×",
                theirs: 373.4,
                ours: |p| bar(p, "512-bit", ALL_THREADS),
            },
        ],
        run: speedups,
    },
    Experiment {
        name: "002-operations",
        source: "thesis, figure 5-4",
        title: "Operations of a code with 25 % redundancy, before and after compiling",
        their_machine: "counted in LLVM's intermediate code",
        form: Form::Numbers { x: STRIPE, y: "operations per register of every block" },
        comparisons: &[
            // n k l / 2 shifts before, 7.7 n after, at n = 64 and l = 8.
            Comparison {
                what: "multiplications (theirs: shifts) before ÷ after, n = 64",
                unit: "×",
                theirs: 64.0 * 48.0 * 4.0 / (7.7 * 64.0),
                ours: |p| {
                    Some(at(p, "", "products by matrix", 64.0)? / at(p, "", "products, compiled", 64.0)?)
                },
            },
        ],
        run: operations,
    },
    Experiment {
        name: "002-generic",
        source: "thesis, figure 5-5",
        title: "Encoding with 25 % redundancy, not compiled, blocks of 64 KiB, one thread",
        their_machine: HASWELL,
        form: Form::Numbers { x: STRIPE, y: RATE },
        comparisons: &[],
        run: |run| encoding(run, Tier::Generic),
    },
    Experiment {
        name: "002-compiled",
        source: "thesis, figure 5-6",
        title: "Encoding with 25 % redundancy, compiled, blocks of 64 KiB, one thread",
        their_machine: HASWELL,
        form: Form::Numbers { x: STRIPE, y: RATE },
        comparisons: &[],
        run: |run| encoding(run, Tier::Code),
    },
    Experiment {
        name: "002-raidz",
        source: "thesis, table 6-2",
        title: "RAID-Z with 8 data blocks of 128 KiB: speed over products looked up",
        their_machine: HASWELL,
        form: Form::Bars { y: "times as fast as tables" },
        comparisons: &RAIDZ_COMPARISONS,
        run: raidz,
    },
    Experiment {
        name: "002-disks",
        source: "thesis, figure 6-3",
        title: "RAID-Z3 of 8 + 3 disks: bytes per second of each disk, one thread",
        their_machine: HASWELL,
        form: Form::Bytes { x: "bytes of a disk's block", y: "GB/s per disk" },
        comparisons: &[
            Comparison {
                what: "generate PQR, 256-bit, best",
                unit: "GB/s per disk",
                theirs: 1.048576,
                ours: |p| best(p, "gen pqr", "256-bit"),
            },
            Comparison {
                what: "generate PQR (theirs: 256-bit), widest registers, best",
                unit: "GB/s per disk",
                theirs: 1.048576,
                ours: |p| best(p, "gen pqr", "512-bit, GFNI").or_else(|| best(p, "gen pqr", "512-bit")),
            },
        ],
        run: disks,
    },
    Experiment {
        name: "003-threads",
        source: "OpenCL erasure coding, figure 3",
        title: "30 sources, 33 redundancy blocks of 28 MB each, over threads of the CPU",
        their_machine: "two Xeons with 56 hardware threads, ISA-L with SSE",
        form: Form::Numbers { x: "threads", y: RATE },
        comparisons: &[
            Comparison { what: "one thread", unit: RATE, theirs: 0.12, ours: |p| at(p, "", "Gabion", 1.0) },
            Comparison {
                what: "all threads (theirs: 56)",
                unit: RATE,
                theirs: 2.83,
                ours: |p| best(p, "", "Gabion"),
            },
        ],
        run: threads,
    },
];

const STRIPE: &str = "blocks of a stripe n, of which n/4 are redundancy";
const ONE_THREAD: &str = "one thread";
const ALL_THREADS: &str = "all threads";

/// Names of registers in the papers, and the rows of this CPU that use them.
const WIDTHS: [(&str, &str); 5] = [
    ("scalar", "scalar"),
    ("128-bit", "ssse3"),
    ("256-bit", "avx2"),
    ("512-bit", "avx512"),
    ("512-bit, GFNI", "gfni-avx512"),
];

/// The value of a bar.
fn bar(points: &[Point], series: &str, group: &str) -> Option<f64> {
    let wanted = |point: &&Point| point.series == series && point.x == Place::Name(group.to_owned());
    points.iter().find(wanted).map(|point| point.value)
}

/// The value of a line at a place.
fn at(points: &[Point], panel: &str, series: &str, x: f64) -> Option<f64> {
    let wanted =
        |point: &&Point| point.panel == panel && point.series == series && point.x == Place::Number(x);
    points.iter().find(wanted).map(|point| point.value)
}

/// The highest point of a line.
fn best(points: &[Point], panel: &str, series: &str) -> Option<f64> {
    let values = points.iter().filter(|point| point.panel == panel && point.series == series);
    values.map(|point| point.value).max_by(f64::total_cmp)
}

/// The rows that this CPU has; the others are named.
fn widths(run: &mut Run<'_>) -> Result<Vec<(&'static str, &'static KernelSet)>, PaperError> {
    let mut found = Vec::new();
    for (width, name) in WIDTHS {
        match kernel_sets().iter().find(|row| row.name() == name) {
            Some(row) if row.supported() => found.push((width, row)),
            Some(row) => run.leave_out(format!("{width}: this CPU lacks {}", row.needs()))?,
            None => run.leave_out(format!("{width}: no kernel {name} on this architecture"))?,
        }
    }
    Ok(found)
}

fn region_sizes(run: &Run<'_>) -> Vec<usize> {
    // Tables over a gigabyte take too long for --quick.
    let largest = if run.quick { 20 } else { 30 };
    (10..=largest).step_by(2).map(|bits| 1 << bits).collect()
}

fn regions(run: &mut Run<'_>) -> Result<(), PaperError> {
    let widths = widths(run)?;
    let (one, all) = (Threads::new(1)?, Threads::new(0)?);
    for field in [Field::GF4, Field::GF8, Field::GF16, Field::GF32] {
        let plan = Plan::multiply(field, CONSTANT, Mode::Write)?;
        let sizes = region_sizes(run);
        let mut memory = memory_for(sizes.iter().map(|&size| (&plan, size)))?;
        for size in sizes {
            let mut contenders = vec![Contender::new("table", &Tables, &plan, &one)?];
            for &(width, row) in widths.iter().filter(|(width, _)| *width != "scalar") {
                contenders.push(Contender::new(width, row, &plan, &one)?);
            }
            let threads = format!("best, {} threads", all.count());
            contenders.push(Contender::new(&threads, fastest(), &plan, &all)?);
            for (series, rate) in race(&mut memory, &plan, size, contenders, run.time())? {
                run.point(&format!("w = {}", field.w()), &series, Place::Number(size as f64), rate)?;
            }
        }
    }
    Ok(())
}

/// Neither 0 nor 1 nor a power of two, which some implementations handle separately.
const CONSTANT: u64 = 7;

fn speedups(run: &mut Run<'_>) -> Result<(), PaperError> {
    let widths = widths(run)?;
    let plan = Plan::multiply(Field::GF4, CONSTANT, Mode::Write)?;
    let sizes: Vec<usize> =
        region_sizes(run).into_iter().filter(|size| (1 << 14..1 << 26).contains(size)).collect();
    let mut memory = memory_for(sizes.iter().map(|&size| (&plan, size)))?;
    let pools = [(ONE_THREAD, Threads::new(1)?), (ALL_THREADS, Threads::new(0)?)];
    // Peaks over all sizes, by series and pool.
    let mut peaks: Vec<(String, &str, f64)> = Vec::new();
    for size in sizes {
        for (pool, threads) in &pools {
            let mut contenders = vec![Contender::new("table", &Tables, &plan, threads)?];
            for (width, row) in &widths {
                contenders.push(Contender::new(width, *row, &plan, threads)?);
            }
            for (series, rate) in race(&mut memory, &plan, size, contenders, run.time())? {
                match peaks.iter_mut().find(|peak| peak.0 == series && peak.1 == *pool) {
                    Some(peak) => peak.2 = peak.2.max(rate),
                    None => peaks.push((series, *pool, rate)),
                }
            }
        }
    }
    let base =
        peaks.iter().find(|peak| peak.0 == "table" && peak.1 == ONE_THREAD).map_or(f64::NAN, |peak| peak.2);
    for (series, pool, rate) in peaks {
        run.point("", &series, Place::Name(pool.to_owned()), rate / base)?;
    }
    Ok(())
}

/// n blocks of which a quarter is redundancy.
fn quarter(blocks: usize, w: u32) -> Result<Code, Error> {
    format!("{}+{}:w{w}", blocks - blocks / 4, blocks / 4).parse()
}

fn operations(run: &mut Run<'_>) -> Result<(), PaperError> {
    let row = fastest();
    for blocks in run.some((4..=64).step_by(4)) {
        let case = Case::unmeasured(Operation::Encode, quarter(blocks, 8)?);
        let Some(explained) = Explained::new(&case, row)? else { continue };
        let x = || Place::Number(blocks as f64);
        run.point("", "products by matrix", x(), explained.by_matrix.products as f64)?;
        run.point("", "additions by matrix", x(), explained.by_matrix.additions as f64)?;
        match explained.last() {
            Some(last) => {
                run.point("", "products, compiled", x(), last.products as f64)?;
                if let Some(adding) = last.adding_instructions {
                    run.point("", "adding instructions, compiled", x(), adding as f64)?;
                }
            }
            None => run.leave_out(format!(
                "compiled counts at n = {blocks}: kernel {} compiles nothing",
                row.name()
            ))?,
        }
    }
    Ok(())
}

const ENCODED_BLOCK: usize = 64 << 10;

fn encoding(run: &mut Run<'_>, tier: Tier) -> Result<(), PaperError> {
    let widths = widths(run)?;
    let one = Threads::new(1)?;
    for w in [8, 16] {
        for blocks in run.some((4..=64).step_by(4)) {
            let plan = quarter(blocks, w)?.encode_plan()?;
            let mut memory = memory_for([(&plan, ENCODED_BLOCK)].into_iter())?;
            let mut contenders = Vec::new();
            for (width, row) in &widths {
                contenders.push(Contender::new(width, &row.at(tier), &plan, &one)?);
            }
            for (series, rate) in race(&mut memory, &plan, ENCODED_BLOCK, contenders, run.time())? {
                run.point(&format!("GF(2^{w})"), &series, Place::Number(blocks as f64), rate)?;
            }
        }
    }
    Ok(())
}

/// The ten operations: generations and the seven reconstructions of the first data blocks.
fn raidz_plans(data: usize) -> Result<Vec<(String, Plan)>, Error> {
    let mut plans = Vec::new();
    for (parities, name) in [(1, "p"), (2, "pq"), (3, "pqr")] {
        plans.push((
            format!("gen {name}"),
            format!("raidz:{data}+{parities}").parse::<Code>()?.encode_plan()?,
        ));
    }
    let code: Code = format!("raidz:{data}+3").parse()?;
    for reconstruction in Reconstruction::ALL {
        let lost: Vec<usize> = (0..reconstruction.parities().len()).collect();
        plans.push((format!("rec {}", reconstruction.name()), reconstruction.plan(&code, &lost)?));
    }
    Ok(plans)
}

const DATA_DISKS: usize = 8;

fn raidz(run: &mut Run<'_>) -> Result<(), PaperError> {
    const BLOCK: usize = 128 << 10;
    let widths = widths(run)?;
    let one = Threads::new(1)?;
    for (name, plan) in raidz_plans(DATA_DISKS)? {
        let mut memory = memory_for([(&plan, BLOCK)].into_iter())?;
        let mut contenders = vec![Contender::new("table", &Tables, &plan, &one)?];
        for (width, row) in &widths {
            contenders.push(Contender::new(width, *row, &plan, &one)?);
        }
        let rates = race(&mut memory, &plan, BLOCK, contenders, run.time())?;
        let base = rates[0].1;
        for (series, rate) in &rates[1..] {
            run.point("", series, Place::Name(name.clone()), rate / base)?;
        }
    }
    Ok(())
}

fn disks(run: &mut Run<'_>) -> Result<(), PaperError> {
    let widths = widths(run)?;
    let one = Threads::new(1)?;
    let shown = |(name, _): &(String, Plan)| ["gen pqr", "rec pqr"].contains(&name.as_str());
    for (name, plan) in raidz_plans(DATA_DISKS)?.into_iter().filter(shown) {
        let sizes = run.some((11..=23).map(|bits| 1 << bits));
        let mut memory = memory_for(sizes.iter().map(|&size| (&plan, size)))?;
        for size in sizes {
            let mut contenders = vec![Contender::new("table", &Tables, &plan, &one)?];
            for (width, row) in &widths {
                contenders.push(Contender::new(width, *row, &plan, &one)?);
            }
            for (series, rate) in race(&mut memory, &plan, size, contenders, run.time())? {
                // Every disk moves as many bytes as any other.
                let per_disk = rate / plan.inputs().len() as f64;
                run.point(&name, &series, Place::Number(size as f64), per_disk)?;
            }
        }
    }
    Ok(())
}

fn threads(run: &mut Run<'_>) -> Result<(), PaperError> {
    // Their file of 836.9 MB in 30 parts.
    let block = if run.quick { 2 << 20 } else { 27_896_640 };
    let plan = "30+33".parse::<Code>()?.encode_plan()?;
    let mut memory = memory_for([(&plan, block)].into_iter())?;
    let most = std::thread::available_parallelism().map_or(1, |count| count.get());
    for count in run.some(1..=most) {
        let pool = Threads::new(count)?;
        let contender = Contender::new("Gabion", fastest(), &plan, &pool)?;
        for (series, rate) in race(&mut memory, &plan, block, vec![contender], run.time())? {
            run.point("", &series, Place::Number(count as f64), rate)?;
        }
    }
    Ok(())
}
