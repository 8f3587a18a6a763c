//! What workers did.

use crate::catalogue::{Catalogue, CatalogueError, Piece, Problem};
use crate::damage::Trouble;
use crate::degraded::{self, Report};
use crate::encode::Encoded;
use crate::gather::Ailment;
use crate::shown::Shown;
use crate::storage::plain::DATA;
use crate::world::Nanos;
use std::ops::Range;

/// What was done.
#[derive(Debug, Default, Clone)]
pub struct Done {
    /// Files that got new redundancy, and their bytes.
    pub encoded: u64,
    /// See `encoded`.
    pub encoded_bytes: u64,
    /// Files whose redundancy was there already.
    pub adopted: u64,
    /// Bytes of the redundancy files of those that got new redundancy.
    pub redundancy_bytes: u64,
    /// Stripes that were encoded, and that kept what they had.
    pub stripes: (u64, u64),
    /// Files whose redundancy was moved.
    pub moved: u64,
    /// Files whose redundancy was removed.
    pub removed: u64,
    /// Files that got fewer redundancy columns than they should have.
    pub thin: u64,
    /// Files that could not be protected now, and why.
    pub failed: Vec<(Vec<u8>, String)>,
    /// Their number, also where not all are listed.
    pub failures: u64,
    /// Files in the place of whose redundancy something else stood, and where that is now.
    pub set_aside: Vec<(Vec<u8>, std::path::PathBuf)>,
    /// Files that were found damaged, and keep the redundancy that they have.
    pub damaged: Vec<Trouble>,
    /// Files with bytes that were damaged although nobody wrote to them, and that nothing could put right: they are protected as they are.
    pub spoilt: Vec<(Vec<u8>, Vec<Range<u64>>)>,
    /// Files with bytes that were damaged although nobody wrote to them, and that were put right before the file was encoded.
    pub mended: Vec<(Vec<u8>, Vec<Range<u64>>)>,
    /// Files that grew and changed within the part that they had before; nobody knows what was written to them. See [`Encoded::changed`].
    pub changed: Vec<(Vec<u8>, Vec<Range<u64>>)>,
    /// Changes that were left alone, because they wait for an approval.
    pub held: u64,
    /// Changes that were recorded meanwhile look like an accident: nothing more was claimed.
    pub refused: bool,
    /// Write-once files that changed: they keep their redundancy and are recorded as damaged.
    pub write_once: Vec<Vec<u8>>,
    /// Gaps and directories that were moved: what is at and beneath these paths has to be scanned.
    pub for_scan: Vec<Vec<u8>>,
    /// Known files that were in a directory which got another name and is gone now: they may have left it before.
    pub vanished: Vec<Vec<u8>>,
    /// Inodes of which one name was seen to; others may have to be.
    pub inodes: Vec<u64>,
}

impl Done {
    /// Whether anything was done, or failed.
    pub fn is_something(&self) -> bool {
        let all = [self.encoded, self.adopted, self.moved, self.removed, self.failures, self.held];
        all.iter().any(|&number| number > 0) || !self.damaged.is_empty() || !self.write_once.is_empty()
    }

    /// Both together.
    pub fn and(mut self, other: Done) -> Done {
        self.encoded += other.encoded;
        self.encoded_bytes += other.encoded_bytes;
        self.adopted += other.adopted;
        self.redundancy_bytes += other.redundancy_bytes;
        self.stripes = (self.stripes.0 + other.stripes.0, self.stripes.1 + other.stripes.1);
        self.moved += other.moved;
        self.removed += other.removed;
        self.thin += other.thin;
        self.failed.extend(other.failed);
        self.failures += other.failures;
        self.damaged.extend(other.damaged);
        self.set_aside.extend(other.set_aside);
        self.spoilt.extend(other.spoilt);
        self.mended.extend(other.mended);
        self.changed.extend(other.changed);
        self.held += other.held;
        self.refused |= other.refused;
        self.write_once.extend(other.write_once);
        self.for_scan.extend(other.for_scan);
        self.vanished.extend(other.vanished);
        self.inodes.extend(other.inodes);
        self
    }

    pub(super) fn count(&mut self, path: &[u8], encoded: &Encoded, moved: bool, most_listed: usize) {
        for (all, of_file) in [
            (&mut self.spoilt, &encoded.spoilt),
            (&mut self.mended, &encoded.mended),
            (&mut self.changed, &encoded.changed),
        ] {
            if !of_file.is_empty() && all.len() < most_listed {
                all.push((path.to_vec(), of_file.clone()));
            }
        }
        if let Some(trouble) = &encoded.trouble {
            if self.damaged.len() < most_listed {
                self.damaged.push(trouble.clone());
            }
            return;
        }
        match encoded.adopted {
            // Counted when its redundancy was moved.
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
        self.thin += u64::from(encoded.columns < encoded.wanted);
    }
}

impl Encoded {
    /// What `status` shows of a file that was encoded.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let trouble = self.trouble.iter().flat_map(|trouble| trouble.problems.clone());
        let of = |piece| move |range: &Range<u64>| Problem { piece, range: range.clone() };
        let spoilt = self.spoilt.iter().map(of(Piece::Data));
        trouble.chain(spoilt).chain(self.changed.iter().map(of(Piece::Changed)))
    }

    /// Counts blocks that were put right among those that were reconstructed for readers.
    pub(super) fn note_mended(&self, catalogue: &Catalogue, now: Nanos) -> Result<(), CatalogueError> {
        if self.mended.is_empty() {
            return Ok(());
        }
        let (number, bytes) =
            (self.mended.len() as u64, self.mended.iter().map(|it| it.end - it.start).sum());
        let ailing = [(Shown::bytes(DATA).to_string(), [(Ailment::Wrong, number)].into())].into();
        let report =
            Report { reconstructed: number, reconstructed_bytes: bytes, ailing, ..Report::default() };
        degraded::note(catalogue, &report, now)
    }
}
