//! A scrub that several workers share: each portion is a list of files.
//!
//! A worker finds the files in its own copy of the catalogue, examines them, records what it finds there, and answers
//! with its part of the report. The worker that began the scrub chooses the files, and adds the parts.

use super::{Report, SMALL_FILE, examine_page, note_page};
use crate::catalogue::{CatalogueError, Entry};
use crate::changelog::tasks::{Portion, TaskKind};
use crate::run::{Progress, RunContext};
use crate::team::{Divisible, Help, paths_of, put_paths, result_of};
use crate::throttle::Throttle;
use crate::vault::Vault;

/// Portions of scrubs.
pub(crate) const SCRUB: TaskKind = TaskKind(b's');

/// Most files of a portion.
const MAX_FILES: usize = 256;

/// Bytes of data of a portion, at least: some seconds of work of a slow worker. A larger file is a portion of its own.
const PORTION_BYTES: u64 = 64 << 20;

/// Bytes of data of a portion for a number of threads: some files for each.
pub(crate) fn portion_bytes(threads: usize) -> u64 {
    PORTION_BYTES.max(threads as u64 * 2 * SMALL_FILE)
}

/// Files with what is known of them.
pub(crate) type Files = Vec<(Vec<u8>, Entry)>;

/// Divides files among portions, in their order.
pub(crate) fn portions(files: Files, portion_bytes: u64) -> Vec<Files> {
    let (mut all, mut bytes) = (Vec::<Files>::new(), 0);
    for file in files {
        let size = file.1.generation.size;
        match all.last_mut() {
            Some(last) if last.len() < MAX_FILES && bytes + size <= portion_bytes => {
                bytes += size;
                last.push(file);
            }
            _ => {
                bytes = size;
                all.push(vec![file]);
            }
        }
    }
    all
}

/// The scrub of one worker.
pub(super) struct Scrub<'a> {
    pub(super) vault: &'a Vault,
    pub(super) from_medium: bool,
    pub(super) throttle: &'a Throttle<'a>,
    pub(super) context: RunContext<'a>,
    pub(super) report: Report,
}

impl Scrub<'_> {
    fn examine(&mut self, files: Files) -> Result<(), CatalogueError> {
        let seen = examine_page(self.vault, &files, self.from_medium, self.throttle, self.context);
        self.vault.catalogue.together(|| note_page(self.vault, files, seen, &mut self.report))
    }
}

impl Divisible for Scrub<'_> {
    type Portion = Files;
    type Error = CatalogueError;

    fn content(&self, files: &Files) -> Vec<u8> {
        put_paths(files.iter().map(|(path, _)| &path[..]))
    }

    fn work(&mut self, _: u64, files: Files) -> Result<(), CatalogueError> {
        self.examine(files)
    }

    fn collect(&mut self, _: u64, files: &Files, result: &[u8]) -> Result<bool, CatalogueError> {
        let Ok(part) = serde_json::from_slice::<Report>(result) else { return Ok(false) };
        // Each file is in one of the counts, or left out by a worker that was stopped.
        let told = [part.files, part.gone, part.changing, part.failed.len() as u64];
        if told.into_iter().try_fold(0, u64::checked_add) != Some(files.len() as u64) {
            return Ok(false);
        }
        let bytes = files.iter().map(|(_, entry)| entry.generation.size).sum();
        (self.context.progress)(Progress::Elsewhere(files.len() as u64, bytes));
        self.report.add(part);
        Ok(true)
    }
}

/// The files of a portion that are known, as all hosts know them, and the number of the others: they were moved or
/// removed since they were chosen. None if the content is not one, or the catalogue fails.
pub(crate) fn known_files(vault: &Vault, content: &[u8]) -> Option<(Files, u64)> {
    let paths = paths_of(content)?;
    let (mut files, mut others) = (Files::new(), 0);
    let find = || -> Result<(), CatalogueError> {
        for path in paths {
            match vault.catalogue.find(&path)? {
                Some(entry) => files.push((path, entry)),
                None => others += 1,
            }
        }
        Ok(())
    };
    vault.catalogue.as_of_now(find).ok()?;
    Some((files, others))
}

/// Does a portion of the scrub of another worker.
pub(crate) fn help(vault: &Vault, portion: &Portion, context: RunContext<'_>) -> Help {
    let (&[from_medium], Some((files, changing))) =
        (&portion.about[..], known_files(vault, &portion.content))
    else {
        return Help::Failed;
    };
    // The caller limits the rate.
    let throttle = Throttle::unlimited();
    let report = Report { changing, ..Report::default() };
    let mut scrub = Scrub { vault, from_medium: from_medium != 0, throttle: &throttle, context, report };
    let examined = scrub.examine(files);
    result_of(examined.map(|()| &scrub.report).ok(), context.stopped)
}

#[cfg(test)]
mod tests {
    use super::{Files, MAX_FILES, PORTION_BYTES, portions};
    use crate::catalogue::Entry;
    use crate::catalogue::State;
    use crate::format::FileId;
    use crate::tree::Generation;
    use crate::world::Timestamp;

    fn entry(size: u64) -> Entry {
        Entry {
            id: FileId([0; 16]),
            generation: Generation { size, mtime: Timestamp::EPOCH, ctime: Timestamp::EPOCH, inode: 1 },
            code: String::new(),
            wanted: 1,
            columns: 1,
            redundancy: 0,
            protected_at: Timestamp::EPOCH,
            scrubbed_at: None,
            state: State::Protected,
        }
    }

    #[test]
    fn portions_are_bounded_in_files_and_bytes() {
        let file = |size: u64| (b"f".to_vec(), entry(size));
        let sizes = |files: Files| -> Vec<Vec<u64>> {
            let of = |files: Files| files.iter().map(|(_, entry)| entry.generation.size).collect();
            portions(files, PORTION_BYTES).into_iter().map(of).collect()
        };
        assert!(sizes(Vec::new()).is_empty());
        let (half, all) = (PORTION_BYTES / 2, PORTION_BYTES);
        let files: Files = [half, half, 1, all, all + 1, 0, 7].map(file).into();
        assert_eq!(sizes(files), [vec![half, half], vec![1], vec![all], vec![all + 1], vec![0, 7]]);
        let many: Files = (0..2 * MAX_FILES + 1).map(|_| file(1)).collect();
        assert_eq!(
            portions(many, u64::MAX).iter().map(Vec::len).collect::<Vec<_>>(),
            [MAX_FILES, MAX_FILES, 1]
        );
    }
}
