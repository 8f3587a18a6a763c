//! Chart of the comparison: encoding, a panel per block size, a group of bars per code.

use gabion_bench::plot::{Figure, Panel};

use super::report::Line;

/// The encode cases of a comparison without further options.
pub(super) fn figure(lines: &[Line]) -> Figure {
    let mut sizes: Vec<&str> = Vec::new();
    for (_, size) in lines.iter().filter_map(plain_encode) {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    Figure {
        title: "Encoding beside other libraries, one thread".to_owned(),
        panels: sizes.iter().map(|size| panel(lines, size)).collect(),
    }
}

/// Shape and block size of a case such as `encode 10+4 64KiB`.
fn plain_encode(line: &Line) -> Option<(&str, &str)> {
    let words: Vec<&str> = line.case.split(' ').collect();
    match words[..] {
        ["encode", shape, size] => Some((shape, size)),
        _ => None,
    }
}

fn panel(lines: &[Line], size: &str) -> Panel {
    let of_size: Vec<(&str, &Line)> = lines
        .iter()
        .filter_map(|line| plain_encode(line).filter(|&(_, its)| its == size).map(|(shape, _)| (shape, line)))
        .collect();
    let mut categories: Vec<String> = of_size.iter().map(|(shape, _)| (*shape).to_owned()).collect();
    categories.dedup();
    let mut names = vec!["gabion"];
    for (_, line) in &of_size {
        if !names.contains(&line.against) {
            names.push(line.against);
        }
    }
    let value = |shape: &str, name: &str| {
        let mut of_shape = of_size.iter().filter(|(its, _)| *its == shape).map(|(_, line)| line);
        match name {
            "gabion" => of_shape.next().map(|line| line.value),
            other => of_shape.find(|line| line.against == other).map(|line| line.reference),
        }
    };
    let series = names.iter().map(|name| {
        let values = categories.iter().map(|shape| value(shape, name)).collect();
        ((*name).to_owned(), values)
    });
    let series = series.collect();
    Panel::Bars { title: format!("blocks of {size}"), y: "data, GB/s".to_owned(), categories, series }
}

#[cfg(test)]
mod tests {
    use super::figure;
    use crate::compare::race::Timing;
    use crate::compare::report::lines;
    use gabion_bench::plot::Panel;

    #[test]
    fn a_panel_per_size_has_a_bar_for_everybody() {
        let timings = [("gabion", 1e-5), ("isal", 2e-5), ("jerasure", 4e-5)].map(|(name, seconds)| Timing {
            name,
            seconds,
            spread: 0.0,
        });
        let mut all = lines("encode 10+4 64KiB", 655_360, &[], &timings);
        all.extend(lines("encode 4+2 64KiB", 262_144, &[], &timings[..2]));
        all.extend(lines("encode 4+2 4KiB", 16_384, &[], &timings[..2]));
        all.extend(lines("decode 4+2 4KiB", 16_384, &[], &timings[..2]));
        let figure = figure(&all);
        assert_eq!(figure.panels.len(), 2);
        let Panel::Bars { categories, series, .. } = &figure.panels[0] else { panic!("bars") };
        assert_eq!(categories, &["10+4", "4+2"]);
        let (name, values) = &series[2];
        assert_eq!((name.as_str(), values[1]), ("jerasure", None));
        assert_eq!(values[0].map(|v| (v * 100.0).round()), Some(1638.0));
    }
}
