//! Layout of figures: title above, legend in a column at the right, panels in the rest.

use crate::scale::{Scale, plain, power, power_of_ten};
use crate::svg::{Anchor, Area, INK, Svg};
use crate::{Axis, ChartError, FONT, Figure, HEIGHT, Panel, Series, WIDTH};

const TITLE: f64 = 56.0;
/// Size of the letters at the ticks of an axis.
const TICK_LETTERS: u32 = 12;
const LEGEND_LINE: f64 = 24.0;
/// Width of a legend entry without its label, and per letter of the label.
const LEGEND_FRAME: f64 = 64.0;
const LEGEND_LETTER: f64 = 8.0;
/// Space around the axes of a panel.
const MARGIN: f64 = 10.0;
const MARGIN_RIGHT: f64 = 24.0;
const X_LABELS: f64 = 52.0;
const Y_LABELS: f64 = 72.0;
const CAPTION: f64 = 28.0;

/// Distinct also with common colour vision deficiencies (after Okabe and Ito), darkened for thin lines.
const COLOURS: [&str; 8] =
    ["#0064aa", "#c85000", "#008c69", "#be5f96", "#d79600", "#4ba5d7", "#3c3c3c", "#96141e"];
const GRID: &str = "#dedede";

/// Appearance of the n-th series: colours first, then other marks with the same colours.
#[derive(Clone, Copy)]
struct Style(usize);

impl Style {
    fn colour(self) -> &'static str {
        COLOURS[self.0 % COLOURS.len()]
    }

    /// Opacity of a bar, which has no mark: every further round of colours is paler.
    fn opacity(self) -> f64 {
        0.5_f64.powi((self.0 / COLOURS.len()) as i32)
    }

    fn mark(self, svg: &mut Svg, (x, y): (f64, f64)) {
        let colour = self.colour();
        match self.0 / COLOURS.len() % 3 {
            0 => svg.circle((x, y), 4, colour),
            1 => svg.polygon(&[(x, y - 6.0), (x - 5.2, y + 3.0), (x + 5.2, y + 3.0)], colour),
            _ => {
                svg.stroke((x - 4.0, y - 4.0), (x + 4.0, y + 4.0), colour, 2);
                svg.stroke((x - 4.0, y + 4.0), (x + 4.0, y - 4.0), colour, 2);
            }
        }
    }
}

impl Figure {
    /// The figure as the text of an SVG file.
    ///
    /// # Errors
    /// [`ChartError::Nothing`] without any point.
    pub fn svg(&self) -> Result<String, ChartError> {
        let labels = self.labels();
        if labels.is_empty() {
            return Err(ChartError::Nothing);
        }
        let (width, height) = (f64::from(WIDTH), f64::from(HEIGHT));
        let mut svg = Svg::new(WIDTH, HEIGHT, FONT);
        svg.text((24.0, TITLE / 2.0 + 2.0), 18, Anchor::Start, &self.title);
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let side = (LEGEND_FRAME + LEGEND_LETTER * longest as f64).min(width / 2.0);
        self.legend(&mut svg, width - side, &labels);
        let (rows, columns) = grid(self.panels.len());
        let cell = (((width - side) / columns as f64), (height - TITLE) / rows as f64);
        for (index, panel) in self.panels.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let (x, y) = (column as f64 * cell.0, TITLE + row as f64 * cell.1);
            panel.draw(&mut svg, Area { x, y, width: cell.0, height: cell.1 }, &labels);
        }
        Ok(svg.finish())
    }

    fn legend(&self, svg: &mut Svg, x: f64, labels: &[String]) {
        for (index, label) in labels.iter().enumerate() {
            let (style, y) = (Style(index), TITLE + 40.0 + LEGEND_LINE * index as f64);
            if self.has_bars(label) {
                let area = Area { x: x + 20.0, y: y - 7.0, width: 14.0, height: 14.0 };
                svg.rectangle(area, style.colour(), style.opacity());
            } else {
                svg.stroke((x + 4.0, y), (x + 36.0, y), style.colour(), 2);
                style.mark(svg, (x + 20.0, y));
            }
            svg.text((x + 44.0, y), 12, Anchor::Start, label);
        }
    }

    /// True if this label belongs to bars and to no line.
    fn has_bars(&self, label: &str) -> bool {
        let is_line = |panel: &Panel| match panel {
            Panel::Lines { series, .. } | Panel::Decades { series, .. } => {
                series.iter().any(|series| series.label == label)
            }
            Panel::Bars { .. } => false,
        };
        !self.panels.iter().any(is_line)
    }

    /// Labels of all series that have a point, each once; their order decides the styles.
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

