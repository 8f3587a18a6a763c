//! The engine's conformance suite for a device, as a function for programs that run on the machine of the device.
//!
//! Checks are independent and spend most of their time compiling, so several threads run them.

use gabion_engine::conformance::{
    Buffers, PatternLimits, TestRng, boundary_lengths, every_run_is_launched,
    partial_and_update_agree_with_encode, random_plans, refuses_wrong_buffers, same_as_reference,
    survives_losses,
};
use gabion_engine::kernel::Backend;
use gabion_engine::{Code, Field, Layout, Mode, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Extent of the checks.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Rounds of random plans of every field and layout.
    pub rounds: u64,
    /// Codes for which losses are repaired.
    pub codes: Vec<&'static str>,
    /// Loss patterns of each code.
    pub losses: PatternLimits,
    /// Codes with partial products and updates.
    pub updates: Vec<&'static str>,
    /// Wide or long plans, with the length of a block in bytes.
    pub wide: Vec<(&'static str, usize)>,
    /// Fields whose multiplication is checked for lengths around all step sizes of kernels.
    pub boundaries: Vec<Field>,
    /// Threads that share the checks.
    pub threads: usize,
    /// True if wrong buffers and launch counts are checked, with plans of several widths and layouts.
    pub general: bool,
    /// The part of the checks to run.
    pub part: Part,
}

/// One of several parts of the checks, so that a long suite can be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    index: usize,
    count: usize,
}

impl Part {
    /// All checks.
    pub const WHOLE: Part = Part { index: 1, count: 1 };

    /// True if check number `place` belongs to this part.
    fn has(self, place: usize) -> bool {
        place % self.count == self.index - 1
    }
}

/// An invalid part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a part: use I/N, such as 1/8, with I from 1 to N")]
pub struct BadPart(String);

impl std::str::FromStr for Part {
    type Err = BadPart;

