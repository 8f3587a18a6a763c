//! Mean time over a parameter that varies, as a table or a chart.

use super::codes::known;
use super::{Setting, percent, print_table};
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion::report::forecast::{LineReport, PointReport, SweepReport};
use gabion_chart::{Axis, Figure, Panel, Series, SvgFile};
use gabion_forecast::exact::{float, whole};
use gabion_forecast::{Given, Model, Promise, Rational, Scheme, forecast};

/// The parameter that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Varied {
    /// The number of disks, for 1 to 5 tolerated losses (figure 1-3 of the thesis)
    Disks,
    /// Redundancy per data, of codes and of copies (figure 1-4)
    Overhead,
    /// The time of a rebuild
    Rebuild,
    /// The size of a disk
    Capacity,
    /// The mean time between failures
    Mtbf,
    /// Read errors per bit
    ReadErrors,
}

/// Largest number of tolerated losses in the figures of the thesis.
const MOST_TOLERATED: u32 = 5;
/// Default for the largest number of disks, as in the figures.
const MOST_DISKS: u32 = 24;
/// Number of doublings of a parameter to either side.
const DOUBLINGS: i32 = 4;

/// One point of a line.
struct Point {
    at: Rational,
    scheme: Scheme,
    promise: Promise,
}

/// A line of a figure.
struct Line {
    label: String,
    points: Vec<Point>,
}

pub(super) fn run(
    varied: Varied,
    codes: &[Scheme],
    disks: Option<u32>,
    target: Option<&SvgFile>,
    setting: &Setting,
) -> anyhow::Result<Outcome> {
    let of_codes = matches!(varied, Varied::Disks | Varied::Overhead);
    anyhow::ensure!(
        !of_codes || codes.is_empty(),
        "a sweep over disks or overhead goes over all codes: leave out {}",
        codes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    );
    anyhow::ensure!(
        of_codes || disks.is_none(),
        "--disks limits a sweep over disks or overhead; it has no meaning for this one"
    );
    let lines = match varied {
        Varied::Disks => over_disks(disks.unwrap_or(MOST_DISKS), setting)?,
        Varied::Overhead => over_overhead(disks.unwrap_or(MOST_DISKS), setting)?,
        _ => over_parameter(varied, codes, setting)?,
    };
    if let Some(target) = target {
        target.write(&figure(varied, &lines))?;
    }
    match setting.json {
        true => setting.print_json(SweepReport {
            sweep: varied.name(),
            unit: varied.axis(),
            lines: lines.iter().map(|line| line.report(setting)).collect(),
        }),
        false => {
            setting.introduce();
            outln!("Mean years to data corruption over {}:", varied.axis());
            print(varied, &lines, setting);
        }
    }
    Ok(Outcome::Fine)
}

fn over_disks(most: u32, setting: &Setting) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for tolerated in 1..=MOST_TOLERATED {
        for model in Model::ALL {
            let points = (tolerated + 1..=most).map(|disks| {
                let scheme = Scheme::tolerating(disks, tolerated)?;
                Ok(Point {
                    at: whole(u64::from(disks)),
                    scheme,
                    promise: setting.forecast(scheme, model)?.promise,
                })
            });
            let label = format!("δ = {tolerated}, {}", model.name());
            lines.push(Line { label, points: points.collect::<anyhow::Result<_>>()? });
        }
    }
    lines.retain(|line| !line.points.is_empty());
    anyhow::ensure!(!lines.is_empty(), "a sweep over disks begins with 2 of them");
    Ok(lines)
}

fn over_overhead(most: u32, setting: &Setting) -> anyhow::Result<Vec<Line>> {
    let point = |scheme: Scheme| -> anyhow::Result<Point> {
        let promise = setting.forecast(scheme, Model::Checked)?.promise;
        Ok(Point { at: scheme.overhead() * whole(100), scheme, promise })
    };
    let mut lines = Vec::new();
    for tolerated in 1..=MOST_TOLERATED {
        // One data block would be replication, which has a line of its own.
        let schemes = (tolerated + 2..=most).rev().map(|disks| point(Scheme::tolerating(disks, tolerated)?));
        let points = schemes.collect::<anyhow::Result<Vec<_>>>()?;
        lines.push(Line { label: format!("code, δ = {tolerated}"), points });
    }
    let copies = (1..=MOST_TOLERATED).filter(|more| *more < most).map(|more| point(Scheme::new(1, more)?));
    lines.push(Line { label: "copies, 2x to 6x".to_owned(), points: copies.collect::<anyhow::Result<_>>()? });
    lines.retain(|line| !line.points.is_empty());
    anyhow::ensure!(!lines.is_empty(), "a sweep over overhead begins with 2 disks");
    Ok(lines)
}

