//! Bench of the machine without any coding: throughput of the instructions that coding uses, loads over buffer sizes,
//! streams like those of an encoder, and the latency of memory.
//!
//! The loops come from [`gabion_engine::measure`]. Rates are 1e9 bytes per second, latencies nanoseconds, of the best
//! of several runs.

mod charts;

pub use charts::figure;

use crate::engine::BenchError;
use crate::engine::memory::{Memory, fill_random};
use crate::engine::rounds::best_of;
use gabion::size::Size;
use gabion_engine::measure::{
    Access, CHASED, Chase, LINE, Loads, MeasureError, Operation, Order, Repeated, Stores, Streams, Width,
    missing,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// Throughput of an instruction.
    Instruction(Operation, Width),
    /// Loads of a buffer of so many bytes.
    Load(Access, usize),
    /// Inputs and outputs per thread, kind of stores, number of threads.
    Stream(usize, usize, Stores, usize),
    /// Ten inputs and four outputs with so many bytes in total: finds the size from which non-temporal stores pay.
    Threshold(Stores, usize),
    /// The same from memory, with non-temporal stores and inputs prefetched so many bytes ahead.
    Ahead(usize),
    /// Dependent loads: stride, order, bytes of the working set.
    Latency(usize, Order, usize),
}

/// Measurements of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Instructions.
    Operations,
    /// Loads over buffer sizes.
    Loads,
    /// Several streams at once.
    Streams,
    /// Latency over working sets.
    Latency,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 4] = [Part::Operations, Part::Loads, Part::Streams, Part::Latency];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Operations => "operations",
            Part::Loads => "loads",
            Part::Streams => "streams",
            Part::Latency => "latency",
        }
    }
}

/// Reason why something was not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// A loop that cannot be emitted or run.
    #[error(transparent)]
    Loop(#[from] MeasureError),
    /// Memory cannot be allocated.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A thread that ended early.
    #[error("a thread that was measured failed")]
    Thread,
}

/// A result beside its reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineLine {
    /// Always "machine".
    pub bench: &'static str,
    /// Name of the measurement.
    pub case: String,
    /// Measured value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Name of the reference: another measurement of the same run.
    pub against: String,
    /// Value of the reference.
    pub reference: f64,
    /// Over 1 is better than the reference.
    pub ratio: f64,
    /// The figure.
    pub part: Part,
}

/// Prefetch distance of the engine for streamed inputs.
const AHEAD: usize = 512;

const SMALLEST: usize = 4 << 10;

/// Prefetch distances of streams in bytes.
const DISTANCES: [usize; 7] = [0, 128, 256, 512, 1024, 2048, 4096];

/// Sizes of streams, from the L2 cache of common machines to beyond all caches.
const FEWEST_STREAMED: usize = 512 << 10;
const MOST_STREAMED: usize = 64 << 20;

/// Loads of a chase that are timed, at most.
const MOST_CHASED: usize = 1 << 20;

/// Rings up to this size are followed once before the timing; larger ones fit into no cache.
const MOST_WARMED: usize = 4 << 20;

impl Measure {
    /// Threads of streams from memory.
    fn threads(self) -> Option<usize> {
        match self {
            Measure::Stream(_, _, _, threads) => Some(threads),
            _ => None,
        }
    }
}

