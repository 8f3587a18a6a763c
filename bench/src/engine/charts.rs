//! Charts of results.

use super::{Explained, Measurement, Operation};
use crate::plot::{Axis, Figure, Panel, Series};
use gabion::size::Size;
use gabion_engine::kernel::Backend;

/// Rates over the size of blocks, a panel per operation and a line per code; bars if there is only one size.
pub fn over_blocks(measurements: &[Measurement]) -> Figure {
    let blocks = distinct(measurements.iter().map(|measurement| measurement.case.block));
    let panels = match blocks[..] {
        [_] => bars(measurements),
        _ => lines(measurements),
    };
    let title = match blocks[..] {
        [block] => format!("Throughput with blocks of {}", Size(block)),
        _ => "Throughput over block size".to_owned(),
    };
    Figure { title, panels }
}

/// Rates over the number of blocks of a stripe, a line per kernel.
pub fn over_shapes(measurements: &[Measurement]) -> Figure {
    let kernels = distinct(measurements.iter().map(|measurement| measurement.row.name()));
    let series = kernels.into_iter().map(|kernel| Series {
        label: kernel.to_owned(),
        points: measurements
            .iter()
            .filter(|measurement| measurement.row.name() == kernel)
            .map(|measurement| (measurement.case.code.blocks() as f64, measurement.rate()))
            .collect(),
    });
    let block = measurements.first().map_or(String::new(), |first| {
        let threads = if first.case.threads == 1 {
            "1 thread".into()
        } else {
            format!("{} threads", first.case.threads)
        };
        format!(", blocks of {}, {threads}", Size(first.case.block))
    });
    let panel = Panel::Lines {
        title: String::new(),
        x: Axis::Numbers("blocks of a stripe n, of which m = n/4 are redundancy".into()),
        y: DATA_RATE.into(),
        series: series.collect(),
    };
    Figure { title: format!("Encoding with 25 % redundancy{block}"), panels: vec![panel] }
}

/// Operations before and after compiling, a panel per operation and kernel: over the number of blocks, or a group of
/// bars per code where these differ in more than that.
pub fn operations_over_shapes(all: &[Explained], only_numbers: bool) -> Figure {
    let kinds = distinct(all.iter().map(|it| (it.case.operation, it.case.options(it.row), it.row.name())));
    let panels = kinds.iter().map(|(operation, options, kernel)| {
        let of = |it: &&Explained| {
            it.case.operation == *operation && it.case.options(it.row) == *options && it.row.name() == *kernel
        };
        let shown: Vec<&Explained> = all.iter().filter(of).collect();
        let title = format!("{operation}{options}, kernel {kernel}");
        if only_numbers { counted_lines(title, &shown) } else { counted_bars(title, &shown) }
    });
    Figure {
        title: "Operations that a code takes, before and after compiling".into(),
        panels: panels.collect(),
    }
}

const OPERATIONS: &str = "operations per register of every block";

/// A count of a plan, where it has one.
type Count = fn(&Explained) -> Option<usize>;

const COUNTS: [(&str, Count); 4] = [
    ("products by matrix", |it| Some(it.by_matrix.products)),
    ("additions by matrix", |it| Some(it.by_matrix.additions)),
    ("products, compiled", |it| it.last().map(|stage| stage.products)),
    ("adding instructions, compiled", |it| it.last().and_then(|stage| stage.adding_instructions)),
];

fn counted_lines(title: String, shown: &[&Explained]) -> Panel {
    let series = COUNTS.map(|(label, count)| {
        let point = |it: &&Explained| Some((it.case.code.blocks() as f64, count(it)? as f64));
        Series { label: label.to_owned(), points: shown.iter().filter_map(point).collect() }
    });
    let x = Axis::Numbers("blocks of a stripe n, of which m = n/4 are redundancy".into());
    Panel::Lines { title, x, y: OPERATIONS.into(), series: Vec::from(series) }
}

fn counted_bars(title: String, shown: &[&Explained]) -> Panel {
    let values = |count: Count| shown.iter().map(|it| count(it).map(|count| count as f64)).collect();
    let series = COUNTS.map(|(label, count)| (label.to_owned(), values(count)));
    let categories = shown.iter().map(|it| it.case.shape()).collect();
    Panel::Bars { title, y: OPERATIONS.into(), categories, series: Vec::from(series) }
}

const DATA_RATE: &str = "data in GB/s";

