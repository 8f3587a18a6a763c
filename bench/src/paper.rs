//! Experiments of papers, run with this engine on this machine.
//!
//! An [`Experiment`] measures [`Point`]s, verified before the timing, and names the series that it leaves out. Tables,
//! charts and the comparison with printed results are derived from points alone, at once or later from a record.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod page;
mod race;
mod tables;

pub use page::{Found, Machine, comparisons, figure, page, read_record};

use crate::engine::BenchError;
use crate::plot::Axis;
use gabion::size::Size;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One experiment of a paper.
pub struct Experiment {
    /// Number of the paper and a word: `001-regions`.
    pub name: &'static str,
    /// Paper and figure.
    pub source: &'static str,
    /// Headline of the figure.
    pub title: &'static str,
    /// Machines of the paper.
    pub their_machine: &'static str,
    /// Form of the figure.
    pub form: Form,
    /// Numbers that the paper prints.
    pub comparisons: &'static [Comparison],
    run: fn(&mut Run<'_>) -> Result<(), PaperError>,
}

/// Form of a figure.
#[derive(Clone, Copy)]
pub enum Form {
    /// Lines over numbers.
    Numbers {
        /// Label of the axis to the right.
        x: &'static str,
        /// Label of the axis upwards.
        y: &'static str,
    },
    /// Lines over numbers of bytes.
    Bytes {
        /// Label of the axis to the right.
        x: &'static str,
        /// Label of the axis upwards.
        y: &'static str,
    },
    /// Groups of bars, named by the points.
    Bars {
        /// Label of the axis upwards.
        y: &'static str,
    },
}

/// A number that a paper prints, and our number for the same quantity.
pub struct Comparison {
    /// The compared quantity.
    pub what: &'static str,
    /// Unit of both.
    pub unit: &'static str,
    /// Value of the paper.
    pub theirs: f64,
    /// Our value, if the points contain it.
    pub ours: fn(&[Point]) -> Option<f64>,
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The experiment.
    pub experiment: String,
    /// The panel of its figure; may be empty.
    pub panel: String,
    /// The line or kind of bar.
    pub series: String,
    /// Position on the horizontal axis.
    pub x: Place,
    /// The value.
    pub value: f64,
}

/// Position on the horizontal axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A number.
    Number(f64),
    /// The name of a group of bars.
    Name(String),
}

/// Reason why an experiment ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// A case cannot be measured, or its output is wrong.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// Error of a device.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Gpu(#[from] gabion_gpu::GpuError),
    /// The receiver of the points fails.
    #[error("cannot write a result: {0}")]
    Report(#[from] std::io::Error),
    /// Unknown experiment.
    #[error("no experiment '{name}'; there are: {known}")]
    Unknown {
        /// The name given.
        name: String,
        /// The known names.
        known: String,
    },
    /// A record that cannot be read.
    #[error("{path}: {reason}")]
    Record {
        /// The file, with the line.
        path: String,
        /// The fault.
        reason: String,
    },
}

/// Event of a running experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// A value.
    Point(Point),
    /// A series that is left out, with the reason.
    LeftOut {
        /// The experiment.
        experiment: String,
        /// Series and reason.
        reason: String,
    },
}

/// A running experiment.
pub struct Run<'a> {
    name: &'static str,
    quick: bool,
    /// Text that names of devices must contain, in lower case.
    devices: &'a str,
    report: &'a mut dyn FnMut(Event) -> std::io::Result<()>,
}

impl Run<'_> {
    fn point(&mut self, panel: &str, series: &str, x: Place, value: f64) -> Result<(), PaperError> {
        let (experiment, panel, series) = (self.name.to_owned(), panel.to_owned(), series.to_owned());
        Ok((self.report)(Event::Point(Point { experiment, panel, series, x, value }))?)
    }

    fn leave_out(&mut self, reason: String) -> Result<(), PaperError> {
        Ok((self.report)(Event::LeftOut { experiment: self.name.to_owned(), reason })?)
    }

    /// Time for one race.
    fn time(&self) -> Duration {
        Duration::from_millis(if self.quick { 60 } else { 600 })
    }

    /// All of `values`; with `quick`, every fourth and the last.
    fn some<T: Copy>(&self, values: impl IntoIterator<Item = T>) -> Vec<T> {
        let all: Vec<T> = values.into_iter().collect();
        let kept = |index: usize| !self.quick || index.is_multiple_of(4) || index + 1 == all.len();
        (0..all.len()).filter(|&index| kept(index)).map(|index| all[index]).collect()
    }
}

