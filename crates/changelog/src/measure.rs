//! Load that measures an engine: durable changes per second, and how long writers wait.

use crate::Changelog;
use crate::change::{Change, When};
use crate::error::Result;
use crate::queue::Ticket;
use gabion_platform::world::SECOND;
use gabion_platform::world::Timestamp;
use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Threads that record.
    pub writers: usize,
    /// Distinct files they write to, at random.
    pub files: u64,
    /// Changes in one call.
    pub batch: usize,
    /// Calls that a writer lets be on their way; 1: it waits for each.
    pub in_flight: usize,
    /// Changes per second that all writers offer together; 0: as many as they can.
    pub rate: u64,
    /// How long they go on.
    pub time: Duration,
}

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Changes that were acknowledged.
    pub changes: u64,
    /// From the first call to the last acknowledgment.
    pub time: Duration,
    /// Longest time from a call to its acknowledgment.
    pub worst: Duration,
    /// Mean time from a call to its acknowledgment.
    pub mean: Duration,
    /// Of a hundred calls, 99 were acknowledged within this time; to a tenth of a millisecond, at most a second.
    pub p99: Duration,
}

impl Measured {
    /// Acknowledged changes per second.
    pub fn per_second(&self) -> f64 {
        self.changes as f64 / self.time.as_secs_f64()
    }
}

/// Records under `load` into a changelog that holds nothing else of value: its files are called `measure/…`. The
/// writers are divided among `clients`, which all speak to this changelog.
///
/// # Errors
/// The engine fails.
///
/// # Panics
/// The engine's count of changes is not that of the writers: such a speed means nothing. Or there is no client.
pub fn measure(clients: &[&dyn Changelog], load: &Load) -> Result<Measured> {
    let before = clients[0].sequence()?;
    let began = Instant::now();
    let write = |writer: u64| write(clients[writer as usize % clients.len()], load, writer, began);
    let all: Vec<Result<Writer>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..load.writers).map(|writer| scope.spawn(move || write(writer as u64))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let time = began.elapsed();
    let mut sum = Writer::default();
    for writer in all {
        let writer = writer?;
        sum.calls += writer.calls;
        sum.waited += writer.waited;
        sum.worst = sum.worst.max(writer.worst);
        sum.waits.iter_mut().zip(&writer.waits).for_each(|(sum, calls)| *sum += calls);
    }
    let changes = sum.calls * load.batch as u64;
    assert_eq!(clients[0].sequence()?.0 - before.0, changes, "every change has a number");
    let mean = sum.waited.div_f64(sum.calls.max(1) as f64);
    Ok(Measured { changes, time, worst: sum.worst, mean, p99: sum.p99() })
}

/// Waits are counted by tenths of a millisecond, up to a second.
const STEP: Duration = Duration::from_micros(100);
const STEPS: usize = 10_000;

struct Writer {
    /// Calls by how long they waited.
    waits: Vec<u64>,
    calls: u64,
    waited: Duration,
    worst: Duration,
    under_way: VecDeque<(Instant, Ticket)>,
}

impl Default for Writer {
    fn default() -> Writer {
        let (waited, worst, under_way) = Default::default();
        Writer { waits: vec![0; STEPS], calls: 0, waited, worst, under_way }
    }
}

impl Writer {
    fn p99(&self) -> Duration {
        let mut seen = 0;
        let enough = self.calls - self.calls / 100;
        let step = self.waits.iter().position(|calls| {
            seen += calls;
            seen >= enough
        });
        STEP * (step.unwrap_or(STEPS) as u32 + 1)
    }

    /// Waits for the oldest call.
    fn acknowledge(&mut self) -> Result<()> {
        if let Some((began, ticket)) = self.under_way.pop_front() {
            ticket.wait()?;
            let waited = began.elapsed();
            self.waited += waited;
            self.worst = self.worst.max(waited);
            let step = (waited.as_micros() / STEP.as_micros()) as usize;
            self.waits[step.min(STEPS - 1)] += 1;
            self.calls += 1;
        }
        Ok(())
    }

    fn has_news(&self) -> bool {
        self.under_way.front().is_some_and(|(_, ticket)| ticket.is_decided())
    }
}

fn write(changelog: &dyn Changelog, load: &Load, seed: u64, began: Instant) -> Result<Writer> {
    let mut writer = Writer::default();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut pace = Pace { began, calls: 0 };
    while began.elapsed() < load.time {
        pace.keep(load, &mut writer)?;
        let changes: Vec<Change> = (0..load.batch).map(|_| random_change(&mut random, load.files)).collect();
        writer.under_way.push_back((Instant::now(), changelog.record_later(&changes)?));
        while writer.under_way.len() >= load.in_flight.max(1) || writer.has_news() {
            writer.acknowledge()?;
        }
    }
    while !writer.under_way.is_empty() {
        writer.acknowledge()?;
    }
    Ok(writer)
}

/// A writer that is not to write as fast as it can.
struct Pace {
    began: Instant,
    calls: u32,
}

impl Pace {
    /// Takes acknowledgments or sleeps until the next call is due.
    fn keep(&mut self, load: &Load, writer: &mut Writer) -> Result<()> {
        if load.rate > 0 {
            let each = (load.batch * load.writers) as f64 / load.rate as f64;
            let next = Duration::from_secs_f64(each * f64::from(self.calls));
            while let early @ 1.. = next.saturating_sub(self.began.elapsed()).as_micros() {
                if writer.has_news() {
                    writer.acknowledge()?;
                } else {
                    // Short, so that acknowledgments are not measured late.
                    thread::sleep(Duration::from_micros(early.min(1000) as u64));
                }
            }
            self.calls += 1;
        }
        Ok(())
    }
}

/// A page of a file, as a file system in user space sees it.
fn random_change(random: &mut u64, files: u64) -> Change {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let (file, page) = (*random % files.max(1), (*random >> 32) % 256);
    let when = When::after_rest(Timestamp::EPOCH, 10 * SECOND, 600 * SECOND, 0);
    Change::modify(format!("measure/{:03}/{file:08}", file % 100), page * 4096..(page + 1) * 4096, when)
}
