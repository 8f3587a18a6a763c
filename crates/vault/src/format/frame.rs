//! Frames of a redundancy file: offsets and content.

use super::header::{FileId, Header, Version};
use crate::geometry::Cut;
use gabion_engine::Signature;

/// Bytes of a stored signature, and of the check at the end of a table.
pub const SIGNATURE_BYTES: usize = 16;

/// Bytes of a BLAKE3 hash.
pub const HASH_BYTES: usize = 32;

/// Expected content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seal {
    /// Signature: two components, little endian.
    pub signature: [u8; SIGNATURE_BYTES],
    /// BLAKE3, if the policy asks for it and it is known: linear codes only yield signatures.
    pub hash: Option<[u8; HASH_BYTES]>,
}

impl Seal {
    /// True if both may be of the same block, by all that is known.
    pub fn fits(&self, other: &Seal) -> bool {
        let hashes = self.hash.zip(other.hash);
        self.signature == other.signature && hashes.is_none_or(|(one, other)| one == other)
    }
}

/// Check of a table, and the sum of such checks.
pub type Check = [u8; SIGNATURE_BYTES];

/// Binds frames to their redundancy file; part of every check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameKey {
    /// Format version.
    pub version: Version,
    /// File id.
    pub id: FileId,
}

impl FrameKey {
    /// Prefix of every check.
    fn text(&self) -> &'static [u8] {
        match self.version {
            Version::One => b"gabion redundancy frame 1",
            Version::Two => b"gabion redundancy frame 2",
        }
    }
}

/// Converts a signature to its stored form.
pub fn seal(signature: &Signature) -> Seal {
    let mut bytes = [0; SIGNATURE_BYTES];
    for (bytes, component) in bytes.chunks_exact_mut(8).zip(signature.components()) {
        bytes.copy_from_slice(&component.to_le_bytes());
    }
    Seal { signature: bytes, hash: None }
}

/// Converts a stored signature back.
pub fn signature(seal: &Seal) -> Signature {
    let component = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    Signature::from_components(seal.signature.chunks_exact(8).map(component).collect())
}

/// Offsets of the frames of a redundancy file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    version: Version,
    header: u64,
    cut: Cut,
    k: usize,
    strong: bool,
    columns: u64,
}

impl Records {
    /// For a file with this header of `length` bytes. A file that shares frames has none of its own.
    pub fn new(header: &Header, length: usize) -> Records {
        let columns = if header.body().is_some() { 0 } else { header.columns };
        Records { header: length as u64, columns: columns as u64, ..Records::of_body(header) }
    }

    /// For the body that has the frames of a file with this header: frames alone.
    pub fn of_body(header: &Header) -> Records {
        let cut = header.geometry.cut(header.generation.size);
        let (k, strong, version) = (header.code.k(), header.strong, header.version);
        Records { version, header: 0, cut, k, strong, columns: header.columns as u64 }
    }

    /// Cut of the protected file.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Length of the header at the start and the end of the file.
    pub fn header_bytes(&self) -> u64 {
        self.header
    }

    /// Length of a frame of `stripe`.
    pub fn frame_bytes(&self, stripe: u64) -> u64 {
        self.cut.block(stripe) + table_bytes(self.k, self.strong) as u64
    }

    /// Length of one column's frames of all stripes before `stripe`.
    fn before(&self, stripe: u64) -> u64 {
        let full = stripe.min(self.cut.full_stripes());
        let mut bytes = 0;
        if full > 0 {
            bytes += full * self.frame_bytes(0);
        }
        if stripe > full {
            bytes += (stripe - full) * self.frame_bytes(full);
        }
        bytes
    }

    /// Offset of the frame of `stripe` in column number `column` of this file.
    ///
    /// Version 2 has one section of frames per column, so that a column can be appended or removed while the others
    /// stay in place. Version 1 has the frames of a stripe next to each other.
    pub fn frame_offset(&self, column: usize, stripe: u64) -> u64 {
        let column = column as u64;
        match self.version {
            Version::One => {
                let own = if column > 0 { column * self.frame_bytes(stripe) } else { 0 };
                self.header + self.columns * self.before(stripe) + own
            }
            Version::Two => self.header + column * self.before(self.cut.stripes()) + self.before(stripe),
        }
    }

    /// True if the frames of neighbouring stripes in all columns are contiguous, in the order of stripes.
    pub fn is_one_piece(&self) -> bool {
        self.version == Version::One || self.columns <= 1
    }

