//! Targets: the instruction set for which programs are compiled.

use crate::tuning::INTERPRETED_REGISTERS;

/// Properties of an instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Bytes of a register.
    pub(crate) width: usize,
    /// True if byte maps are one instruction (GFNI); otherwise they are nibble lookups.
    pub(crate) affine: bool,
    /// True if bytes can be permuted across the register (VBMI), which programs for symbols of several bytes need.
    pub(crate) permutes: bool,
    /// True if machine code can be emitted; otherwise steps are interpreted.
    pub(crate) native: bool,
}

/// Targets with machine code.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "rows of another architecture"))]
impl Target {
    pub(crate) const AVX2: Target = Target::native(32, false);
    pub(crate) const GFNI_AVX2: Target = Target::native(32, true);
    pub(crate) const AVX512: Target = Target::native(64, false);
    pub(crate) const GFNI_AVX512: Target = Target::native(64, true);

    const fn native(width: usize, affine: bool) -> Target {
        let compiles = cfg!(all(feature = "compiler", target_arch = "x86_64"));
        if compiles {
            Target { width, affine, permutes: width == 64 && affine, native: true }
        } else {
            Target::interpreted(width)
        }
    }
}

impl Target {
    /// The interpreter applies byte maps with the instructions of its kernel set.
    pub(crate) const fn interpreted(width: usize) -> Target {
        Target { width, affine: true, permutes: false, native: false }
    }

    /// Number of registers.
    pub(crate) fn registers(self) -> usize {
        match self.width {
            _ if !self.native => INTERPRETED_REGISTERS,
            64 => 32,
            _ => 16,
        }
    }

    /// Terms that one instruction adds.
    pub(crate) fn arity(self) -> usize {
        if self.width == 64 || !self.native { 3 } else { 2 }
    }
}
