//! Line and bar charts as SVG or PNG files.

mod draw;
mod picture;

use plotters::drawing::DrawingAreaErrorKind;
use std::io;
use std::path::{Path, PathBuf};

/// Width of every picture in pixels.
pub const WIDTH: u32 = 1200;
/// Height of every picture in pixels.
pub const HEIGHT: u32 = 700;

/// Named, since a renderer without fontconfig does not know what "sans-serif" is.
const FONT: &str = "DejaVu Sans";

/// One picture: panels beside each other and one legend for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Over everything.
    pub title: String,
    /// What to draw; equal labels of series have one colour in all panels.
    pub panels: Vec<Panel>,
}

/// One chart. Except for decades values start at 0, so that heights can be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Panel {
    /// Lines with marks at their points.
    Lines {
        /// Over the panel.
        title: String,
        /// The axis to the right.
        x: Axis,
        /// Label, with the unit, of the axis upwards.
        y: String,
        /// The lines.
        series: Vec<Series>,
    },
    /// Lines whose values, above 0, go over many powers of ten: each power is one step upwards.
    Decades {
        /// Over the panel.
        title: String,
        /// The axis to the right.
        x: Axis,
        /// Label, with the unit, of the axis upwards.
        y: String,
        /// The lines.
        series: Vec<Series>,
    },
    /// Groups of bars.
    Bars {
        /// Over the panel.
        title: String,
        /// Label, with the unit, of the axis upwards.
        y: String,
        /// Names of the groups.
        categories: Vec<String>,
        /// Label and one value per group, where there is one.
        series: Vec<(String, Vec<Option<f64>>)>,
    },
}

/// An axis to the right, with its label.
#[derive(Debug, Clone, PartialEq)]
pub enum Axis {
    /// Even steps.
    Numbers(String),
    /// Numbers of bytes, each doubling one step; ticks where there are points.
    Bytes(String),
    /// Numbers above 0, each power of ten one step.
    Decades(String),
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// An ending that says nothing known.
    #[error("'{0}' is no picture that can be written: the name must end in .svg or .png")]
    UnknownFormat(PathBuf),
    /// Letters could not be drawn into a PNG file.
    #[error("no font for the labels of a .png picture: install fonts-dejavu-core, or write .svg")]
    NoFont,
    /// Nothing was measured that could be drawn.
    #[error("there is nothing to draw")]
    Nothing,
    /// The file cannot be written.
    #[error("cannot write '{path}'")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The drawing itself failed.
    #[error("cannot draw")]
    Draw(#[from] DrawingAreaErrorKind<io::Error>),
    /// The drawing cannot be read back to be painted.
    #[error("cannot read the drawing back")]
    Svg(#[from] resvg::usvg::Error),
    /// The picture cannot be compressed.
    #[error("cannot make a PNG file")]
    Png(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// A file to draw into, known to be possible before anything long is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    path: PathBuf,
    format: Format,
}

impl Target {
    /// A file named `.svg` or `.png`.
    ///
    /// # Errors
    /// [`PlotError::UnknownFormat`], [`PlotError::NoFont`].
    pub fn new(path: &Path) -> Result<Target, PlotError> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let format = match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => return Err(PlotError::UnknownFormat(path.to_owned())),
        };
        if format == Format::Png {
            picture::fonts()?;
        }
        Ok(Target { path: path.to_owned(), format })
    }

    /// Draws `figure`; the file appears whole or not at all.
    ///
    /// # Errors
    /// A figure without points, a file that cannot be written.
    pub fn write(&self, figure: &Figure) -> Result<(), PlotError> {
        let svg = figure.svg()?;
        let bytes = match self.format {
            Format::Svg => svg.into_bytes(),
            Format::Png => picture::png(&svg, picture::fonts()?)?,
        };
        let failed = |source| PlotError::Write { path: self.path.clone(), source };
        picture::write_whole(&self.path, &bytes).map_err(failed)
    }
}
