//! The grid: encoding against ISA-L over many shapes, sizes and placements, to find where ours is slower. Random places
//! cover the gaps of the grid.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gabion_bench::plot::{Axis, Figure, Panel, Series};
use gabion_engine::conformance::TestRng;

use super::bars::{self, ISAL};
use super::cases::{Choice, Shape, size};
use super::encode::check_encoder;
use super::race::{Contender, Timing, race};
use super::report::{self, Line};
use crate::blocks::{self, Arena, PAGE, Placement};
use crate::isal::{self, Call, Encoder, Path};
use crate::ours::{self, Ours, run_again};

const KS: [usize; 14] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64];
const MS: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16];
const SIZES: [usize; 8] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 10 << 20, HUGE];
/// Shapes for blocks of 64 MiB, which are too large for the others.
const HUGE: usize = 64 << 20;
const HUGE_SHAPES: [Shape; 4] = [(2, 1), (4, 2), (10, 4), (16, 4)];

/// Ranges of random places: shapes, and bytes of a block.
const ANY_K: RangeInclusive<usize> = 2..=64;
const ANY_M: RangeInclusive<usize> = 1..=16;
const ANY_LEN: RangeInclusive<usize> = SIZES[0]..=HUGE;
/// Largest number of bytes of all blocks of a random place.
const MOST_DRAWN: usize = 512 << 20;

/// Long enough for some hundred batches of small blocks, short enough for thousands of cells.
const TIME: Duration = Duration::from_millis(60);
/// A cell below its target is raced again this often, for this long: in a grid of this size some cells are disturbed by
/// other processes.
const REPEATS: usize = 2;
const LONGER: Duration = Duration::from_millis(300);

/// Shape, size and placement of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    shape: Shape,
    len: usize,
    placement: Placement,
}

impl Place {
    fn name(self, choice: Choice) -> String {
        let (k, m) = self.shape;
        let placed = match self.placement {
            Placement::Aligned => String::new(),
            placement => format!(" {}", placement.name()),
        };
        format!("encode {k}+{m} {}{}{placed}", size(self.len), choice.suffix())
    }

    /// Size of the grid in whose summary it counts: the largest that is not above its own.
    fn size_class(self) -> usize {
        SIZES.into_iter().take_while(|&len| len <= self.len).last().unwrap_or(SIZES[0])
    }
}

/// One place with one code, and the result.
pub(super) struct Cell {
    place: Place,
    choice: Choice,
    pub(super) line: Line,
}

/// The places of the grid, by size, so that neighbours are alike.
pub(super) fn places() -> Vec<Place> {
    let shapes: Vec<Shape> = KS.into_iter().flat_map(|k| MS.map(|m| (k, m))).collect();
    let mut places = Vec::new();
    for len in SIZES {
        let shapes = if len == HUGE { &HUGE_SHAPES[..] } else { &shapes };
        for &shape in shapes {
            places.extend(Placement::ALL.map(|placement| Place { shape, len, placement }));
        }
    }
    places
}

/// Random places, sorted by size; equal seeds give equal places. Sizes are distributed evenly over powers of two; half
/// of them are whole pages where possible, the others any number of bytes.
pub(super) fn drawn(count: usize, seed: u64) -> Vec<Place> {
    let mut random = TestRng(seed);
    let mut within =
        |range: RangeInclusive<usize>| range.start() + random.below(range.end() - range.start() + 1);
    let mut draw = || {
        let (k, m) = (within(ANY_K), within(ANY_M));
        let largest = (MOST_DRAWN / (k + m)).min(*ANY_LEN.end());
        let power = within(ANY_LEN.start().ilog2() as usize..=largest.ilog2() as usize);
        let len = within(1 << power..=((2 << power) - 1).min(largest));
        let len = if within(0..=1) == 0 && len >= PAGE { len - len % PAGE } else { len };
        let placement = Placement::ALL[within(0..=Placement::ALL.len() - 1)];
        Place { shape: (k, m), len, placement }
    };
    let mut places: Vec<Place> = (0..count).map(|_| draw()).collect();
    places.sort_by_key(|place| place.len);
    places
}

