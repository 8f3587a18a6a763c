//! Records and frames: where they lie and what is in them.

use super::header::{FileId, Header};
use crate::geometry::Cut;
use gabion_engine::Signature;

/// A signature as it is stored: its two components, little endian.
pub type Seal = [u8; 16];

/// Bytes of a seal, and of the check that ends a table.
pub const SEAL_BYTES: usize = 16;

/// What the check of a table is made of, besides the table.
const CHECK_NAME: &[u8] = b"gabion redundancy frame 1";

/// A signature as it is stored.
pub fn seal(signature: &Signature) -> Seal {
    let mut seal = [0; SEAL_BYTES];
    for (bytes, component) in seal.chunks_exact_mut(8).zip(signature.components()) {
        bytes.copy_from_slice(&component.to_le_bytes());
    }
    seal
}

/// The signature that was stored.
pub fn signature(seal: &Seal) -> Signature {
    let component = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    Signature::from_components(seal.chunks_exact(8).map(component).collect())
}

/// Where the records of a redundancy file lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    header: u64,
    cut: Cut,
    k: usize,
    columns: u64,
}

impl Records {
    /// For a file with this header, which takes `length` bytes.
    pub fn new(header: &Header, length: usize) -> Records {
        let cut = header.geometry.cut(header.generation.size);
        Records { header: length as u64, cut, k: header.code.k(), columns: header.columns as u64 }
    }

    /// The file that is protected, cut.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Bytes of the header, which is the first thing in the file and the last.
    pub fn header_bytes(&self) -> u64 {
        self.header
    }

    /// Bytes of a frame with blocks of `block` bytes.
    fn frame(&self, block: u64) -> u64 {
        block + table_bytes(self.k) as u64
    }

    /// Bytes of the record of `stripe`.
    pub fn record(&self, stripe: u64) -> u64 {
        self.columns * self.frame(self.cut.block(stripe))
    }

    /// Where the record of `stripe` begins; where records end for the first stripe that is not there.
    pub fn offset(&self, stripe: u64) -> u64 {
        let full = stripe.min(self.cut.full_stripes());
        let mut offset = self.header;
        if full > 0 {
            offset += full * self.record(0);
        }
        if stripe > full {
            offset += (stripe - full) * self.record(full);
        }
        offset
    }

    /// Where the second header begins.
    pub fn trailer(&self) -> u64 {
        self.offset(self.cut.stripes())
    }

    /// Bytes of the whole file.
    pub fn file(&self) -> u64 {
        self.trailer() + self.header
    }
}

/// Bytes of a table for k data columns: their seals, the frame's own, the check.
pub fn table_bytes(k: usize) -> usize {
    (k + 2) * SEAL_BYTES
}

/// A frame that was read: its table is known to be as it was written, its block is not.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The redundancy block.
    pub block: &'a [u8],
    table: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Writes the table behind a block; `bytes` is the whole frame. Gives the check.
    pub fn seal(bytes: &mut [u8], id: FileId, column: usize, stripe: u64, data: &[Seal], own: &Seal) -> Seal {
        let start = bytes.len() - table_bytes(data.len());
        let (seals, check) = bytes[start..].split_at_mut((data.len() + 1) * SEAL_BYTES);
        for (place, seal) in seals.chunks_exact_mut(SEAL_BYTES).zip(data.iter().chain([own])) {
            place.copy_from_slice(seal);
        }
        let computed = check_of(id, column, stripe, seals);
        check.copy_from_slice(&computed);
        computed
    }

    /// Reads a frame; nothing if its table is not what was written for this place.
    pub fn open(bytes: &'a [u8], k: usize, id: FileId, column: usize, stripe: u64) -> Option<Frame<'a>> {
        let (block, table) = bytes.split_at_checked(bytes.len().checked_sub(table_bytes(k))?)?;
        let (seals, check) = table.split_at(table.len() - SEAL_BYTES);
        (check_of(id, column, stripe, seals) == check).then_some(Frame { block, table })
    }

    /// The seals of the data blocks.
    pub fn data(&self) -> impl ExactSizeIterator<Item = &'a Seal> + use<'a> {
        let (seals, _) = self.table.as_chunks::<SEAL_BYTES>();
        seals[..seals.len() - 2].iter()
    }

    /// The seal of its own block.
    pub fn own(&self) -> &'a Seal {
        let (seals, _) = self.table.as_chunks::<SEAL_BYTES>();
        &seals[seals.len() - 2]
    }

    /// The check of its table.
    pub fn check(&self) -> &'a Seal {
        let (seals, _) = self.table.as_chunks::<SEAL_BYTES>();
        &seals[seals.len() - 1]
    }
}

/// The check of a table, given its seals.
pub(crate) fn check_of(id: FileId, column: usize, stripe: u64, seals: &[u8]) -> Seal {
    let mut hasher = blake3::Hasher::new();
    hasher.update(CHECK_NAME).update(&id.0);
    hasher.update(&(column as u32).to_le_bytes()).update(&stripe.to_le_bytes()).update(seals);
    let mut check = [0; SEAL_BYTES];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..SEAL_BYTES]);
    check
}

/// Adds a check to the sum of all, or takes it away.
pub fn toggle(root: &mut [u8; 16], check: &Seal) {
    root.iter_mut().zip(check).for_each(|(root, check)| *root ^= check);
}

#[cfg(test)]
mod tests;
