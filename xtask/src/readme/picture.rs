//! Pictures as SVG: the table of all libraries as groups of bars.

use std::fmt::Write as _;

use anyhow::Result;

use super::{SIZE, cases, libraries};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
/// Space for labels at the left, top, right and bottom.
const MARGINS: (f64, f64, f64, f64) = (60.0, 50.0, 10.0, 40.0);
/// Bars in the order of the table: Gabion first.
const COLORS: [&str; 6] = ["#1f5fa8", "#e08a1e", "#4d9a4d", "#b84a4a", "#7a62a8", "#777777"];

/// Encoding in blocks of 64 KiB beside other libraries, on a logarithmic scale.
pub(super) fn beside_libraries(record: &str) -> Result<String> {
    let (machine, encodes) = cases(record)?;
    let names = libraries(&encodes);
    let mut groups: Vec<(&str, Vec<Option<f64>>)> = Vec::new();
    for (shape, cells) in &encodes {
        let cell = |name: &str| cells.get(&(SIZE.to_owned(), name.to_owned()));
        let Some((ours, _)) = names.iter().find_map(|name| cell(name)) else { continue };
        let theirs = names.iter().map(|name| cell(name).map(|(_, speed)| *speed));
        groups.push((shape, std::iter::once(Some(*ours)).chain(theirs).collect()));
    }
    let values = || groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied());
    // Whole powers of ten.
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(f64::NEG_INFINITY, f64::max).log10().ceil().max(low + 1.0);
    let (left, top, right, bottom) = MARGINS;
    let (wide, tall) = (WIDTH - left - right, HEIGHT - top - bottom);
    let y = |value: f64| top + tall * (high - value.log10()) / (high - low);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let date = machine["date"].as_str().unwrap_or_default();
    writeln!(
        svg,
        "<text x=\"{left}\" y=\"18\">Encoding, one thread, blocks of 64 KiB, GB/s, logarithmic scale ({date})</text>"
    )?;
    let mut exponent = low;
    while exponent <= high {
        let (value, at) = (10f64.powf(exponent), y(10f64.powf(exponent)));
        writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#cccccc\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            WIDTH - right,
            left - 6.0,
            at + 4.0
        )?;
        exponent += 1.0;
    }
    let legend = std::iter::once("Gabion").chain(names.iter().copied());
    for (index, name) in legend.enumerate() {
        let x = left + 165.0 * index as f64;
        writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"28\" width=\"12\" height=\"12\" fill=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"39\">{name}</text>",
            COLORS[index % COLORS.len()],
            x + 16.0
        )?;
    }
    let group = wide / groups.len().max(1) as f64;
    for (index, (shape, bars)) in groups.iter().enumerate() {
        let x = left + group * index as f64;
        // A tenth of the space on each side separates the groups.
        let bar = group * 0.8 / bars.len() as f64;
        for (number, value) in bars.iter().enumerate() {
            let Some(value) = value else { continue };
            writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                x + group * 0.1 + bar * number as f64,
                y(*value),
                top + tall - y(*value),
                COLORS[number % COLORS.len()]
            )?;
        }
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{shape}</text>",
            x + group / 2.0,
            HEIGHT - bottom + 18.0
        )?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::beside_libraries;

    const RECORD: &str = r#"{"bench":"machine","date":"2026-01-02"}
{"case":"encode 4+2 64KiB","value":40.0,"against":"isal","reference":20.0}
{"case":"encode 4+2 64KiB","value":40.0,"against":"other","reference":4.0}
{"case":"encode 8+3 64KiB","value":30.0,"against":"isal","reference":20.0}
{"case":"encode 8+3 4KiB","value":90.0,"against":"isal","reference":1.0}
"#;

    #[test]
    fn every_cell_of_the_table_is_a_bar() {
        let svg = beside_libraries(RECORD).unwrap();
        // The background, three entries of the legend, three bars of 4+2, two of 8+3.
        assert_eq!(svg.matches("<rect").count(), 1 + 3 + 3 + 2, "{svg}");
        assert!(svg.contains(">4+2<") && svg.contains(">other<") && svg.contains("2026-01-02"), "{svg}");
        assert!(beside_libraries("").is_err());
    }

    #[test]
    fn other_records_give_other_pictures() {
        assert_ne!(
            beside_libraries(RECORD).unwrap(),
            beside_libraries(&RECORD.replace("40.0", "80.0")).unwrap()
        );
    }
}
