//! A frame: the block of one stripe, then its seal.
//!
//! The seal is the block's signature (two components of the 64-bit tower over GF(2^8)), XORed with a mask
//! that depends on shard and stripe. The mask is no secret. It makes a block valid in its own place
//! only: without it a range of zeros, which is what lost writes leave behind, would be a valid
//! block with a valid signature, and so would a block that was written to the wrong place. The mask comes
//! off before signatures are compared across a stripe, so the linear law holds.

use gabion_engine::{Field, Signature, Signer};

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 16;

/// What the mask of a frame is the hash of, before shard index and stripe.
const MASK_CONTEXT: &[u8; 20] = b"gabion shard frame 1";

/// The mask of one frame: the first 16 bytes of BLAKE3(context, index as u32, stripe as u64).
fn mask(index: u32, stripe: u64) -> [u8; SEAL_BYTES] {
    let mut input = [0; 32];
    input[..20].copy_from_slice(MASK_CONTEXT);
    input[20..24].copy_from_slice(&index.to_le_bytes());
    input[24..].copy_from_slice(&stripe.to_le_bytes());
    let mut mask = [0; SEAL_BYTES];
    mask.copy_from_slice(&blake3::hash(&input).as_bytes()[..SEAL_BYTES]);
    mask
}

/// A signature as the format stores it: two components, little endian.
pub fn signature_bytes(signature: &Signature) -> [u8; SEAL_BYTES] {
    let mut bytes = [0; SEAL_BYTES];
    for (place, component) in bytes.chunks_mut(8).zip(signature.components()) {
        place.copy_from_slice(&component.to_le_bytes());
    }
    bytes
}

/// Makes and checks seals.
#[derive(Debug)]
pub struct Sealer {
    signer: Signer,
}

impl Sealer {
    /// With the kernels of this machine.
    ///
    /// # Errors
    /// A forced kernel that cannot run.
    pub fn new() -> Result<Sealer, gabion_engine::Error> {
        Ok(Sealer { signer: Signer::tower(Field::GF8, 2)? })
    }

    /// The signer, for the linear law.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The signature of a block.
    ///
    /// # Errors
    /// None for blocks that the format allows.
    pub fn sign(&self, block: &[u8]) -> Result<Signature, gabion_engine::Error> {
        self.signer.sign(block)
    }
}

/// The seal of a block with this signature in this place.
pub fn seal(signature: &Signature, index: u32, stripe: u64) -> [u8; SEAL_BYTES] {
    let (signature, mask) = (signature_bytes(signature), mask(index, stripe));
    std::array::from_fn(|i| signature[i] ^ mask[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_moved_blocks_are_not_valid() {
        let sealer = Sealer::new().unwrap();
        let signature = sealer.sign(&[0; 4096]).unwrap();
        assert_eq!(signature_bytes(&signature), [0; 16], "the signature itself is linear");
        let seals = [(0, 0), (0, 1), (1, 0), (7, 1 << 40)].map(|(i, s)| seal(&signature, i, s));
        assert!(seals.iter().all(|seal| *seal != [0; 16]));
        assert!((1..4).all(|i| seals[i] != seals[0]));
    }
}
