//! Geometry: stripes of a file, frames of a shard. All sizes come from hostile headers, so
//! everything is checked once, here; afterwards the arithmetic cannot overflow.

use crate::frame::SEAL_BYTES;
use gabion_engine::Code;

/// Largest block: a stripe must fit in memory.
pub const MAX_BLOCK: u64 = 1 << 30;

/// Largest stripe, redundancy included.
pub const MAX_STRIPE: u64 = 1 << 34;

/// Sizes that the format does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Zero, too large or no multiple of the granule.
    #[error("block size {block} is not a multiple of {granule} between {granule} and {MAX_BLOCK}")]
    Block {
        /// The block size.
        block: u64,
        /// It must be a multiple of this.
        granule: u64,
    },
    /// k + m blocks would be too much.
    #[error("a stripe of {blocks} blocks of {block} bytes is over the limit of {MAX_STRIPE} bytes")]
    Stripe {
        /// k + m.
        blocks: u64,
        /// The block size.
        block: u64,
    },
    /// Shards would be longer than a file can be.
    #[error("a file of {size} bytes is too large")]
    TooLarge {
        /// The file size.
        size: u64,
    },
}

/// Sizes and offsets of one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    k: u64,
    blocks: u64,
    granule: u64,
    size: u64,
    block: u64,
}

impl Geometry {
    /// A file of `size` bytes in blocks of `block` bytes.
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn new(code: &Code, size: u64, block: u64) -> Result<Geometry, GeometryError> {
        let (k, blocks, granule) = (code.k() as u64, code.blocks() as u64, code.granule() as u64);
        if block == 0 || block > MAX_BLOCK || !block.is_multiple_of(granule) {
            return Err(GeometryError::Block { block, granule });
        }
        if block * blocks > MAX_STRIPE {
            return Err(GeometryError::Stripe { blocks, block });
        }
        let geometry = Geometry { k, blocks, granule, size, block };
        let frame = block + SEAL_BYTES as u64;
        let longest = size.div_ceil(k * block).checked_mul(frame).and_then(|body| body.checked_add(1 << 16));
        // Offsets of files are signed.
        let fits = size <= i64::MAX as u64 && longest.is_some_and(|length| length <= i64::MAX as u64);
        if fits { Ok(geometry) } else { Err(GeometryError::TooLarge { size }) }
    }

    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the file in a full stripe.
    pub fn stripe_data(&self) -> u64 {
        self.k * self.block
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.size.div_ceil(self.stripe_data())
    }

    /// Bytes of the file in this stripe, which exists.
    pub fn data_len(&self, stripe: u64) -> usize {
        let rest = self.size - stripe * self.stripe_data();
        rest.min(self.stripe_data()) as usize
    }

    /// Bytes of a block of this stripe: the last stripe shrinks to its data.
    pub fn block_len(&self, stripe: u64) -> usize {
        self.block_len_of(self.data_len(stripe))
    }

    /// Bytes of a block in a stripe that holds `data` bytes of the file.
    pub fn block_len_of(&self, data: usize) -> usize {
        (data as u64).div_ceil(self.k).next_multiple_of(self.granule) as usize
    }

    /// The longest block; the size of a buffer.
    pub fn longest_block(&self) -> usize {
        if self.size == 0 { 0 } else { self.block_len(0) }
    }

    /// Where the frame of a stripe begins, counted from the end of the header.
    pub fn frame_offset(&self, stripe: u64) -> u64 {
        stripe * (self.block + SEAL_BYTES as u64)
    }

    /// Bytes of all frames of a shard.
    pub fn body_len(&self) -> u64 {
        match self.stripes().checked_sub(1) {
            None => 0,
            Some(last) => self.frame_offset(last) + (self.block_len(last) + SEAL_BYTES) as u64,
        }
    }

    /// Bytes of a buffer for all blocks of a stripe.
    pub(crate) fn stripe_bytes(&self) -> u64 {
        self.blocks * self.longest_block() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stripe_shrinks() {
        // 4 blocks of 100 bytes: 1000 bytes are two stripes of 400 and one of 200, in blocks of 50.
        let geometry = Geometry::new(&"4+2".parse().unwrap(), 1000, 100).unwrap();
        assert_eq!(geometry.stripes(), 3);
        assert_eq!([0, 1, 2].map(|s| geometry.data_len(s)), [400, 400, 200]);
        assert_eq!([0, 1, 2].map(|s| geometry.block_len(s)), [100, 100, 50]);
        assert_eq!(geometry.body_len(), 116 + 116 + 66);
        // Granule 8 (w64): ceil(200 / 4) = 50 becomes 56.
        let geometry = Geometry::new(&"4+2:w64".parse().unwrap(), 1000, 104).unwrap();
        assert_eq!(geometry.block_len(2), (1000u64 - 2 * 416).div_ceil(4).next_multiple_of(8) as usize);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let code: Code = "4+2:w64".parse().unwrap();
        let of = |size, block| Geometry::new(&code, size, block);
        assert_eq!(of(1, 0), Err(GeometryError::Block { block: 0, granule: 8 }));
        assert_eq!(of(1, 12), Err(GeometryError::Block { block: 12, granule: 8 }));
        assert!(matches!(of(1, u64::MAX - 7), Err(GeometryError::Block { .. })));
        assert_eq!(of(u64::MAX, 8), Err(GeometryError::TooLarge { size: u64::MAX }));
        assert!(of(1 << 50, 1 << 20).is_ok());
    }
}
