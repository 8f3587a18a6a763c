//! Drawing figures: title above, legend in a column of its own at the right, panels in what is left.

use super::{Axis, FONT, Figure, HEIGHT, Panel, PlotError, Series, WIDTH};
use crate::bench::Size;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Cross, EmptyElement, PathElement, Rectangle, Text, TriangleMarker};
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};
use std::ops::Range;

const TITLE: u32 = 56;
/// Size of the letters at the ticks of an axis.
const TICK_LETTERS: u32 = 13;
const LEGEND_LINE: i32 = 24;
/// Strokes and letters of a legend entry before and per letter of its label.
const LEGEND_FRAME: usize = 64;
const LEGEND_LETTER: usize = 8;

/// Told apart by people who do not see all colours (after Okabe and Ito), darkened for thin lines.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 100, 170),
    RGBColor(200, 80, 0),
    RGBColor(0, 140, 105),
    RGBColor(190, 95, 150),
    RGBColor(215, 150, 0),
    RGBColor(75, 165, 215),
    RGBColor(60, 60, 60),
    RGBColor(150, 20, 30),
];
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ticked, Ticked>>;

/// A range of numbers with labels at given places.
struct Ticked {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// The look of the n-th series: after the colours are used up the marks change.
#[derive(Clone, Copy)]
struct Look(usize);

impl Look {
    fn colour(self) -> RGBColor {
        COLOURS[self.0 % COLOURS.len()]
    }

    fn line(self) -> ShapeStyle {
        self.colour().stroke_width(2)
    }

    fn filled(self) -> ShapeStyle {
        self.colour().filled()
    }

    /// Of a bar, which has no mark: every further round of colours is paler.
    fn surface(self) -> ShapeStyle {
        self.colour().mix(0.5_f64.powi((self.0 / COLOURS.len()) as i32)).filled()
    }
}

impl Figure {
    /// The figure as the text of an SVG file.
    ///
    /// # Errors
    /// [`PlotError::Nothing`] without any point.
    pub fn svg(&self) -> Result<String, PlotError> {
        let labels = self.labels();
        if labels.is_empty() {
            return Err(PlotError::Nothing);
        }
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
            root.fill(&WHITE)?;
            let (top, body) = root.split_vertically(TITLE);
            let title = style(22).pos(Pos::new(HPos::Left, VPos::Center));
            top.draw(&Text::new(self.title.clone(), (24, TITLE as i32 / 2 + 2), title))?;
            let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
            let legend_width = (LEGEND_FRAME + LEGEND_LETTER * longest).min(WIDTH as usize / 2) as u32;
            let (panels, side) = body.split_horizontally(WIDTH - legend_width);
            legend(&side, &labels, |label| self.has_bars(label))?;
            for (panel, area) in self.panels.iter().zip(panels.split_evenly(grid(self.panels.len()))) {
                panel.draw(&area, &labels)?;
            }
            root.present()?;
        }
        Ok(text)
    }

    /// Whether this label belongs to bars and to no line.
    fn has_bars(&self, label: &str) -> bool {
        let is_line = |panel: &Panel| match panel {
            Panel::Lines { series, .. } | Panel::Decades { series, .. } => {
                series.iter().any(|series| series.label == label)
            }
            Panel::Bars { .. } => false,
        };
        !self.panels.iter().any(is_line)
    }

    /// Labels of all series that have a point, each once; their order gives the looks.
    fn labels(&self) -> Vec<String> {
        let of_panel = |panel: &Panel| -> Vec<String> {
            match panel {
                Panel::Lines { series, .. } | Panel::Decades { series, .. } => {
                    let drawn = series.iter().filter(|series| !series.points.is_empty());
                    drawn.map(|series| series.label.clone()).collect()
                }
                Panel::Bars { series, .. } => {
                    let drawn = series.iter().filter(|(_, values)| values.iter().any(Option::is_some));
                    drawn.map(|(label, _)| label.clone()).collect()
                }
            }
        };
        let mut labels = Vec::new();
        for label in self.panels.iter().flat_map(of_panel) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }
}

