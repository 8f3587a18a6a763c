//! Results of workers.

use crate::catalogue::{Catalogue, CatalogueError, Piece, Problem};
use crate::damage::DamageReport;
use crate::degraded::{self, Report};
use crate::display_path::DisplayPath;
use crate::encode::Encoded;
use crate::examine::BlockFault;
use crate::retry::Failure;
use crate::storage::plain::DATA;
use crate::world::Timestamp;
use std::collections::HashSet;
use std::ops::Range;

/// What a worker did in one batch of claims.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Files that were encoded, and bytes of their data.
    pub encoded: u64,
    /// See `encoded`.
    pub encoded_bytes: u64,
    /// Files whose existing redundancy was valid and was adopted.
    pub adopted: u64,
    /// Files whose redundancy was moved.
    pub moved: u64,
    /// Files whose redundancy was removed.
    pub removed: u64,
    /// Portions of large files of other workers that were encoded, and bytes of their data.
    pub helped: u64,
    /// See `helped`.
    pub helped_bytes: u64,
}

impl Batch {
    /// What was done after `before`.
    pub(super) fn since(self, before: Batch) -> Batch {
        Batch {
            encoded: self.encoded - before.encoded,
            encoded_bytes: self.encoded_bytes - before.encoded_bytes,
            adopted: self.adopted - before.adopted,
            moved: self.moved - before.moved,
            removed: self.removed - before.removed,
            helped: self.helped - before.helped,
            helped_bytes: self.helped_bytes - before.helped_bytes,
        }
    }

    /// Sum of both.
    #[must_use]
    pub fn and(self, other: Batch) -> Batch {
        Batch {
            encoded: self.encoded + other.encoded,
            encoded_bytes: self.encoded_bytes + other.encoded_bytes,
            adopted: self.adopted + other.adopted,
            moved: self.moved + other.moved,
            removed: self.removed + other.removed,
            helped: self.helped + other.helped,
            helped_bytes: self.helped_bytes + other.helped_bytes,
        }
    }
}

/// Counts and lists of what workers did.
#[derive(Debug, Default, Clone)]
pub struct Done {
    /// Files that were encoded, and bytes of their data.
    pub encoded: u64,
    /// See `encoded`.
    pub encoded_bytes: u64,
    /// Files whose existing redundancy was valid and was adopted.
    pub adopted: u64,
    /// Portions of files of other workers that were encoded, and bytes of their data.
    pub helped: u64,
    /// See `helped`.
    pub helped_bytes: u64,
    /// Bytes of the redundancy files that were written.
    pub redundancy_bytes: u64,
    /// Stripes that were encoded, and stripes whose frames were kept.
    pub stripes: (u64, u64),
    /// Files whose redundancy was moved.
    pub moved: u64,
    /// Files whose redundancy was removed.
    pub removed: u64,
    /// Files with fewer redundancy columns than their code has.
    pub reduced_redundancy: u64,
    /// Files that could not be protected, with reasons.
    pub failed: Vec<(Vec<u8>, Failure)>,
    /// Number of failures, including those that are not listed.
    pub failures: u64,
    /// Files with a foreign object in the place of their redundancy, and the path to which it was moved.
    pub set_aside: Vec<(Vec<u8>, std::path::PathBuf)>,
    /// Files that are damaged. They keep their redundancy.
    pub damaged: Vec<DamageReport>,
    /// Ranges that were corrupt although they were not written, and that could not be reconstructed. They are protected
    /// as they are.
    pub unrecoverable: Vec<(Vec<u8>, Vec<Range<u64>>)>,
    /// Ranges that were corrupt although they were not written, and that were reconstructed before the file was
    /// encoded.
    pub reconstructed: Vec<(Vec<u8>, Vec<Range<u64>>)>,
    /// Files that grew and also changed in blocks that existed before. See [`Encoded::changed`].
    pub changed: Vec<(Vec<u8>, Vec<Range<u64>>)>,
    /// Changes that wait for an approval.
    pub held: u64,
    /// Admission refused the claims: more files changed than the guard allows.
    pub refused: bool,
    /// The worker's host is draining: it claims nothing.
    pub draining: bool,
    /// As many workers of the host are at work as its limits allow: this one claims nothing.
    pub limited: bool,
    /// Write-once files that changed: they keep their redundancy and are recorded as damaged.
    pub write_once: Vec<Vec<u8>>,
    /// Paths to scan: gaps and moved directories, with everything below them.
    pub for_scan: Vec<Vec<u8>>,
    /// Known files of directories that were renamed and then deleted. They may have been moved out before.
    pub vanished: Vec<Vec<u8>>,
    /// Inodes of which one name was processed. Their other hard links may need processing.
    pub inodes: Vec<u64>,
}