/// (rows, columns), wider than high as the figure is.
fn grid(panels: usize) -> (usize, usize) {
    match panels {
        0..=3 => (1, panels.max(1)),
        4 => (2, 2),
        5..=6 => (2, 3),
        _ => (panels.div_ceil(4), 4),
    }
}

/// The axes of a panel and the area between them.
struct Frame {
    plot: Area,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (along, up) = (self.x.share(x), self.y.share(y));
        (self.plot.x + along * self.plot.width, self.plot.bottom() - up * self.plot.height)
    }

    /// Grid, axes, and texts at the ticks.
    fn draw(&self, svg: &mut Svg, labels: (&str, &str), ticks: (&Ticks<'_>, &Ticks<'_>), letters: u32) {
        let Frame { plot, x, y } = self;
        for &tick in &y.ticks {
            let (_, height) = self.at(x.range.start, tick);
            svg.stroke((plot.x, height), (plot.right(), height), GRID, 1);
            svg.text((plot.x - 7.0, height), TICK_LETTERS, Anchor::End, &(ticks.1)(tick));
        }
        if !labels.0.is_empty() {
            for &tick in &x.ticks {
                let (place, _) = self.at(tick, y.range.start);
                svg.stroke((place, plot.y), (place, plot.bottom()), GRID, 1);
            }
        }
        // Texts that would run into the previous one are left out.
        let mut free = f64::NEG_INFINITY;
        for &tick in &x.ticks {
            let (place, _) = self.at(tick, y.range.start);
            let text = (ticks.0)(tick);
            svg.stroke((place, plot.bottom()), (place, plot.bottom() + 5.0), INK, 1);
            let half = 0.3 * f64::from(letters) * text.chars().count() as f64;
            if place - half >= free {
                svg.text((place, plot.bottom() + 15.0), letters, Anchor::Middle, &text);
                free = place + half + 3.0;
            }
        }
        let corner = (plot.x, plot.bottom());
        svg.stroke((plot.x, plot.y), corner, INK, 1);
        svg.stroke(corner, (plot.right(), plot.bottom()), INK, 1);
        let middle = plot.y + plot.height / 2.0;
        svg.upwards((plot.x - Y_LABELS + 8.0, middle), 13, labels.1);
        if !labels.0.is_empty() {
            let below = (plot.x + plot.width / 2.0, plot.bottom() + X_LABELS - 14.0);
            svg.text(below, 13, Anchor::Middle, labels.0);
        }
    }

    fn line(&self, svg: &mut Svg, series: &Series, x: &Axis, y: &dyn Fn(f64) -> f64, style: Style) {
        let finite = series.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite());
        let points: Vec<(f64, f64)> = finite.map(|&(at, value)| self.at(x.place(at), y(value))).collect();
        svg.polyline(&points, style.colour(), 2);
        points.into_iter().for_each(|at| style.mark(svg, at));
    }
}

/// Text at the tick of a position.
type Ticks<'a> = dyn Fn(f64) -> String + 'a;

impl Panel {
    fn draw(&self, svg: &mut Svg, area: Area, labels: &[String]) {
        let style = |label: &str| Style(labels.iter().position(|other| other == label).unwrap_or(0));
        match self {
            Panel::Lines { title, x, y, series } => {
                let values = values_of(series).map(|point| point.1);
                let frame = frame(svg, area, title, x_scale(x, series), Scale::from_zero(most(values)));
                frame.draw(svg, (x.label(), y), (&|at| x.tick(at), &plain), TICK_LETTERS);
                for one in series {
                    frame.line(svg, one, x, &|value| value, style(&one.label));
                }
            }
            Panel::Decades { title, x, y, series } => {
                let values = values_of(series).map(|point| point.1);
                let frame = frame(svg, area, title, x_scale(x, series), Scale::decades(values));
                frame.draw(svg, (x.label(), y), (&|at| x.tick(at), &power_of_ten), TICK_LETTERS);
                for one in series {
                    frame.line(svg, one, x, &power, style(&one.label));
                }
            }
            Panel::Bars { title, y, categories, series } => {
                let values = series.iter().flat_map(|(_, values)| values.iter().flatten().copied());
                let ticks = (0..categories.len()).map(|index| index as f64 + 0.5).collect();
                let groups = Scale { range: 0.0..categories.len().max(1) as f64, ticks };
                let frame = frame(svg, area, title, groups, Scale::from_zero(most(values)));
                let name = |at: f64| categories.get(at as usize).cloned().unwrap_or_default();
                let longest = categories.iter().map(|name| name.chars().count()).max().unwrap_or(1);
                let space = frame.plot.width / categories.len().max(1) as f64;
                frame.draw(svg, ("", y), (&name, &plain), letters_that_fit(space, longest));
                bars(svg, &frame, categories.len(), series, style);
            }
        }
    }
}

