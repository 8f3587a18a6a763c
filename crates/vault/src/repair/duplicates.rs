//! Blocks that redundancy cannot restore, from files with the same content.
//!
//! A candidate is any protected file of the same size. Its bytes are used only if they match the signature of the
//! missing block, so a candidate that has changed since does no harm. Signatures without hashes can be forged on
//! purpose; then only files of the same owner are candidates.

use crate::examine::{BlockState, ExamineError, ProtectedFile, StripeBuffer};
use crate::storage::Content;
use crate::vault::Vault;
use std::cell::OnceCell;

/// Most files of the same size that are looked at.
const MOST: usize = 4096;

/// A file without any block that was wanted is given up after so many.
const ATTEMPTS: u32 = 3;

/// Files that may have the content of a damaged one.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    /// None before the first use.
    candidates: Option<Vec<Candidate>>,
}

#[derive(Debug)]
struct Candidate {
    path: Vec<u8>,
    /// Opened when it is first read; none if that fails.
    content: OnceCell<Option<Box<dyn Content>>>,
    /// Blocks that it had not.
    failed: u32,
    /// Blocks that it had.
    had: u32,
}

impl Duplicates {
    /// Fills bad data blocks of a stripe from other files. Returns the names of the files.
    pub(super) fn fill(
        &mut self,
        vault: &Vault,
        path: &[u8],
        protected: &ProtectedFile,
        stripe: &mut StripeBuffer,
    ) -> Result<Vec<Vec<u8>>, ExamineError> {
        let run = protected.cut().run(stripe.stripe, 1);
        let candidates = self.candidates.get_or_insert_with(|| candidates(vault, path, protected));
        let mut used = Vec::new();
        for column in 0..protected.header.code.k() {
            let Some(wanted) = stripe.seals.get(column).copied().flatten() else { continue };
            if stripe.is_correct(column) {
                continue;
            }
            let (cell, mut bytes) = (run.cell(0, column), vec![0; stripe.block]);
            for candidate in candidates.iter_mut().filter(|it| it.had > 0 || it.failed < ATTEMPTS) {
                let there = &mut bytes[..(cell.end - cell.start) as usize];
                let is_read = candidate.read(vault, protected, cell.start, there);
                if is_read && wanted.fits(&protected.coder.sign(&bytes)?) {
                    candidate.had += 1;
                    used.push(candidate.path.clone());
                    stripe.blocks[column] = bytes;
                    stripe.states[column] = BlockState::Reconstructed;
                    break;
                }
                candidate.failed += 1;
            }
        }
        // The next block is probably in the same file.
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.had));
        Ok(used)
    }
}

impl Candidate {
    fn read(&self, vault: &Vault, protected: &ProtectedFile, offset: u64, buffer: &mut [u8]) -> bool {
        let content = self.content.get_or_init(|| self.open(vault, protected));
        content.as_ref().is_some_and(|it| it.read_at(offset, buffer).is_ok_and(|got| got == buffer.len()))
    }

    fn open(&self, vault: &Vault, protected: &ProtectedFile) -> Option<Box<dyn Content>> {
        let stat = vault.storage.find(&self.path).ok().flatten()?;
        let owner = protected.stat.map_or(protected.header.metadata.uid, |stat| stat.uid);
        let is_safe = protected.header.strong || stat.uid == owner;
        let is_another = protected.stat.is_none_or(|own| own.inode != stat.inode);
        let may_have_it = is_safe && is_another && stat.size == protected.header.generation.size;
        may_have_it.then(|| vault.storage.open(&self.path).ok()).flatten()
    }
}

/// Files of the same size; none if they cannot be listed.
fn candidates(vault: &Vault, path: &[u8], protected: &ProtectedFile) -> Vec<Candidate> {
    let names = vault.catalogue.of_size(protected.header.generation.size, MOST).unwrap_or_default();
    let candidate = |path| Candidate { path, content: OnceCell::new(), failed: 0, had: 0 };
    names.into_iter().filter(|name| name != path).map(candidate).collect()
}