impl Measure {
    /// All measurements of one part; fewer with `quick`.
    pub fn all(part: Part, quick: bool) -> Vec<Measure> {
        let sizes =
            || (0..).map(|doubling| SMALLEST << doubling).take_while(move |size| *size <= largest(quick));
        match part {
            Part::Operations => {
                let of = |operation| {
                    Width::ALL.into_iter().map(move |width| Measure::Instruction(operation, width))
                };
                Operation::ALL.into_iter().flat_map(of).collect()
            }
            Part::Loads => {
                let distances: &[usize] = if quick { &[AHEAD] } else { &[AHEAD / 2, AHEAD, 4 * AHEAD] };
                let prefetched = distances.iter().map(|&ahead| Access::Prefetched { ahead });
                let ways: Vec<Access> =
                    [Access::Plain, Access::Unrolled].into_iter().chain(prefetched).collect();
                ways.into_iter().flat_map(|way| sizes().map(move |size| Measure::Load(way, size))).collect()
            }
            Part::Streams => {
                let inputs: &[usize] = if quick { &[1, 4, 10] } else { &[1, 2, 4, 6, 8, 10, 12, 16, 20] };
                let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
                let mut all = Vec::new();
                for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
                    for &inputs in inputs {
                        all.push(Measure::Stream(inputs, 0, Stores::Ordinary, threads));
                        for outputs in [1, 2, 4] {
                            all.push(Measure::Stream(inputs, outputs, Stores::Ordinary, threads));
                            all.push(Measure::Stream(inputs, outputs, Stores::NonTemporal, threads));
                        }
                    }
                }
                all.extend(DISTANCES.map(Measure::Ahead));
                let middle = sizes().filter(|size| (FEWEST_STREAMED..=MOST_STREAMED).contains(size));
                all.extend(middle.flat_map(|size| {
                    [Stores::Ordinary, Stores::NonTemporal].map(|way| Measure::Threshold(way, size))
                }));
                all
            }
            Part::Latency => {
                let strides: &[usize] = if quick { &[64, 256, 1024] } else { &[64, 128, 256, 512, 1024] };
                let ordered = strides.iter().map(|&stride| (stride, Order::Descending));
                let ways: Vec<(usize, Order)> = ordered.chain([(LINE, Order::Random(1))]).collect();
                ways.into_iter()
                    .flat_map(|(stride, order)| {
                        sizes().map(move |size| Measure::Latency(stride, order, size))
                    })
                    .collect()
            }
        }
    }

    /// The figure.
    pub fn part(self) -> Part {
        match self {
            Measure::Instruction(..) => Part::Operations,
            Measure::Load(..) => Part::Loads,
            Measure::Stream(..) | Measure::Threshold(..) | Measure::Ahead(_) => Part::Streams,
            Measure::Latency(..) => Part::Latency,
        }
    }

    /// Name of the line in the figure, without what varies along it.
    fn series(self) -> String {
        match self {
            Measure::Instruction(_, width) => width.to_string(),
            Measure::Load(Access::Plain, _) => "plain".to_owned(),
            Measure::Load(Access::Unrolled, _) => "unrolled".to_owned(),
            Measure::Load(Access::Prefetched { ahead }, _) => format!("prefetched {ahead} ahead"),
            Measure::Stream(_, 0, ..) => "loads only".to_owned(),
            Measure::Stream(_, outputs, Stores::Ordinary, _) => format!("m = {outputs}, ordinary stores"),
            Measure::Stream(_, outputs, Stores::NonTemporal, _) => format!("m = {outputs}, non-temporal"),
            Measure::Ahead(_) => "10 in 4 out, non-temporal".to_owned(),
            Measure::Threshold(Stores::Ordinary, _) => "10 in 4 out, ordinary".to_owned(),
            Measure::Threshold(Stores::NonTemporal, _) => "10 in 4 out, non-temporal".to_owned(),
            Measure::Latency(stride, Order::Descending, _) => format!("stride {stride}"),
            Measure::Latency(stride, Order::Random(_), _) => format!("stride {stride}, random"),
        }
    }

    /// Its name, which stays the same from run to run.
    pub fn name(self) -> String {
        match self {
            Measure::Instruction(operation, width) => format!("{} {width}", operation.name()),
            Measure::Load(_, bytes) => format!("load {} {}", self.series(), Size(bytes)),
            Measure::Stream(inputs, outputs, stores, threads) => {
                let kind = match stores {
                    _ if outputs == 0 => "",
                    Stores::Ordinary => " ordinary",
                    Stores::NonTemporal => " non-temporal",
                };
                let all = if threads > 1 { format!(" {threads}threads") } else { String::new() };
                format!("stream {inputs} in {outputs} out{kind}{all}")
            }
            Measure::Ahead(ahead) => format!("stream 10 in 4 out non-temporal prefetched {ahead} ahead"),
            Measure::Threshold(Stores::Ordinary, bytes) => {
                format!("stream 10 in 4 out ordinary {}", Size(bytes))
            }
            Measure::Threshold(Stores::NonTemporal, bytes) => {
                format!("stream 10 in 4 out non-temporal {}", Size(bytes))
            }
            Measure::Latency(_, _, bytes) => format!("latency {} {}", self.series(), Size(bytes)),
        }
    }

    /// Unit of the value.
    pub fn unit(self) -> &'static str {
        if self.part() == Part::Latency { "ns" } else { "GB/s" }
    }

    /// Feature of the CPU that is missing.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Measure::Instruction(operation, width) => missing(operation, width),
            _ => missing(Operation::Load, Width::widest()),
        }
    }

    /// Name of the reference.
    fn against(self) -> Measure {
        match self {
            Measure::Instruction(operation, _) => {
                let narrowest = Width::ALL.into_iter().find(|width| missing(operation, *width).is_none());
                Measure::Instruction(operation, narrowest.unwrap_or(Width::Scalar))
            }
            Measure::Load(access, _) => Measure::Load(access, SMALLEST),
            Measure::Stream(inputs, _, _, threads) => Measure::Stream(inputs, 0, Stores::Ordinary, threads),
            Measure::Threshold(_, bytes) => Measure::Threshold(Stores::Ordinary, bytes),
            Measure::Ahead(_) => Measure::Ahead(0),
            Measure::Latency(stride, order, _) => Measure::Latency(stride, order, SMALLEST),
        }
    }

    fn place(self) -> f64 {
        match self {
            Measure::Instruction(operation, _) => {
                Operation::ALL.iter().position(|other| *other == operation).unwrap_or(0) as f64
            }
            Measure::Load(_, bytes) | Measure::Threshold(_, bytes) | Measure::Latency(_, _, bytes) => {
                bytes as f64
            }
            Measure::Stream(inputs, ..) => inputs as f64,
            Measure::Ahead(ahead) => ahead as f64,
        }
    }
}

