//! Encoding and decoding of byte streams: stripe after stripe from a reader to k + m writers, and back.
//!
//! All stripes but the last have blocks of the length that the caller chooses. The blocks of the last stripe are as
//! short as its data allows, filled with zeros. So shards of a stream of `len` bytes have `len / k` bytes, up to one
//! granule more, and the decoder finds the boundaries from `len` and the block length alone.

use super::ReedSolomon;
use crate::error::Error;
use std::io::{self, ErrorKind, Read, Write};

/// Failure of [`ReedSolomon::encode_stream`] or [`ReedSolomon::decode_stream`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The arguments or the shards do not fit the code.
    #[error(transparent)]
    Code(#[from] Error),
    /// A block length of zero, not a multiple of the code's granule, or of which a stripe does not fit in memory.
    #[error("a stream cannot have blocks of {block} bytes: 1 or more, a multiple of {granule}")]
    BlockLength {
        /// The length given.
        block: usize,
        /// The granule of the code.
        granule: usize,
    },
    /// The data cannot be read (encoding) or written (decoding).
    #[error("stream of data: {0}")]
    Data(#[source] io::Error),
    /// A shard cannot be written (encoding) or read (decoding). A decoder can be called again without this shard.
    #[error("shard {index}: {source}")]
    Shard {
        /// Index of the shard.
        index: usize,
        /// Its error; `UnexpectedEof` if the shard is shorter than its stream.
        source: io::Error,
    },
}

impl ReedSolomon {
    /// Encodes all of `data` into k + m writers, with blocks of `block` bytes; returns the number of bytes read, which
    /// the decoder needs.
    ///
    /// # Errors
    /// [`StreamError`]. After an error shards are incomplete.
    pub fn encode_stream<R: Read, W: Write>(
        &self,
        block: usize,
        mut data: R,
        shards: &mut [W],
    ) -> Result<u64, StreamError> {
        self.check_count(self.code.blocks(), shards.len())?;
        let stripe_bytes = self.stripe_bytes(block)?;
        let k = self.code.k();
        let mut stripe = vec![0; stripe_bytes];
        let mut redundancy = vec![0; block * self.code.m()];
        let mut total = 0;
        loop {
            let read = read_up_to(&mut data, &mut stripe).map_err(StreamError::Data)?;
            if read == 0 {
                return Ok(total);
            }
            total += read as u64;
            let block = self.block_of(read, block);
            stripe[read..k * block].fill(0);
            let blocks: Vec<&[u8]> = stripe[..k * block].chunks(block).collect();
            let mut outputs: Vec<&mut [u8]> = redundancy[..block * self.code.m()].chunks_mut(block).collect();
            self.encode_to(&blocks, &mut outputs)?;
            let all = blocks.into_iter().chain(outputs.iter().map(|block| &**block));
            for (index, (shard, block)) in shards.iter_mut().zip(all).enumerate() {
                shard.write_all(block).map_err(|source| StreamError::Shard { index, source })?;
            }
            if read < stripe_bytes {
                return Ok(total);
            }
        }
    }

    /// Writes the `len` bytes that [`encode_stream`](ReedSolomon::encode_stream) encoded with blocks of `block` bytes,
    /// from the first k of the given shards, `None` for missing ones.
    ///
    /// # Errors
    /// [`StreamError`]; [`Error::NotEnoughBlocks`] before anything is written.
    pub fn decode_stream<R: Read, W: Write>(
        &self,
        block: usize,
        len: u64,
        shards: &mut [Option<R>],
        mut data: W,
    ) -> Result<(), StreamError> {
        self.check_count(self.code.blocks(), shards.len())?;
        let stripe_bytes = self.stripe_bytes(block)?;
        let k = self.code.k();
        let sources: Vec<usize> =
            (0..shards.len()).filter(|&index| shards[index].is_some()).take(k).collect();
        if sources.len() < k {
            return Err(Error::NotEnoughBlocks { need: k, have: sources.len() }.into());
        }
        let missing: Vec<usize> = (0..k).filter(|column| !sources.contains(column)).collect();
        let mut buffers = vec![vec![0; block]; shards.len().min(k + missing.len())];
        let mut left = len;
        while left > 0 {
            let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(stripe_bytes);
            let block = self.block_of(bytes, block);
            let (read, restored) = buffers.split_at_mut(k);
            for (&index, buffer) in sources.iter().zip(&mut *read) {
                if let Some(shard) = &mut shards[index] {
                    shard
                        .read_exact(&mut buffer[..block])
                        .map_err(|source| StreamError::Shard { index, source })?;
                }
            }
            let mut stripe: Vec<Option<&[u8]>> = vec![None; shards.len()];
            for (&index, buffer) in sources.iter().zip(&*read) {
                stripe[index] = Some(&buffer[..block]);
            }
            let mut outputs: Vec<&mut [u8]> =
                restored.iter_mut().map(|buffer| &mut buffer[..block]).collect();
            self.reconstruct_to(&stripe, &missing, &mut outputs)?;
            for (&column, output) in missing.iter().zip(&outputs) {
                stripe[column] = Some(output);
            }
            let mut rest = bytes;
            for blocks in stripe[..k].iter().flatten() {
                let part = &blocks[..rest.min(block)];
                data.write_all(part).map_err(StreamError::Data)?;
                rest -= part.len();
            }
            left -= bytes as u64;
        }
        Ok(())
    }

    /// Data bytes of a stripe; all its blocks fit in memory.
    fn stripe_bytes(&self, block: usize) -> Result<usize, StreamError> {
        let granule = self.code.granule();
        let all = block.checked_mul(self.code.blocks()).filter(|&bytes| bytes <= isize::MAX as usize);
        if block == 0 || !block.is_multiple_of(granule) || all.is_none() {
            return Err(StreamError::BlockLength { block, granule });
        }
        Ok(block * self.code.k())
    }

    /// Length of the blocks of a stripe with `bytes` of data.
    fn block_of(&self, bytes: usize, block: usize) -> usize {
        bytes.div_ceil(self.code.k()).next_multiple_of(self.code.granule()).min(block)
    }
}

/// Fills the buffer as far as the reader has data.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
