//! `gabion-bench engine`.

mod explain;
mod table;

use anyhow::Context;
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion::size::Size;
use gabion_bench::engine::{Case, Measurement, Operation, Time, measure, over_blocks, over_shapes};
use gabion_bench::plot::Target;
use gabion_engine::Code;
use gabion_engine::kernel::{Backend, KernelSet, kernel_sets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Every kernel's output is checked against the slow reference before it is timed. GB/s are 1e9 bytes per \
second, of the best of many short turns; `spread` is how far the median turn lies above the best. Counted \
are, for encode and repair, the k blocks that go in; for update the one block that changes (the difference of \
old and new and its addition to all m redundancy blocks are timed); for multiply and sign the one block. \
Buffers are the same in every pass: small blocks are in cache, as after they were just received.

The limits are measured in the same run, in turns with the kernels, over the same bytes: `copy` is memcpy into \
the output blocks in turn, `read` reads the blocks and writes nothing that leaves the nearest cache, `xor-stream` \
is the XOR of the blocks into one (RAID-Z 1); the last two with the fastest kernel of this CPU.

`--explain` times no kernel: it shows what the run-time compiler makes of the plans of encode, repair and update. \
Counted are operations for one register of every block, after each pass: multiplications by constants, additions of \
two registers, instructions that add (some add three registers at once), copies and saves of registers. The first \
line is what the matrix asks for, the last is what is run.

Examples:
  gabion-bench engine --quick                           an overview within 50 seconds
  gabion-bench engine --code 10+4 --kernel all          all kernels of this CPU with one code
  gabion-bench engine --code raidz:8+3 --code cauchy-good:8+3:w4:packets=2048 --block 64KiB --op encode
  gabion-bench engine --code 10+4 --op repair --lost 1 --threads 1 --threads 2
  gabion-bench engine --quick --plot speeds.svg         GB/s over block size
  gabion-bench engine --figure n --plot figure.png      encode over the number of blocks, a line per kernel
  gabion-bench engine --quick --json > today.jsonl      one object per case and limit
  gabion-bench engine --explain --code 10+4             operations after each pass of the compiler
  gabion-bench engine --explain --code 10+4 --op repair --lost 1 --kernel all --json
  gabion-bench engine --dump-asm --code 4+2 --op encode machine code, with a line before each plan's
  gabion-bench engine --explain --plot operations.png   operations over the number of blocks";

/// Total time of the cases with --quick; preparation and the last case add a few seconds, so that the run ends within
/// 50 seconds.
const QUICK: Duration = Duration::from_secs(42);
const SECONDS_PER_CASE: f64 = 2.0;
const SHAPES: [&str; 5] = ["4+2", "8+3", "10+4", "16+4", "30+3"];
/// Multiplication depends on the field alone: without --code, all fields with machine words.
const FIELDS: [&str; 4] = ["1+1:w8", "1+1:w16", "1+1:w32", "1+1:w64"];
const BLOCKS: [Size; 4] = [Size(4 << 10), Size(64 << 10), Size(1 << 20), Size(10 << 20)];
const FIGURE_BLOCK: Size = Size(64 << 10);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FigureName {
    /// Encode over n = 4 to 64 blocks, a quarter of them redundancy, for every kernel
    N,
}

/// Arguments of `gabion-bench engine`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A code, as K+M (short for subspace:K+M:w8) or FAMILY:K+M:wBITS[:packets=BYTES]; may be repeated
    /// [default: 4+2 8+3 10+4 16+4 30+3]
    #[arg(long = "code", value_name = "CODE")]
    codes: Vec<Code>,
    /// Bytes of a block; may be repeated [default: 4KiB 64KiB 1MiB 10MiB]
    #[arg(long = "block", value_name = "SIZE")]
    blocks: Vec<Size>,
    /// A kernel by its name in `gabion info`, or `all`; may be repeated [default: the one that the engine chooses]
    #[arg(long = "kernel", value_name = "NAME")]
    kernels: Vec<String>,
    /// Threads that share the bytes, 0 for all there are; may be repeated. Signing uses one [default: 1]
    #[arg(long = "threads", value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1024))]
    threads: Vec<u16>,
    /// encode, repair, update, multiply or sign; may be repeated [default: all]
    #[arg(long = "op", value_name = "OP")]
    operations: Vec<Operation>,
    /// Data blocks to repair [default: as many as the code can]
    #[arg(long, value_name = "N")]
    lost: Option<usize>,
    /// Start blocks at different odd addresses instead of cache lines
    #[arg(long)]
    unaligned: bool,
    /// End within 50 seconds; cases that do not fit in are named and left out
    #[arg(long)]
    quick: bool,
    /// Seconds for each case with all its kernels and limits [default: 2, with --quick an equal share of the total]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the result, as .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Measure the points of this figure, with blocks of 64KiB unless --block is given
    #[arg(long, value_name = "NAME", conflicts_with_all = ["codes", "operations", "lost"])]
    figure: Option<FigureName>,
    /// Show operations after each pass of the compiler instead of measuring
    #[arg(long, conflicts_with_all = MEASURING)]
    explain: bool,
    /// Print the machine code of plans instead of measuring
    #[arg(long, conflicts_with_all = MEASURING, conflicts_with = "json")]
    dump_asm: bool,
}