const CHOICES: [Choice; 2] = [Choice::Default, Choice::CauchyIsal];

/// Races in all of these places whose name contains `only`.
pub(super) fn run(mut places: Vec<Place>, only: &str) -> anyhow::Result<Vec<Cell>> {
    places.retain(|place| CHOICES.iter().any(|&choice| place.name(choice).contains(only)));
    // Allocated once for the largest: new pages for every cell would take longer than the races.
    let room = |blocks: fn(Shape) -> usize| {
        let needs = places.iter().map(|place| (blocks(place.shape), place.len));
        needs.max_by_key(|&(count, len)| count * blocks::room(len)).unwrap_or((0, 0))
    };
    let (count, len) = room(|(k, _)| k);
    let data = Arena::pseudo_random("grid", count, len);
    let (count, len) = room(|(_, m)| m);
    let mut out = Arena::zeroed(count, len);
    let engine = Ours::on_threads(1)?;
    let mut cells = Vec::new();
    for (index, &place) in places.iter().enumerate() {
        progress(&format!("[{}/{}] {}", index + 1, places.len(), place.name(Choice::Default)), index);
        let found = cells_of(place, &engine, &data, &mut out);
        cells.extend(found.with_context(|| place.name(Choice::Default))?);
    }
    cells.retain(|cell| cell.line.case.contains(only));
    Ok(cells)
}

/// Without a terminal, progress is printed now and then.
fn progress(text: &str, index: usize) {
    super::progress(text);
    if !stderr().is_terminal() && index.is_multiple_of(100) {
        eprintln!("{text}");
    }
}

/// Both codes in one place. All three contenders read and write the same buffers.
fn cells_of(place: Place, engine: &Ours, data: &Arena, out: &mut Arena) -> anyhow::Result<Vec<Cell>> {
    let Place { shape: (k, m), len, placement } = place;
    let data = data.cut(k, len, placement, 0);
    let mut outputs = out.cut_mut(m, len, placement, k);
    let mut encoders = Vec::new();
    for choice in CHOICES {
        let code = ours::code(&choice.identity(place.shape))?;
        let encoder = engine.encoder(&code)?;
        check_encoder(&encoder, &code, &data, &mut outputs)?;
        encoders.push(encoder);
    }
    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    let isal = Encoder::new(Path::Dispatched, k, m, &rows);
    let mut call = isal.bind(&data, outputs);
    let mut timings = |time: Duration| {
        let mut contenders = vec![Contender::new(ISAL, Call::run)];
        for (name, encoder) in OURS.into_iter().zip(&encoders) {
            let pass = |call: &mut Call<'_>| run_again(encoder, &data, call.outputs());
            contenders.push(Contender::new(name, pass));
        }
        race(contenders, &mut call, Instant::now() + time)
    };
    let mut best = timings(TIME);
    for _ in 0..REPEATS {
        if cells(place, &best).iter().all(|cell| cell.line.reached() == Some(true)) {
            break;
        }
        for (best, again) in best.iter_mut().zip(timings(LONGER)) {
            if again.seconds < best.seconds {
                *best = again;
            }
        }
    }
    Ok(cells(place, &best))
}

/// Names of our two contenders, in the order of [`CHOICES`].
const OURS: [&str; 2] = ["gabion", "gabion cauchy-isal"];

/// ISA-L's timing, then ours, as lines of the report.
fn cells(place: Place, timings: &[Timing]) -> Vec<Cell> {
    let bytes = place.shape.0 * place.len;
    let cell = |(choice, ours): (Choice, &Timing)| {
        let bar = [(ISAL, bars::everywhere(choice))];
        let lines = report::lines(&place.name(choice), bytes, &bar, &[*ours, timings[0]]);
        lines.into_iter().map(move |line| Cell { place, choice, line })
    };
    CHOICES.into_iter().zip(&timings[1..]).flat_map(cell).collect()
}

