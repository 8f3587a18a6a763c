//! Files that nobody wrote to, by all that the file system says, and that are not what was protected: they are damaged. Redundancy
//! that was made of them now would make the damage last; what they have can still bring them back.

use super::{EncodeError, EncodeOptions, Encoded, Encoder};
use crate::damage::{Trouble, margin, trouble};
use crate::examine::{self, ExamineError, Subject};
use crate::format::{Header, Metadata};
use crate::redundancy::redo;
use crate::tree::Generation;
use crate::version::{is_doubtful, is_same_content};
use std::io;

impl Encoder<'_> {
    /// Refuses a file that is not what was protected: what was found is in the error. Its permissions and attributes, which somebody may
    /// have changed, are kept with the redundancy that it has.
    pub(super) fn refuse_damaged(&self, path: &[u8], options: EncodeOptions<'_>) -> Result<(), EncodeError> {
        let subject = match Subject::open(self.storage, self.coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(()),
            subject => subject?,
        };
        let EncodeOptions { threads, stopped, .. } = options;
        let look = examine::ExamineOptions { threads, from_medium: false, progress: &|_| {}, stopped };
        let findings = examine::examine(&subject, look).map_err(|error| match error {
            ExamineError::Stopped => EncodeError::Stopped,
            error => EncodeError::Examine(error),
        })?;
        let (Some(content), Some(stat)) = (&subject.content, subject.stat) else {
            return Err(EncodeError::Gone);
        };
        for fault in findings.faults.iter().filter(|fault| !fault.data.is_empty()) {
            let run = subject.cut().run(fault.stripe, 1);
            // What cannot be read at all has a reason of its own.
            for &column in &fault.data {
                content.read(&run, 0, column, &mut vec![0; run.block as usize]).map_err(EncodeError::Read)?;
            }
        }
        // Of several histories it was written since that which counts.
        if !findings.has_bad_data() || !is_same_content(&subject.header, &stat.generation()) {
            return Ok(());
        }
        let after = self.storage.find(path).map_err(EncodeError::read)?.ok_or(EncodeError::Gone)?;
        if after.generation() != stat.generation() {
            return Err(EncodeError::Changed);
        }
        let metadata = content.metadata().map_err(EncodeError::read)?;
        let found = trouble(path, &subject, &findings).map(|found| Trouble { changed: false, ..found });
        let kept = Encoded {
            id: subject.header.id,
            stat,
            protected_at: subject.header.protected_at,
            code: subject.header.coding(),
            columns: margin(&subject, &findings) as usize,
            wanted: subject.header.code.m(),
            redundancy_bytes: subject.parts.iter().map(|part| part.records.file()).sum(),
            read_bytes: stat.size,
            adopted: true,
            encoded: 0,
            kept: findings.stripes,
            trouble: found,
            spoilt: Vec::new(),
            mended: Vec::new(),
            changed: Vec::new(),
            drafts: Vec::new(),
            published: Vec::new(),
            obsolete: Vec::new(),
        };
        self.keep_metadata(subject, &metadata, stat.generation())?;
        Err(EncodeError::Damaged(Box::new(kept)))
    }

    /// Refuses a file that is protected by another name and is not what was protected, where nobody wrote to it since. Redundancy for this name would be made of
    /// the damage, and a repair by this name would put it back.
    pub(crate) fn refuse_damaged_by(
        &self,
        other: &[u8],
        options: EncodeOptions<'_>,
    ) -> Result<(), EncodeError> {
        let subject = match Subject::open(self.storage, self.coders, other) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(()),
            subject => subject?,
        };
        let Some(stat) = subject.stat else { return Ok(()) };
        if !is_same_content(&subject.header, &stat.generation()) || is_doubtful(&subject.header) {
            return Ok(());
        }
        let EncodeOptions { threads, stopped, .. } = options;
        let look = examine::ExamineOptions { threads, from_medium: false, progress: &|_| {}, stopped };
        match examine::examine(&subject, look) {
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

    /// Puts owner, permissions and attributes into the headers, as far as there is room: what is restored must not be open to more people
    /// than the file was. The rest follows when the file is protected after its repair.
    /// A copy gets the inode of the file in its header, so that repair knows it.
    fn keep_metadata(
        &self,
        subject: Subject,
        metadata: &Metadata,
        now: Generation,
    ) -> Result<(), EncodeError> {
        let (id, revision) = (subject.header.id, subject.header.revision);
        let places: Vec<_> = subject.parts.into_iter().map(|part| part.place).collect();
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
                let writes = [(part.records.trailer(), bytes.clone()), (0, bytes)];
                redo::update(&place, &part.file, &header, &writes).map_err(&write)?;
            }
        }
        Ok(())
    }
}