fn over_parameter(varied: Varied, codes: &[Scheme], setting: &Setting) -> anyhow::Result<Vec<Line>> {
    let codes = if codes.is_empty() { known()? } else { codes.to_vec() };
    let mut lines = Vec::new();
    for scheme in codes {
        let mut points = Vec::new();
        for doubling in -DOUBLINGS..=DOUBLINGS {
            let mut given: Given = setting.parameters.given().clone();
            let value = varied.parameter(&mut given);
            *value *= whole(2).pow(doubling);
            let at = value.clone() / varied.unit();
            let promise = forecast(scheme, Model::Checked, &given.checked()?, setting.reading)?.promise;
            points.push(Point { at, scheme, promise });
        }
        lines.push(Line { label: scheme.to_string(), points });
    }
    Ok(lines)
}

impl Varied {
    fn name(self) -> &'static str {
        match self {
            Varied::Disks => "disks",
            Varied::Overhead => "overhead",
            Varied::Rebuild => "rebuild",
            Varied::Capacity => "capacity",
            Varied::Mtbf => "mtbf",
            Varied::ReadErrors => "read-errors",
        }
    }

    /// Label of the axis, with the unit.
    fn axis(self) -> &'static str {
        match self {
            Varied::Disks => "disks of a stripe, d",
            Varied::Overhead => "redundancy per data, %",
            Varied::Rebuild => "time of a rebuild, h",
            Varied::Capacity => "capacity of a disk, TB",
            Varied::Mtbf => "mean time between failures, h",
            Varied::ReadErrors => "read errors per bit",
        }
    }

    /// The parameter that varies; for disks and overhead, which are none, the time between failures.
    fn parameter(self, given: &mut Given) -> &mut Rational {
        match self {
            Varied::Rebuild => &mut given.rebuild_hours,
            Varied::Capacity => &mut given.capacity,
            Varied::ReadErrors => &mut given.read_errors,
            Varied::Mtbf | Varied::Disks | Varied::Overhead => &mut given.failure_hours,
        }
    }

    fn unit(self) -> Rational {
        if self == Varied::Capacity { whole(1_000_000_000_000) } else { whole(1) }
    }
}

fn figure(varied: Varied, lines: &[Line]) -> Figure {
    let axis = match varied {
        Varied::Disks => Axis::Numbers(varied.axis().to_owned()),
        _ => Axis::Decades(varied.axis().to_owned()),
    };
    let series = lines.iter().map(|line| Series {
        label: line.label.clone(),
        points: line
            .points
            .iter()
            .map(|point| (float(&point.at), float(&point.promise.mean_years())))
            .collect(),
    });
    let title = match varied {
        Varied::Disks => {
            "Mean time to data corruption of codes that tolerate δ losses, with and without checks in rebuilds"
        }
        Varied::Overhead => {
            "Mean time to data corruption over redundancy: codes and copies, rebuilds checked"
        }
        _ => "Mean time to data corruption, rebuilds checked",
    };
    let panel = Panel::Decades {
        title: String::new(),
        x: axis,
        y: "mean time to data corruption, years".to_owned(),
        series: series.collect(),
    };
    Figure { title: title.to_owned(), panels: vec![panel] }
}

impl Line {
    fn report(&self, setting: &Setting) -> LineReport {
        let point = |point: &Point| PointReport {
            at: float(&point.at),
            code: point.scheme.to_string(),
            promise: setting.promise_report(&point.promise),
        };
        LineReport { line: self.label.clone(), points: self.points.iter().map(point).collect() }
    }
}

fn print(varied: Varied, lines: &[Line], setting: &Setting) {
    let mut rows = Vec::new();
    if varied == Varied::Overhead {
        // Points of different lines have different positions.
        rows.push(["line", "code", "overhead", "mean years"].map(str::to_owned).to_vec());
        for (line, point) in lines.iter().flat_map(|line| line.points.iter().map(move |point| (line, point)))
        {
            let years = setting.number(&point.promise.mean_years());
            rows.push(vec![
                line.label.clone(),
                point.scheme.to_string(),
                percent(&point.scheme.overhead()),
                years,
            ]);
        }
        return print_table(&rows);
    }
    rows.push(std::iter::once(String::new()).chain(lines.iter().map(|line| line.label.clone())).collect());
    let mut places: Vec<&Rational> =
        lines.iter().flat_map(|line| &line.points).map(|point| &point.at).collect();
    places.sort();
    places.dedup();
    for at in places {
        let cell = |line: &Line| {
            let point = line.points.iter().find(|point| point.at == *at);
            point.map_or_else(|| "-".to_owned(), |point| setting.number(&point.promise.mean_years()))
        };
        let place = if at.is_integer() { at.to_string() } else { setting.number(at) };
        rows.push(std::iter::once(place).chain(lines.iter().map(cell)).collect());
    }
    print_table(&rows);
}