impl Experiment {
    /// Every experiment of this build.
    pub fn all() -> impl Iterator<Item = &'static Experiment> {
        #[cfg(feature = "gpu")]
        let on_devices = gpu::EXPERIMENTS;
        #[cfg(not(feature = "gpu"))]
        let on_devices: &[Experiment] = &[];
        cpu::EXPERIMENTS.iter().chain(on_devices)
    }

    /// Experiments whose names begin with one of `names`; all without names.
    ///
    /// # Errors
    /// [`PaperError::Unknown`].
    pub fn named(names: &[String]) -> Result<Vec<&'static Experiment>, PaperError> {
        if let Some(name) = names.iter().find(|name| !Experiment::all().any(|it| it.is_called(name))) {
            let known: Vec<&str> = Experiment::all().map(|it| it.name).collect();
            return Err(PaperError::Unknown { name: name.clone(), known: known.join(", ") });
        }
        let wanted = |it: &&Experiment| names.is_empty() || names.iter().any(|name| it.is_called(name));
        Ok(Experiment::all().filter(wanted).collect())
    }

    fn is_called(&self, name: &str) -> bool {
        // PErasure's experiments are those of G-CRS.
        let name = if name == "004" { "000" } else { name };
        self.name == name || self.name.split_once('-').is_some_and(|(paper, _)| paper == name)
    }

    /// Measures, on devices whose name contains `devices`. With `quick`, fewer points and less time for each.
    ///
    /// # Errors
    /// A wrong output, missing memory, or an error of `report`.
    pub fn run(
        &self,
        quick: bool,
        devices: &str,
        report: &mut dyn FnMut(Event) -> std::io::Result<()>,
    ) -> Result<(), PaperError> {
        (self.run)(&mut Run { name: self.name, quick, devices: &devices.to_lowercase(), report })
    }
}

impl Form {
    /// The horizontal axis, if it has numbers.
    fn axis(self) -> Option<Axis> {
        match self {
            Form::Numbers { x, .. } => Some(Axis::Numbers(x.to_owned())),
            Form::Bytes { x, .. } => Some(Axis::Bytes(x.to_owned())),
            Form::Bars { .. } => None,
        }
    }

    /// Label of the vertical axis.
    pub fn y(self) -> &'static str {
        match self {
            Form::Numbers { y, .. } | Form::Bytes { y, .. } | Form::Bars { y } => y,
        }
    }

    /// A position as text.
    pub fn place(self, x: &Place) -> String {
        match (self, x) {
            (_, Place::Name(name)) => name.clone(),
            (Form::Bytes { .. }, &Place::Number(bytes)) => Size(bytes as usize).to_string(),
            (_, Place::Number(number)) => format!("{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unknown_ones_refused() {
        let all = Experiment::all().count();
        assert_eq!(Experiment::named(&[]).unwrap().len(), all);
        let thesis = Experiment::named(&["002".into()]).unwrap();
        assert!(thesis.len() > 3 && thesis.iter().all(|it| it.name.starts_with("002-")));
        assert_eq!(Experiment::named(&["001-regions".into()]).unwrap()[0].name, "001-regions");
        assert!(matches!(Experiment::named(&["00".into()]), Err(PaperError::Unknown { .. })));
    }

    #[test]
    fn what_is_said_reads_back() {
        for said in [
            Event::LeftOut { experiment: "001-regions".into(), reason: "no AVX2".into() },
            Event::Point(Point {
                experiment: "002-raidz".into(),
                panel: String::new(),
                series: "avx2".into(),
                x: Place::Name("gen pq".into()),
                value: 4.5,
            }),
        ] {
            let text = serde_json::to_string(&said).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), said, "{text}");
        }
    }

    /// Points of an experiment carry its name; without points its figure would be empty.
    #[test]
    fn every_experiment_has_its_own_name_and_figure() {
        let names: std::collections::BTreeSet<&str> = Experiment::all().map(|it| it.name).collect();
        assert_eq!(names.len(), Experiment::all().count());
        for it in Experiment::all() {
            assert!(it.name.len() > 4 && it.name.as_bytes()[3] == b'-', "{}", it.name);
            assert!(!it.title.is_empty() && !it.source.is_empty() && !it.their_machine.is_empty());
        }
    }
}
