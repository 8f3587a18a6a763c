//! What a repair overwrites is kept in the repository before.

use super::{RepairError, Work};
use crate::examine::Findings;
use crate::geometry::Run;
use crate::replaced;
use crate::tree::split;
use std::os::unix::fs::FileExt;

impl Work<'_> {
    /// Saves all content that will be overwritten or truncated, durably with its directories.
    pub(super) fn keep_replaced(&mut self, findings: &Findings) -> Result<(), RepairError> {
        if self.has_wrong_size() {
            self.keep_tail(self.protected.header.generation.size)?;
        }
        for fault in &findings.faults {
            // What cannot be restored is not overwritten.
            if !fault.lost || self.whole(fault)?.is_some() {
                let run = self.protected.cut().run(fault.stripe, 1);
                fault.data.iter().try_for_each(|&column| self.keep_block(&run, column))?;
            }
        }
        if let Some((path, file)) = &self.replaced {
            file.sync_all()?;
            self.vault.repository.sync_directories(split(path).0)?;
        }
        Ok(())
    }

    /// Saves the present content of a block, at its offset in a sparse file.
    fn keep_block(&mut self, run: &Run, column: usize) -> Result<(), RepairError> {
        let Some(content) = &self.protected.content else { return Ok(()) };
        let mut bytes = vec![0; run.block as usize];
        let Ok(got) = content.read(run, 0, column, &mut bytes) else { return Ok(()) };
        if got > 0 {
            let start = run.cell(0, column).start;
            self.keep(&bytes[..got], start)?;
        }
        Ok(())
    }

    /// Saves the content behind the protected size.
    fn keep_tail(&mut self, size: u64) -> Result<(), RepairError> {
        let Some(stat) = self.protected.stat.filter(|stat| stat.size > size) else { return Ok(()) };
        let k = self.protected.header.code.k();
        // With the present size, every byte lies in some cell.
        for run in self.protected.header.geometry.cut(stat.size).runs(1) {
            for column in 0..k {
                let cell = run.cell(0, column);
                let Some(content) = self.protected.content.as_ref().filter(|_| cell.end > size) else {
                    continue;
                };
                let mut bytes = vec![0; run.block as usize];
                let got = content.read(&run, 0, column, &mut bytes).unwrap_or(0);
                let skip = size.saturating_sub(cell.start).min(got as u64);
                self.keep(&bytes[skip as usize..got], cell.start + skip)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8], offset: u64) -> Result<(), RepairError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.replaced.is_none() {
            let tree = &self.vault.repository;
            let (path, file) = replaced::keep_as(tree, self.vault.clock.now(), self.path)?;
            self.done.replaced = Some(tree.shown(&path));
            self.replaced = Some((path, file));
        }
        if let Some((_, file)) = &self.replaced {
            file.write_all_at(bytes, offset)?;
        }
        Ok(())
    }
}