    fn from_str(text: &str) -> Result<Part, BadPart> {
        let numbers = text
            .split_once('/')
            .and_then(|(index, count)| Some(Part { index: index.parse().ok()?, count: count.parse().ok()? }));
        numbers.filter(|part| (1..=part.count).contains(&part.index)).ok_or_else(|| BadPart(text.to_owned()))
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// Codes of every family, field and layout, narrow and wide.
pub const CODES: [&str; 29] = [
    "1+1",
    "1+4",
    "4+2",
    "10+4",
    "5+5",
    "rs-vandermonde:10+4",
    "rs-isal:8+3",
    "cauchy:6+3:w8",
    "cauchy-isal:10+4",
    "cauchy-good:7+3",
    "raidz:8+1",
    "raidz:8+2",
    "raidz:8+3",
    "subspace:10+4:w4",
    "subspace:5+11:w4",
    "subspace:6+3:w16",
    "subspace:5+3:w32",
    "subspace:4+3:w64",
    "subspace:6+3:w5:packets=8",
    "subspace:4+3:w8:packets=3",
    "cauchy-good:10+4:w4:packets=24",
    "cauchy:5+3:w7:packets=17",
    "cauchy:4+2:w16:packets=9",
    "cauchy:3+2:w32:packets=5",
    "45+8",
    "64+16",
    "64+16:packets=256",
    "30+33",
    "200+56",
];

/// Codes for partial products and updates.
pub const UPDATES: [&str; 6] =
    ["6+3", "3+6:w16", "raidz:7+3", "cauchy:5+2:w32", "cauchy:3+2:w64", "cauchy-good:6+3:w6:packets=11"];

/// Wide plans, and blocks of several tiles and rounds.
pub const WIDE: [(&str, usize); 7] = [
    ("40+17", 333),
    ("200+56", 65),
    ("64+9:w16", 130),
    ("9+4:w64", 520),
    ("3+2", 900_001),
    ("10+4:packets=4096", 8 * 4096 * 9),
    ("64+16:packets=256", 8 * 256 * 13),
];

impl Effort {
    /// All checks, for a device with a fast compiler.
    pub fn full(threads: usize) -> Effort {
        Effort {
            rounds: 6,
            codes: CODES.to_vec(),
            losses: PatternLimits { exhaustive: 12, samples: 4 },
            updates: UPDATES.to_vec(),
            wide: WIDE.to_vec(),
            boundaries: Field::WORDS.to_vec(),
            threads,
            general: true,
            part: Part::WHOLE,
        }
    }

    /// Checks for back ends that support only 8-bit symbols in the words layout.
    pub fn of_bytes(threads: usize) -> Effort {
        let knows = |text: &str| {
            let code = code(text);
            code.layout() == Layout::Words && code.field() == Field::GF8
        };
        let all = Effort::full(threads);
        Effort {
            rounds: 0,
            codes: all.codes.into_iter().filter(|text| knows(text)).collect(),
            updates: all.updates.into_iter().filter(|text| knows(text)).collect(),
            wide: all.wide.into_iter().filter(|(text, _)| knows(text)).collect(),
            boundaries: vec![Field::GF8],
            general: false,
            ..Effort::full(threads)
        }
    }
}

/// Heap buffers, each one byte further from an aligned address.
struct Shifted(usize);

#[derive(Debug)]
struct ShiftedBlock {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffers for Shifted {
    type Block = ShiftedBlock;

    fn block(&mut self, len: usize) -> ShiftedBlock {
        self.0 += 1;
        ShiftedBlock { bytes: vec![0xa5; len + 64], start: self.0 % 64, len }
    }
}

impl AsRef<[u8]> for ShiftedBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl AsMut<[u8]> for ShiftedBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

type Check<'a> = (String, Box<dyn Fn() + Send + Sync + 'a>);

/// Runs the suite; calls `report` with the result of every check. Returns the number of failed checks.
///
/// Launch counts are checked while no other check runs.
pub fn conformance(
    backend: &dyn Backend,
    launches: &(dyn Fn() -> u64 + Sync),
    effort: &Effort,
    report: &(dyn Fn(&str, Result<(), String>) + Sync),
) -> usize {
    let alone = if effort.general { general_checks(backend, launches) } else { Vec::new() };
    let first = alone.len();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let reporting = Mutex::new(());
    let run = |(name, check): &Check<'_>| {
        let outcome = catch_unwind(AssertUnwindSafe(check)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
                .unwrap_or_else(|| "a panic without a message".to_owned())
        });
        failed.fetch_add(usize::from(outcome.is_err()), Ordering::Relaxed);
        let _one_at_a_time = reporting.lock().unwrap_or_else(PoisonError::into_inner);
        report(name, outcome);
    };
    alone.iter().enumerate().filter(|(place, _)| effort.part.has(*place)).for_each(|(_, check)| run(check));
    let shared = checks(backend, effort);
    let shared: Vec<&Check<'_>> = shared
        .iter()
        .enumerate()
        .filter(|(place, _)| effort.part.has(first + place))
        .map(|(_, c)| c)
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..effort.threads.max(1) {
            scope.spawn(|| {
                while let Some(check) = shared.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(check);
                }
            });
        }
    });
    failed.into_inner()
}

fn general_checks<'a>(backend: &'a dyn Backend, launches: &'a (dyn Fn() -> u64 + Sync)) -> Vec<Check<'a>> {
    vec![
        ("wrong buffers are refused".to_owned(), Box::new(move || refuses_wrong_buffers(backend))),
        (
            "every run is launched".to_owned(),
            Box::new(move || every_run_is_launched(backend, &mut Shifted(0), &|| launches())),
        ),
    ]
}

