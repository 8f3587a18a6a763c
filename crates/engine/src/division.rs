//! Division of blocks by the sparse polynomials of signature points: the points that kernels support, and the state
//! that a division leaves behind.

/// The points of signatures in the tower over GF(2^8) for which kernels divide. A point is known by the constant term 2^e of its
/// polynomial Z^8 + Z^7 + Z + 2^e.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignaturePoints {
    /// Y alone.
    One,
    /// Y and Y².
    Powers,
    /// Y and a point that is no power of two of Y: see [`Signer::independent`](crate::Signer::independent).
    Independent,
}

impl SignaturePoints {
    /// All of them.
    pub const ALL: [SignaturePoints; 3] =
        [SignaturePoints::One, SignaturePoints::Powers, SignaturePoints::Independent];

    /// The exponents of 2 in the constant terms, one for each component.
    pub fn exponents(self) -> &'static [u64] {
        match self {
            SignaturePoints::One => &[1],
            SignaturePoints::Powers => &[1, 2],
            SignaturePoints::Independent => &[1, 112],
        }
    }
}

/// What a division in the pass that codes left of every input: the quotients of its last eight turns.
#[derive(Debug)]
pub struct TrailingQuotients {
    /// Bytes of every block that were coded and divided, from the start; whole turns.
    pub covered: usize,
    /// Bytes of a turn.
    pub turn: usize,
    /// Per input, and for each of its components, the quotients of eight turns; that of turn t is number t % 8.
    pub rings: Vec<u8>,
}
