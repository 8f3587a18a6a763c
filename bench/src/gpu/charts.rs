//! Charts of a GPU's results: figures 12 and 15 of G-CRS.

use super::Line;
use crate::plot::{Axis, Figure, Panel, Series};

/// Data rates over k, a line per m: on the device to the left, from host memory to the right.
pub fn over_data_blocks(device: &str, lines: &[(usize, usize, Line)]) -> Figure {
    let panel = |title: &str, against: &str| Panel::Lines {
        title: title.to_owned(),
        x: Axis::Numbers("data blocks k".to_owned()),
        y: "data in GB/s".to_owned(),
        series: series(lines, against),
    };
    let panels = vec![panel("on the device", "copy"), panel("from host memory and back", "bus")];
    let drawn = |panel: &Panel| matches!(panel, Panel::Lines { series, .. } if !series.is_empty());
    let panels = panels.into_iter().filter(drawn).collect();
    Figure { title: format!("Encoding on {device}"), panels }
}

fn series(lines: &[(usize, usize, Line)], against: &str) -> Vec<Series> {
    let mut of_m: Vec<usize> = lines.iter().map(|(_, m, _)| *m).collect();
    of_m.sort_unstable();
    of_m.dedup();
    let points = |m: usize| -> Vec<(f64, f64)> {
        let mine = lines.iter().filter(|(_, other, line)| *other == m && line.against == against);
        mine.map(|(k, _, line)| (*k as f64, line.data)).collect()
    };
    let series = of_m.into_iter().map(|m| Series { label: format!("m = {m}"), points: points(m) });
    series.filter(|series| !series.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(against: &'static str, data: f64) -> Line {
        Line {
            bench: "gpu",
            case: String::new(),
            value: 0.0,
            unit: "GB/s",
            against,
            reference: 1.0,
            ratio: 0.0,
            data,
            code: String::new(),
            block: 1,
            registers: (0, 0),
            tuning: String::new(),
            compile: 0.0,
            verified: true,
            bar: None,
        }
    }

    #[test]
    fn a_panel_for_each_place_and_a_line_for_each_m() {
        let lines = [(4, 2, line("copy", 9.0)), (8, 2, line("copy", 8.0)), (8, 4, line("copy", 7.0))];
        let figure = over_data_blocks("a device", &lines);
        let [Panel::Lines { series, .. }] = &figure.panels[..] else { panic!("{figure:?}") };
        assert_eq!(series.len(), 2);
        assert_eq!(
            (series[0].label.as_str(), &series[0].points[..]),
            ("m = 2", &[(4.0, 9.0), (8.0, 8.0)][..])
        );
    }
}
