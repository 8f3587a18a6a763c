//! Algebraic signatures (thesis 2.4): short linear checksums of blocks.
//!
//! The signature of a block of symbols p_0 … p_(l-1) has n components; component i is the value of the
//! block, read as a polynomial, at α^(i+1):
//!
//! ```text
//! sig_i = sum over j of p_j · (α^(i+1))^j
//! ```
//!
//! It detects every change of up to n symbols with certainty, and any other with probability 1 - 2^-nw, as long as the
//! powers α^j of all positions differ: l <= 2^w - 1. It is linear, so the signatures of redundancy are the code applied
//! to the signatures of data (the linear law): RS(sig(d)) = sig(RS(d)).
//!
//! Symbols are elements of a field ([`Signer::new`]) or of a tower over it ([`Signer::tower`]): with the tower the law
//! holds for codes over GF(2^4 … 2^32), with 64-bit components and blocks of any length.
//!
//! Signatures for long-lived data are [`independent`](Signer::independent): their two points are Y and one that is not
//! a conjugate of Y, since with Y and Y² the second component follows from the first for some changes.
//!
//! Computation: in the tower over GF(2^8) by division, otherwise by Horner's scheme, both over whole registers; see
//! `divide` and `sign` in the generic kernels.

mod point;

use crate::bytemap::LinearMap;
use crate::division::{SignaturePoints, TrailingQuotients};
use crate::error::Error;
use crate::field::Field;
use crate::field::reference::times_x;
use crate::kernel::{KernelSet, LaneSigner, SignatureSpec};
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use crate::tower::Tower;
use point::Products;
use std::fmt;

/// Maximum components of a signature.
pub const MAX_COMPONENTS: usize = 16;

/// Iterations whose quotients determine a remainder: the degree of the tower over GF(2^8).
const REMAINDER_ITERATIONS: usize = 8;

/// Field or tower of the symbols of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Field(Field),
    Tower(Tower),
}

impl Space {
    fn bytes(self) -> usize {
        match self {
            Space::Field(field) => field.w() as usize / 8,
            Space::Tower(_) => 8,
        }
    }

    /// Product with α: x in a field, Y in a tower.
    fn times_alpha(self, a: u64) -> u64 {
        match self {
            Space::Field(field) => times_x(field, a),
            Space::Tower(tower) => tower.times_y(a),
        }
    }

    fn times_alpha_power(self, a: u64, exponent: usize) -> u64 {
        (0..exponent).fold(a, |a, _| self.times_alpha(a))
    }

    fn mul(self, a: u64, b: u64) -> u64 {
        match self {
            Space::Field(field) => field.mul(a, b),
            Space::Tower(tower) => tower.mul(a, b),
        }
    }

    /// Product with a constant of the code's field.
    fn scale(self, a: u64, constant: u64) -> u64 {
        match self {
            Space::Field(field) => field.mul(a, constant),
            Space::Tower(tower) => tower.scale(a, constant),
        }
    }

    /// Folds symbols: the sum of symbol j times α^(stride · j).
    fn folded(self, symbols: &[u8], stride: usize) -> u64 {
        match self {
            Space::Tower(tower) if tower.base() == Field::GF8 && stride == 1 => wide::<1, 8>(tower, symbols),
            Space::Tower(tower) if tower.base() == Field::GF8 && stride == 2 => wide::<2, 4>(tower, symbols),
            _ => symbols
                .chunks(self.bytes())
                .rev()
                .fold(0, |sum, symbol| self.times_alpha_power(sum, stride) ^ little_endian(symbol)),
        }
    }

    fn is_tower_of_gf8(self) -> bool {
        matches!(self, Space::Tower(tower) if tower.base() == Field::GF8)
    }

    fn code_field(self) -> Field {
        match self {
            Space::Field(field) => field,
            Space::Tower(tower) => tower.base(),
        }
    }
}

/// As [`Space::folded`] in the tower over GF(2^8), where a product with Y is a shift by one byte: up to `AT_ONCE`
/// symbols reach at most Y^15 before reduction.
fn wide<const STRIDE: usize, const AT_ONCE: usize>(tower: Tower, symbols: &[u8]) -> u64 {
    const { assert!(STRIDE * AT_ONCE == 8, "later symbols shift by up to eight bytes") };
    let (symbols, rest) = symbols.as_chunks::<8>();
    assert!(rest.is_empty(), "a symbol has 8 bytes, not {}", rest.len());
    let before = |later: u64, symbols: &[[u8; 8]]| {
        let later = u128::from(later) << (8 * STRIDE * symbols.len());
        let sum = symbols.iter().enumerate().fold(later, |sum, (place, symbol)| {
            sum ^ u128::from(u64::from_le_bytes(*symbol)) << (8 * STRIDE * place)
        });
        sum as u64 ^ tower.times_y8_of_gf8((sum >> 64) as u64)
    };
    let (first, many) = symbols.as_rchunks::<AT_ONCE>();
    let later = many.iter().rev().fold(0, |later, symbols| before(later, symbols));
    before(later, first)
}

