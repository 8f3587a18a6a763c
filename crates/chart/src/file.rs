//! Files with charts: written whole or not at all.

use crate::{ChartError, Figure};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file to draw into. Its name is checked before anything long is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SvgFile {
    path: PathBuf,
}

impl SvgFile {
    /// A file whose name ends in `.svg`.
    ///
    /// # Errors
    /// [`ChartError::NotSvg`].
    pub fn new(path: &Path) -> Result<SvgFile, ChartError> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension.is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
            true => Ok(SvgFile { path: path.to_owned() }),
            false => Err(ChartError::NotSvg(path.to_owned())),
        }
    }

    /// Draws `figure`; the file appears whole or not at all.
    ///
    /// # Errors
    /// A figure without points, a file that cannot be written.
    pub fn write(&self, figure: &Figure) -> Result<(), ChartError> {
        let failed = |source| ChartError::Write { path: self.path.clone(), source };
        write_whole(&self.path, figure.svg()?.as_bytes()).map_err(failed)
    }
}

/// Writes a temporary file beside the target and renames it, so that no reader sees half a chart.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".gabion-plot-")
        // Permissions of ordinary output, less the umask; the default of temporary files is for secrets.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SvgFile, write_whole};
    use std::path::Path;

    #[test]
    fn a_file_is_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.svg");
        for text in ["a longer text", "short"] {
            write_whole(&path, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write_whole(&directory.path().join("none/x.svg"), b"").is_err());
    }

    #[test]
    fn only_names_of_svg_files_are_accepted() {
        assert!(SvgFile::new(Path::new("a/b.svg")).is_ok() && SvgFile::new(Path::new("B.SVG")).is_ok());
        for name in ["a.png", "svg", "a.svg.gz", ""] {
            assert!(SvgFile::new(Path::new(name)).unwrap_err().to_string().contains(".svg"), "{name}");
        }
    }
}
