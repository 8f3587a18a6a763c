//! Points as tables, charts and a page of Markdown.

use super::{Event, Experiment, Form, PaperError, Place, Point};
use crate::plot::{Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;

/// Machine of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Always `machine`.
    pub bench: String,
    /// The date.
    pub date: String,
    /// The CPU.
    pub cpu: Option<String>,
    /// Hardware threads.
    pub cores: usize,
    /// The kernel that served.
    pub kernel: String,
}

/// Results of an experiment on one machine.
pub struct Found {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// The machine.
    pub machine: Machine,
    /// Its points.
    pub points: Vec<Point>,
    /// Series that were left out, with reasons.
    pub left_out: Vec<String>,
}

/// Reads a record: a line about the machine, then events; returns the results by experiment.
///
/// # Errors
/// [`PaperError::Record`] with the line.
pub fn read_record(path: &Path) -> Result<Vec<Found>, PaperError> {
    let failed = |place: String, reason: String| PaperError::Record { path: place, reason };
    let text = std::fs::read_to_string(path)
        .map_err(|error| failed(path.display().to_string(), error.to_string()))?;
    let mut lines = text.lines().enumerate();
    let at = |index: usize| format!("{}:{}", path.display(), index + 1);
    let (_, first) = lines.next().ok_or_else(|| failed(at(0), "the record is empty".into()))?;
    let machine: Machine = serde_json::from_str(first).map_err(|error| failed(at(0), error.to_string()))?;
    let mut all: Vec<Found> = Vec::new();
    for (index, line) in lines {
        let said: Event = serde_json::from_str(line).map_err(|error| failed(at(index), error.to_string()))?;
        let name = match &said {
            Event::Point(point) => &point.experiment,
            Event::LeftOut { experiment, .. } => experiment,
        };
        let experiment = Experiment::all().find(|it| it.name == name);
        let experiment = experiment.ok_or_else(|| failed(at(index), format!("no experiment '{name}'")))?;
        let known = all.iter_mut().position(|found| std::ptr::eq(found.experiment, experiment));
        let known = known.unwrap_or_else(|| {
            let machine = machine.clone();
            all.push(Found { experiment, machine, points: Vec::new(), left_out: Vec::new() });
            all.len() - 1
        });
        match said {
            Event::Point(point) => all[known].points.push(point),
            Event::LeftOut { reason, .. } => all[known].left_out.push(reason),
        }
    }
    Ok(all)
}

/// Distinct values in the order of their first appearance.
fn distinct<'a, T: PartialEq>(values: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut all: Vec<&T> = Vec::new();
    values.for_each(|value| {
        if !all.contains(&value) {
            all.push(value);
        }
    });
    all
}

/// The chart of an experiment's points.
pub fn figure(experiment: &Experiment, points: &[Point]) -> Figure {
    let panel = |title: &String| {
        let of_panel: Vec<&Point> = points.iter().filter(|point| point.panel == *title).collect();
        let labels = distinct(of_panel.iter().map(|point| &point.series));
        let of = |label: &String| -> Vec<&Point> {
            of_panel.iter().filter(|point| point.series == *label).copied().collect()
        };
        let (title, y) = (title.clone(), experiment.form.y().to_owned());
        match experiment.form.axis() {
            Some(x) => {
                let series = labels.iter().map(|label| {
                    let place = |point: &Point| match point.x {
                        Place::Number(x) => Some((x, point.value)),
                        Place::Name(_) => None,
                    };
                    Series {
                        label: (*label).clone(),
                        points: of(label).into_iter().filter_map(place).collect(),
                    }
                });
                Panel::Lines { title, x, y, series: series.collect() }
            }
            None => {
                let groups = distinct(of_panel.iter().map(|point| &point.x));
                let values = |label: &String| {
                    let value = |group: &&Place| {
                        of(label).into_iter().find(|point| point.x == **group).map(|point| point.value)
                    };
                    groups.iter().map(value).collect()
                };
                let series = labels.iter().map(|label| ((*label).clone(), values(label))).collect();
                let categories = groups.iter().map(|group| experiment.form.place(group)).collect();
                Panel::Bars { title, y, categories, series }
            }
        }
    };
    let panels = distinct(points.iter().map(|point| &point.panel)).into_iter().map(panel).collect();
    Figure { title: experiment.title.to_owned(), panels }
}

/// Numbers of a paper beside ours: quantity, theirs, ours, unit.
pub fn comparisons(
    experiment: &'static Experiment,
    points: &[Point],
) -> Vec<(&'static str, f64, Option<f64>, &'static str)> {
    let compared = |it: &super::Comparison| (it.what, it.theirs, (it.ours)(points), it.unit);
    experiment.comparisons.iter().map(compared).collect()
}

