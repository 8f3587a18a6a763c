//! From a drawing to a file.

use super::{FONT, PlotError};
use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::{tiny_skia, usvg};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// What may stand in for our own font: they have the letters and nearly the same widths.
const SIMILAR: [&str; 5] = ["Verdana", "Liberation Sans", "Noto Sans", "Arial", "Helvetica"];

/// The fonts of this system.
///
/// # Errors
/// [`PlotError::NoFont`] if labels would vanish.
pub(super) fn fonts() -> Result<Database, PlotError> {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    usable(fonts)
}

/// The same fonts, with a similar one in place of ours where that is missing.
fn usable(mut fonts: Database) -> Result<Database, PlotError> {
    let has = |fonts: &Database, name| {
        let families = &[Family::Name(name)];
        fonts.query(&Query { families, ..Query::default() }).is_some()
    };
    if has(&fonts, FONT) {
        return Ok(fonts);
    }
    let similar = SIMILAR.into_iter().find(|name| has(&fonts, name)).ok_or(PlotError::NoFont)?;
    // What the renderer falls back to for a family that it does not find.
    fonts.set_serif_family(similar);
    Ok(fonts)
}

/// Paints a drawing.
pub(super) fn png(svg: &str, fonts: Database) -> Result<Vec<u8>, PlotError> {
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut picture = tiny_skia::Pixmap::new(size.width(), size.height()).ok_or(PlotError::Nothing)?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut picture.as_mut());
    picture.encode_png().map_err(|error| PlotError::Png(Box::new(error)))
}

/// Writes beside the target and renames, so that nobody ever sees half a picture.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".gabion-plot-")
        // As any program's output, less what the umask takes away; the default is for secrets.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_fonts_the_error_says_what_to_do() {
        let error = usable(Database::new()).unwrap_err();
        assert!(matches!(error, PlotError::NoFont));
        assert!(error.to_string().contains("fonts-dejavu-core") && error.to_string().contains(".svg"));
    }

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
}
