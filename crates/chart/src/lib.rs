//! Line and bar charts as SVG text.
//!
//! A [`Figure`] is data: panels with axes and series. [`Figure::svg`] lays it out and writes the text; letters are left
//! to the program that shows the file, so that no font is read here.

#![forbid(unsafe_code)]

mod draw;
mod file;
mod scale;
mod svg;

pub use file::{SvgFile, write_whole};

use std::io;
use std::path::PathBuf;

/// Width of every figure in pixels.
pub const WIDTH: u32 = 1200;
/// Height of every figure in pixels.
pub const HEIGHT: u32 = 700;

/// First choice for letters; a renderer without fontconfig does not know "sans-serif".
pub const FONT: &str = "DejaVu Sans";

/// One figure: panels beside each other and one legend for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Headline of the figure.
    pub title: String,
    /// The charts. Series with equal labels have one colour in all panels.
    pub panels: Vec<Panel>,
}

/// One chart. Except for decades values start at 0, so that heights can be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Panel {
    /// Lines with marks at their points.
    Lines {
        /// Headline of the panel.
        title: String,
        /// The horizontal axis.
        x: Axis,
        /// Label of the vertical axis, with the unit.
        y: String,
        /// The lines.
        series: Vec<Series>,
    },
    /// Lines over a logarithmic vertical axis; values must be above 0.
    Decades {
        /// Headline of the panel.
        title: String,
        /// The horizontal axis.
        x: Axis,
        /// Label of the vertical axis, with the unit.
        y: String,
        /// The lines.
        series: Vec<Series>,
    },
    /// Groups of bars.
    Bars {
        /// Headline of the panel.
        title: String,
        /// Label of the vertical axis, with the unit.
        y: String,
        /// Names of the groups.
        categories: Vec<String>,
        /// Label and one value per group, where there is one.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
}

/// A horizontal axis with its label.
#[derive(Debug, Clone, PartialEq)]
pub enum Axis {
    /// Linear.
    Numbers(String),
    /// Logarithmic to base 2, for numbers of bytes; ticks where there are points.
    Bytes(String),
    /// Logarithmic to base 10, for numbers above 0.
    Decades(String),
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Reason why a chart was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChartError {
    /// The name of the file does not end in `.svg`.
    #[error("cannot draw '{0}': charts are written as SVG, so the name must end in .svg")]
    NotSvg(PathBuf),
    /// The figure has no point.
    #[error("there is nothing to draw")]
    Nothing,
    /// The file cannot be written.
    #[error("cannot write '{path}'")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}
