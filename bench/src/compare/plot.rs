//! The comparison as a picture: one group of bars per case.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use resvg::{tiny_skia, usvg};

use super::report::Line;

const WIDTH: f64 = 900.0;
/// Room for case names on the left and for values on the right.
const LEFT: f64 = 260.0;
const RIGHT: f64 = 190.0;
const BAR: f64 = 11.0;
const GAP: f64 = 9.0;
const TOP: f64 = 44.0;
/// Named, since a renderer without fontconfig does not know what "sans-serif" is.
const FONT: &str = "DejaVu Sans, sans-serif";

/// Ours, then the others in a fixed order, so that a colour means one library in every picture.
const COLOURS: [(&str, &str); 6] = [
    ("gabion", "#b5483a"),
    ("isal", "#3b6ea5"),
    ("reed-solomon-erasure", "#6c9a5b"),
    ("reed-solomon-simd", "#c2973f"),
    ("jerasure", "#7d6597"),
    ("gf-complete", "#7a7a7a"),
];

/// Writes an .svg or .png file.
pub(super) fn draw(lines: &[Line], path: &Path) -> anyhow::Result<()> {
    let text = svg(lines)?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => fs::write(path, text),
        Some("png") => fs::write(path, png(&text)?),
        _ => bail!("{}: a plot is .svg or .png", path.display()),
    }
    .with_context(|| format!("writing {}", path.display()))
}

fn svg(lines: &[Line]) -> anyhow::Result<String> {
    let most = lines.iter().flat_map(|line| [line.value, line.reference]).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let (mut body, mut y) = (String::new(), TOP);
    for group in lines.chunk_by(|a, b| a.case == b.case) {
        writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + BAR - 1.5,
            group[0].case
        )?;
        let label = format!("{:.1} GB/s", group[0].value);
        bar(&mut body, &mut y, group[0].value * scale, colour("gabion"), &label)?;
        for line in group {
            let label = format!("{:.1}, ours {:.2}×", line.reference, line.ratio);
            bar(&mut body, &mut y, line.reference * scale, colour(line.against), &label)?;
        }
        y += GAP;
    }
    let mut legend = String::new();
    let mut x = 16.0;
    for (name, colour) in COLOURS {
        writeln!(
            legend,
            "<rect x=\"{x:.1}\" y=\"14\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"23\">{name}</text>",
            x + 14.0
        )?;
        x += 34.0 + 6.3 * name.len() as f64;
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y:.0}\" \
         font-family=\"{FONT}\" font-size=\"10\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{legend}{body}</svg>\n"
    ))
}

fn bar(body: &mut String, y: &mut f64, width: f64, colour: &str, label: &str) -> anyhow::Result<()> {
    writeln!(
        body,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
        *y,
        BAR - 2.0,
        LEFT + width + 5.0,
        *y + BAR - 2.5
    )?;
    *y += BAR;
    Ok(())
}

fn colour(name: &str) -> &'static str {
    let known = COLOURS.iter().find(|(known, _)| *known == name);
    known.map(|(_, colour)| *colour).expect("every contender has a colour")
}

fn png(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut options = usvg::Options::default();
    options.fontdb_mut().load_system_fonts();
    let tree = usvg::Tree::from_str(svg, &options).context("our own SVG")?;
    let size = tree.size().to_int_size();
    let mut picture =
        tiny_skia::Pixmap::new(2 * size.width(), 2 * size.height()).context("a picture of this size")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut picture.as_mut());
    picture.encode_png().context("encoding PNG")
}

#[cfg(test)]
mod tests {
    use super::svg;
    use crate::compare::race::Timing;
    use crate::compare::report::lines;

    #[test]
    fn a_picture_has_a_bar_for_everybody() {
        let timings = super::COLOURS.map(|(name, _)| Timing { name, seconds: 1e-5, spread: 0.0 });
        let picture = svg(&lines("encode 10+4 64KiB", 655_360, &timings)).expect("drawable");
        // One rectangle behind everything, and one per contender in the legend and in the group.
        assert_eq!(picture.matches("<rect").count(), 1 + 2 * timings.len());
        resvg::usvg::Tree::from_str(&picture, &Default::default()).expect("valid SVG");
    }
}
