//! Markov chains whose states lead back to the first state, onward to the next state, or to the absorbing end.

use crate::exact::{Rational, common_denominator, is_negative};
use num_bigint::BigInt;
use num_traits::{One, Zero};

/// Transition rates of one state, per hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// To the next state: one more disk is missing, and all data can still be rebuilt.
    pub onward: Rational,
    /// To the end: data is lost.
    pub fatal: Rational,
    /// To the first state: everything is rebuilt. Ignored for the first state itself.
    pub back: Rational,
}

/// States 0, 1, … by number of missing disks. From the last one, onward leads to the end as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain(Vec<Step>);

/// Reason why a chain has no mean time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// No states.
    #[error("a chain without states")]
    Empty,
    /// A negative rate.
    #[error("state {0} has a negative rate")]
    Negative(usize),
    /// The end is unreachable, so there is no mean time to it.
    #[error("data would never be lost: no state leads to the end")]
    NoEnd,
}

impl Chain {
    /// A chain of these states.
    ///
    /// # Errors
    /// See [`ChainError`].
    pub fn new(steps: Vec<Step>) -> Result<Chain, ChainError> {
        if steps.is_empty() {
            return Err(ChainError::Empty);
        }
        let wrong = |step: &Step| [&step.onward, &step.fatal, &step.back].into_iter().any(is_negative);
        if let Some(state) = steps.iter().position(wrong) {
            return Err(ChainError::Negative(state));
        }
        // The end is reached from the first state with a fatal rate, if all before it lead onward.
        let stuck = steps.iter().position(|step| step.onward.is_zero()).unwrap_or(steps.len() - 1);
        let ends = |(state, step): (usize, &Step)| {
            !step.fatal.is_zero() || (state == steps.len() - 1 && !step.onward.is_zero())
        };
        if !steps.iter().enumerate().take(stuck + 1).any(ends) {
            return Err(ChainError::NoEnd);
        }
        Ok(Chain(steps))
    }

    /// The states.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The mean time, in hours, from the first state to the end. It is exact.
    ///
    /// From state i let `a` be the mean time until the first state or the end is reached, and `c` the probability that
    /// it is the end:
    /// ```text
    ///   a_i = (1 + onward_i a_i+1) / all_i      c_i = (fatal_i + onward_i c_i+1) / all_i      T = a_0 / c_0
    /// ```
    /// Rates are scaled to whole numbers, and `a` and `c` share their denominator, the product of all `all_i`. So it
    /// takes multiplications and sums of positive whole numbers only, and one fraction at the end.
    pub fn mean_hours(&self) -> Rational {
        let (numerator, denominator) = self.mean_fraction();
        Rational::new(numerator, denominator)
    }

    /// Numerator and denominator, not reduced: reduction would take longer than the computation.
    pub(crate) fn mean_fraction(&self) -> (BigInt, BigInt) {
        let rates = self.0.iter().flat_map(|step| [&step.onward, &step.fatal, &step.back]);
        let scale = common_denominator(rates);
        let scaled = |rate: &Rational| -> BigInt { rate.numer() * (&scale / rate.denom()) };
        // After the last state is the end: no time, probability 1.
        let (mut time, mut end, mut denominator) = (BigInt::zero(), BigInt::one(), BigInt::one());
        for (state, step) in self.0.iter().enumerate().rev() {
            let (onward, fatal, back) = (scaled(&step.onward), scaled(&step.fatal), scaled(&step.back));
            time = &denominator + &onward * time;
            end = &fatal * &denominator + &onward * end;
            let back = if state == 0 { BigInt::zero() } else { back };
            denominator *= onward + fatal + back;
        }
        (time * scale, end)
    }
}