/// The cells below their bar, worst first, and a summary by code, size and placement.
pub(super) fn text(cells: &[Cell]) -> String {
    let mut missed: Vec<&Cell> = cells.iter().filter(|cell| cell.line.reached() == Some(false)).collect();
    missed.sort_by(|a, b| a.line.ratio.total_cmp(&b.line.ratio));
    let missed: Vec<Line> = missed.into_iter().map(|cell| cell.line.clone()).collect();
    let mut text = if missed.is_empty() { String::new() } else { report::table(&missed) + "\n" };
    text += &format!(
        "{:11}  {:9}  {:>6}  {:>5}  {:>7}  {:>5}  {:>5}  {:>5}\n",
        "code", "placement", "block", "cells", "reached", "worst", "mean", "best"
    );
    let all = cells.iter().map(|cell| &cell.line).cloned().collect::<Vec<_>>();
    let groups = SIZES.into_iter().flat_map(|len| {
        CHOICES.into_iter().flat_map(move |choice| Placement::ALL.map(|placement| (choice, placement, len)))
    });
    for group in groups {
        let of_group = |cell: &&Cell| (cell.choice, cell.place.placement, cell.place.size_class()) == group;
        let ratios: Vec<(f64, bool)> = cells
            .iter()
            .filter(of_group)
            .map(|cell| (cell.line.ratio, cell.line.reached() == Some(true)))
            .collect();
        text += &summary(group, &ratios);
    }
    text + &report::summary(&all)
}

fn summary((choice, placement, len): (Choice, Placement, usize), ratios: &[(f64, bool)]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    let code = if choice == Choice::Default { "default" } else { "cauchy-isal" };
    let placement = placement.name();
    let reached = ratios.iter().filter(|(_, reached)| *reached).count();
    let values = || ratios.iter().map(|(ratio, _)| *ratio);
    let (worst, best) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    // The geometric mean of ratios: 2 and 1/2 cancel out.
    let mean = (values().map(f64::ln).sum::<f64>() / ratios.len() as f64).exp();
    let mut text = String::new();
    writeln!(
        text,
        "{code:11}  {placement:9}  {:>6}  {:>5}  {reached:>7}  {worst:>5.2}  {mean:>5.2}  {best:>5.2}",
        size(len),
        ratios.len(),
    )
    .expect("writing into a String cannot fail");
    text
}

/// The default code's ratio over k, a panel per size and a line per m; the worst of all placements.
pub(super) fn figure(cells: &[Cell]) -> Figure {
    let panel = |len: usize| {
        let series = ANY_M.map(|m| series(cells, m, len)).filter(|series| !series.points.is_empty());
        let series: Vec<Series> = series.collect();
        (!series.is_empty()).then(|| Panel::Lines {
            title: format!("blocks from {} on", size(len)),
            x: Axis::Numbers("data blocks k".to_owned()),
            y: "times ISA-L's speed".to_owned(),
            series,
        })
    };
    Figure {
        title: "Encoding with the default code beside ISA-L, the worst of all placements".to_owned(),
        panels: SIZES.into_iter().filter_map(panel).collect(),
    }
}

fn series(cells: &[Cell], m: usize, size_class: usize) -> Series {
    let of_series = |cell: &&Cell| {
        cell.choice == Choice::Default && cell.place.shape.1 == m && cell.place.size_class() == size_class
    };
    let mut worst = BTreeMap::new();
    for cell in cells.iter().filter(of_series) {
        let ratio = worst.entry(cell.place.shape.0).or_insert(f64::INFINITY);
        *ratio = cell.line.ratio.min(*ratio);
    }
    let points = worst.into_iter().map(|(k, ratio)| (k as f64, ratio)).collect();
    Series { label: format!("m = {m}"), points }
}

