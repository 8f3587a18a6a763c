//! One stripe in memory: its blocks, what is known of each, and the computation of bad blocks from good ones.

use super::{ExamineError, ProtectedFile};
use crate::coder::Coder;
use crate::format::frame::{Check, Seal};
use crate::retry::Retry;
use crate::storage::Fault;

/// Fault of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockFault {
    /// The target is offline or does not have the block.
    Lost,
    /// The target did not answer in time.
    Timeout,
    /// The operating system reported a read error.
    Unreadable,
    /// The block was read and does not match its signature.
    Wrong,
}

impl BlockFault {
    pub(super) fn of(fault: &Fault) -> BlockFault {
        match fault {
            Fault::Lost(_) | Fault::Missing(_) => BlockFault::Lost,
            Fault::Timeout(_) => BlockFault::Timeout,
            Fault::Io(_) => BlockFault::Unreadable,
        }
    }

    /// When it makes sense to try again if the blocks with these faults are too many.
    pub fn retry_of_lost(faults: impl IntoIterator<Item = Option<BlockFault>>) -> Retry {
        let may_return = |fault| matches!(fault, Some(BlockFault::Lost | BlockFault::Timeout));
        if faults.into_iter().any(may_return) { Retry::Later } else { Retry::Never }
    }

    /// Text for messages.
    pub fn words(self) -> &'static str {
        match self {
            BlockFault::Lost => "missing",
            BlockFault::Timeout => "not responding",
            BlockFault::Unreadable => "unreadable",
            BlockFault::Wrong => "corrupt",
        }
    }
}

/// State of a block in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockState {
    /// Not read yet.
    #[default]
    Unread,
    /// Read, and matches its signature.
    Verified,
    /// Reconstructed from other blocks.
    Reconstructed,
    /// Not available; the fault is given where it is known.
    Faulty(Option<BlockFault>),
}

impl BlockState {
    /// True if the buffer holds the correct content.
    pub fn is_correct(self) -> bool {
        matches!(self, BlockState::Verified | BlockState::Reconstructed)
    }
}

/// Faults of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeFault {
    /// Number of the stripe.
    pub stripe: u64,
    /// Data columns that differ from their protected content.
    pub data: Vec<usize>,
    /// Redundancy columns, counted from 0, that are damaged or missing.
    pub redundancy: Vec<usize>,
    /// Too few blocks are left to reconstruct the data.
    pub lost: bool,
    /// The data is correct; its frames are of an older version or missing.
    pub stale: bool,
}

/// Signatures that agreeing frames of a stripe contain.
pub(super) struct Table {
    pub(super) data: Vec<Seal>,
    /// Per redundancy column: the signature in the frame, if it is one of the agreeing frames.
    pub(super) own: Vec<Option<Seal>>,
}

impl Table {
    /// Returns the signatures of all k + m blocks by this table, and which blocks match them.
    pub(super) fn judge(
        self,
        protected: &ProtectedFile,
        present: &[bool],
        actual: &[Seal],
    ) -> (Vec<Option<Seal>>, Vec<bool>) {
        let k = self.data.len();
        // The law gives the signatures of all redundancy blocks; without it only the frame's own entry does.
        let by_law = protected.coder.redundancy_seals(&self.data);
        let mut seals: Vec<Option<Seal>> = self.data.into_iter().map(Some).collect();
        // A frame with a damaged or different table is faulty even if its block is correct.
        let mut says = vec![true; k];
        for (column, own) in self.own.iter().enumerate() {
            let law = by_law.as_ref().map(|seals| seals[column]);
            let agrees = |own: &Seal| law.is_none_or(|law| own.fits(&law));
            says.push(own.as_ref().is_some_and(agrees));
            // The frame's entry also has hashes; it is used if it agrees with the law.
            seals.push(own.filter(agrees).or(law));
        }
        let fits = |at: usize| seals[at].is_some_and(|seal| actual[at].fits(&seal));
        let good = (0..seals.len()).map(|at| says[at] && present[at] && fits(at)).collect();
        (seals, good)
    }
}

/// Buffer for one stripe, reused from stripe to stripe.
#[derive(Debug, Default)]
pub struct StripeBuffer {
    /// Number of the stripe.
    pub stripe: u64,
    /// Size of a block in bytes.
    pub block: usize,
    /// Blocks of all k + m columns, as far as they were loaded.
    pub blocks: Vec<Vec<u8>>,
    /// State of each block.
    pub states: Vec<BlockState>,
    /// Expected signature of each block; the first k are present whenever a table was read.
    pub seals: Vec<Option<Seal>>,
    /// Lazy mode, per redundancy file: the check of its frame, if it was read.
    pub checks: Vec<Option<Check>>,
    /// The data of this stripe could not be verified and is returned as it was read.
    pub unsure: bool,
    /// Lazy mode: faulty blocks by column, until a caller counts and removes them.
    pub faults: Vec<(usize, BlockFault)>,
    /// The strict mode has judged this stripe.
    pub(super) is_judged: bool,
    /// Strict mode: whether there is a block to be judged, by column.
    pub(super) present: Vec<bool>,
    /// Strict mode: frames of the present run, per redundancy file.
    pub(super) records: Vec<Vec<u8>>,
}