/// The signature of one block: n components.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signature(Vec<u64>);

impl Signature {
    /// A signature from stored components.
    pub fn from_components(components: Vec<u64>) -> Signature {
        Signature(components)
    }

    /// The components.
    pub fn components(&self) -> &[u64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({:x?})", self.0)
    }
}

/// A signature in progress: a short block with the signature of everything absorbed so far.
pub(crate) struct Lanes(Vec<u8>);

/// Computes signatures of one kind.
pub struct Signer {
    space: Space,
    components: usize,
    /// Products with the second point, if it is not α².
    second: Option<Products>,
    /// Powers 1, 2, 4, … of the point of every component.
    squares: Vec<[u64; 64]>,
    kernel: Box<dyn LaneSigner>,
}

impl Signer {
    /// Signatures of `components` symbols of GF(2^w), w = 8, 16, 32, 64. They obey the law for codes
    /// over the same field.
    ///
    /// # Errors
    /// [`Error::NoSignatures`] for other w, [`Error::ComponentsOutOfRange`], a selected kernel set that this CPU does
    /// not support.
    pub fn new(field: Field, components: usize) -> Result<Signer, Error> {
        Signer::with_kernel_set(KernelSet::chosen()?, field, components)
    }

    /// Signatures of `components` elements of the 64-bit tower over `base`, w = 4, 8, 16, 32. They
    /// obey the law for codes over `base`.
    ///
    /// # Errors
    /// As [`Signer::new`].
    pub fn tower(base: Field, components: usize) -> Result<Signer, Error> {
        Signer::tower_with_kernel_set(KernelSet::chosen()?, base, components)
    }

    /// As [`Signer::new`], with the given kernel set.
    ///
    /// # Errors
    /// As there.
    pub fn with_kernel_set(kernels: &KernelSet, field: Field, components: usize) -> Result<Signer, Error> {
        match field.w() {
            8 | 16 | 32 | 64 => Signer::in_space(kernels, Space::Field(field), components),
            w => Err(Error::NoSignatures { widths: "8, 16, 32 or 64", w }),
        }
    }

    /// As [`Signer::tower`], with the given kernel set.
    ///
    /// # Errors
    /// As there.
    pub fn tower_with_kernel_set(
        kernels: &KernelSet,
        base: Field,
        components: usize,
    ) -> Result<Signer, Error> {
        Signer::in_space(kernels, Space::Tower(Tower::over(base)?), components)
    }

    /// Signatures of two elements of the tower over GF(2^8) at points that are independent of each other: Y, and P with
    /// P^8 + P^7 + P + 2^112 = 0. At Y and Y² the second component follows from the first if all changed symbols differ
    /// by the same value; at these points it never does. They obey the law for codes over GF(2^8).
    ///
    /// # Errors
    /// A selected kernel set that this CPU does not support.
    pub fn independent() -> Result<Signer, Error> {
        Signer::independent_with_kernel_set(KernelSet::chosen()?)
    }

    /// As [`Signer::independent`], with the given kernel set.
    ///
    /// # Errors
    /// As there.
    pub fn independent_with_kernel_set(kernels: &KernelSet) -> Result<Signer, Error> {
        let tower = Tower::over(Field::GF8)?;
        Signer::at_points(kernels, Space::Tower(tower), 2, Some(Products::new(tower)))
    }

    fn in_space(kernels: &KernelSet, space: Space, components: usize) -> Result<Signer, Error> {
        if !(1..=MAX_COMPONENTS).contains(&components) {
            return Err(Error::ComponentsOutOfRange { components, limit: MAX_COMPONENTS });
        }
        Signer::at_points(kernels, space, components, None)
    }

    fn at_points(
        kernels: &KernelSet,
        space: Space,
        components: usize,
        second: Option<Products>,
    ) -> Result<Signer, Error> {
        let point = |component: usize| match component {
            1 if second.is_some() => point::POINT,
            _ => space.times_alpha_power(1, component + 1),
        };
        let step_map = |component: usize, symbols: usize| {
            let weight = (0..symbols).fold(1, |weight, _| space.mul(weight, point(component)));
            LinearMap::new(space.bytes(), |bit| space.mul(bit, weight))
        };
        let points = points_of(space, components, second.is_some());
        let kernel = kernels.signer(&SignatureSpec { components, step_map: &step_map, points })?;
        let squares_of = |component: usize| {
            let mut square = point(component);
            std::array::from_fn(|_| {
                let this = square;
                square = space.mul(this, this);
                this
            })
        };
        let squares = (0..components).map(squares_of).collect();
        Ok(Signer { space, components, second, squares, kernel })
    }

