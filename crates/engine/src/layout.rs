//! Layouts: how the symbols of a block are stored in its bytes.

use crate::error::Error;
use crate::field::Field;

/// Largest packet of the packets layout, in bytes.
pub const MAX_PACKET: usize = 1 << 24;

/// Byte maps of the largest matrix in the words layout. A kernel holds 8 bytes for each map, 32 as look-up tables.
const MAX_BYTE_MAPS: usize = 1 << 26;

/// Bits of the largest matrix over GF(2): a kernel may keep eight bytes for each bit that is set.
pub const MAX_BITS: usize = 1 << 26;

/// Layout of the symbols of a block in its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Consecutive symbols, little endian; two per byte for w = 4, low nibble first.
    Words,
    /// Groups of w packets: bit i of the symbols is in packet i of the group.
    Packets {
        /// Bytes of one packet.
        bytes: usize,
    },
}

impl Layout {
    /// True if large codes over `field` run by their points alone; all others need their matrix.
    pub(crate) fn runs_by_points(self, field: Field) -> bool {
        (self, field) == (Layout::Words, Field::GF16)
    }

    /// Largest matrix, in coefficients, that kernels prepare. Per coefficient they keep a byte map for each pair of
    /// bytes of a symbol or, for packets, data for every bit.
    ///
    /// # Errors
    /// [`Error::NoWordsLayout`].
    pub fn max_coefficients(self, field: Field) -> Result<usize, Error> {
        Ok(match self {
            Layout::Words => MAX_BYTE_MAPS / field.word_bytes()?.pow(2),
            Layout::Packets { .. } => MAX_BITS / (field.w() as usize).pow(2),
        })
    }

    /// The unit that a block must be a multiple of.
    ///
    /// # Errors
    /// [`Error::NoWordsLayout`], [`Error::PacketOutOfRange`].
    pub fn granule(self, field: Field) -> Result<usize, Error> {
        match self {
            Layout::Words => field.word_bytes(),
            Layout::Packets { bytes } if (1..=MAX_PACKET).contains(&bytes) => Ok(bytes * field.w() as usize),
            Layout::Packets { bytes } => Err(Error::PacketOutOfRange { bytes, limit: MAX_PACKET }),
        }
    }
}