/// Arguments that say how to measure.
const MEASURING: [&str; 6] = ["blocks", "threads", "unaligned", "quick", "seconds", "figure"];

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok();
    let sensible = seconds.filter(|seconds| (0.001..=3600.0).contains(seconds));
    sensible.ok_or_else(|| format!("'{text}' is no number of seconds from 0.001 to 3600"))
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if self.explain || self.dump_asm {
            return explain::run(&self);
        }
        // Refuses a file that cannot be written before minutes are spent on measuring.
        let target = self.plot.as_deref().map(Target::new).transpose()?;
        let cases = self.cases()?;
        let per_case = self.seconds.unwrap_or(if self.quick { 60.0 } else { SECONDS_PER_CASE });
        let time = Time { per_case: Duration::from_secs_f64(per_case), total: self.quick.then_some(QUICK) };
        let mut all = Vec::new();
        let progress = progress(cases.len());
        let table = table::Table::new(&cases);
        let mut outcome = Ok(());
        measure(&cases, time, |case, found| {
            progress.inc(1);
            let head = all.is_empty() && !self.json;
            outcome = progress.suspend(|| self.print(&table, head, case, found));
            all.extend_from_slice(found);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        progress.finish_and_clear();
        outcome?;
        if let Some(target) = target {
            let figure = match self.figure {
                Some(FigureName::N) => over_shapes(&all),
                None => over_blocks(&all),
            };
            target.write(&figure)?;
        }
        Ok(Outcome::Fine)
    }

    fn print(
        &self,
        table: &table::Table,
        head: bool,
        case: &Case,
        found: &[Measurement],
    ) -> anyhow::Result<()> {
        if found.is_empty() {
            case.rows.iter().for_each(|row| errln!("left out for lack of time: {}", case.name(row)));
            return Ok(());
        }
        if head {
            out!("{}", table.head());
        }
        for measurement in found {
            if self.json {
                for line in measurement.lines() {
                    outln!("{}", serde_json::to_string(&line)?);
                }
            } else {
                out!("{}", table.row(measurement));
            }
        }
        Ok(())
    }

    /// The selected cases.
    fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let kernels = self.rows()?;
        let unaligned = self.unaligned;
        let names_kernels = !self.kernels.is_empty() || self.figure.is_some();
        let asked = |operation| self.operations.is_empty() || self.operations.contains(&operation);
        let operations: Vec<Operation> = match self.figure {
            Some(FigureName::N) => vec![Operation::Encode],
            None => Operation::ALL.into_iter().filter(|&operation| asked(operation)).collect(),
        };
        let blocks = match (self.blocks.is_empty(), self.figure) {
            (false, _) => without_repeats(self.blocks.clone()),
            (true, Some(FigureName::N)) => vec![FIGURE_BLOCK],
            (true, None) => BLOCKS.to_vec(),
        };
        let threads = without_repeats(self.threads.iter().map(|&count| threads(count)).collect());
        let threads = if threads.is_empty() { vec![1] } else { threads };
        let mut cases: Vec<Case> = Vec::new();
        for operation in operations {
            for code in self.codes_for(operation)? {
                for &Size(block) in &blocks {
                    for &threads in if operation == Operation::Sign { &[1] } else { &threads[..] } {
                        let (code, lost, rows) = (code.clone(), self.lost, kernels.clone());
                        let case =
                            Case { operation, code, block, threads, lost, unaligned, rows, names_kernels };
                        if self.blocks.is_empty() && !case.fits() {
                            let name = case.name(case.rows[0]);
                            errln!("left out: {name}: the block is no multiple of the layout's unit");
                            continue;
                        }
                        cases.push(case);
                    }
                }
            }
        }
        Ok(cases)
    }

    fn codes_for(&self, operation: Operation) -> anyhow::Result<Vec<Code>> {
        let parsed = |texts: &[&str]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Code>, _>>();
        if let Some(FigureName::N) = self.figure {
            return quarter_redundancy();
        }
        if !self.codes.is_empty() {
            let mut codes = without_repeats(self.codes.clone());
            if operation.needs_field_only() {
                // The operation depends on the field alone, so one code per field suffices.
                let mut fields = Vec::new();
                codes.retain(|code| {
                    let new = !fields.contains(&code.field());
                    fields.push(code.field());
                    // With --op the case itself reports the error.
                    let possible = code.field().word_bytes().is_ok() || !self.operations.is_empty();
                    if new && !possible {
                        errln!("left out: {operation} w{}: no words layout", code.field().w());
                    }
                    new && possible
                });
            }
            return Ok(codes);
        }
        Ok(match operation {
            Operation::Multiply => parsed(&FIELDS)?,
            Operation::Sign => parsed(&FIELDS[..1])?,
            _ => parsed(&SHAPES)?,
        })
    }

    fn rows(&self) -> anyhow::Result<Vec<&'static KernelSet>> {
        let all =
            self.figure.is_some() && self.kernels.is_empty() || self.kernels.iter().any(|name| name == "all");
        if all {
            for row in kernel_sets().iter().filter(|row| !row.supported()) {
                errln!("left out: kernel {} (this CPU lacks {})", row.name(), row.needs());
            }
            return Ok(kernel_sets().iter().filter(|row| row.supported()).collect());
        }
        if self.kernels.is_empty() {
            return Ok(vec![KernelSet::chosen().context("choosing a kernel")?]);
        }
        let names = without_repeats(self.kernels.clone());
        names.iter().map(|name| Ok(KernelSet::named(name)?)).collect()
    }
}

/// The default codes of 4 to 64 blocks, a quarter of them redundancy.
fn quarter_redundancy() -> anyhow::Result<Vec<Code>> {
    let shapes = (4..=64).step_by(4).map(|n: usize| format!("{}+{}", n - n / 4, n / 4));
    shapes.map(|shape| Ok(shape.parse()?)).collect()
}

fn threads(count: u16) -> usize {
    match count {
        0 => std::thread::available_parallelism().map_or(1, |count| count.get()),
        count => usize::from(count),
    }
}

fn without_repeats<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    all.into_iter().fold(Vec::new(), |mut kept, item| {
        if !kept.contains(&item) {
            kept.push(item);
        }
        kept
    })
}

/// On stderr, and only on a terminal.
fn progress(cases: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(cases as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{wide_bar} case {pos} of {len}, {elapsed} so far");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
