//! Check for silent corruption: files with unchanged size and mtime whose content differs from their signatures. New
//! redundancy would protect the corruption; the existing redundancy can still repair it.

use super::{EncodeError, EncodeOptions, Encoded, Encoder};
use crate::damage::{DamageReport, damage_report, remaining_redundancy};
use crate::examine::{self, ExamineError, ProtectedFile};
use crate::format::{Header, Metadata};
use crate::redundancy::{Part, redo};
use crate::tree::Generation;
use crate::version::{is_doubtful, is_same_content};
use std::io;

impl Encoder<'_> {
    /// Returns [`EncodeError::Damaged`] with the findings if the file differs from its protected content. Changed
    /// permissions and attributes are written to the existing headers.
    pub(super) fn refuse_damaged(&self, path: &[u8], options: EncodeOptions<'_>) -> Result<(), EncodeError> {
        let protected = match ProtectedFile::open(self.storage, self.coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(()),
            protected => protected?,
        };
        let examine_options = examine::ExamineOptions::quiet(options.threads, options.stopped);
        let findings = examine::examine(&protected, examine_options).map_err(|error| match error {
            ExamineError::Stopped => EncodeError::Stopped,
            error => EncodeError::Examine(error),
        })?;
        let (Some(content), Some(stat)) = (&protected.content, protected.stat) else {
            return Err(EncodeError::Gone);
        };
        for fault in findings.faults.iter().filter(|fault| !fault.data.is_empty()) {
            let run = protected.cut().run(fault.stripe, 1);
            // An unreadable block is reported with its own error.
            for &column in &fault.data {
                content.read(&run, 0, column, &mut vec![0; run.block as usize]).map_err(EncodeError::Read)?;
            }
        }
        // After a write since the protected version, a difference is not corruption.
        if !findings.has_bad_data() || !is_same_content(&protected.header, &stat.generation()) {
            return Ok(());
        }
        let after = self.storage.find(path).map_err(EncodeError::read)?.ok_or(EncodeError::Gone)?;
        if after.generation() != stat.generation() {
            return Err(EncodeError::Changed);
        }
        let metadata = content.metadata().map_err(EncodeError::read)?;
        let found =
            damage_report(path, &protected, &findings).map(|found| DamageReport { changed: false, ..found });
        let kept = Encoded {
            id: protected.header.id,
            stat,
            protected_at: protected.header.protected_at,
            code: protected.header.coding(),
            columns: remaining_redundancy(&protected, &findings) as usize,
            wanted: protected.header.code.m(),
            redundancy_bytes: protected.parts.iter().map(Part::bytes).sum(),
            read_bytes: stat.size,
            adopted: true,
            encoded: 0,
            kept: findings.stripes,
            damage: found,
            unrecoverable: Vec::new(),
            reconstructed: Vec::new(),
            changed: Vec::new(),
            drafts: Vec::new(),
            published: Vec::new(),
            replaced: Vec::new(),
            obsolete: Vec::new(),
        };
        self.keep_metadata(protected, &metadata, stat.generation())?;
        Err(EncodeError::Damaged(Box::new(kept)))
    }

    /// Returns [`EncodeError::OtherName`] if the file is protected under `other`, is unmodified since then and differs
    /// from the protected content. New redundancy would protect the corruption, and a repair under this name would
    /// restore it.
    pub(crate) fn refuse_damaged_by(
        &self,
        other: &[u8],
        options: EncodeOptions<'_>,
    ) -> Result<(), EncodeError> {
        let protected = match ProtectedFile::open(self.storage, self.coders, other) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(()),
            protected => protected?,
        };
        let Some(stat) = protected.stat else { return Ok(()) };
        if !is_same_content(&protected.header, &stat.generation()) || is_doubtful(&protected.header) {
            return Ok(());
        }
        let examine_options = examine::ExamineOptions::quiet(options.threads, options.stopped);
        match examine::examine(&protected, examine_options) {
            Ok(findings) if findings.has_bad_data() => {}
            Ok(_) => return Ok(()),
            Err(ExamineError::Stopped) => return Err(EncodeError::Stopped),
            Err(error) => return Err(EncodeError::Examine(error)),
        }
        match self.storage.find(other).map_err(EncodeError::read)? {
            Some(after) if after.generation() == stat.generation() => {
                Err(EncodeError::OtherName(other.to_vec()))
            }
            _ => Err(EncodeError::Changed),
        }
    }

    /// Writes owner, permissions and attributes into the headers as far as they fit, so that a restored file is not
    /// accessible to more users than the original. What does not fit follows when the file is protected after its
    /// repair. For a copy the header also gets the inode, so that repair identifies it.
    fn keep_metadata(
        &self,
        protected: ProtectedFile,
        metadata: &Metadata,
        now: Generation,
    ) -> Result<(), EncodeError> {
        let (id, revision) = (protected.header.id, protected.header.revision);
        let places: Vec<_> = protected.parts.into_iter().map(|part| part.place).collect();
        for place in places {
            let write = EncodeError::write(&place);
            let part = place.open_to_update(self.coders).map_err(|error| write(io::Error::other(error)))?;
            let Some(part) = part.filter(|part| part.head_damage.is_none()) else { continue };
            let mut header = Header { metadata: metadata.clone(), ..part.header.clone() };
            if header.generation.inode != now.inode {
                header.generation = now;
            }
            let bytes = header.encode(part.header_bytes()).ok();
            let Some(bytes) = bytes.filter(|bytes| bytes.len() == part.header_bytes()) else { continue };
            if header != part.header && (header.id, header.revision) == (id, revision) {
                let writes = [(part.own_records().trailer(), bytes.clone()), (0, bytes)];
                redo::update(&place, &part.file, &header, &writes).map_err(&write)?;
            }
        }
        Ok(())
    }
}