#[cfg(test)]
mod tests {
    use super::{ANY_K, ANY_LEN, ANY_M, CHOICES, Cell, HUGE, MOST_DRAWN, OURS, PAGE, Place, SIZES};
    use super::{cells, drawn, figure, places, run, text};
    use crate::blocks::Placement;
    use crate::compare::race::Timing;

    fn found(seconds: [f64; 3]) -> Vec<Cell> {
        let place = Place { shape: (10, 4), len: 64 << 10, placement: Placement::Odd };
        let names = ["isal", OURS[0], OURS[1]];
        let timing = |(name, seconds)| Timing { name, seconds, spread: 0.0 };
        let timings: Vec<Timing> = names.into_iter().zip(seconds).map(timing).collect();
        cells(place, &timings)
    }

    #[test]
    fn what_is_behind_is_listed_and_counted() {
        let cells = found([1.0, 0.5, 1.25]);
        let names: Vec<&str> = cells.iter().map(|cell| cell.line.case.as_str()).collect();
        assert_eq!(names, ["encode 10+4 64KiB unaligned", "encode 10+4 64KiB cauchy-isal unaligned"]);
        let text = text(&cells);
        assert!(text.contains("cauchy-isal unaligned") && text.contains("0.98 missed"), "{text}");
        assert!(!text.contains("encode 10+4 64KiB unaligned"), "{text}");
        assert!(text.contains("1 of 2 bars reached"), "{text}");
        assert_eq!(figure(&cells).panels.len(), 1);
    }

    /// At most some hundred megabytes for one size, and all placements.
    #[test]
    fn the_grid_is_bounded() {
        let places = places();
        assert_eq!(places.len(), 4 * (14 * 14 * 7 + 4));
        let bytes = |place: &Place| (place.shape.0 + 2 * place.shape.1) * place.len;
        assert!(places.iter().map(bytes).max().expect("some") < 2 << 30);
        assert!(places.iter().any(|place| place.len == HUGE));
    }

    #[test]
    fn places_are_drawn_from_everywhere_and_drawn_again() {
        let places = drawn(2000, 7);
        assert_eq!(places, drawn(2000, 7));
        assert_ne!(places, drawn(2000, 8));
        assert!(places.is_sorted_by_key(|place| place.len));
        for place in &places {
            let (k, m) = place.shape;
            assert!(ANY_K.contains(&k) && ANY_M.contains(&m) && ANY_LEN.contains(&place.len), "{place:?}");
            assert!((k + m) * place.len <= MOST_DRAWN, "{place:?}");
        }
        let some = |wanted: &dyn Fn(&Place) -> bool| places.iter().any(wanted);
        for (k, m) in [(2, 1), (2, 16), (64, 1), (64, 16)] {
            let near = |place: &Place| place.shape.0.abs_diff(k) < 4 && place.shape.1.abs_diff(m) < 2;
            assert!(some(&near), "{k}+{m}");
        }
        assert!(SIZES.iter().all(|&len| some(&|place| place.size_class() == len) || len == HUGE));
        assert!(some(&|place| place.len % 2 == 1) && some(&|place| place.len % PAGE == 0));
        assert!(some(&|place| place.placement == Placement::Odd) && some(&|place| place.len > 32 << 20));
    }

    /// Eleven blocks of two pages, nearly, take more than twenty of one.
    #[test]
    fn there_is_room_for_every_place() {
        let place = |k, len| Place { shape: (k, 1), len, placement: Placement::Odd };
        let cells = run(vec![place(20, 4096), place(11, 4097)], "").expect("verified");
        assert_eq!(cells.len(), 4);
    }

    #[test]
    fn a_cell_runs_and_verifies() {
        let cells = run(places(), "encode 5+3 1KiB").expect("verified");
        assert_eq!(cells.len(), CHOICES.len() * Placement::ALL.len());
    }
}