    /// Number of components.
    pub fn components(&self) -> usize {
        self.components
    }

    /// Maximum block length, in bytes.
    pub fn max_block_bytes(&self) -> u64 {
        self.symbol_limit().saturating_mul(self.space.bytes() as u64)
    }

    /// 2^w - 1, the period of the weights.
    fn symbol_limit(&self) -> u64 {
        match self.space {
            Space::Field(field) => field.mask(),
            Space::Tower(_) => u64::MAX,
        }
    }

    /// The signature of a block; a partial last symbol is padded with zeros.
    ///
    /// # Errors
    /// [`Error::BlockTooLong`].
    pub fn sign(&self, block: &[u8]) -> Result<Signature, Error> {
        self.check_length(block.len())?;
        let mut lanes = self.lanes();
        self.absorb(&mut lanes, block);
        Ok(self.finish(&lanes))
    }

    /// Refuses blocks beyond the maximum length.
    pub(crate) fn check_length(&self, len: usize) -> Result<(), Error> {
        let (symbols, limit) = (len.div_ceil(self.space.bytes()) as u64, self.symbol_limit());
        match symbols <= limit {
            true => Ok(()),
            false => Err(Error::BlockTooLong { w: 8 * self.space.bytes() as u32, symbols, limit }),
        }
    }

    /// Starts a signature that is computed piece by piece, from the end of a block to its start.
    pub(crate) fn lanes(&self) -> Lanes {
        Lanes(vec![0; self.kernel.lane_bytes()])
    }

    /// Unit of pieces, except for the first absorbed one, the end of the block.
    pub(crate) fn piece_granule(&self) -> usize {
        self.space.bytes() * self.kernel.symbols_per_step()
    }

    /// Absorbs the piece that precedes the absorbed part.
    pub(crate) fn absorb(&self, lanes: &mut Lanes, piece: &[u8]) {
        self.kernel.absorb(&mut lanes.0, piece);
    }

    /// The signature of everything absorbed.
    pub(crate) fn finish(&self, lanes: &Lanes) -> Signature {
        let steps = lanes.0.chunks(self.piece_granule());
        let components = steps.enumerate().map(|(component, step)| self.folded(component, step));
        Signature(components.collect())
    }

    /// The sum of symbols, symbol j times the component's point to the power j.
    fn folded(&self, component: usize, symbols: &[u8]) -> u64 {
        match &self.second {
            Some(second) if component == 1 => second.folded(symbols),
            _ => self.space.folded(symbols, component + 1),
        }
    }

    /// `a` times the component's point to the power `exponent`.
    fn times_point_power(&self, component: usize, a: u64, exponent: usize) -> u64 {
        match &self.second {
            Some(second) if component == 1 => second.times_power(a, exponent),
            _ => self.space.times_alpha_power(a, exponent * (component + 1)),
        }
    }

    /// The points for which [`of_quotients`](Signer::of_quotients) computes signatures: one or two in the tower over
    /// GF(2^8).
    pub(crate) fn points(&self) -> Option<SignaturePoints> {
        points_of(self.space, self.components, self.second.is_some())
    }

    /// The signatures of blocks whose first bytes were divided during coding, from the division state and the
    /// signatures of the rest of each block. Requires [`points`](Signer::points).
    ///
    /// With n symbols per iteration, c = 2^n, Z = Y^n and v_0, v_1, … the quotients of the last iterations, the last
    /// one first, the remainder is
    ///
    /// ```text
    /// r_0 = c·v_0 + v_1 + v_7     r_i = c·v_i + v_(i+1)     r_7 = c·v_7
    /// ```
    ///
    /// and the first component of the bytes divided in N iterations is the sum of all r_i · Z^(7-i), times Z^(N-8). As
    /// c = Z^8 + Z^7 + Z, that sum is ((A + v_0)·Z + A + v_7)·Z^7, where A is the sum of all v_i · Z^(7-i). The rest of
    /// the block is added to v_0. Other points have another power of 2 as c, with the same derivation.
    pub(crate) fn of_quotients(&self, quotients: &TrailingQuotients, rest: Vec<Signature>) -> Vec<Signature> {
        let (step, iterations) = (quotients.step, quotients.covered / quotients.step);
        let symbols = step / self.space.bytes();
        let weights = self.weights_at((iterations - 1) * symbols);
        let mut rings = quotients.rings.chunks(REMAINDER_ITERATIONS * step);
        let mut ordered = vec![0; REMAINDER_ITERATIONS * step];
        let mut component_of = |component: usize, rest: u64| {
            let ring = rings.next().unwrap_or_default();
            let quotient = |i: usize| &ring[(iterations - 1 - i) % REMAINDER_ITERATIONS * step..][..step];
            for (i, place) in ordered.chunks_exact_mut(step).rev().enumerate() {
                place.copy_from_slice(quotient(i));
            }
            let [first, last] = [0, REMAINDER_ITERATIONS - 1].map(|i| self.folded(component, quotient(i)));
            let all = self.folded(component, &ordered);
            let upper = self.times_point_power(component, rest ^ all ^ first, symbols);
            self.space.mul(upper ^ all ^ last, weights[component])
        };
        let mut of_block = |rest: Signature| {
            let components = rest.0.into_iter().enumerate();
            Signature(components.map(|(component, rest)| component_of(component, rest)).collect())
        };
        rest.into_iter().map(&mut of_block).collect()
    }

