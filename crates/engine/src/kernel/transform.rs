//! Transforms: plans given by their points, computed by additive FFTs of any size without a matrix.
//!
//! An output is u_i · f(a_i), where f(z) is the sum of v_j · x_j / (z + b_j) over all inputs. Partition the points into
//! cosets of the subspace V = 0..n, and let all outputs lie in one of them, which is V itself after a shift of all
//! points. Then f on V is a sum over the cosets of inputs:
//!
//! - Inputs on another coset contribute, up to a factor common to the coset (W_n(x) / p, see [`Additive`]), the values
//!   on V of the polynomial of degree below n with the values v_j · x_j on their coset and 0 at points without an
//!   input.
//! - Inputs in V contribute the *derivative* of the polynomial with the values v_j · x_j at their points and 0
//!   elsewhere on V. The polynomial that is 1 at b and 0 elsewhere on V is W(z) / (p · (z + b)), where p is the
//!   derivative of W; W is zero on V, so its derivative at another point a of V is p / (p · (a + b)).
//!
//! So every coset of inputs is transformed to coefficients, those of V are differentiated, all are summed, and the sum
//! is evaluated on V: n log n steps per coset instead of n · n. With all inputs in one coset and outputs in many, the
//! same holds in reverse. The whole field is a coset that contains all points, so every plan has a transform.
//!
//! A transform does not pay for a coset with few inputs: these are strays, multiplied with the outputs one by one.

use crate::field::Field;
use crate::matrix::additive::Additive;
use crate::matrix::cauchy::{CauchyForm, Point};
use crate::tuning::MAX_STRAYS;
use std::ops::Range;

/// A block with its index in the coset and its weight.
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
    /// Range of its members in the side.
    pub(super) members: Range<usize>,
}

/// All inputs or all outputs of the transforms, ordered by coset and index.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) members: Vec<Member>,
    pub(super) cosets: Vec<Coset>,
}

/// An input outside the transforms.
#[derive(Debug)]
pub(super) struct Stray {
    pub(super) block: u32,
    /// One coefficient per output, in the order of the members.
    pub(super) coefficients: Vec<u16>,
}

/// A matrix over GF(2^8) or GF(2^16) by its points. One of the sides has a single coset, at 0.
#[derive(Debug)]
pub(crate) struct Transform {
    pub(super) field: Field,
    /// A coset has 2^log points.
    pub(super) log: usize,
    pub(super) inputs: Side,
    pub(super) outputs: Side,
    /// Only used if the outputs have a single coset.
    pub(super) strays: Vec<Stray>,
}

impl Transform {
    /// The cheaper of the two orientations.
    ///
    /// # Panics
    /// If a row and a column share a point, points are outside the field, or the field is neither GF(2^8) nor GF(2^16);
    /// plans exclude all of these.
    pub(super) fn new(field: Field, form: &CauchyForm) -> Transform {
        let (rows, columns) = (enclosing(&form.rows), enclosing(&form.columns));
        let by_rows = Transform::on(field, rows, form);
        if columns.0 >= rows.0 && by_rows.outputs.cosets.len() <= 1 && by_rows.inputs.cosets.len() <= 1 {
            return by_rows;
        }
        let by_columns = Transform::on(field, columns, form);
        if by_rows.products() <= by_columns.products() { by_rows } else { by_columns }
    }

    /// On the coset of 2^log points that contains all points of one side.
    fn on(field: Field, (log, base): (usize, u64), form: &CauchyForm) -> Transform {
        let additive = Additive::of(field);
        let within = |points: &[Point]| points.iter().all(|point| (point.at ^ base) >> log == 0);
        let by_rows = within(&form.rows);
        let (single, many) = if by_rows { (&form.rows, &form.columns) } else { (&form.columns, &form.rows) };
        // A factor common to the single side is moved to the other side, where it often cancels.
        let first = single.first().map_or(1, |point| point.scale);
        let is_shared = first != 0 && single.iter().all(|point| point.scale == first);
        let factor = if is_shared { first } else { 1 };
        let inverse = field.inv(factor).expect("not zero");
        let single = Side::new(single, log, base, |point, _| field.mul(point.scale, inverse));
        // The constants of V and the cosets are moved to the side with many cosets.
        let many = Side::new(many, log, base, |point, coset| {
            let own = if coset == 0 { 1 } else { additive.scale(log, coset) };
            field.div(field.mul(point.scale, factor), own).expect("W_n is zero on V alone")
        });
        let (inputs, outputs) = if by_rows { (many, single) } else { (single, many) };
        let mut transform = Transform { field, log, inputs, outputs, strays: Vec::new() };
        if by_rows {
            transform.separate_strays(form);
        }
        transform
    }

