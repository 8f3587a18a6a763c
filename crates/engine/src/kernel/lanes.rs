//! Signatures on one instruction set: a block is reduced to a short block with the same signature.

use super::generic::{Division, Isa, Weights, Work};
use super::vector::Vector;
use crate::bytemap::LinearMap;
use crate::division::SignaturePoints;

/// Weights of a signature.
pub(crate) struct SignatureSpec<'a> {
    /// Number of components.
    pub(crate) components: usize,
    /// (component, s) to the map that multiplies by that component's α^s.
    pub(crate) step_map: &'a dyn Fn(usize, usize) -> LinearMap,
    /// The points in the tower over GF(2^8), where their polynomials are sparse.
    pub(crate) points: Option<SignaturePoints>,
}

/// Signs blocks with one instruction set.
///
/// The state, called lanes, has one step of symbols in memory order per component: a short block with the same
/// signature as everything absorbed so far. It starts as zeros.
pub(crate) trait LaneSigner: Send + Sync {
    /// Symbols in a step.
    fn symbols_per_step(&self) -> usize;

    /// Bytes of the lanes: a step per component.
    fn lane_bytes(&self) -> usize;

    /// Absorbs the piece of a block that precedes the absorbed part. It must consist of whole steps, except the first
    /// absorbed piece, which is the end of the block.
    fn absorb(&self, lanes: &mut [u8], piece: &[u8]);
}

/// Prepares signatures: by division for sparse polynomials, otherwise by maps.
pub(super) fn signer<I: Isa>(isa: I, weighing: &SignatureSpec<'_>) -> Box<dyn LaneSigner> {
    let components = weighing.components;
    if let Some(points) = weighing.points {
        return Box::new(DivisionSigner { isa, division: Division::new(points) });
    }
    let step_map = |component| (weighing.step_map)(component, I::V::BYTES);
    let maps: Vec<LinearMap> = (0..components).map(step_map).collect();
    Box::new(MapSigner { isa, weights: Weights::new(&maps) })
}

struct MapSigner<I: Isa> {
    isa: I,
    weights: Weights<I::V>,
}

impl<I: Isa> LaneSigner for MapSigner<I> {
    fn symbols_per_step(&self) -> usize {
        I::V::BYTES
    }

    fn lane_bytes(&self) -> usize {
        self.weights.lane_bytes()
    }

    fn absorb(&self, lanes: &mut [u8], piece: &[u8]) {
        self.isa.run(Work::Sign(&self.weights, piece, lanes));
    }
}

struct DivisionSigner<I: Isa> {
    isa: I,
    division: Division<I::V>,
}

impl<I: Isa> LaneSigner for DivisionSigner<I> {
    fn symbols_per_step(&self) -> usize {
        // A step is a remainder: as many registers as a symbol has bytes.
        I::V::BYTES
    }

    fn lane_bytes(&self) -> usize {
        self.division.lane_bytes()
    }

    fn absorb(&self, lanes: &mut [u8], piece: &[u8]) {
        self.isa.run(Work::Divide(&self.division, piece, lanes));
    }
}
