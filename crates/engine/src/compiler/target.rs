//! What a machine offers to programs.

/// The instruction set that a program is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Bytes of a register.
    pub(crate) width: usize,
    /// Whether byte maps are one instruction (GFNI); otherwise they are look-ups.
    pub(crate) affine: bool,
    /// Whether bytes can go anywhere in a register (VBMI): then symbols of several bytes have programs too.
    pub(crate) permutes: bool,
    /// Whether machine code can be emitted for it; otherwise steps are interpreted.
    pub(crate) native: bool,
}

/// Registers of the interpreter: as many as let few values wait in slots, since both lie in the L1 cache anyway.
const INTERPRETED_REGISTERS: usize = 24;

/// What has an emission.
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
    /// The interpreter applies byte maps by whatever instructions the row of the kernel table has.
    pub(crate) const fn interpreted(width: usize) -> Target {
        Target { width, affine: true, permutes: false, native: false }
    }

    /// Registers there are.
    pub(crate) fn registers(self) -> usize {
        match self.width {
            _ if !self.native => INTERPRETED_REGISTERS,
            64 => 32,
            _ => 16,
        }
    }

    /// Terms that one instruction adds up.
    pub(crate) fn arity(self) -> usize {
        if self.width == 64 || !self.native { 3 } else { 2 }
    }
}