    /// Turns inputs into strays if they cost less one by one than by the transform of their coset, up to the maximum.
    fn separate_strays(&mut self, form: &CauchyForm) {
        let Transform { field, log, inputs, outputs, strays } = self;
        let of_coset = (*log << *log) / 2;
        let is_worth_it = |coset: &Coset| {
            // The derivative takes as long as the transform.
            let transformed = if coset.at == 0 { 2 * of_coset } else { of_coset };
            let count = coset.members.len();
            count > MAX_STRAYS || count * outputs.members.len() >= transformed + count
        };
        if inputs.cosets.iter().all(is_worth_it) {
            return;
        }
        let mut rest = Side { members: Vec::with_capacity(inputs.members.len()), cosets: Vec::new() };
        for coset in &inputs.cosets {
            let members = &inputs.members[coset.members.clone()];
            if is_worth_it(coset) || strays.len() + members.len() > MAX_STRAYS {
                let start = rest.members.len();
                rest.members.extend(members);
                rest.cosets.push(Coset { at: coset.at, members: start..rest.members.len() });
                continue;
            }
            strays.extend(members.iter().map(|&Member { block, .. }| {
                let entry = |output: &Member| form.entry(*field, output.block as usize, block as usize);
                let entries =
                    outputs.members.iter().map(|output| entry(output).expect("points differ") as u16);
                Stray { block, coefficients: entries.collect() }
            }));
        }
        *inputs = rest;
    }

    /// Approximate number of products per symbol of a block.
    pub(super) fn products(&self) -> usize {
        let sides = [&self.inputs, &self.outputs];
        let cosets: usize = sides.map(|side| side.cosets.len()).iter().sum();
        let cosets = cosets + usize::from(self.differentiates());
        let weights = sides.into_iter().flat_map(|side| &side.members);
        let strays: usize = self.strays.iter().map(|stray| stray.coefficients.len()).sum();
        ((cosets * self.log) << self.log) / 2 + weights.filter(|member| member.weight != 1).count() + strays
    }

    /// True if it maps one coset to another: the last pass of interpolation and the first of evaluation are combined.
    pub(super) fn is_between_two_cosets(&self) -> bool {
        self.inputs.cosets.len() == 1 && self.outputs.cosets.len() == 1 && !self.differentiates()
    }

    /// True if inputs and outputs share a coset.
    pub(super) fn differentiates(&self) -> bool {
        let at_zero = |side: &Side| side.cosets.iter().any(|coset| coset.at == 0);
        at_zero(&self.inputs) && at_zero(&self.outputs)
    }
}

impl Side {
    /// `weight` takes a point and the first point of its coset.
    fn new(points: &[Point], log: usize, base: u64, weight: impl Fn(&Point, u64) -> u64) -> Side {
        let mut order: Vec<(u64, usize)> =
            points.iter().enumerate().map(|(block, point)| (point.at ^ base, block)).collect();
        order.sort_unstable();
        let mut cosets: Vec<Coset> = Vec::new();
        let member = |(index, &(at, block)): (usize, &(u64, usize))| {
            let (coset, place) = (at >> log << log, at & ((1 << log) - 1));
            match cosets.last_mut().filter(|last| last.at as u64 == coset) {
                Some(last) => last.members.end = index + 1,
                None => cosets.push(Coset { at: coset as usize, members: index..index + 1 }),
            }
            let weight = weight(&points[block], coset) as u16;
            Member { block: block as u32, place: place as u32, weight }
        };
        let members = order.iter().enumerate().map(member).collect();
        Side { members, cosets }
    }
}

/// The smallest coset of some 0..2^log that contains all points: its log, and one of its points.
fn enclosing(points: &[Point]) -> (usize, u64) {
    let first = points.first().map_or(0, |point| point.at);
    let spread = points.iter().fold(0, |bits, point| bits | (point.at ^ first));
    ((u64::BITS - spread.leading_zeros()) as usize, first)
}
