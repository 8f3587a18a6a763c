//! Algebraic signatures (thesis 2.4): short linear checksums of blocks.
//!
//! The signature of a block of symbols p_0 … p_(l-1) has n components; component i is the value of the
//! block, read as a polynomial, at α^(i+1):
//!
//! ```text
//! sig_i = sum over j of p_j · (α^(i+1))^j
//! ```
//!
//! It detects every change of up to n symbols for certain, and any other with probability 1 - 2^-nw,
//! as long as the powers α^j of all positions differ: l <= 2^w - 1. It is linear, so the
//! signatures of redundancy are the code applied to the signatures of data: RS(sig(d)) = sig(RS(d)).
//!
//! Symbols are those of a field ([`Signer::new`]) or of a tower over it ([`Signer::tower`]): the tower
//! keeps the law for codes over GF(2^4 … 2^32) with 64-bit components and blocks of any length.
//!
//! How it is computed: Horner's scheme over whole registers, see `sign` in the generic kernels.

use crate::error::Error;
use crate::field::Field;
use crate::field::reference::times_x;
use crate::kernel::{LaneSigner, LinearMap, Row};
use crate::matrix::Matrix;
use crate::tower::Tower;
use std::fmt;

/// Most components of a signature.
pub const MAX_COMPONENTS: usize = 16;

/// Where the symbols of a signature live.
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

    /// Product with a constant of the field that codes are over.
    fn scale(self, a: u64, constant: u64) -> u64 {
        match self {
            Space::Field(field) => field.mul(a, constant),
            Space::Tower(tower) => tower.scale(a, constant),
        }
    }

    fn code_field(self) -> Field {
        match self {
            Space::Field(field) => field,
            Space::Tower(tower) => tower.base(),
        }
    }
}

/// The signature of one block: n components.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signature(Vec<u64>);

impl Signature {
    /// A signature from its components, as a format stores them.
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

/// Computes signatures of one kind.
pub struct Signer {
    space: Space,
    components: usize,
    lanes: Box<dyn LaneSigner>,
}

impl Signer {
    /// Signatures of `components` symbols of GF(2^w), w = 8, 16, 32, 64. They obey the law for codes
    /// over the same field.
    ///
    /// # Errors
    /// [`Error::UnknownField`] for other w, [`Error::ComponentsOutOfRange`], a forced kernel that
    /// cannot run.
    pub fn new(field: Field, components: usize) -> Result<Signer, Error> {
        Signer::with_row(Row::chosen()?, field, components)
    }

    /// Signatures of `components` elements of the 64-bit tower over `base`, w = 4, 8, 16, 32. They
    /// obey the law for codes over `base`.
    ///
    /// # Errors
    /// As [`Signer::new`].
    pub fn tower(base: Field, components: usize) -> Result<Signer, Error> {
        Signer::tower_with_row(Row::chosen()?, base, components)
    }

    /// As [`Signer::new`], with the given kernels.
    ///
    /// # Errors
    /// As there.
    pub fn with_row(row: &Row, field: Field, components: usize) -> Result<Signer, Error> {
        match field.w() {
            8 | 16 | 32 | 64 => Signer::in_space(row, Space::Field(field), components),
            w => Err(Error::UnknownField { w }),
        }
    }

    /// As [`Signer::tower`], with the given kernels.
    ///
    /// # Errors
    /// As there.
    pub fn tower_with_row(row: &Row, base: Field, components: usize) -> Result<Signer, Error> {
        Signer::in_space(row, Space::Tower(Tower::over(base)?), components)
    }

    fn in_space(row: &Row, space: Space, components: usize) -> Result<Signer, Error> {
        if !(1..=MAX_COMPONENTS).contains(&components) {
            return Err(Error::ComponentsOutOfRange { components, limit: MAX_COMPONENTS });
        }
        let step_map = |component: usize, symbols: usize| {
            let weight = space.times_alpha_power(1, (component + 1) * symbols);
            LinearMap::new(space.bytes(), |bit| space.mul(bit, weight))
        };
        let lanes = row.signer(components, &step_map)?;
        Ok(Signer { space, components, lanes })
    }

    /// Number of components.
    pub fn components(&self) -> usize {
        self.components
    }

    /// The longest block it can tell apart, in bytes.
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

    /// The signature of a block; one that ends within a symbol is filled up with zeros.
    ///
    /// # Errors
    /// [`Error::BlockTooLong`].
    pub fn sign(&self, block: &[u8]) -> Result<Signature, Error> {
        let bytes = self.space.bytes();
        let (symbols, limit) = (block.len().div_ceil(bytes) as u64, self.symbol_limit());
        if symbols > limit {
            let w = 8 * bytes as u32;
            return Err(Error::BlockTooLong { w, symbols, limit });
        }
        let lanes = self.lanes.lanes(block);
        let steps = lanes.chunks(bytes * self.lanes.symbols_per_step());
        let components = steps.enumerate().map(|(component, step)| {
            step.chunks(bytes).rev().fold(0, |sum, symbol| {
                self.space.times_alpha_power(sum, component + 1) ^ little_endian(symbol)
            })
        });
        Ok(Signature(components.collect()))
    }

    /// What a matrix over the code's field makes of signatures: the signatures of what it makes of
    /// the signed blocks (thesis 2.37), as far as those are in the words layout.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] where number of signatures or of components does not fit,
    /// [`Error::WrongField`] where the matrix is over another field than the law holds for.
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

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({:?} x {})", self.space, self.components)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests;