impl StripeBuffer {
    /// The blocks that are not correct, by column, with their faults where they are known.
    pub fn bad(&self) -> impl Iterator<Item = (usize, Option<BlockFault>)> {
        let bad = self.states.iter().enumerate().filter(|(_, state)| !state.is_correct());
        bad.map(|(column, state)| match state {
            BlockState::Faulty(why) => (column, *why),
            _ => (column, None),
        })
    }

    /// True if the block of a column is correct.
    pub fn is_correct(&self, column: usize) -> bool {
        self.states[column].is_correct()
    }

    /// Number of correct blocks.
    pub(super) fn correct(&self) -> usize {
        self.states.iter().filter(|state| state.is_correct()).count()
    }

    /// True if the signatures of the first `k` blocks are known.
    pub(super) fn has_seals(&self, k: usize) -> bool {
        self.seals.len() >= k && self.seals[..k].iter().all(Option::is_some)
    }

    /// Signatures of the first `k` blocks, if they are known.
    pub fn data_seals(&self, k: usize) -> Option<Vec<Seal>> {
        self.seals[..k].iter().copied().collect()
    }

    /// Reconstructs the bad blocks among `wanted` from the correct ones. Returns false if fewer than k blocks are
    /// correct or a result does not match its signature.
    ///
    /// # Errors
    /// The code fails.
    pub fn restore(
        &mut self,
        coder: &Coder,
        wanted: impl IntoIterator<Item = usize>,
    ) -> Result<bool, ExamineError> {
        let k = coder.code().k();
        let bad: Vec<usize> = wanted.into_iter().filter(|&column| !self.is_correct(column)).collect();
        if bad.is_empty() || self.correct() < k {
            return Ok(bad.is_empty());
        }
        let mut made: Vec<Vec<u8>> =
            bad.iter().map(|&column| std::mem::take(&mut self.blocks[column])).collect();
        made.iter_mut().for_each(|bytes| bytes.resize(self.block, 0));
        let blocks = self.blocks.iter().zip(&self.states);
        let blocks: Vec<Option<&[u8]>> =
            blocks.map(|(bytes, state)| state.is_correct().then_some(&bytes[..])).collect();
        let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|bytes| &mut bytes[..]).collect();
        coder.repair(&blocks, &bad, &mut outputs)?;
        let mut all_right = true;
        for (column, bytes) in bad.into_iter().zip(made) {
            let seal = coder.sign(&bytes)?;
            let right = self.seals[column].is_none_or(|wanted| match column < k {
                true => wanted.fits(&seal),
                // What a frame says of its own damaged block is binding only as far as the law confirms it.
                false => !coder.has_law() || wanted.signature == seal.signature,
            });
            if right {
                self.seals[column] = Some(seal);
                self.states[column] = BlockState::Reconstructed;
            }
            self.blocks[column] = bytes;
            all_right &= right;
        }
        Ok(all_right)
    }

    /// Takes the data as correct and computes the redundancy from it.
    ///
    /// # Errors
    /// The code fails.
    pub fn trust_data(&mut self, coder: &Coder) -> Result<(), ExamineError> {
        let (data, redundancy) = self.blocks.split_at_mut(coder.code().k());
        let data: Vec<&[u8]> = data.iter().map(|bytes| &bytes[..]).collect();
        let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|bytes| &mut bytes[..]).collect();
        self.seals = coder.encode(&data, &mut outputs)?.into_iter().map(Some).collect();
        self.states = vec![BlockState::Verified; self.blocks.len()];
        Ok(())
    }

    /// What the strict mode found wrong with the stripe; none if it is intact.
    pub(super) fn fault(&self, protected: &ProtectedFile) -> Option<StripeFault> {
        let (k, m) = (protected.header.code.k(), protected.header.code.m());
        let data: Vec<usize> = (0..k).filter(|&column| !self.is_correct(column)).collect();
        let is_bad = |&column: &usize| protected.holds(column) && !self.is_correct(k + column);
        let redundancy: Vec<usize> = (0..m).filter(is_bad).collect();
        let lost = !data.is_empty() && self.correct() < k;
        let right = data.is_empty() && redundancy.is_empty();
        (!right).then_some(StripeFault { stripe: self.stripe, data, redundancy, lost, stale: false })
    }

    /// True if the strict mode could read all data of the stripe.
    pub(super) fn is_readable(&self, k: usize) -> bool {
        self.present[..k].iter().all(|&there| there)
    }
}