fn checks<'a>(backend: &'a dyn Backend, effort: &'a Effort) -> Vec<Check<'a>> {
    let mut checks: Vec<Check<'a>> = Vec::new();
    let mut add = |name: String, check: Box<dyn Fn() + Send + Sync + 'a>| checks.push((name, check));
    // The longest checks first, so that threads finish at about the same time.
    for &(text, len) in &effort.wide {
        add(
            format!("{text} in blocks of {len} bytes"),
            Box::new(move || {
                let plan = code(text).encode_plan().expect("a plan");
                let len = len.next_multiple_of(plan.granule());
                same_as_reference(&[backend], &plan, len, &mut Shifted(0), &mut TestRng(6));
            }),
        );
    }
    for &text in effort.codes.iter().rev() {
        add(
            format!("{text} survives losses"),
            Box::new(move || {
                let code = code(text);
                let len = 67usize.next_multiple_of(code.granule());
                survives_losses(&[backend], &code, len, &mut Shifted(0), effort.losses);
            }),
        );
    }
    for round in 0..effort.rounds {
        add(
            format!("random plans, round {round}"),
            Box::new(move || random_plans(&[backend], &mut Shifted(0), 0x6761_6269_6f6e + round, 1)),
        );
    }
    for &text in &effort.updates {
        add(
            format!("{text} partial products and updates"),
            Box::new(move || {
                let code = code(text);
                let len = 1029usize.next_multiple_of(code.granule());
                partial_and_update_agree_with_encode(&[backend], &code, len, &mut Shifted(0));
            }),
        );
    }
    for &field in &effort.boundaries {
        add(
            format!("boundary lengths over {field:?}"),
            Box::new(move || {
                let mut random = TestRng(5);
                for mode in [Mode::Write, Mode::Add] {
                    let constant = 0xb5c0_fbcf_ec4d_3b2f & field.mask();
                    let plan = Plan::multiply(field, constant, mode).expect("a plan");
                    for len in boundary_lengths() {
                        let len = len.next_multiple_of(plan.granule());
                        same_as_reference(&[backend], &plan, len, &mut Shifted(0), &mut random);
                    }
                }
            }),
        );
    }
    checks
}

fn code(text: &str) -> Code {
    text.parse().expect("the codes of this file are codes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::kernel::Reference;
    use std::sync::atomic::AtomicU64;

    fn little() -> Effort {
        Effort {
            rounds: 1,
            codes: vec!["4+2"],
            losses: PatternLimits { exhaustive: 1, samples: 1 },
            updates: vec!["6+3"],
            wide: vec![],
            boundaries: vec![Field::GF8],
            threads: 2,
            general: true,
            part: Part::WHOLE,
        }
    }

    #[test]
    fn parts_make_the_whole() {
        let names = |part: &str| {
            let names = Mutex::new(Vec::new());
            let effort = Effort { part: part.parse().unwrap(), ..little() };
            let launches = AtomicU64::new(0);
            let counting = || launches.fetch_add(1, Ordering::Relaxed);
            conformance(&Reference, &counting, &effort, &|name, _| {
                names.lock().unwrap().push(name.to_owned())
            });
            names.into_inner().unwrap()
        };
        let mut parts = [names("1/3"), names("2/3"), names("3/3")].concat();
        let mut whole = names("1/1");
        parts.sort();
        whole.sort();
        assert_eq!(parts, whole);
        for text in ["", "0/3", "4/3", "1", "1/0", "a/b"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }

    /// The reference computes correct bytes but launches nothing: exactly one check must fail.
    #[test]
    fn missing_launches_are_detected() {
        let failures = Mutex::new(Vec::new());
        let report = |name: &str, outcome: Result<(), String>| {
            if let Err(why) = outcome {
                failures.lock().unwrap().push((name.to_owned(), why));
            }
        };
        assert_eq!(conformance(&Reference, &|| 7, &little(), &report), 1);
        let failures = failures.into_inner().unwrap();
        assert_eq!(failures[0].0, "every run is launched");
        assert!(failures[0].1.contains("not on the device"), "{}", failures[0].1);
    }

    #[test]
    fn counted_launches_pass() {
        let count = AtomicU64::new(0);
        let counting = || count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(conformance(&Reference, &counting, &little(), &|_, outcome| outcome.unwrap()), 0);
    }
}
