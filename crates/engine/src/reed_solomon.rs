//! The simple interface: one value that encodes, verifies, updates and reconstructs the shards of a stripe.
//!
//! ```
//! use gabion_engine::ReedSolomon;
//!
//! let rs = ReedSolomon::new(4, 2)?;
//! let mut shards = vec![vec![1u8; 64], vec![2; 64], vec![3; 64], vec![4; 64], vec![0; 64], vec![0; 64]];
//! rs.encode(&mut shards)?;
//! assert!(rs.verify(&shards)?);
//!
//! let mut stripe: Vec<Option<Vec<u8>>> = shards.iter().cloned().map(Some).collect();
//! (stripe[1], stripe[4]) = (None, None);
//! rs.reconstruct(&mut stripe)?;
//! assert!(stripe.into_iter().flatten().eq(shards));
//! # Ok::<(), gabion_engine::Error>(())
//! ```
//!
//! Shards 0..k are data, k..k+m redundancy. Compiled plans are kept inside, so that a call takes as long as
//! [`Compiled::run`](crate::Compiled::run). Corrupt shards are not located: sign them ([`Signer`](crate::Signer)) and
//! leave out those that do not match their signature.

mod slices;
mod stream;

use crate::code::Code;
use crate::engine::{Compiled, Engine};
use crate::error::Error;
use crate::plan::Plan;
use crate::repairer::Repairer;
use slices::with_slices;
use std::sync::OnceLock;
pub use stream::StreamError;

/// Bytes of each block that [`ReedSolomon::verify`] and [`ReedSolomon::update`] process at once: the blocks of common
/// codes fit in the L2 cache.
const CHUNK: usize = 32 << 10;

/// Encoder and decoder of one code. It can be shared between threads.
#[derive(Debug)]
pub struct ReedSolomon {
    code: Code,
    engine: Engine,
    encoder: Compiled,
    difference: Compiled,
    repairer: Repairer,
    /// One per data column, compiled by its first update.
    updates: Vec<OnceLock<Compiled>>,
}

impl ReedSolomon {
    /// The default code with `k` data and `m` redundancy shards, on the calling thread. Any k of the k + m shards
    /// restore the others; k + m is at most 256.
    ///
    /// # Errors
    /// [`Error::ShapeOutOfRange`]; a selected kernel set that this CPU does not support.
    pub fn new(k: usize, m: usize) -> Result<ReedSolomon, Error> {
        let code = Code::new(Default::default(), crate::Field::GF8, k, m, crate::Layout::Words)?;
        ReedSolomon::with_code(&code, &Engine::new(1)?)
    }

    /// Any code on any engine: codes with other matrices, more than 256 shards ("60000+5536:w16"), several threads.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`].
    pub fn with_code(code: &Code, engine: &Engine) -> Result<ReedSolomon, Error> {
        Ok(ReedSolomon {
            encoder: engine.compile(&code.encode_plan()?)?,
            difference: engine.compile(&Plan::difference())?,
            repairer: engine.repairer(code),
            updates: (0..code.k()).map(|_| OnceLock::new()).collect(),
            code: code.clone(),
            engine: engine.clone(),
        })
    }

    /// The code. Store its identity (`code().to_string()`) with the shards.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Computes the m redundancy shards from the k data shards before them.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`], [`Error::BufferGranule`]; nothing is written then.
    pub fn encode<T: AsRef<[u8]> + AsMut<[u8]>>(&self, shards: &mut [T]) -> Result<(), Error> {
        self.check_count(self.code.blocks(), shards.len())?;
        let (data, redundancy) = shards.split_at_mut(self.code.k());
        self.encode_to(data, redundancy)
    }

