//! Division of blocks by the sparse polynomials of signature points: the points that kernels support, and the state
//! that a division leaves behind.

/// Signature points in the tower over GF(2^8) at which kernels divide. A point is a root of Z^8 + Z^7 + Z + 2^e and is
/// identified by the exponent e.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignaturePoints {
    /// Y alone.
    One,
    /// Y and Y².
    Powers,
    /// Y and a point that is not a power Y^(2^i): see [`Signer::independent`](crate::Signer::independent).
    Independent,
}

impl SignaturePoints {
    /// All point sets.
    pub const ALL: [SignaturePoints; 3] =
        [SignaturePoints::One, SignaturePoints::Powers, SignaturePoints::Independent];

    /// The exponents e of the constant terms, one per component.
    pub fn exponents(self) -> &'static [u64] {
        match self {
            SignaturePoints::One => &[1],
            SignaturePoints::Powers => &[1, 2],
            SignaturePoints::Independent => &[1, 112],
        }
    }
}

/// State left by dividing every input in the coding pass: the quotients of the last eight iterations of the loop.
#[derive(Debug)]
pub struct TrailingQuotients {
    /// Bytes of every block that were coded and divided, from the start; a multiple of `step`.
    pub covered: usize,
    /// Bytes of every block per iteration.
    pub step: usize,
    /// Per input and component, the quotients of eight iterations; iteration t is at index t % 8.
    pub rings: Vec<u8>,
}
