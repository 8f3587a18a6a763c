//! The experiments of the papers again, with this engine on this machine.
//!
//! An [`Experiment`] measures [`Point`]s, verified before they are timed, and says which series it had to leave out. Points are all
//! there is: tables, pictures and the comparison with what a paper prints are made of them, at once or later from a record.

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
    /// Which paper, and which of its figures.
    pub source: &'static str,
    /// What is shown.
    pub title: &'static str,
    /// Their machines.
    pub their_machine: &'static str,
    /// How its points are drawn.
    pub form: Form,
    /// What the paper says in numbers.
    pub comparisons: &'static [Comparison],
    run: fn(&mut Run<'_>) -> Result<(), PaperError>,
}

/// How points are drawn.
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

/// A number that a paper prints, and ours of the same meaning.
pub struct Comparison {
    /// What is compared.
    pub what: &'static str,
    /// Unit of both.
    pub unit: &'static str,
    /// Theirs.
    pub theirs: f64,
    /// Ours, where the points give it.
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
    /// The place on the axis to the right.
    pub x: Place,
    /// The value.
    pub value: f64,
}

/// A place on the axis to the right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A number.
    Number(f64),
    /// The name of a group of bars.
    Name(String),
}

/// Why an experiment ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// Something cannot be measured, or is wrong.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// What the engine says.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// What a device says.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Gpu(#[from] gabion_gpu::GpuError),
    /// Whoever takes the points cannot go on.
    #[error("cannot write a result: {0}")]
    Report(#[from] std::io::Error),
    /// A name that no experiment has.
    #[error("no experiment '{name}'; there are: {known}")]
    Unknown {
        /// The name given.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A record that cannot be read.
    #[error("{path}: {reason}")]
    Record {
        /// The file, with the line.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Something that an experiment says while it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Said {
    /// A value.
    Point(Point),
    /// A series that is not there, and why.
    LeftOut {
        /// The experiment.
        experiment: String,
        /// What, and why.
        reason: String,
    },
}

/// An experiment under way.
pub struct Run<'a> {
    name: &'static str,
    quick: bool,
    /// What the names of devices have to contain, in small letters.
    devices: &'a str,
    report: &'a mut dyn FnMut(Said) -> std::io::Result<()>,
}

impl Run<'_> {
    fn point(&mut self, panel: &str, series: &str, x: Place, value: f64) -> Result<(), PaperError> {
        let (experiment, panel, series) = (self.name.to_owned(), panel.to_owned(), series.to_owned());
        Ok((self.report)(Said::Point(Point { experiment, panel, series, x, value }))?)
    }

    fn leave_out(&mut self, reason: String) -> Result<(), PaperError> {
        Ok((self.report)(Said::LeftOut { experiment: self.name.to_owned(), reason })?)
    }

    /// Time for one race.
    fn time(&self) -> Duration {
        Duration::from_millis(if self.quick { 60 } else { 600 })
    }

    /// All of `values`, or every fourth and the last in a hurry.
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

    /// Those whose names begin with one of `names`; all if there is none.
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

    /// Measures, of GPUs and the like those whose name contains `devices`. With `quick`, fewer points and less time for each.
    ///
    /// # Errors
    /// An output that is wrong, memory that is not there, a report that cannot be written.
    pub fn run(
        &self,
        quick: bool,
        devices: &str,
        report: &mut dyn FnMut(Said) -> std::io::Result<()>,
    ) -> Result<(), PaperError> {
        (self.run)(&mut Run { name: self.name, quick, devices: &devices.to_lowercase(), report })
    }
}

impl Form {
    /// The axis to the right, where it has numbers.
    fn axis(self) -> Option<Axis> {
        match self {
            Form::Numbers { x, .. } => Some(Axis::Numbers(x.to_owned())),
            Form::Bytes { x, .. } => Some(Axis::Bytes(x.to_owned())),
            Form::Bars { .. } => None,
        }
    }

    /// What the values are.
    pub fn y(self) -> &'static str {
        match self {
            Form::Numbers { y, .. } | Form::Bytes { y, .. } | Form::Bars { y } => y,
        }
    }

    /// A place for people.
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
            Said::LeftOut { experiment: "001-regions".into(), reason: "no AVX2".into() },
            Said::Point(Point {
                experiment: "002-raidz".into(),
                panel: String::new(),
                series: "avx2".into(),
                x: Place::Name("gen pq".into()),
                value: 4.5,
            }),
        ] {
            let text = serde_json::to_string(&said).unwrap();
            assert_eq!(serde_json::from_str::<Said>(&text).unwrap(), said, "{text}");
        }
    }

    /// An experiment that says nothing, or something about another one, would leave its figure empty.
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