    /// Number of redundancy columns in the file.
    pub fn columns(&self) -> usize {
        self.columns as usize
    }

    /// Offset of the second header.
    pub fn trailer(&self) -> u64 {
        self.header + self.columns * self.before(self.cut.stripes())
    }

    /// Length of the whole file.
    pub fn file(&self) -> u64 {
        self.trailer() + self.header
    }
}

/// Length of a table for k data columns: their signatures, the frame's own, as many hashes if blocks have these, the
/// check.
pub fn table_bytes(k: usize, strong: bool) -> usize {
    (k + 2) * SIGNATURE_BYTES + if strong { (k + 1) * HASH_BYTES } else { 0 }
}

/// Encodes the seals of a stripe: those of the data blocks and of the frame's own block.
pub(crate) fn encode_seals(data: &[Seal], own: &Seal) -> Vec<u8> {
    let seals = || data.iter().chain([own]);
    let signatures = seals().flat_map(|seal| seal.signature);
    signatures.chain(seals().filter_map(|seal| seal.hash).flatten()).collect()
}

/// A frame that was read: its table is verified, its block is not.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The redundancy block.
    pub block: &'a [u8],
    signatures: &'a [[u8; SIGNATURE_BYTES]],
    /// As many as signatures, or none.
    hashes: &'a [[u8; HASH_BYTES]],
    check: &'a Check,
}

impl<'a> Frame<'a> {
    /// Writes the table behind a block; `bytes` is the whole frame. Returns the check. All seals have hashes, or none.
    pub fn seal(
        bytes: &mut [u8],
        key: FrameKey,
        column: usize,
        stripe: u64,
        data: &[Seal],
        own: &Seal,
    ) -> Check {
        let says = encode_seals(data, own);
        let start = bytes.len() - says.len() - SIGNATURE_BYTES;
        let (seals, check) = bytes[start..].split_at_mut(says.len());
        seals.copy_from_slice(&says);
        let computed = check_of(key, column, stripe, seals);
        check.copy_from_slice(&computed);
        computed
    }

    /// Reads a frame of a stripe of k data columns, with hashes if it is `strong`; none if its table is damaged or was
    /// written for another position.
    pub fn open(
        bytes: &'a [u8],
        (k, strong): (usize, bool),
        key: FrameKey,
        column: usize,
        stripe: u64,
    ) -> Option<Frame<'a>> {
        let (block, table) = bytes.split_at_checked(bytes.len().checked_sub(table_bytes(k, strong))?)?;
        let (seals, check) = table.split_last_chunk::<SIGNATURE_BYTES>()?;
        if check_of(key, column, stripe, seals) != *check {
            return None;
        }
        let (signatures, hashes) = seals.split_at_checked((k + 1) * SIGNATURE_BYTES)?;
        let (signatures, hashes) = (signatures.as_chunks().0, hashes.as_chunks().0);
        Some(Frame { block, signatures, hashes, check })
    }

    fn seal_at(&self, at: usize) -> Seal {
        Seal { signature: self.signatures[at], hash: self.hashes.get(at).copied() }
    }

    /// Seals of the data blocks.
    pub fn data(&self) -> impl ExactSizeIterator<Item = Seal> + use<'a> {
        let frame = *self;
        (0..self.signatures.len() - 1).map(move |at| frame.seal_at(at))
    }

    /// Seal of its own block.
    pub fn own(&self) -> Seal {
        self.seal_at(self.signatures.len() - 1)
    }

    /// Check of its table.
    pub fn check(&self) -> &'a Check {
        self.check
    }
}

/// Computes the check of a table from its seals.
pub(crate) fn check_of(key: FrameKey, column: usize, stripe: u64, seals: &[u8]) -> Check {
    let mut hasher = blake3::Hasher::new();
    hasher.update(key.text()).update(&key.id.0);
    hasher.update(&(column as u32).to_le_bytes()).update(&stripe.to_le_bytes()).update(seals);
    let mut check = [0; SIGNATURE_BYTES];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..SIGNATURE_BYTES]);
    check
}

/// Adds a check to the sum of all, or subtracts it.
pub fn toggle(root: &mut Check, check: &Check) {
    root.iter_mut().zip(check).for_each(|(root, check)| *root ^= check);
}

#[cfg(test)]
mod tests;