fn style(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// (rows, columns), wider than high as the picture is.
fn grid(panels: usize) -> (usize, usize) {
    match panels {
        0..=3 => (1, panels.max(1)),
        4 => (2, 2),
        5..=6 => (2, 3),
        _ => (panels.div_ceil(4), 4),
    }
}

fn legend(area: &Area<'_>, labels: &[String], is_bar: impl Fn(&str) -> bool) -> Result<(), PlotError> {
    for (index, label) in labels.iter().enumerate() {
        let y = 40 + LEGEND_LINE * index as i32;
        if is_bar(label) {
            area.draw(&Rectangle::new([(20, y - 7), (34, y + 7)], Look(index).surface()))?;
        } else {
            area.draw(&PathElement::new(vec![(4, y), (36, y)], Look(index).line()))?;
            draw_mark(area, Look(index), (20, y))?;
        }
        let middle = style(14).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(label.clone(), (44, y), middle))?;
    }
    Ok(())
}

/// The same mark on a legend, which counts in pixels.
fn draw_mark(area: &Area<'_>, look: Look, at: (i32, i32)) -> Result<(), PlotError> {
    match look.0 / COLOURS.len() % 3 {
        0 => area.draw(&Circle::new(at, 4, look.filled()))?,
        1 => area.draw(&TriangleMarker::new(at, 6, look.filled()))?,
        _ => area.draw(&Cross::new(at, 4, look.line()))?,
    }
    Ok(())
}

impl Panel {
    fn draw(&self, area: &Area<'_>, labels: &[String]) -> Result<(), PlotError> {
        let look = |label: &str| Look(labels.iter().position(|other| other == label).unwrap_or(0));
        match self {
            Panel::Lines { title, x, y, series } => {
                let xs: Vec<f64> =
                    series.iter().flat_map(|series| &series.points).map(|&(at, _)| x.place(at)).collect();
                let ys = series.iter().flat_map(|series| &series.points).map(|point| point.1);
                let (ticks, range) = x.ticks(xs);
                let mut chart = frame(area, title, Ticked { range, ticks }, from_zero(most(ys)))?;
                mesh(&mut chart, x.label(), y, (&|at| x.tick(*at), &plain), TICK_LETTERS)?;
                for one in series {
                    line(&mut chart, one, x, &|value| value, look(&one.label))?;
                }
            }
            Panel::Decades { title, x, y, series } => {
                let points = || series.iter().flat_map(|series| &series.points);
                let (ticks, range) = x.ticks(points().map(|&(at, _)| x.place(at)).collect());
                let powers = decades(points().map(|point| point.1));
                let mut chart = frame(area, title, Ticked { range, ticks }, powers)?;
                mesh(
                    &mut chart,
                    x.label(),
                    y,
                    (&|at| x.tick(*at), &|power| power_of_ten(*power)),
                    TICK_LETTERS,
                )?;
                for one in series {
                    line(&mut chart, one, x, &power, look(&one.label))?;
                }
            }
            Panel::Bars { title, y, categories, series } => {
                let values = series.iter().flat_map(|(_, values)| values.iter().flatten().copied());
                let middles = (0..categories.len()).map(|index| index as f64 + 0.5).collect();
                let groups = Ticked { range: 0.0..categories.len() as f64, ticks: middles };
                let mut chart = frame(area, title, groups, from_zero(most(values)))?;
                let name = |at: &f64| categories.get(*at as usize).cloned().unwrap_or_default();
                let longest = categories.iter().map(|name| name.chars().count()).max().unwrap_or(1);
                let room = chart.plotting_area().dim_in_pixel().0 / categories.len().max(1) as u32;
                mesh(&mut chart, "", y, (&name, &plain), letters_that_fit(room, longest))?;
                // A group holds bars only for what it has, around its middle.
                let groups = (0..categories.len()).map(|group| -> Vec<(&str, f64)> {
                    let values = series.iter().map(|(label, values)| (label, values.get(group)));
                    values.filter_map(|(label, value)| Some((label.as_str(), (*value?)?))).collect()
                });
                let groups: Vec<Vec<(&str, f64)>> = groups.collect();
                let width = 0.8 / groups.iter().map(Vec::len).max().unwrap_or(1).max(1) as f64;
                for (group, bars) in groups.iter().enumerate() {
                    let start = group as f64 + 0.5 - width * bars.len() as f64 / 2.0;
                    let bars = bars.iter().enumerate().map(|(index, (label, value))| {
                        let left = start + width * index as f64;
                        let corners = [(left, 0.0), (left + 0.92 * width, *value)];
                        Rectangle::new(corners, look(label).surface())
                    });
                    chart.draw_series(bars)?;
                }
            }
        }
        Ok(())
    }
}

impl Axis {
    fn label(&self) -> &str {
        match self {
            Axis::Numbers(label) | Axis::Bytes(label) | Axis::Decades(label) => label,
        }
    }

