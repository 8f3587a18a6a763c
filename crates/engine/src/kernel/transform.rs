//! A plan that is known by its points, without its matrix: additive FFTs of any size.
//!
//! An output is u_i · f(a_i), where f(z) is the sum of v_j · x_j / (z + b_j) over all inputs. Let the points be cut into cosets of the subspace
//! V = 0..n, and let all outputs lie in one of them, which is V itself once all points are shifted. Then f on V is a sum over the cosets of
//! inputs:
//!
//! - Those at another coset contribute, up to a factor that is the same for all of the coset (W_n(x) / p, see [`Additive`]), the values on V of
//!   the polynomial of degree below n that has the values v_j · x_j on their coset and 0 where there is no input.
//! - Those that lie in V contribute the *derivative* of the polynomial that has the values v_j · x_j at their points and 0 elsewhere on V. For the
//!   polynomial that is 1 at b and 0 elsewhere on V is W(z) / (p · (z + b)), where p is the derivative of W; and W is zero on V, so that what
//!   is left of the derivative at another point a of V is p / (p · (a + b)).
//!
//! So every coset of inputs is brought to coefficients, those of V are differentiated, all are summed, and the sum is evaluated on V: n log n steps
//! for each coset instead of n · n. With all inputs in one coset and outputs in many it is the same the other way round. The whole field is a
//! coset that holds everything, so there is a way for every plan.

use crate::field::Field;
use crate::matrix::additive::Additive;
use crate::matrix::cauchy::{CauchyForm, Point};
use std::collections::BTreeMap;

/// Where a block lies in its coset, and what it is multiplied with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) block: u32,
    pub(super) place: u32,
    pub(super) weight: u16,
}

/// The blocks of one coset.
#[derive(Debug)]
pub(super) struct Coset {
    /// Its first point; 0 for V.
    pub(super) at: usize,
    pub(super) members: Vec<Member>,
}

/// A matrix over GF(2^16) by its points. One of the sides has a single coset, at 0.
#[derive(Debug)]
pub(super) struct Transform {
    /// A coset has 2^log points.
    pub(super) log: usize,
    pub(super) inputs: Vec<Coset>,
    pub(super) outputs: Vec<Coset>,
}

impl Transform {
    /// The cheaper of the two ways.
    ///
    /// # Panics
    /// Where a row and a column share a point, or points are not of GF(2^16): a plan has neither.
    pub(super) fn new(form: &CauchyForm) -> Transform {
        let (rows, columns) = (enclosing(&form.rows), enclosing(&form.columns));
        let by_rows = Transform::on(rows, form);
        let by_columns = Transform::on(columns, form);
        if by_rows.products() <= by_columns.products() { by_rows } else { by_columns }
    }

    /// On the coset of 2^log points that holds all points of one side.
    fn on((log, base): (usize, u64), form: &CauchyForm) -> Transform {
        let field = Field::GF16;
        let cosets = |points: &[Point], single: bool, factor: u64| {
            let mut cosets: BTreeMap<u64, Vec<Member>> = BTreeMap::new();
            for (block, point) in points.iter().enumerate() {
                let at = point.at ^ base;
                let (coset, place) = (at >> log << log, at & ((1 << log) - 1));
                // What V and the cosets need of a constant goes to the side that has many cosets.
                let own = if single || coset == 0 { 1 } else { Additive::of_gf16().scale(log, coset) };
                let weight = field.div(field.mul(point.scale, factor), own);
                let weight = weight.expect("W_n is zero on V alone") as u16;
                let member = Member { block: block as u32, place: place as u32, weight };
                cosets.entry(coset).or_default().push(member);
            }
            cosets.into_iter().map(|(at, members)| Coset { at: at as usize, members }).collect::<Vec<_>>()
        };
        let within = |points: &[Point]| points.iter().all(|point| (point.at ^ base) >> log == 0);
        // A factor that the whole of the single side has goes to the other, where it often cancels.
        let shared = |points: &[Point]| {
            let first = points.first().map_or(1, |point| point.scale);
            if first != 0 && points.iter().all(|point| point.scale == first) { first } else { 1 }
        };
        let (single, many) =
            if within(&form.rows) { (&form.rows, &form.columns) } else { (&form.columns, &form.rows) };
        let factor = shared(single);
        let inverse = field.inv(factor).expect("not zero");
        let (single, many) = (cosets(single, true, inverse), cosets(many, false, factor));
        if within(&form.rows) {
            Transform { log, inputs: many, outputs: single }
        } else {
            Transform { log, inputs: single, outputs: many }
        }
    }

    /// Products of a symbol with a constant that it takes for every symbol of a block, about.
    pub(super) fn products(&self) -> usize {
        let cosets = self.inputs.len() + self.outputs.len() + usize::from(self.differentiates());
        let weights = self.inputs.iter().chain(&self.outputs).flat_map(|coset| &coset.members);
        ((cosets * self.log) << self.log) / 2 + weights.filter(|member| member.weight != 1).count()
    }

    /// Whether inputs and outputs share a coset.
    pub(super) fn differentiates(&self) -> bool {
        let at_zero = |cosets: &[Coset]| cosets.iter().any(|coset| coset.at == 0);
        at_zero(&self.inputs) && at_zero(&self.outputs)
    }
}

/// The smallest coset of some 0..2^log that holds all points: its log, and one of its points.
fn enclosing(points: &[Point]) -> (usize, u64) {
    let first = points.first().map_or(0, |point| point.at);
    let spread = points.iter().fold(0, |bits, point| bits | (point.at ^ first));
    ((u64::BITS - spread.leading_zeros()) as usize, first)
}
