//! Charts of the measurements, after figures 4-1 to 4-6 of the thesis.

use super::{Measure, Part};
use crate::plot::{Axis, Figure, Panel, Series};
use gabion_engine::measure::Operation;

/// The figure of a part; nothing if nothing of it was measured.
pub fn figure(part: Part, measured: &[(Measure, f64)]) -> Option<Figure> {
    let ours: Vec<&(Measure, f64)> = measured.iter().filter(|(what, _)| what.part() == part).collect();
    if ours.is_empty() {
        return None;
    }
    let series = |wanted: &dyn Fn(Measure) -> bool| -> Vec<Series> {
        let mut series: Vec<Series> = Vec::new();
        for (what, value) in ours.iter().filter(|(what, _)| wanted(*what)) {
            let point = (what.place(), *value);
            let label = what.series();
            match series.iter_mut().find(|series| series.label == label) {
                Some(line) => line.points.push(point),
                None => series.push(Series { label, points: vec![point] }),
            }
        }
        series
    };
    let (title, panels) = match part {
        Part::Operations => {
            let bars = series(&|_| true).into_iter().map(|line| {
                let at = |index: usize| {
                    line.points.iter().find(|point| point.0 == index as f64).map(|point| point.1)
                };
                (line.label.clone(), (0..Operation::ALL.len()).map(at).collect())
            });
            let panel = Panel::Bars {
                title: String::new(),
                y: "GB/s of one core".to_owned(),
                categories: Operation::ALL.map(|operation| operation.name().to_owned()).to_vec(),
                series: bars.collect(),
            };
            ("Throughput of the operations that coding is made of", vec![panel])
        }
        Part::Loads => {
            let panel = Panel::Lines {
                title: String::new(),
                x: Axis::Bytes("bytes of the buffer".to_owned()),
                y: "loaded, GB/s of one core".to_owned(),
                series: series(&|_| true),
            };
            ("Throughput of loads over the size of the buffer", vec![panel])
        }
        Part::Streams => {
            let mut threads: Vec<usize> = ours.iter().filter_map(|(what, _)| what.threads()).collect();
            threads.sort_unstable();
            threads.dedup();
            let over_distance = Panel::Lines {
                title: "1 thread, from memory".to_owned(),
                x: Axis::Numbers("bytes that inputs are prefetched ahead".to_owned()),
                y: "loaded and stored, GB/s".to_owned(),
                series: series(&|what| matches!(what, Measure::Ahead(_))),
            };
            let over_size = Panel::Lines {
                title: "1 thread".to_owned(),
                x: Axis::Bytes("bytes of all streams".to_owned()),
                y: "loaded and stored, GB/s".to_owned(),
                series: series(&|what| matches!(what, Measure::Threshold(..))),
            };
            let panel = |threads: usize| Panel::Lines {
                title: if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") },
                x: Axis::Numbers("inputs k".to_owned()),
                y: "loaded and stored, GB/s".to_owned(),
                series: series(&|what| what.threads() == Some(threads)),
            };
            let panels = threads.into_iter().map(panel).chain([over_size, over_distance]).collect();
            ("Streams: k inputs loaded, m outputs stored, from memory and over their size", panels)
        }
        Part::Latency => {
            // Latencies of caches and memory differ by a factor of 100.
            let panel = Panel::Decades {
                title: String::new(),
                x: Axis::Bytes("bytes of the working set".to_owned()),
                y: "ns of a load that waits for the one before".to_owned(),
                series: series(&|_| true),
            };
            ("Latency of loads over the working set, by stride", vec![panel])
        }
    };
    Some(Figure { title: title.to_owned(), panels })
}