/// A page with all results; `picture` gives the address of each chart.
pub fn page(all: &[Found], picture: impl Fn(&Found) -> String) -> String {
    let mut text = String::from(
        "# The papers' experiments, run again\n\n\
         Written by `gabion-bench paper --page`; every figure of ours is measured by `gabion-bench paper`, outputs verified first. What \
         a paper prints in numbers stands beside ours; the machines differ by a decade, so the comparison is of then and now, not of \
         programs.\n\n\
         Experiments on several hosts are measured by `gabion-bench hosts`: PErasure's table II (coding, network and disks side by \
         side) and figure 7-6 of the thesis (throughput of the changelog). What of them is recorded is in \
         [speed.md](../reference/speed.md).\n",
    );
    for found in all {
        let Found { experiment, machine, points, left_out } = found;
        let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "\n## {}: {}\n\nAfter {}. Theirs: {}. Ours: {cpu}, {} hardware threads, kernel {}, {}.\n",
            experiment.name,
            experiment.title,
            experiment.source,
            experiment.their_machine,
            machine.cores,
            machine.kernel,
            machine.date
        );
        let compared = comparisons(experiment, points);
        if !compared.is_empty() {
            text += "\n| | theirs | ours | |\n| --- | ---: | ---: | --- |\n";
            for (what, theirs, ours, unit) in compared {
                let ours = ours.map_or("not measured".to_owned(), number);
                let _ = writeln!(text, "| {what} | {} | {ours} | {unit} |", number(theirs));
            }
        }
        let _ = write!(text, "\n![{}]({})\n", experiment.title, picture(found));
        for panel in distinct(points.iter().map(|point| &point.panel)) {
            let of_panel: Vec<&Point> = points.iter().filter(|point| point.panel == *panel).collect();
            text += &table(experiment.form, panel, &of_panel);
        }
        for reason in left_out {
            let _ = write!(text, "\nLeft out: {reason}.\n");
        }
    }
    text
}

/// A table with a row per position and a column per series.
fn table(form: Form, panel: &str, points: &[&Point]) -> String {
    let series = distinct(points.iter().map(|point| &point.series));
    let places = distinct(points.iter().map(|point| &point.x));
    let names: Vec<&str> = series.iter().map(|name| name.as_str()).collect();
    let mut text =
        format!("\n| {panel} | {} |\n| --- |{}\n", names.join(" | "), " ---: |".repeat(series.len()));
    for place in places {
        let value = |name: &&String| {
            let found = points.iter().find(|point| point.series == **name && point.x == *place);
            found.map_or(String::new(), |point| number(point.value))
        };
        let values: Vec<String> = series.iter().map(value).collect();
        let _ = writeln!(text, "| {} | {} |", form.place(place), values.join(" | "));
    }
    text
}

/// Three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(experiment: &str, panel: &str, series: &str, x: Place, value: f64) -> Point {
        let [experiment, panel, series] = [experiment, panel, series].map(str::to_owned);
        Point { experiment, panel, series, x, value }
    }

    fn machine() -> Machine {
        let bench = "machine".into();
        Machine {
            bench,
            date: "2026-01-02".into(),
            cpu: Some("a CPU".into()),
            cores: 2,
            kernel: "avx2".into(),
        }
    }

    #[test]
    fn a_record_becomes_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.jsonl");
        let x = |bytes: f64| Place::Number(bytes);
        let said = [
            Event::Point(point("001-regions", "w = 4", "table", x(1024.0), 1.5)),
            Event::Point(point("001-regions", "w = 4", "256-bit", x(1024.0), 123.4)),
            Event::LeftOut {
                experiment: "001-regions".into(),
                reason: "512-bit: this CPU lacks AVX-512".into(),
            },
            Event::Point(point("001-speedups", "", "table", Place::Name("all threads".into()), 1.98)),
        ];
        let mut text = serde_json::to_string(&machine()).unwrap();
        said.iter().for_each(|said| text += &format!("\n{}", serde_json::to_string(said).unwrap()));
        std::fs::write(&path, text).unwrap();
        let found = read_record(&path).unwrap();
        assert_eq!(
            found.iter().map(|it| it.experiment.name).collect::<Vec<_>>(),
            ["001-regions", "001-speedups"]
        );
        let page = page(&found, |found| format!("figures/{}.svg", found.experiment.name));
        for part in [
            "| w = 4 | table | 256-bit |",
            "| 1KiB | 1.50 | 123 |",
            "Left out: 512-bit: this CPU lacks AVX-512.",
            "| table, all threads (theirs: 8 on the CPU) | 5.50 | 1.98 | × |",
            "| 512-bit SIMD, one thread | 7.20 | not measured | × |",
            "(figures/001-regions.svg)",
            "a CPU, 2 hardware threads, kernel avx2, 2026-01-02",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        let drawn = figure(found[0].experiment, &found[0].points);
        assert!(matches!(&drawn.panels[..], [Panel::Lines { series, .. }] if series.len() == 2));
    }

    #[test]
    fn a_record_that_is_none_is_refused_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.jsonl");
        let machine = serde_json::to_string(&machine()).unwrap();
        let nobody =
            serde_json::to_string(&Event::LeftOut { experiment: "9-x".into(), reason: "?".into() }).unwrap();
        for (text, place) in [
            (String::new(), ":1: "),
            ("{}".into(), ":1: "),
            (format!("{machine}\nnonsense"), ":2: "),
            (format!("{machine}\n{nobody}"), ":2: no experiment '9-x'"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read_record(&path).err().unwrap().to_string();
            assert!(error.contains(place), "{error}");
        }
        assert!(read_record(&dir.path().join("none")).is_err());
    }
}