/// The largest buffer: beyond the caches of common machines.
const fn largest(quick: bool) -> usize {
    if quick { 128 << 20 } else { 256 << 20 }
}

/// Memory to measure with.
#[derive(Debug)]
pub struct Bench {
    memory: Memory,
    /// Bytes of that memory; for streams, of all of them together.
    bytes: usize,
    quick: bool,
}

impl Bench {
    /// Allocates the memory.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(quick: bool) -> Result<Bench, BenchError> {
        Bench::with(largest(quick), quick)
    }

    fn with(bytes: usize, quick: bool) -> Result<Bench, BenchError> {
        // Space for the lines between blocks.
        let mut memory = Memory::for_most([(1, bytes + (1 << 20))].into_iter())?;
        for block in memory.blocks(1, bytes, 0, false) {
            // Every page is written and different: equal pages might be merged.
            block.chunks_mut(1 << 20).enumerate().for_each(|(index, part)| fill_random(index as u64, part));
        }
        Ok(Bench { memory, bytes, quick })
    }

    /// GB/s, or nanoseconds of a load.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn measure(&mut self, what: Measure) -> Result<f64, MachineError> {
        match what {
            Measure::Instruction(operation, width) => {
                let mut repeated = Repeated::new(operation, width)?;
                let turns = 1 << 14;
                let time = best_of(self.runs(), || repeated.run(turns));
                Ok(rate(repeated.turn_bytes() * turns as usize, time))
            }
            Measure::Load(access, bytes) => {
                let loads = Loads::new(Width::widest(), access)?;
                let blocks = self.memory.blocks(1, bytes, 0, false);
                // Small buffers many times, so that reading the clock is negligible.
                let passes = ((8 << 20) / bytes).max(1);
                let mut result = Ok(());
                let pass = || result = loads.run(&*blocks[0], passes as u32);
                let time = best_of(if self.quick { 5 } else { 9 }, pass);
                result?;
                Ok(rate(bytes * passes, time))
            }
            Measure::Stream(inputs, outputs, stores, threads) => {
                self.stream((inputs, outputs), (stores, 0), threads, self.bytes)
            }
            Measure::Threshold(stores, bytes) => self.stream((10, 4), (stores, 0), 1, bytes),
            Measure::Ahead(ahead) => self.stream((10, 4), (Stores::NonTemporal, ahead), 1, self.bytes),
            Measure::Latency(stride, order, bytes) => {
                let mut chase = Chase::new(bytes, stride, order)?;
                let laps = |loads: usize| u32::try_from(loads.div_ceil(CHASED)).unwrap_or(u32::MAX);
                if chase.stops() <= MOST_WARMED {
                    chase.run(laps(chase.stops()));
                }
                let turns =
                    laps((64 << 10).max(2 * chase.stops()).min(MOST_CHASED / if self.quick { 4 } else { 1 }));
                let time = best_of(if self.quick { 3 } else { 5 }, || chase.run(turns));
                Ok(time.as_secs_f64() * 1e9 / (f64::from(turns) * CHASED as f64))
            }
        }
    }

    /// Loaded and stored bytes of all threads count.
    fn stream(
        &mut self,
        (inputs, outputs): (usize, usize),
        (stores, ahead): (Stores, usize),
        threads: usize,
        total: usize,
    ) -> Result<f64, MachineError> {
        let streams = Streams::new(inputs, outputs, stores, ahead)?;
        let count = inputs + outputs;
        let bytes = total / (count * threads) / LINE * LINE;
        let mut all = self.memory.blocks(count * threads, bytes, 0, false);
        // Small ones many times, so that reading the clock is negligible.
        let passes = ((16 << 20) / total).max(1);
        let mut failed = false;
        let pass = || {
            let work = |blocks: &mut [&mut [u8]]| {
                let (loaded, stored) = blocks.split_at_mut(inputs);
                let loaded: Vec<&[u8]> = loaded.iter().map(|block| &**block).collect();
                (0..passes).all(|_| streams.run(&loaded, stored).is_ok())
            };
            failed |= match threads {
                1 => !work(&mut all),
                _ => std::thread::scope(|scope| {
                    let started: Vec<_> =
                        all.chunks_mut(count).map(|own| scope.spawn(|| work(own))).collect();
                    let ended: Vec<bool> =
                        started.into_iter().map(|thread| thread.join().unwrap_or(false)).collect();
                    ended.contains(&false)
                }),
            };
        };
        let time = best_of(if self.quick { 3 } else { 9 }, pass);
        if failed { Err(MachineError::Thread) } else { Ok(rate(bytes * count * threads * passes, time)) }
    }

    fn runs(&self) -> usize {
        if self.quick { 15 } else { 50 }
    }
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9
}