    /// Joins the signatures of ranges to those of whole blocks. `ranges` holds one signature per block for every range.
    /// All ranges but the last have `range` bytes, which are whole symbols.
    pub(crate) fn joined(&self, range: usize, mut ranges: Vec<Vec<Signature>>) -> Vec<Signature> {
        let mut blocks = ranges.pop().unwrap_or_default();
        if ranges.is_empty() {
            return blocks;
        }
        let weights = self.weights_at(range / self.space.bytes());
        for before in ranges.into_iter().rev() {
            for (block, before) in blocks.iter_mut().zip(before) {
                for (i, before) in before.0.into_iter().enumerate() {
                    block.0[i] = self.space.mul(block.0[i], weights[i]) ^ before;
                }
            }
        }
        blocks
    }

    /// The weight of the symbol number `position` in every component.
    fn weights_at(&self, position: usize) -> Vec<u64> {
        let weight = |squares: &[u64; 64]| {
            let needed = squares.iter().enumerate().filter(|(bit, _)| position >> bit & 1 == 1);
            needed.fold(1, |weight, (_, &square)| self.space.mul(weight, square))
        };
        self.squares.iter().map(weight).collect()
    }

    /// True if the law holds for `plan`: [`transform`](Signer::transform) computes the signatures of its outputs.
    pub(crate) fn has_law_for(&self, plan: &Plan) -> bool {
        plan.field() == self.space.code_field()
            && plan.layout() == Layout::Words
            && plan.mode() == Mode::Write
    }

    /// Bytes of a symbol.
    pub(crate) fn symbol_bytes(&self) -> usize {
        self.space.bytes()
    }

    /// Applies a matrix over the code's field to signatures. The result is the signatures of the matrix applied to the
    /// signed blocks (thesis 2.37), in the words layout.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] for a wrong number of signatures or components, [`Error::WrongField`] for a matrix over
    /// another field than that of the law, [`Error::NotAnElement`].
    pub fn transform(&self, matrix: &Matrix, of: &[Signature]) -> Result<Vec<Signature>, Error> {
        let (field, own) = (matrix.field(), self.space.code_field());
        if field != own {
            let (family, defined, w) = ("the law of these signatures", own.w(), field.w());
            return Err(Error::WrongField { family, defined, w });
        }
        if of.len() != matrix.columns() {
            return Err(Error::SizeMismatch { left: matrix.columns(), right: of.len() });
        }
        if let Some(other) = of.iter().find(|signature| signature.0.len() != self.components) {
            return Err(Error::SizeMismatch { left: self.components, right: other.0.len() });
        }
        if let Space::Field(field) = self.space {
            of.iter().flat_map(|signature| &signature.0).try_for_each(|&value| field.check(value))?;
        }
        let rows = (0..matrix.rows()).map(|row| {
            let component = |i: usize| {
                let terms = of.iter().zip(matrix.row(row));
                terms.fold(0, |sum, (signature, &a)| sum ^ self.space.scale(signature.0[i], a))
            };
            Signature((0..self.components).map(component).collect())
        });
        Ok(rows.collect())
    }
}

/// The points, if kernels support division at them.
fn points_of(space: Space, components: usize, independent: bool) -> Option<SignaturePoints> {
    match components {
        _ if !space.is_tower_of_gf8() => None,
        1 => Some(SignaturePoints::One),
        2 if independent => Some(SignaturePoints::Independent),
        2 => Some(SignaturePoints::Powers),
        _ => None,
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let independent = if self.second.is_some() { ", independent" } else { "" };
        write!(f, "Signer({:?} x {}{independent})", self.space, self.components)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