/// A group holds bars only for the series that have a value in it, around its middle.
fn bars(
    svg: &mut Svg,
    frame: &Frame,
    groups: usize,
    series: &[(String, Vec<Option<f64>>)],
    style: impl Fn(&str) -> Style,
) {
    let of_group = |group: usize| -> Vec<(&str, f64)> {
        let values = series.iter().map(|(label, values)| (label, values.get(group)));
        values.filter_map(|(label, value)| Some((label.as_str(), (*value?)?))).collect()
    };
    let groups: Vec<Vec<(&str, f64)>> = (0..groups).map(of_group).collect();
    let width = 0.8 / groups.iter().map(Vec::len).max().unwrap_or(1).max(1) as f64;
    for (group, bars) in groups.iter().enumerate() {
        let start = group as f64 + 0.5 - width * bars.len() as f64 / 2.0;
        for (index, (label, value)) in bars.iter().enumerate() {
            let left = start + width * index as f64;
            let ((x, bottom), (right, y)) = (frame.at(left, 0.0), frame.at(left + 0.92 * width, *value));
            let area = Area { x, y, width: right - x, height: bottom - y };
            svg.rectangle(area, style(label).colour(), style(label).opacity());
        }
    }
}

fn values_of(series: &[Series]) -> impl Iterator<Item = (f64, f64)> {
    series.iter().flat_map(|series| series.points.iter().copied())
}

fn x_scale(x: &Axis, series: &[Series]) -> Scale {
    x.scale(values_of(series).map(|(at, _)| x.place(at)).collect())
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-3)
}

/// The area between the axes of a panel, below its headline.
fn frame(svg: &mut Svg, area: Area, title: &str, x: Scale, y: Scale) -> Frame {
    let caption = if title.is_empty() { 0.0 } else { CAPTION };
    if !title.is_empty() {
        let middle = area.x + (area.width + Y_LABELS) / 2.0;
        svg.text((middle, area.y + MARGIN + CAPTION / 2.0), 15, Anchor::Middle, title);
    }
    let plot = Area {
        x: area.x + MARGIN + Y_LABELS,
        y: area.y + MARGIN + caption,
        width: area.width - MARGIN - MARGIN_RIGHT - Y_LABELS,
        height: area.height - 2.0 * MARGIN - X_LABELS - caption,
    };
    Frame { plot, x, y }
}

/// Size of letters with which a name of so many of them fits into `space` pixels, down to what can still be read.
fn letters_that_fit(space: f64, letters: usize) -> u32 {
    // A letter is about 0.6 times as wide as it is high; one more letter separates names.
    let size = space / (0.6 * (letters as f64 + 1.0));
    (size as u32).clamp(8, TICK_LETTERS)
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
        assert_eq!(letters_that_fit(200.0, 5), TICK_LETTERS);
        assert!((8..TICK_LETTERS).contains(&letters_that_fit(36.0, 5)));
        assert_eq!(letters_that_fit(5.0, 50), 8);
    }

    #[test]
    fn a_drawing_holds_titles_labels_ticks_and_marks() {
        let svg = figure().svg().unwrap();
        for text in
            ["Speeds &amp; sizes", "10+4", "4+2", "only bars", "data in GB/s", "64KiB", "10MiB", "two"]
        {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.contains(FONT) && svg.contains("width=\"1200\" height=\"700\""));
        // A label has one legend entry, however many panels it is in.
        assert_eq!(svg.matches("10+4").count(), 1);
        // Two panels of two lines with three points each, and two marks in the legend; three bars and one in the
        // legend.
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (4, 14));
        assert_eq!(svg.matches("fill-opacity").count(), 4);
    }

    /// Every coordinate lies within the figure.
    #[test]
    fn nothing_is_drawn_outside() {
        let svg = figure().svg().unwrap();
        for (name, most) in
            [("x", WIDTH), ("cx", WIDTH), ("x2", WIDTH), ("y", HEIGHT), ("cy", HEIGHT), ("y2", HEIGHT)]
        {
            for part in svg.split(&format!(" {name}=\"")).skip(1) {
                let value: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=f64::from(most)).contains(&value), "{name} {value}");
            }
        }
    }

    /// Mean times go over thirty powers of ten; every line must be seen, and ticks must be whole powers.
    #[test]
    fn decades_are_labelled_with_powers_of_ten() {
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
    }

    #[test]
    fn a_figure_without_points_is_refused() {
        let empty = Figure { title: "x".into(), panels: Vec::new() };
        assert!(matches!(empty.svg(), Err(ChartError::Nothing)));
    }
}
