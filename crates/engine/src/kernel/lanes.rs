//! Signatures on one instruction set: blocks become short blocks with the same signature.

use super::generic::{Division, Isa, Weights, Work};
use super::vector::Vector;
use crate::bytemap::LinearMap;
use crate::division::SignaturePoints;

/// How the symbols of a block are weighed.
pub(crate) struct SignatureSpec<'a> {
    /// How many components a signature has.
    pub(crate) components: usize,
    /// (component, s) to the map that multiplies by that component's α^s.
    pub(crate) step_map: &'a dyn Fn(usize, usize) -> LinearMap,
    /// The points in the tower over GF(2^8), where their polynomials are sparse.
    pub(crate) points: Option<SignaturePoints>,
}

/// Signs blocks with one instruction set.
///
/// Its state, the lanes, is per component one step of symbols in memory order: a short block that has the signature
/// of all that was absorbed. Before the first piece it is all zeros.
pub(crate) trait LaneSigner: Send + Sync {
    /// Symbols in a step.
    fn symbols_per_step(&self) -> usize;

    /// Bytes of the lanes: a step per component.
    fn lane_bytes(&self) -> usize;

    /// Absorbs the piece of a block that lies before what was absorbed. It consists of whole steps; only the first
    /// to be absorbed, the end of the block, need not.
    fn absorb(&self, lanes: &mut [u8], piece: &[u8]);
}

/// Prepares signatures: by division where the polynomials are sparse, else by maps.
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