    /// As [`encode`](ReedSolomon::encode), with data and redundancy in separate slices.
    ///
    /// # Errors
    /// As there.
    pub fn encode_to<D, R>(&self, data: &[D], redundancy: &mut [R]) -> Result<(), Error>
    where
        D: AsRef<[u8]>,
        R: AsMut<[u8]>,
    {
        with_slices(data, redundancy, |data, redundancy| match self.encoder.run(data, redundancy) {
            Err(error) => Err(self.explained(error, data, redundancy)),
            Ok(()) => Ok(()),
        })
    }

    /// True if the redundancy shards are those of the data shards. It does not tell which shard is wrong.
    ///
    /// # Errors
    /// [`Error::ShardCount`], [`Error::ShardLength`], [`Error::BufferGranule`].
    pub fn verify<T: AsRef<[u8]>>(&self, shards: &[T]) -> Result<bool, Error> {
        self.check_count(self.code.blocks(), shards.len())?;
        let shards: Vec<&[u8]> = shards.iter().map(AsRef::as_ref).collect();
        let len = self.common_length(shards.iter().map(|shard| Some(shard.len())))?;
        let (data, redundancy) = shards.split_at(self.code.k());
        let chunk = self.chunk().min(len);
        let mut computed = vec![0; self.code.m() * chunk];
        for start in (0..len).step_by(chunk.max(1)) {
            let range = start..len.min(start + chunk);
            let data: Vec<&[u8]> = data.iter().map(|block| &block[range.clone()]).collect();
            let mut outputs: Vec<&mut [u8]> =
                computed.chunks_mut(chunk).map(|block| &mut block[..range.len()]).collect();
            self.encoder.run(&data, &mut outputs)?;
            if redundancy.iter().zip(&outputs).any(|(stored, computed)| stored[range.clone()] != **computed) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Restores all missing shards, data and redundancy, from k of the others.
    ///
    /// # Errors
    /// [`Error::NotEnoughBlocks`], [`Error::ShardCount`], [`Error::ShardLength`]; the stripe is unchanged then.
    pub fn reconstruct<T>(&self, shards: &mut [Option<T>]) -> Result<(), Error>
    where
        T: AsRef<[u8]> + From<Vec<u8>>,
    {
        self.reconstruct_below(self.code.blocks(), shards)
    }

    /// As [`reconstruct`](ReedSolomon::reconstruct), data shards only.
    ///
    /// # Errors
    /// As there.
    pub fn reconstruct_data<T>(&self, shards: &mut [Option<T>]) -> Result<(), Error>
    where
        T: AsRef<[u8]> + From<Vec<u8>>,
    {
        self.reconstruct_below(self.code.k(), shards)
    }

    fn reconstruct_below<T>(&self, end: usize, shards: &mut [Option<T>]) -> Result<(), Error>
    where
        T: AsRef<[u8]> + From<Vec<u8>>,
    {
        self.check_count(self.code.blocks(), shards.len())?;
        let stripe: Vec<Option<&[u8]>> =
            shards.iter().map(|shard| shard.as_ref().map(AsRef::as_ref)).collect();
        let wanted: Vec<usize> = (0..end).filter(|&column| stripe[column].is_none()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (need, have) = (self.code.k(), stripe.iter().flatten().count());
        if have < need {
            return Err(Error::NotEnoughBlocks { need, have });
        }
        let len = self.common_length(stripe.iter().map(|shard| shard.map(<[u8]>::len)))?;
        let mut restored = vec![vec![0; len]; wanted.len()];
        self.reconstruct_to(&stripe, &wanted, &mut restored)?;
        for (column, block) in wanted.into_iter().zip(restored) {
            shards[column] = Some(block.into());
        }
        Ok(())
    }

    /// Computes the `wanted` shards of a stripe into buffers of the caller, in that order. `stripe` has `None` for
    /// missing shards.
    ///
    /// # Errors
    /// As [`Repairer::repair`].
    pub fn reconstruct_to<T: AsMut<[u8]>>(
        &self,
        stripe: &[Option<&[u8]>],
        wanted: &[usize],
        outputs: &mut [T],
    ) -> Result<(), Error> {
        with_slices::<&[u8], _, _>(&[], outputs, |_, outputs| self.repairer.repair(stripe, wanted, outputs))
    }

    /// Updates all redundancy shards after the data shard `column` changed from `old` to `new`.
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`], [`Error::WrongKindOfColumn`], [`Error::ShardCount`] and [`Error::ShardLength`], in
    /// which `old` and `new` count as shards 0 and 1; nothing is written then.
    pub fn update<T: AsMut<[u8]>>(
        &self,
        column: usize,
        old: &[u8],
        new: &[u8],
        redundancy: &mut [T],
    ) -> Result<(), Error> {
        let update = self.update_of(column)?;
        self.check_count(self.code.m(), redundancy.len())?;
        let mut redundancy: Vec<&mut [u8]> = redundancy.iter_mut().map(AsMut::as_mut).collect();
        let lengths = [old.len(), new.len()].into_iter().chain(redundancy.iter().map(|block| block.len()));
        let len = self.common_length(lengths.map(Some))?;
        let chunk = self.chunk().min(len);
        let mut difference = vec![0; chunk];
        for start in (0..len).step_by(chunk.max(1)) {
            let range = start..len.min(start + chunk);
            let difference = &mut difference[..range.len()];
            self.difference.run(&[&old[range.clone()], &new[range.clone()]], &mut [&mut *difference])?;
            let mut outputs: Vec<&mut [u8]> =
                redundancy.iter_mut().map(|block| &mut block[range.clone()]).collect();
            update.run(&[difference], &mut outputs)?;
        }
        Ok(())
    }

    fn update_of(&self, column: usize) -> Result<&Compiled, Error> {
        let compile = || self.engine.compile(&self.code.update_plan(&[column])?);
        match self.updates.get(column) {
            // The plan has the error for a column that is not a data column.
            None => {
                Err(compile().err().unwrap_or(Error::NoSuchColumn { column, last: self.code.blocks() - 1 }))
            }
            Some(cell) => match cell.get() {
                Some(update) => Ok(update),
                None => {
                    let update = compile()?;
                    Ok(cell.get_or_init(|| update))
                }
            },
        }
    }

    /// [`CHUNK`] as a multiple of the granule.
    fn chunk(&self) -> usize {
        CHUNK.next_multiple_of(self.code.granule())
    }

    fn check_count(&self, want: usize, have: usize) -> Result<(), Error> {
        let (k, m) = (self.code.k(), self.code.m());
        if want == have { Ok(()) } else { Err(Error::ShardCount { k, m, want, have }) }
    }

    /// The length that all shards have; `None` for missing ones.
    fn common_length(&self, lengths: impl Iterator<Item = Option<usize>>) -> Result<usize, Error> {
        let mut first = None;
        for (index, len) in lengths.enumerate().filter_map(|(index, len)| Some((index, len?))) {
            let want = *first.get_or_insert(len);
            if len != want {
                return Err(Error::ShardLength { index, len, want });
            }
        }
        let (len, granule) = (first.unwrap_or(0), self.code.granule());
        if len.is_multiple_of(granule) { Ok(len) } else { Err(Error::BufferGranule { len, granule }) }
    }

    /// The error of a plan in terms of shards.
    #[cold]
    fn explained(&self, error: Error, data: &[&[u8]], redundancy: &[&mut [u8]]) -> Error {
        let (k, m) = (self.code.k(), self.code.m());
        match error {
            Error::BufferCount { .. } if data.len() != k => {
                Error::ShardCount { k, m, want: k, have: data.len() }
            }
            Error::BufferCount { .. } => Error::ShardCount { k, m, want: m, have: redundancy.len() },
            Error::BufferLength { index, len, want } => Error::ShardLength { index, len, want },
            error => error,
        }
    }
}

#[cfg(test)]
mod tests;
