//! SVG text pseudo_random as PNG.

use super::PlotError;
use gabion_chart::{ChartError, FONT};
use resvg::usvg::fontdb::{Database, Family, Query};
use resvg::{tiny_skia, usvg};
use std::sync::Arc;

/// Fonts that replace ours where it is missing: they have the letters and nearly the same widths.
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
    // The renderer falls back to these families.
    fonts.set_sans_serif_family(similar);
    fonts.set_serif_family(similar);
    Ok(fonts)
}

/// Renders SVG text.
pub(super) fn png(svg: &str, fonts: Database) -> Result<Vec<u8>, PlotError> {
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut picture = tiny_skia::Pixmap::new(size.width(), size.height()).ok_or(ChartError::Nothing)?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut picture.as_mut());
    picture.encode_png().map_err(|error| PlotError::Png(Box::new(error)))
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
}
