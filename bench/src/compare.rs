//! Races against other libraries in one interleaved run.

mod decode;
mod encode;
mod multiply;
mod plot;
mod race;
mod report;

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use decode::Planning;
use race::{Budget, Timing};
use report::{Line, Machine};

/// What the user asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// End within 50 seconds: fewer rounds, and 10 MiB blocks against ISA-L only.
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Draw the result, as .svg or .png.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the machine's description and the JSON lines into a file.
    #[arg(long, value_name = "FILE", requires = "date")]
    record: Option<PathBuf>,
    /// The date a record carries, as YYYY-MM-DD.
    #[arg(long)]
    date: Option<String>,
    /// Run only cases whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Preparation, page faults and the fewest rounds of the largest cases come on top.
const QUICK: Duration = Duration::from_secs(33);
const FULL: Duration = Duration::from_secs(300);
/// However few cases were asked for.
const LONGEST_CASE: Duration = Duration::from_secs(5);

const SHAPES: [(usize, usize); 8] = [(4, 2), (8, 3), (10, 4), (16, 4), (30, 3), (45, 8), (64, 16), (30, 33)];
const SMALL: usize = 4 << 10;
const MIDDLE: usize = 64 << 10;
const LARGE: usize = 10 << 20;

/// Who takes part in a race of encoders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opponents {
    Everybody,
    IsalOnly,
}

/// Width of the symbols and bytes of a packet, in the packets layout.
#[derive(Clone, Copy)]
struct Field {
    w: usize,
    packet: usize,
}

enum Work {
    Encode(Opponents),
    TwoThreads,
    Decode(Planning),
    Packets(Field),
    MultiplyAdd { w: usize },
}

/// One race.
struct Case {
    name: String,
    work: Work,
    shape: (usize, usize),
    len: usize,
}

impl Case {
    fn stripe(operation: &str, shape: (usize, usize), len: usize, options: &str, work: Work) -> Self {
        let (k, m) = shape;
        let name = format!("{operation} {k}+{m} {}{options}", size(len));
        Self { name, work, shape, len }
    }

    fn run(&self, end: Instant) -> anyhow::Result<Vec<Timing>> {
        let (shape, len) = (self.shape, self.len);
        match self.work {
            Work::Encode(opponents) => encode::words(shape, len, opponents, end),
            Work::TwoThreads => encode::two_threads(shape, len, end),
            Work::Decode(planning) => decode::decode(shape, len, planning, end),
            Work::Packets(field) => encode::packets(shape, field, len, end),
            Work::MultiplyAdd { w } => multiply::multiply_add(w, len, end),
        }
        .with_context(|| self.name.clone())
    }

    /// What one pass counts for.
    fn bytes(&self) -> usize {
        self.shape.0 * self.len
    }
}

/// Every case there is; names are stable, so that records of different days can be compared.
fn cases(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [SMALL, MIDDLE, LARGE] {
        let opponents = if quick && len == LARGE { Opponents::IsalOnly } else { Opponents::Everybody };
        for shape in SHAPES {
            cases.push(Case::stripe("encode", shape, len, "", Work::Encode(opponents)));
        }
    }
    for (shape, len) in [((10, 4), MIDDLE), ((10, 4), LARGE), ((64, 16), MIDDLE), ((64, 16), LARGE)] {
        cases.push(Case::stripe("encode", shape, len, " 2threads", Work::TwoThreads));
    }
    for (shape, w) in [((4, 2), 4), ((8, 3), 4), ((10, 4), 4), ((10, 4), 8), ((16, 4), 8)] {
        let options = format!(" packets w{w}");
        let work = Work::Packets(Field { w, packet: 2048 });
        cases.push(Case::stripe("encode", shape, MIDDLE, &options, work));
    }
    for shape in SHAPES {
        cases.push(Case::stripe("decode", shape, MIDDLE, "", Work::Decode(Planning::Before)));
    }
    for shape in [(10, 4), (64, 16)] {
        cases.push(Case::stripe("decode", shape, LARGE, "", Work::Decode(Planning::Before)));
    }
    for shape in SHAPES {
        let work = Work::Decode(Planning::Included);
        cases.push(Case::stripe("decode", shape, SMALL, " with plan", work));
    }
    for w in [4, 8, 16, 32, 64] {
        let name = format!("multiply-add w{w} {}", size(MIDDLE));
        cases.push(Case { name, work: Work::MultiplyAdd { w }, shape: (1, 1), len: MIDDLE });
    }
    cases
}

fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}MiB", bytes >> 20) } else { format!("{}KiB", bytes >> 10) }
}

/// Runs the comparison and writes what was asked for.
pub(crate) fn compare(options: &Options) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "build with --release: an unoptimised race says nothing");
    // A picture that cannot be drawn is said before minutes of measuring, not after.
    let plot_target = options.plot.as_deref().map(gabion::plot::Target::new).transpose()?;
    let mut cases = cases(options.quick);
    cases.retain(|case| case.name.contains(&options.only));
    ensure!(!cases.is_empty(), "no case is named like {:?}", options.only);
    let total = if options.quick { QUICK } else { FULL };
    let total = total.min(LONGEST_CASE.saturating_mul(u32::try_from(cases.len())?));
    let mut budget = Budget::new(total, cases.len());
    let mut lines: Vec<Line> = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        progress(&format!("[{}/{}] {}", index + 1, cases.len(), case.name));
        let timings = case.run(budget.next_end())?;
        lines.extend(report::lines(&case.name, case.bytes(), &timings));
    }
    progress("");

    let json = report::json(&lines)?;
    let text = if options.json { &json } else { &report::table(&lines) };
    std::io::stdout().write_all(text.as_bytes())?;
    if let (Some(path), Some(date)) = (&options.record, &options.date) {
        let machine = serde_json::to_string(&machine(date, options.quick)?)?;
        fs::write(path, format!("{machine}\n{json}"))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(target) = &plot_target {
        target.write(&plot::figure(&lines))?;
    }
    Ok(())
}

/// One line that is overwritten, on a terminal only.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A progress line that cannot be shown is no reason to stop measuring.
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

#[cfg(test)]
mod tests {
    use super::{Opponents, Work, cases};
    use std::collections::BTreeSet;
    use std::time::Instant;

    #[test]
    fn names_are_unique_and_the_same_in_both_modes() {
        let names = |quick| cases(quick).into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(names(true), names(false));
        assert_eq!(names(true).iter().collect::<BTreeSet<_>>().len(), names(true).len());
        assert!(names(true).contains(&"encode 10+4 64KiB".to_owned()));
    }

    /// Every kind of race, verified output included, with no time to lose.
    #[test]
    fn every_kind_of_case_runs_and_verifies() {
        for case in cases(true) {
            if case.len > super::MIDDLE || case.shape.0 > 10 {
                continue;
            }
            let timings = case.run(Instant::now()).expect("verified");
            let expected = match case.work {
                Work::Encode(Opponents::Everybody) => 5,
                _ => 2,
            };
            assert_eq!(timings.len(), expected, "{}", case.name);
            assert_eq!(timings[0].name, "gabion");
        }
    }
}
