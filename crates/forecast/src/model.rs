//! The two models of the thesis (section 1.2) as chains.
//!
//! Of d disks, i have failed. A rebuild ends with rate μ; it reads k disks, and with probability h meets a read error. Then
//! ```text
//!   all is well again          (1 - h) μ
//!   one more disk is failed    (d - i) λ, and read errors that are noticed
//!   the end                    the same in state m, and errors that nobody notices, SR h μ without checks
//! ```
//! With checks every read error is noticed, and the block is an erasure like others.

use crate::chain::{Chain, ChainError, Step};
use crate::exact::{Rational, whole};
use crate::parameters::Parameters;
use crate::scheme::Scheme;
use num_traits::{One, Zero};

/// Whether blocks are verified while they are read for a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// They are not: a silent error spreads into what is rebuilt (figure 1-1).
    Unchecked,
    /// They are, by checksums or signatures: a silent error is one more erasure (figure 1-2). So does Gabion.
    Checked,
}

impl Model {
    /// Both.
    pub const ALL: [Model; 2] = [Model::Unchecked, Model::Checked];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Unchecked => "unchecked",
            Model::Checked => "checked",
        }
    }
}

/// How the equations of the thesis are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// By what they stand for: with no disk missing nothing is rebuilt, so no read error of a rebuild leads out of state 0; and an
    /// error leads to one state only. Then both models agree for one tolerated erasure, as the thesis says they do.
    #[default]
    Meant,
    /// Letter by letter: f_0 of equations 1.2 and 1.5 has the read errors too, and in the last state of figure 1-2 silent errors
    /// count twice.
    Printed,
}

impl Model {
    /// The chain of one group of disks.
    ///
    /// # Errors
    /// Not for parameters that were checked: disks do fail.
    pub fn chain(
        self,
        scheme: Scheme,
        parameters: &Parameters,
        reading: Reading,
    ) -> Result<Chain, ChainError> {
        let (failure, rebuild) = (parameters.failure_rate(), parameters.rebuild_rate());
        let error = parameters.read_error(scheme.data());
        let silent = &parameters.given().silent * &error * &rebuild;
        // Errors that are noticed.
        let noticed = match self {
            Model::Unchecked => (Rational::one() - &parameters.given().silent) * &error * &rebuild,
            Model::Checked => &error * &rebuild,
        };
        let back = (Rational::one() - &error) * &rebuild;
        let last = scheme.redundancy();
        let step = |missing: u32| {
            let failures = whole(u64::from(scheme.disks() - missing)) * &failure;
            let rebuilding = missing > 0;
            let noticed = match rebuilding || reading == Reading::Printed {
                true => noticed.clone(),
                false => Rational::zero(),
            };
            let fatal = match (self, rebuilding, reading) {
                (Model::Unchecked, true, _) => silent.clone(),
                (Model::Checked, true, Reading::Printed) if missing == last => silent.clone(),
                _ => Rational::zero(),
            };
            let back = if rebuilding { back.clone() } else { Rational::zero() };
            let worse = failures + noticed;
            match missing == last {
                true => Step { onward: Rational::zero(), fatal: worse + fatal, back },
                false => Step { onward: worse, fatal, back },
            }
        };
        Chain::new((0..=last).map(step).collect())
    }
}