impl Done {
    /// True if anything was done or failed.
    pub fn is_something(&self) -> bool {
        let all =
            [self.encoded, self.adopted, self.helped, self.moved, self.removed, self.failures, self.held];
        all.iter().any(|&number| number > 0) || !self.damaged.is_empty() || !self.write_once.is_empty()
    }

    /// Counts of what was done so far.
    pub(super) fn batch(&self) -> Batch {
        let Done { encoded, encoded_bytes, adopted, moved, removed, helped, helped_bytes, .. } = *self;
        Batch { encoded, encoded_bytes, adopted, moved, removed, helped, helped_bytes }
    }

    /// Sum of both.
    pub fn and(mut self, other: Done) -> Done {
        self.encoded += other.encoded;
        self.encoded_bytes += other.encoded_bytes;
        self.adopted += other.adopted;
        self.helped += other.helped;
        self.helped_bytes += other.helped_bytes;
        self.redundancy_bytes += other.redundancy_bytes;
        self.stripes = (self.stripes.0 + other.stripes.0, self.stripes.1 + other.stripes.1);
        self.moved += other.moved;
        self.removed += other.removed;
        self.reduced_redundancy += other.reduced_redundancy;
        self.failures += other.failures - other.failed.len() as u64;
        other.failed.into_iter().for_each(|(path, why)| self.fail(path, why, usize::MAX));
        self.damaged.extend(other.damaged);
        self.set_aside.extend(other.set_aside);
        self.unrecoverable.extend(other.unrecoverable);
        self.reconstructed.extend(other.reconstructed);
        self.changed.extend(other.changed);
        self.held += other.held;
        self.refused |= other.refused;
        self.draining |= other.draining;
        self.limited |= other.limited;
        self.write_once.extend(other.write_once);
        self.for_scan.extend(other.for_scan);
        self.vanished.extend(other.vanished);
        self.inodes.extend(other.inodes);
        self
    }

    /// Adds a failure. A file that was tried again has only its last one.
    pub(super) fn fail(&mut self, path: Vec<u8>, why: Failure, most_listed: usize) {
        match self.failed.iter_mut().find(|(failed, _)| *failed == path) {
            Some((_, reason)) => *reason = why,
            None => {
                self.failures += 1;
                if self.failed.len() < most_listed {
                    self.failed.push((path, why));
                }
            }
        }
    }

    /// Removes the failures of files that were tried again and are done.
    pub(super) fn succeeded(&mut self, paths: &HashSet<&[u8]>) {
        let before = self.failed.len();
        self.failed.retain(|(path, _)| !paths.contains(&path[..]));
        self.failures -= (before - self.failed.len()) as u64;
    }

    pub(super) fn count(&mut self, path: &[u8], encoded: &Encoded, moved: bool, most_listed: usize) {
        for (all, of_file) in [
            (&mut self.unrecoverable, &encoded.unrecoverable),
            (&mut self.reconstructed, &encoded.reconstructed),
            (&mut self.changed, &encoded.changed),
        ] {
            if !of_file.is_empty() && all.len() < most_listed {
                all.push((path.to_vec(), of_file.clone()));
            }
        }
        if let Some(damage) = &encoded.damage {
            if self.damaged.len() < most_listed {
                self.damaged.push(damage.clone());
            }
            return;
        }
        match encoded.adopted {
            // Already counted as moved.
            true if moved => {}
            true => self.adopted += 1,
            false => {
                self.encoded += 1;
                self.encoded_bytes += encoded.read_bytes;
                self.redundancy_bytes += encoded.redundancy_bytes;
            }
        }
        self.stripes.0 += encoded.encoded;
        self.stripes.1 += encoded.kept;
        self.reduced_redundancy += u64::from(encoded.columns < encoded.wanted);
    }
}

impl Encoded {
    /// Problems that `gabion status` lists for the file.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let damage = self.damage.iter().flat_map(|damage| damage.problems.clone());
        let of = |piece| move |range: &Range<u64>| Problem { piece, range: range.clone() };
        let unrecoverable = self.unrecoverable.iter().map(of(Piece::Data));
        damage.chain(unrecoverable).chain(self.changed.iter().map(of(Piece::Changed)))
    }

    /// Adds reconstructed blocks to the degraded-read statistics.
    pub(super) fn count_reconstructed(
        &self,
        catalogue: &Catalogue,
        now: Timestamp,
    ) -> Result<(), CatalogueError> {
        if self.reconstructed.is_empty() {
            return Ok(());
        }
        let (number, bytes) =
            (self.reconstructed.len() as u64, self.reconstructed.iter().map(|it| it.end - it.start).sum());
        let faults = [(DisplayPath::bytes(DATA).to_string(), [(BlockFault::Wrong, number)].into())].into();
        let report =
            Report { reconstructed: number, reconstructed_bytes: bytes, faults, ..Report::default() };
        degraded::note(catalogue, &report, now)
    }
}
