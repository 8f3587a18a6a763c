//! All races of the interfaces, and what each has to reach.

use std::time::Instant;

use anyhow::Context as _;

use super::super::bars::ISAL;
use super::super::cases::{LARGE, MIDDLE, SMALL, Shape, size};
use super::super::race::Timing;
use super::{Places, c, drop_in, liberasurecode, python, simple};
use crate::isal::Generator;

/// Names of references.
pub(super) const PLAN: &str = "plan (Rust)";
pub(super) const RUST: &str = "Rust";
pub(super) const ZFEC: &str = "zfec";
pub(super) const PYECLIB: &str = "PyECLib";
pub(super) const WITH_ISAL: &str = "with ISA-L";

const MEGABYTE: usize = 1 << 20;
const SHAPES: [Shape; 8] = [(4, 2), (8, 4), (10, 4), (12, 4), (16, 4), (30, 3), (45, 8), (64, 16)];
const QUICK_SHAPES: [Shape; 3] = [(4, 2), (10, 4), (64, 16)];

#[derive(Clone, Copy, Debug)]
enum Interface {
    Simple,
    C,
    DropIn(Generator),
    Liberasurecode(&'static str),
    Python { new: bool },
}

/// One race.
pub(in crate::compare) struct Case {
    pub(in crate::compare) name: String,
    interface: Interface,
    shape: Shape,
    len: usize,
}

impl Case {
    fn new(interface: Interface, shape: Shape, len: usize) -> Self {
        let what = match interface {
            Interface::Simple => "simple API",
            Interface::C => "C API",
            Interface::DropIn(Generator::Cauchy) => "drop-in cauchy1",
            Interface::DropIn(Generator::PowersOfTwo) => "drop-in rs",
            Interface::Liberasurecode(operation) => operation,
            Interface::Python { new: false } => "Python encode",
            Interface::Python { new: true } => "Python encode, new objects",
        };
        let (k, m) = shape;
        Self { name: format!("{what} {k}+{m} {}", size(len)), interface, shape, len }
    }

    pub(in crate::compare) fn run(&self, places: &Places, end: Instant) -> anyhow::Result<Vec<Timing>> {
        let (shape, len) = (self.shape, self.len);
        let environment = || places.python.as_deref().context("no --python");
        match self.interface {
            Interface::Simple => simple(shape, len, end),
            Interface::C => c(places, shape, len, end),
            Interface::DropIn(generator) => drop_in(generator, shape, len, end),
            Interface::Liberasurecode(operation) => {
                liberasurecode((places, environment()?), operation, shape, len, end)
            }
            Interface::Python { new } => python(environment()?, new, shape, len, end),
        }
        .with_context(|| self.name.clone())
    }

    /// Counted bytes of one pass.
    pub(in crate::compare) fn bytes(&self) -> usize {
        self.shape.0 * self.len
    }

    /// Least ratios.
    pub(in crate::compare) fn bars(&self) -> Vec<(&'static str, f64)> {
        match self.interface {
            Interface::Simple => vec![(PLAN, 0.95)],
            Interface::C => vec![(PLAN, 0.97)],
            Interface::DropIn(_) => vec![(ISAL, 0.95)],
            Interface::Liberasurecode(_) => vec![(WITH_ISAL, 1.0)],
            Interface::Python { new: false } => vec![(RUST, 0.95), (ZFEC, 5.0), (PYECLIB, 1.2)],
            // New memory is cleared by the kernel page by page.
            Interface::Python { new: true } => vec![(ZFEC, 5.0), (PYECLIB, 1.2)],
        }
    }
}

/// The cases of a run; those of other programs only with a Python environment.
pub(in crate::compare) fn cases(quick: bool, places: &Places) -> Vec<Case> {
    let mut cases = Vec::new();
    for len in [SMALL, MIDDLE] {
        cases.extend([Interface::Simple, Interface::C].map(|interface| Case::new(interface, (10, 4), len)));
    }
    let shapes = if quick { &QUICK_SHAPES[..] } else { &SHAPES };
    for len in [SMALL, MIDDLE, MEGABYTE, LARGE].into_iter().filter(|&len| !quick || len <= MIDDLE) {
        for &shape in shapes {
            for generator in [Generator::Cauchy, Generator::PowersOfTwo] {
                cases.push(Case::new(Interface::DropIn(generator), shape, len));
            }
        }
    }
    if places.python.is_some() {
        for operation in ["liberasurecode-encode", "liberasurecode-decode"] {
            for len in [MIDDLE, MEGABYTE] {
                cases.push(Case::new(Interface::Liberasurecode(operation), (10, 4), len));
            }
        }
        for new in [false, true] {
            cases.push(Case::new(Interface::Python { new }, (10, 4), MEGABYTE));
        }
    }
    cases
}