    fn place(&self, value: f64) -> f64 {
        match self {
            Axis::Numbers(_) => value,
            Axis::Bytes(_) => value.max(1.0).log2(),
            Axis::Decades(_) => power(value),
        }
    }

    fn tick(&self, place: f64) -> String {
        match self {
            Axis::Numbers(_) => format!("{place}"),
            Axis::Bytes(_) => Size(place.exp2().round() as usize).to_string(),
            Axis::Decades(_) => power_of_ten(place),
        }
    }

    /// Places of labels, and the range with some air at both ends.
    fn ticks(&self, mut places: Vec<f64>) -> (Vec<f64>, Range<f64>) {
        places.sort_by(f64::total_cmp);
        places.dedup();
        let (first, last) = (places.first().copied().unwrap_or(0.0), places.last().copied().unwrap_or(1.0));
        let air = ((last - first) * 0.04).max(0.1);
        let ticks = match self {
            Axis::Bytes(_) => places,
            Axis::Decades(_) => {
                let Ticked { range, ticks } = powers_between(first, last);
                return (ticks, range);
            }
            Axis::Numbers(_) => {
                let step = nice_step(last - first, 16.0);
                let from = (first / step).ceil() as i64;
                (from..=(last / step).floor() as i64).map(|index| index as f64 * step).collect()
            }
        };
        (ticks, first - air..last + air)
    }
}

/// 1, 2, 4 or 5 times a power of ten, so that at most `parts` fit into `length`.
fn nice_step(length: f64, parts: f64) -> f64 {
    let least = (length / parts).max(1e-9);
    let decade = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|&step| step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-3)
}

/// Values from 0 up to `most`.
fn from_zero(most: f64) -> Ticked {
    let step = nice_step(most, 8.0);
    let ticks = (0..=(most * 1.05 / step) as usize).map(|index| index as f64 * step).collect();
    Ticked { range: 0.0..most * 1.06, ticks }
}

/// The power of ten that a value is; what is not above 0 lies at the bottom of everything.
fn power(value: f64) -> f64 {
    value.max(f64::MIN_POSITIVE).log10()
}

/// From the power of ten below the least value to the one above the highest.
fn decades(values: impl Iterator<Item = f64>) -> Ticked {
    let powers = values.filter(|value| value.is_finite() && *value > 0.0).map(power);
    let (least, most) =
        powers.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)));
    if least > most { powers_between(0.0, 1.0) } else { powers_between(least, most) }
}

/// Whole powers around the range between two.
fn powers_between(least: f64, most: f64) -> Ticked {
    let (least, most) = (least.floor(), most.ceil().max(least.floor() + 1.0));
    let step = nice_step(most - least, 12.0).max(1.0).round();
    let from = (least / step).ceil() as i64;
    let ticks = (from..=(most / step).floor() as i64).map(|index| index as f64 * step).collect();
    Ticked { range: least..most, ticks }
}

/// A power of ten as people read it: written out where that is short.
fn power_of_ten(power: f64) -> String {
    match power.round() as i64 {
        power @ -2..=4 => format!("{}", 10_f64.powi(power as i32)),
        power => format!("1e{power}"),
    }
}

fn plain(value: &f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

fn frame<'a, 'b>(area: &'a Area<'b>, title: &str, x: Ticked, y: Ticked) -> Result<Chart<'a, 'b>, PlotError> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).margin_right(24).x_label_area_size(52).y_label_area_size(64);
    if !title.is_empty() {
        builder.caption(title, style(17));
    }
    Ok(builder.build_cartesian_2d(x, y)?)
}

/// The size of letters with which a name of so many of them stays within `room` pixels, down to what can
/// still be read.
fn letters_that_fit(room: u32, letters: usize) -> u32 {
    // A letter is about six tenths as wide as it is high, and names want a gap of one between them.
    let size = f64::from(room) / (0.6 * (letters as f64 + 1.0));
    (size as u32).clamp(8, TICK_LETTERS)
}

/// What a tick is called.
type Words<'a> = &'a dyn Fn(&f64) -> String;

fn mesh(
    chart: &mut Chart<'_, '_>,
    x_label: &str,
    y_label: &str,
    (x_tick, y_tick): (Words<'_>, Words<'_>),
    x_letters: u32,
) -> Result<(), PlotError> {
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(x_label)
        .y_desc(y_label)
        .x_label_formatter(x_tick)
        .y_label_formatter(y_tick)
        .x_label_style(style(x_letters))
        .y_label_style(style(TICK_LETTERS))
        .axis_desc_style(style(15))
        .bold_line_style(GRID)
        .light_line_style(WHITE.mix(0.0))
        .axis_style(INK);
    Ok(mesh.draw()?)
}