/// Results beside their references.
pub fn lines(measured: &[(Measure, f64)]) -> Vec<MachineLine> {
    let values: BTreeMap<String, f64> = measured.iter().map(|(what, value)| (what.name(), *value)).collect();
    let line = |(what, value): &(Measure, f64)| {
        let against = what.against().name();
        let reference = values.get(&against).copied().unwrap_or(*value);
        let ratio = if what.part() == Part::Latency { reference / value } else { value / reference };
        MachineLine {
            bench: "machine",
            case: what.name(),
            value: *value,
            unit: what.unit(),
            against,
            reference,
            ratio,
            part: what.part(),
        }
    };
    measured.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every measurement has a name of its own and a reference in the same run.
    #[test]
    fn names_are_unique_and_references_exist() {
        for quick in [false, true] {
            let all: Vec<Measure> =
                Part::ALL.into_iter().flat_map(|part| Measure::all(part, quick)).collect();
            let values: Vec<(Measure, f64)> = all.iter().map(|what| (*what, 2.0)).collect();
            let mut names: Vec<String> = all.iter().map(|what| what.name()).collect();
            for line in lines(&values) {
                assert!(names.contains(&line.against), "{line:?}");
                assert_eq!((line.bench, line.reference, line.ratio), ("machine", 2.0, 1.0));
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all.len());
            for part in Part::ALL {
                let svg = figure(part, &values).unwrap().svg().unwrap();
                assert!(svg.contains("GB/s") || svg.contains("ns of a load"), "{part:?}");
            }
        }
        assert_eq!(figure(Part::Loads, &[]), None);
    }

    #[test]
    fn latencies_are_better_when_they_are_small() {
        let near = Measure::Latency(64, Order::Descending, SMALLEST);
        let far = Measure::Latency(64, Order::Descending, 64 << 20);
        let found = lines(&[(near, 2.0), (far, 100.0)]);
        assert_eq!(
            (found[1].unit, found[1].ratio, found[1].against.as_str()),
            ("ns", 0.02, "latency stride 64 4KiB")
        );
    }

    #[test]
    fn one_of_each_kind_is_measured() {
        let kinds = [
            Measure::Instruction(Operation::Xor, Width::Scalar),
            Measure::Load(Access::Plain, 4 << 10),
            Measure::Load(Access::Prefetched { ahead: AHEAD }, 1 << 20),
            Measure::Stream(4, 2, Stores::NonTemporal, 1),
            Measure::Stream(3, 0, Stores::Ordinary, 2),
            Measure::Threshold(Stores::NonTemporal, 1 << 20),
            Measure::Ahead(512),
            Measure::Latency(64, Order::Random(1), 64 << 10),
        ];
        if let Some(needs) = kinds[0].missing() {
            gabion_testkit::skip!("one_of_each_kind_is_measured: needs {needs}");
            return;
        }
        let mut bench = Bench::with(2 << 20, true).unwrap();
        for what in kinds {
            let value = bench.measure(what).unwrap();
            assert!(value.is_finite() && value > 0.0, "{}: {value}", what.name());
        }
    }
}
