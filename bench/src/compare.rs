//! Races against other libraries in one interleaved run.

mod bars;
mod bindings;
mod cases;
mod decode;
mod encode;
mod grid;
mod multiply;
mod others;
mod packets;
mod plot;
mod race;
mod raidz;
mod report;
mod signatures;
mod threads;

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use gabion_bench::plot::Figure;

use race::Budget;
use report::{Line, Machine};

/// Options of `gabion-bench compare`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// End within 50 seconds: fewer cases and fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Instead of the cases with targets: many shapes, sizes and placements against ISA-L.
    #[arg(long, conflicts_with = "quick")]
    grid: bool,
    /// Instead of the grid's places as many of any shape (k = 2..64, m = 1..16), size (1KiB..64MiB) and placement,
    /// drawn at random.
    #[arg(long, value_name = "COUNT", requires = "grid")]
    random: Option<usize>,
    /// Seed of the random places.
    #[arg(long, value_name = "NUMBER", requires = "random", default_value_t = 1)]
    seed: u64,
    /// A shared library (libisal.so) to race against instead of the ISA-L that is built in.
    #[arg(long, value_name = "PATH")]
    isal: Option<PathBuf>,
    /// Instead of the cases with targets: the interfaces for C, Python and programs of ISA-L, from a directory with
    /// libgabion_c.so and libgabion_isal.so, such as target/release.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["grid", "parpar"])]
    bindings: Option<PathBuf>,
    /// A virtual environment of Python with gabion, zfec and PyECLib, to measure these too.
    #[arg(long, value_name = "DIR", requires = "bindings")]
    python: Option<PathBuf>,
    /// A shared library with ParPar's multiplication over GF(2^16) (see the README) to race against.
    #[arg(long, value_name = "PATH")]
    parpar: Option<PathBuf>,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Draw the result, as .svg or .png.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the machine's description and the JSON lines into a file.
    #[arg(long, value_name = "FILE", requires = "date")]
    record: Option<PathBuf>,
    /// The date to record, as YYYY-MM-DD.
    #[arg(long)]
    date: Option<String>,
    /// Run only cases whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Total time of the cases; preparation, page faults and the least rounds of the largest cases are added.
const QUICK: Duration = Duration::from_secs(33);
const FULL: Duration = Duration::from_secs(400);
/// Longest time of one case.
const LONGEST_CASE: Duration = Duration::from_secs(5);

/// Runs the comparison and writes the selected outputs.
pub(crate) fn compare(options: &Options) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "build with --release: an unoptimised race says nothing");
    if let Some(path) = &options.isal {
        crate::isal::load(path)?;
    }
    if let Some(path) = &options.parpar {
        crate::parpar::load(path)?;
    }
    // Refuses a file that cannot be drawn before minutes of measuring.
    let plot_target = options.plot.as_deref().map(gabion_bench::plot::Target::new).transpose()?;
    let findings = match &options.bindings {
        Some(libraries) => on_bindings(options, libraries)?,
        None if options.grid => on_grid(options)?,
        None => on_cases(options)?,
    };
    let Findings { lines, text, figure } = findings;
    ensure!(!lines.is_empty(), "no case is named like {:?}", options.only);

    let json = report::json(&lines)?;
    let text = if options.json { &json } else { &text };
    std::io::stdout().write_all(text.as_bytes())?;
    if let (Some(path), Some(date)) = (&options.record, &options.date) {
        let machine = serde_json::to_string(&machine(date, options.quick)?)?;
        fs::write(path, format!("{machine}\n{json}"))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(target) = &plot_target {
        target.write(&figure)?;
    }
    Ok(())
}

/// Results of a run: lines, table and chart.
struct Findings {
    lines: Vec<Line>,
    text: String,
    figure: Figure,
}

fn on_cases(options: &Options) -> anyhow::Result<Findings> {
    let mut cases = cases::cases(options.quick, crate::isal::is_loaded());
    cases.retain(|case| case.name.contains(&options.only));
    let total = if options.quick { QUICK } else { FULL };
    let total = total.min(LONGEST_CASE.saturating_mul(u32::try_from(cases.len())?));
    let mut budget = Budget::new(total, cases.len());
    let mut lines: Vec<Line> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        progress(&format!("[{}/{}] {}", index + 1, cases.len(), case.name));
        let timings = case.run(budget.next_end())?;
        lines.extend(report::lines(&case.name, case.bytes(), &case.bars(), &timings));
    }
    progress("");
    let text = report::table(&lines) + &report::summary(&lines);
    let figure = plot::figure(&lines);
    Ok(Findings { lines, text, figure })
}

fn on_bindings(options: &Options, libraries: &std::path::Path) -> anyhow::Result<Findings> {
    let places = bindings::Places { libraries: libraries.to_owned(), python: options.python.clone() };
    crate::isal::load_drop_in(&places.drop_in())?;
    let mut cases = bindings::cases(options.quick, &places);
    cases.retain(|case| case.name.contains(&options.only));
    let total = if options.quick { QUICK } else { FULL };
    let total = total.min(LONGEST_CASE.saturating_mul(u32::try_from(cases.len())?));
    let mut budget = Budget::new(total, cases.len());
    let mut lines: Vec<Line> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        progress(&format!("[{}/{}] {}", index + 1, cases.len(), case.name));
        let timings = case.run(&places, budget.next_end())?;
        lines.extend(report::lines(&case.name, case.bytes(), &case.bars(), &timings));
    }
    progress("");
    let text = report::table(&lines) + &report::summary(&lines);
    let figure = plot::figure(&lines);
    Ok(Findings { lines, text, figure })
}

fn on_grid(options: &Options) -> anyhow::Result<Findings> {
    let places = match options.random {
        Some(count) => grid::drawn(count, options.seed),
        None => grid::places(),
    };
    let cells = grid::run(places, &options.only)?;
    progress("");
    let text = grid::text(&cells);
    let figure = grid::figure(&cells);
    let lines = cells.into_iter().map(|cell| cell.line).collect();
    Ok(Findings { lines, text, figure })
}

/// One line that is overwritten, on a terminal only.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A failed write of the progress does not stop the measurement.
        let _ = write!(stderr, "\r\x1b[2K{text}");
        let _ = stderr.flush();
    }
}

fn machine(date: &str, quick: bool) -> anyhow::Result<Machine> {
    let information = fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let field = |name: &str| {
        information
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map_or("unknown", |(_, value)| value.trim())
    };
    let cpu = format!(
        "{} (family {} model {} stepping {})",
        field("model name"),
        field("cpu family"),
        field("model"),
        field("stepping")
    );
    let isal = if crate::isal::uses_gfni() { "GFNI" } else { "no GFNI" };
    let kernel = crate::ours::Ours::on_threads(1)?.kernel_name().to_owned();
    Ok(Machine::new(date.to_owned(), cpu, kernel, isal.to_owned(), quick))
}