fn line(
    chart: &mut Chart<'_, '_>,
    series: &Series,
    x: &Axis,
    y: &dyn Fn(f64) -> f64,
    look: Look,
) -> Result<(), PlotError> {
    let points = || series.points.iter().map(|&(at, value)| (x.place(at), y(value)));
    chart.draw_series(LineSeries::new(points(), look.line()))?;
    match look.0 / COLOURS.len() % 3 {
        0 => chart
            .draw_series(points().map(|at| EmptyElement::at(at) + Circle::new((0, 0), 4, look.filled())))?,
        1 => chart.draw_series(
            points().map(|at| EmptyElement::at(at) + TriangleMarker::new((0, 0), 6, look.filled())),
        )?,
        _ => {
            chart.draw_series(points().map(|at| EmptyElement::at(at) + Cross::new((0, 0), 4, look.line())))?
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let series = |label: &str, top| Series {
            label: label.to_owned(),
            points: vec![(4096.0, top / 2.0), (65536.0, top), (10485760.0, top / 3.0)],
        };
        let panel = |title: &str| Panel::Lines {
            title: title.to_owned(),
            x: Axis::Bytes("block".into()),
            y: "data in GB/s".into(),
            series: vec![series("10+4", 60.0), series("4+2", 45.0)],
        };
        let bars = Panel::Bars {
            title: "bars".into(),
            y: "GB/s".into(),
            categories: vec!["one".into(), "two".into()],
            series: vec![
                ("10+4".into(), vec![Some(3.0), None]),
                ("only bars".into(), vec![Some(1.0), Some(2.0)]),
            ],
        };
        Figure { title: "Speeds & sizes".into(), panels: vec![panel("encode"), panel("repair"), bars] }
    }

    #[test]
    fn crowded_names_get_smaller_letters() {
        assert_eq!(letters_that_fit(200, 5), TICK_LETTERS);
        assert!((8..TICK_LETTERS).contains(&letters_that_fit(36, 5)));
        assert_eq!(letters_that_fit(5, 50), 8);
    }

    #[test]
    fn a_drawing_holds_what_a_reader_needs() {
        let svg = figure().svg().unwrap();
        for text in
            ["Speeds &amp; sizes", "10+4", "4+2", "only bars", "data in GB/s", "64KiB", "10MiB", "two"]
        {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.contains(FONT));
        let tree = resvg::usvg::Tree::from_str(&svg, &Default::default()).unwrap();
        assert_eq!((tree.size().width(), tree.size().height()), (WIDTH as f32, HEIGHT as f32));
        // A label has one legend entry, however many panels it is in.
        assert_eq!(svg.matches("10+4").count(), 1);
    }

    /// Mean times go over thirty powers of ten; every line must be seen, and ticks must be whole powers.
    #[test]
    fn decades_have_ticks_at_powers_of_ten() {
        let series = |label: &str, factor: f64| Series {
            label: label.to_owned(),
            points: vec![(0.1, 20.0 * factor), (1.0, 3e5 * factor), (30.0, 4e30 * factor)],
        };
        let panel = Panel::Decades {
            title: "times".into(),
            x: Axis::Decades("overhead".into()),
            y: "hours".into(),
            series: vec![series("low", 1.0), series("high", 1e3)],
        };
        let svg = Figure { title: "Decades".into(), panels: vec![panel] }.svg().unwrap();
        for text in ["1e32", "1e20", "overhead", "hours", "low", "high"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        let Ticked { range, ticks } = decades([20.0, 4e33, 0.0, f64::NAN].into_iter());
        assert_eq!((range, ticks.first(), ticks.last()), (1.0..34.0, Some(&4.0), Some(&32.0)));
        assert_eq!([-3.0, -1.0, 3.0, 7.0].map(power_of_ten), ["1e-3", "0.1", "1000", "1e7"]);
    }

    #[test]
    fn nothing_is_not_drawn() {
        let empty = Figure { title: "x".into(), panels: Vec::new() };
        assert!(matches!(empty.svg(), Err(PlotError::Nothing)));
    }

    #[test]
    fn steps_are_round_numbers() {
        assert_eq!(nice_step(60.0, 16.0), 4.0);
        assert_eq!(nice_step(100.0, 8.0), 20.0);
        assert_eq!(nice_step(0.7, 8.0), 0.1);
    }
}
