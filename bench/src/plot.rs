//! Files with charts, as SVG or PNG.

mod picture;

pub use gabion_chart::{Axis, Figure, Panel, Series};

use gabion_chart::{ChartError, write_whole};
use std::io;
use std::path::{Path, PathBuf};

/// Reason why no chart was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The ending of the name is neither of the formats.
    #[error("'{0}' is no picture that can be written: the name must end in .svg or .png")]
    UnknownFormat(PathBuf),
    /// No font for the letters of a PNG file.
    #[error("no font for the labels of a .png picture: install fonts-dejavu-core, or write .svg")]
    NoFont,
    /// The figure cannot be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// The file cannot be written.
    #[error("cannot write '{path}'")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The renderer cannot read the SVG text.
    #[error("cannot read the drawing back")]
    Svg(#[from] resvg::usvg::Error),
    /// The pixels cannot be compressed.
    #[error("cannot make a PNG file")]
    Png(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

/// A file to draw into. Its format and the fonts are checked before anything is measured.
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
        write_whole(&self.path, &bytes).map_err(failed)
    }
}
