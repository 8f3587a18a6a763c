//! The two models of the thesis (section 1.2) as chains.
//!
//! Of d disks, i have failed. A rebuild ends with rate μ; it reads k disks, and meets a read error with probability h.
//! Then
//!
//! ```text
//! everything is rebuilt      (1 - h) μ
//! one more disk has failed   (d - i) λ, and detected read errors
//! the end                    the same in state m, and undetected errors, SR h μ without checks
//! ```
//!
//! With checks every read error is detected, and the block is one more erasure.

use crate::chain::{Chain, ChainError, Step};
use crate::exact::{Rational, whole};
use crate::parameters::Parameters;
use crate::scheme::Scheme;
use num_traits::{One, Zero};

/// Verification of blocks that are read for a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// None: a silent error corrupts the rebuilt data (figure 1-1).
    Unchecked,
    /// By checksums or signatures: a silent error is one more erasure (figure 1-2). Gabion works this way.
    Checked,
}

impl Model {
    /// Both models.
    pub const ALL: [Model; 2] = [Model::Unchecked, Model::Checked];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Unchecked => "unchecked",
            Model::Checked => "checked",
        }
    }
}

/// Interpretation of the equations of the thesis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// By their meaning: with no missing disk nothing is rebuilt, so no read error of a rebuild leaves state 0; and an
    /// error leads to one state only. Then both models agree for one tolerated erasure, as the thesis states.
    #[default]
    Meant,
    /// Literally: f_0 of equations 1.2 and 1.5 includes the read errors, and in the last state of figure 1-2 silent
    /// errors count twice.
    Printed,
}

impl Model {
    /// The chain of one group of disks.
    ///
    /// # Errors
    /// None for checked parameters, since disks fail.
    pub fn chain(
        self,
        scheme: Scheme,
        parameters: &Parameters,
        reading: Reading,
    ) -> Result<Chain, ChainError> {
        let (failure, rebuild) = (parameters.failure_rate(), parameters.rebuild_rate());
        let error = parameters.read_error(scheme.data());
        let silent = &parameters.given().silent * &error * &rebuild;
        // Detected errors.
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