fn lines(measurements: &[Measurement]) -> Vec<Panel> {
    let panel = |operation: Operation| {
        let of = || measurements.iter().filter(move |measurement| measurement.case.operation == operation);
        let series = distinct(of().map(label)).into_iter().map(|wanted| Series {
            points: of()
                .filter(|measurement| label(measurement) == wanted)
                .map(|measurement| (measurement.case.block as f64, measurement.rate()))
                .collect(),
            label: wanted,
        });
        let series: Vec<Series> = series.collect();
        (!series.is_empty()).then(|| Panel::Lines {
            title: operation.name().to_owned(),
            x: Axis::Bytes("block".into()),
            y: DATA_RATE.into(),
            series,
        })
    };
    Operation::ALL.into_iter().filter_map(panel).collect()
}

fn bars(measurements: &[Measurement]) -> Vec<Panel> {
    let shapes = distinct(measurements.iter().map(|measurement| measurement.case.shape()));
    let series_of = |measurement: &Measurement| {
        format!("{}{}", measurement.case.operation, measurement.case.options(measurement.row))
    };
    let series = distinct(measurements.iter().map(series_of)).into_iter().map(|wanted| {
        let rate = |shape: &String| {
            let of_shape = |m: &&Measurement| m.case.shape() == *shape && series_of(m) == wanted;
            measurements.iter().find(of_shape).map(Measurement::rate)
        };
        (wanted.clone(), shapes.iter().map(rate).collect())
    });
    let series = series.collect();
    vec![Panel::Bars { title: String::new(), y: DATA_RATE.into(), categories: shapes, series }]
}

/// Differences between lines of one operation.
fn label(measurement: &Measurement) -> String {
    measurement.case.shape() + &measurement.case.options(measurement.row)
}

/// Distinct values in the order of their first appearance.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut distinct, item| {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
        distinct
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Case;
    use crate::engine::report::tests::measurement;

    #[test]
    fn a_panel_per_operation_and_a_line_per_code() {
        let all: Vec<Measurement> =
            [(Operation::Encode, "4+2"), (Operation::Encode, "8+3"), (Operation::Repair, "4+2")]
                .into_iter()
                .flat_map(|(operation, code)| {
                    [4096, 8192].map(|block| measurement(operation, code, block, 1.0))
                })
                .collect();
        let figure = over_blocks(&all);
        assert_eq!(figure.panels.len(), 2);
        let Panel::Lines { title, series, .. } = &figure.panels[0] else { panic!("{figure:?}") };
        assert_eq!((title.as_str(), series.len(), series[1].label.as_str()), ("encode", 2, "8+3"));
        assert_eq!(series[0].points, [(4096.0, all[0].rate()), (8192.0, all[1].rate())]);
    }

    #[test]
    fn one_size_makes_bars() {
        let all = [
            measurement(Operation::Encode, "4+2", 4096, 1.0),
            measurement(Operation::Repair, "8+3", 4096, 2.0),
        ];
        let Panel::Bars { categories, series, .. } = &over_blocks(&all).panels[0] else { panic!() };
        assert_eq!(categories, &["4+2", "8+3"]);
        assert_eq!(series[1], ("repair".to_owned(), vec![None, Some(all[1].rate())]));
    }

    #[test]
    fn operations_are_counted_before_and_after() {
        let row = &gabion_engine::kernel::kernel_sets()[0];
        let explained = |code: &str| {
            let case = Case::unmeasured(Operation::Encode, code.parse().unwrap());
            Explained::new(&case, row).unwrap().unwrap()
        };
        let all = [explained("6+2"), explained("9+3")];
        let Panel::Lines { title, series, .. } = &operations_over_shapes(&all, true).panels[0] else {
            panic!()
        };
        assert_eq!(title, "encode, kernel scalar");
        assert_eq!((series.len(), series[0].points[1]), (4, (12.0, all[1].by_matrix.products as f64)));
        assert!(series[2].points[1].1 < series[0].points[1].1, "compiling saves products: {series:?}");
        let Panel::Bars { categories, .. } = &operations_over_shapes(&all, false).panels[0] else { panic!() };
        assert_eq!(categories, &["6+2", "9+3"]);
    }

    #[test]
    fn shapes_are_the_x_axis_of_figure_n() {
        let all = [
            measurement(Operation::Encode, "3+1", 4096, 1.0),
            measurement(Operation::Encode, "6+2", 4096, 1.0),
        ];
        let Panel::Lines { series, .. } = &over_shapes(&all).panels[0] else { panic!() };
        assert_eq!((series[0].label.as_str(), series[0].points[1].0), ("scalar", 8.0));
    }
}
