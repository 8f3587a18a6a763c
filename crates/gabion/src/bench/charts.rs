//! Pictures of results.

use super::{Measurement, Operation, Size};
use crate::plot::{Axis, Figure, Panel, Series};
use gabion_engine::kernel::Backend;

/// Rates over the size of blocks, a panel per operation and a line per code; bars where there is but
/// one size.
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

/// What tells lines of one operation apart.
fn label(measurement: &Measurement) -> String {
    measurement.case.shape() + &measurement.case.options(measurement.row)
}

/// In the order in which they come first.
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
    use crate::bench::report::tests::measurement;

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
    fn shapes_are_the_x_axis_of_figure_n() {
        let all = [
            measurement(Operation::Encode, "3+1", 4096, 1.0),
            measurement(Operation::Encode, "6+2", 4096, 1.0),
        ];
        let Panel::Lines { series, .. } = &over_shapes(&all).panels[0] else { panic!() };
        assert_eq!((series[0].label.as_str(), series[0].points[1].0), ("scalar", 8.0));
    }
}
