//! Repair: restores files to their protected content.
//!
//! A plan examines files and lists their damage without writing. The repair of a file reads each faulty stripe again,
//! reconstructs its bad blocks from good ones, verifies each against its signature, and only then writes it in place.
//! Only bad blocks are written, so a crash leaves a file no worse than it was. The former content of bad blocks is kept
//! in the repository, since it may be a user's intended change. Redundancy is repaired from the same stripe by an
//! atomic update.

mod all;
mod duplicates;
mod keeping;
mod path_bytes;
mod planning;
mod recording;
mod renamed;
mod turn;
mod updating;

pub(crate) use all::{REPAIR, help};
pub use all::{RepairedOrNot, repair_all};
pub use planning::plan;
pub(crate) use planning::{PLAN, help as help_plan};
pub use renamed::follow_renamed;

use crate::catalogue::{CatalogueError, Entry, State};
use crate::damage::{DamageReport, ExaminedVersion, damage_report, remaining_redundancy, version_of};
use crate::display_path::DisplayPath;
use crate::examine::{
    ExamineError, ExamineOptions, Findings, ProtectedFile, StripeBuffer, StripeFault, examine,
};
use crate::format::{Frame, Metadata};
use crate::metadata::without_privileges;
use crate::redundancy::redo;
use crate::repair_mark::{self, Mark};
use crate::retry::{Failure, Retry, Retryable};
use crate::run::RunContext;
use crate::storage::Repairable;
use crate::tree::{Stat, absent_is_none};
use crate::vault::Vault;
use duplicates::Duplicates;
use recording::{note_right, without_redundancy};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use turn::Turn;

/// Selection of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Only files that a scrub found damaged.
    pub known_only: bool,
    /// Skip files that were written since they were protected. An interrupted repair is finished nevertheless.
    pub keep_changed: bool,
    /// Restore deleted files, if their redundancy suffices.
    pub missing: bool,
}

/// Plan of a repair.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Files to repair.
    pub files: Vec<DamageReport>,
    /// Files that were written since they were protected and are skipped.
    pub kept: Vec<DamageReport>,
    /// Files that could not be examined, with reasons.
    pub failed: Vec<(Vec<u8>, Failure)>,
    /// Number of files examined.
    pub examined: u64,
}

/// Result for one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Repaired {
    /// Path of the file.
    pub path: Vec<u8>,
    /// State after the repair.
    pub state: State,
    /// Data blocks written.
    pub data_blocks: u64,
    /// Redundancy blocks written.
    pub redundancy_blocks: u64,
    /// Ranges that cannot be restored.
    pub lost: Vec<std::ops::Range<u64>>,
    /// Path of the replaced content.
    #[serde(with = "path_bytes")]
    pub replaced: Option<std::path::PathBuf>,
    /// Remarks, for example on parts that could not be repaired.
    pub notes: Vec<String>,
}

/// Error of a repair.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The file cannot be examined.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// The operating system returned an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

impl Retryable for RepairError {
    fn retry(&self) -> Retry {
        match self {
            RepairError::Examine(error) => error.retry(),
            RepairError::Io(error) => error.retry(),
            RepairError::Catalogue(_) => Retry::Later,
        }
    }
}

/// Repairs one file as far as possible. Refused while another process repairs it.
///
/// # Errors
/// See [`RepairError`]; lost data is no error.
pub fn repair(vault: &Vault, path: &[u8], context: RunContext<'_>) -> Result<Repaired, RepairError> {
    repair_version(vault, path, None, context)
}

/// As [`repair`], but refuses to write to another version of the file than was `planned`.
fn repair_version(
    vault: &Vault,
    path: &[u8],
    planned: Option<Planned>,
    context: RunContext<'_>,
) -> Result<Repaired, RepairError> {
    let inode = vault.storage.find(path)?.map(|stat| stat.inode);
    let _turn = Turn::take(&vault.repository, path, inode)?;
    let opened = match vault.catalogue.find(path)? {
        Some(entry) => ProtectedFile::open_known(&*vault.storage, &vault.coders, path, &entry),
        None => ProtectedFile::open(&*vault.storage, &vault.coders, path),
    };
    let protected = match opened {
        Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_))) => {
            return without_redundancy(vault, path, error);
        }
        protected => protected?,
    };
    refuse_redundancy_of_another_file(vault, path, &protected)?;
    let findings = examine(&protected, ExamineOptions::quiet(context.threads, context.stopped))?;
    let mark = repair_mark::read(&vault.repository, path, protected.stat.as_ref())?;
    let mut work = Work {
        vault,
        protected,
        path,
        mark,
        begun: None,
        edited: None,
        replaced: None,
        duplicates: RefCell::default(),
        duplicates_used: RefCell::default(),
        done: Repaired::new(path),
    };
    if work.protected.stat.is_some() {
        work.refuse_other_version()?;
    }
    let is_planned = planned.is_none_or(|planned| {
        // A repair that was finished under another name since has decided what is kept.
        let is_finished = planned.unfinished && work.mark.is_none();
        planned.version == version_of(work.protected.stat.as_ref()) && !is_finished
    });
    if !is_planned && (findings.has_bad_data() || work.has_wrong_size()) {
        let why = "it was changed since it was examined: repair it again if it still has to be";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why).into());
    }
    work.find_edits(&findings)?;
    work.begin(&findings)?;
    work.redundancy_first(&findings)?;
    let written = work.data(&findings)?;
    let stat = written.stat;
    let done = work.conclude(&findings, written)?;
    repair_mark::forget(&*vault.storage, path, stat.as_ref())?;
    Ok(done)
}

/// Redundancy under the name of another file must not bring that file's content, which may have stricter permissions,
/// into this one.
fn refuse_redundancy_of_another_file(
    vault: &Vault,
    path: &[u8],
    protected: &ProtectedFile,
) -> io::Result<()> {
    let Some(binding) = absent_is_none(vault.storage.binding(path))? else { return Ok(()) };
    let now = protected.stat.map(|stat| stat.generation());
    match protected.header.belongs_to(&binding, now.as_ref()) {
        true => Ok(()),
        false => {
            let why = "its redundancy was made for another file and is not used; `gabion protect` makes new redundancy";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

/// A file when its repair was planned.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Planned {
    /// None if there was no file.
    version: Option<ExaminedVersion>,
    /// A repair of it had to be finished.
    unfinished: bool,
}

impl From<&DamageReport> for Planned {
    fn from(damage: &DamageReport) -> Planned {
        Planned { version: damage.version, unfinished: damage.unfinished }
    }
}

impl Repaired {
    fn new(path: &[u8]) -> Repaired {
        Repaired {
            path: path.to_vec(),
            state: State::Protected,
            data_blocks: 0,
            redundancy_blocks: 0,
            lost: Vec::new(),
            replaced: None,
            notes: Vec::new(),
        }
    }
}

/// Data of a file after it was repaired.
struct Written {
    stat: Option<Stat>,
    /// The file and what was found in it after the last write, if it was examined again.
    examined: Option<(ProtectedFile, Findings)>,
}

struct Work<'a> {
    vault: &'a Vault,
    protected: ProtectedFile,
    path: &'a [u8],
    /// Mark of an interrupted repair of this file.
    mark: Option<Mark>,
    /// Mark of this repair, if it is the first one.
    begun: Option<Mark>,
    /// Blocks (stripe, column) that were written by others since the interruption. They are not changed.
    edited: Option<BTreeSet<(u64, usize)>>,
    /// File that keeps the overwritten content.
    replaced: Option<(Vec<u8>, File)>,
    duplicates: RefCell<Duplicates>,
    /// Files of which blocks were taken.
    duplicates_used: RefCell<BTreeSet<Vec<u8>>>,
    done: Repaired,
}

impl Work<'_> {
    /// Catalogue entry of the file; none if the entry is about another file of this name.
    fn known(&self) -> Result<Option<Entry>, CatalogueError> {
        let Vault { catalogue, storage, .. } = self.vault;
        let is_it = |entry: &Entry| !storage.keeps_by_identity() || entry.id == self.protected.header.id;
        Ok(catalogue.find(self.path)?.filter(is_it))
    }

    /// Records the repair before the first write, so that a partly repaired file is not taken for a version.
    fn begin(&mut self, findings: &Findings) -> Result<(), RepairError> {
        let Vault { catalogue, clock, .. } = self.vault;
        let damage = damage_report(self.path, &self.protected, findings);
        if let (Some(damage), Some(entry)) = (damage, self.known()?) {
            catalogue.together(|| -> Result<(), CatalogueError> {
                catalogue.put(self.path, &Entry { state: damage.state, ..entry })?;
                catalogue.set_problems(self.path, &damage.problems, clock.now())
            })?;
        }
        // That of a file that exists is written when nobody else can write to it.
        if self.protected.content.is_none() { self.mark(findings) } else { Ok(()) }
    }

    /// Marks the file before the first write to it.
    fn mark(&mut self, findings: &Findings) -> Result<(), RepairError> {
        // Storage with several targets publishes a new version of the file as a whole.
        let writes_data = findings.has_bad_data() || self.has_wrong_size();
        let is_whole = !self.protected.header.targets.is_empty();
        if findings.doubtful || !writes_data || is_whole || self.mark.is_some() {
            return Ok(());
        }
        let mark = Mark::of(&self.protected, findings, self.path);
        mark.write(&self.vault.repository)?;
        self.begun = Some(mark);
        Ok(())
    }

    /// Finds blocks that were written by others since the repair was interrupted.
    fn find_edits(&mut self, findings: &Findings) -> Result<(), RepairError> {
        let (Some(mark), Some(stat)) = (&self.mark, self.protected.stat) else { return Ok(()) };
        let mut edited = BTreeSet::new();
        for fault in findings.faults.iter().filter(|fault| !fault.data.is_empty()) {
            let run = self.protected.cut().run(fault.stripe, 1);
            let whole = self.whole(fault)?;
            for &column in &fault.data {
                let cell = run.cell(0, column);
                let right =
                    whole.as_ref().map(|stripe| &stripe.blocks[column][..(cell.end - cell.start) as usize]);
                if !mark.is_unfinished(&self.protected, &run, column, right) {
                    edited.insert((fault.stripe, column));
                }
            }
        }
        if !edited.is_empty() || !mark.knows_size(stat.size, self.protected.header.generation.size) {
            self.edited = Some(edited);
            let note = "it was written since its repair was interrupted: what was written is kept";
            self.done.notes.push(note.to_owned());
        }
        Ok(())
    }

    /// Reads a stripe again and reconstructs it; none if too few blocks are left, here and in files with the same
    /// content.
    fn whole(&self, fault: &StripeFault) -> Result<Option<StripeBuffer>, RepairError> {
        let (coder, mut stripe) = (&self.protected.coder, StripeBuffer::default());
        self.protected.read_whole(&mut stripe, fault.stripe)?;
        if fault.stale {
            stripe.trust_data(coder)?;
        }
        let all = || 0..coder.code().blocks();
        if stripe.restore(coder, all())? {
            return Ok(Some(stripe));
        }
        let mut duplicates = self.duplicates.borrow_mut();
        let used = duplicates.fill(self.vault, self.path, &self.protected, &mut stripe)?;
        if used.is_empty() || !stripe.restore(coder, all())? {
            return Ok(None);
        }
        self.duplicates_used.borrow_mut().extend(used);
        Ok(Some(stripe))
    }

    /// Repairs frames and headers before data: every good frame is needed while the data is damaged.
    fn redundancy_first(&mut self, findings: &Findings) -> Result<(), RepairError> {
        let k = self.protected.header.code.k();
        let current = self.protected.parts.iter().enumerate();
        for (at, part) in current.filter(|(_, part)| self.protected.is_current(part)) {
            let (mut writes, mut bytes) = (Vec::new(), 0);
            let columns = part.columns();
            for fault in
                findings.faults.iter().filter(|fault| fault.redundancy.iter().any(|c| columns.contains(c)))
            {
                let Some(stripe) = self.whole(fault)? else { continue };
                let Some(seals) = stripe.data_seals(k) else { continue };
                let frame = stripe.block + self.protected.coder.table_bytes();
                for &column in fault.redundancy.iter().filter(|column| columns.contains(column)) {
                    let Some(own) = &stripe.seals[k + column] else { continue };
                    let mut repaired = vec![0; frame];
                    repaired[..stripe.block].copy_from_slice(&stripe.blocks[k + column]);
                    Frame::seal(&mut repaired, part.header.frame_key(), column, fault.stripe, &seals, own);
                    let within = column - part.header.first;
                    writes.push((part.records.frame_offset(within, fault.stripe), repaired));
                    bytes += frame;
                    self.done.redundancy_blocks += 1;
                }
                if bytes > redo::MAX_BYTES {
                    self.update_frames(at, std::mem::take(&mut writes))?;
                    bytes = 0;
                }
            }
            if part.is_shared() {
                self.update_frames(at, std::mem::take(&mut writes))?;
            }
            if !writes.is_empty() || findings.headers.contains(&at) {
                let header = part.header.encode(part.header_bytes()).map_err(io::Error::other)?;
                writes.push((part.own_records().trailer(), header.clone()));
                writes.push((0, header));
                self.update(at, writes)?;
            }
        }
        Ok(())
    }

    /// Writes the bad data blocks. Returns the file's properties afterwards.
    fn data(&mut self, findings: &Findings) -> Result<Written, RepairError> {
        let unwritten = |stat| Ok(Written { stat, examined: None });
        let header = &self.protected.header;
        let size = header.generation.size;
        let wrong_size = self.has_wrong_size();
        if !findings.has_bad_data() && !wrong_size && self.mark.is_none() {
            return unwritten(self.protected.stat);
        }
        if findings.doubtful && self.protected.content.is_some() {
            self.done.notes.push("its data was left alone: it may be newer than its redundancy".to_owned());
            return unwritten(self.protected.stat);
        }
        // A deleted file is restored completely or not at all.
        if self.protected.content.is_none() && findings.is_lost() {
            self.done.lost.push(0..size);
            return unwritten(None);
        }
        let metadata = match &self.protected.content {
            Some(content) if !self.mark.as_ref().is_some_and(Mark::was_gone) => content.metadata()?,
            _ => {
                let (metadata, left_out) = without_privileges(&header.metadata);
                self.done.notes.extend(left_out);
                metadata
            }
        };
        self.keep_replaced(findings)?;
        let content = self.protected.content.take();
        let (mut file, content) = self.vault.storage.open_for_repair(self.path, content)?;
        self.protected.content = content;
        self.refuse_other_version()?;
        if self.protected.content.is_some() {
            self.mark(findings)?;
        }
        let Vault { storage, repository, .. } = self.vault;
        repair_mark::note_made(&**storage, repository, &self.protected, findings, self.path)?;
        let mut resized = !wrong_size;
        for fault in findings.faults.iter().filter(|fault| !fault.data.is_empty()) {
            file.give_way();
            let run = self.protected.cut().run(fault.stripe, 1);
            let Some(stripe) = self.whole(fault)? else {
                let edited = self.edited.as_ref();
                let is_ours =
                    |column: &&usize| edited.is_none_or(|it| !it.contains(&(fault.stripe, **column)));
                let lost = fault.data.iter().filter(is_ours).map(|&column| run.cell(0, column));
                self.done.lost.extend(lost);
                continue;
            };
            if !resized {
                file.set_size(size)?;
                resized = true;
            }
            let is_edited = |column: &usize| {
                self.edited.as_ref().is_some_and(|edited| edited.contains(&(fault.stripe, *column)))
            };
            let columns: Vec<usize> = fault.data.iter().copied().filter(|it| !is_edited(it)).collect();
            for column in columns {
                let cell = run.cell(0, column);
                let bytes = &stripe.blocks[column][..(cell.end - cell.start) as usize];
                file.write(&run, 0, column, bytes)?;
                self.done.data_blocks += 1;
            }
        }
        if !resized && findings.faults.iter().all(|fault| !fault.lost) {
            file.set_size(size)?;
        }
        self.finish(file, &metadata)
    }

    /// True if the size has to be restored. A size that was set after an interruption is kept.
    fn has_wrong_size(&self) -> bool {
        self.edited.is_none()
            && self.protected.stat.is_none_or(|stat| stat.size != self.protected.header.generation.size)
    }

    /// A write during the examination looks like damage. Returns an error if the version has changed.
    fn refuse_other_version(&self) -> io::Result<()> {
        let now = self.vault.storage.find(self.path)?;
        let same = match (self.protected.stat, now) {
            (Some(was), now) => now.is_some_and(|now| now.generation() == was.generation()),
            // Opening a deleted file may have created an empty one.
            (None, now) => now.is_none_or(|now| now.size == 0),
        };
        match same {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::ResourceBusy, "it was written while it was examined")),
        }
    }

    fn finish(&mut self, mut file: Box<dyn Repairable>, metadata: &Metadata) -> Result<Written, RepairError> {
        let protected_mtime = self.protected.header.generation.mtime;
        // A file with remaining damage must not get the mtime of the protected version, and one that others have
        // written to since is a new version.
        let before = self.protected.stat.map_or(protected_mtime, |stat| stat.mtime);
        let mtime = if self.done.lost.is_empty() { protected_mtime } else { before };
        let mtime = self.edited.is_none().then_some(mtime);
        // It is the same open file, which is now to be closed for writing.
        self.protected.content = None;
        let (mut examined, mut failed) = (None, None);
        let mut is_right = |stopped: &(dyn Fn() -> bool + Sync)| match self.examine_again(stopped) {
            Ok((again, after)) => {
                let is_right = self.is_right(&again, &after);
                examined = Some((again, after));
                Ok(is_right)
            }
            Err(ExamineError::Stopped) => Ok(false),
            Err(error) => {
                failed = Some(error);
                Ok(false)
            }
        };
        let finished = file.finish(metadata, mtime, &mut is_right);
        if let Some(error) = failed {
            return Err(error.into());
        }
        let (failed, stat) = finished?;
        let used = self.duplicates_used.take();
        let from = |path: &Vec<u8>| {
            format!("blocks that its redundancy could not restore are from {}", DisplayPath::bytes(path))
        };
        self.done.notes.extend(used.iter().map(from));
        self.done.notes.extend(failed.into_iter().map(|what| format!("could not be given back: {what}")));
        Ok(Written { stat: Some(stat), examined })
    }

    fn examine_again(
        &self,
        stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<(ProtectedFile, Findings), ExamineError> {
        let again = ProtectedFile::open(&*self.vault.storage, &self.vault.coders, self.path)?;
        let after = examine(&again, ExamineOptions::quiet(1, stopped))?;
        Ok((again, after))
    }

    /// True if a repaired file holds nothing but protected content and damage that was there before: nobody else has
    /// written to it. Of a file that others have written to before, only its size is known.
    fn is_right(&self, again: &ProtectedFile, after: &Findings) -> bool {
        if self.edited.is_some() {
            return true;
        }
        let Some(stat) = again.stat else { return false };
        let mark = self.mark.as_ref().or(self.begun.as_ref());
        let is_known = |fault: &StripeFault| {
            let run = again.cut().run(fault.stripe, 1);
            let is_old =
                |&column: &usize| mark.is_some_and(|mark| mark.is_unfinished(again, &run, column, None));
            fault.data.iter().all(is_old)
        };
        let wanted = self.protected.header.generation.size;
        (stat.size == wanted || mark.is_some_and(|mark| mark.knows_size(stat.size, wanted)))
            && after.faults.iter().all(is_known)
    }

    /// True if redundancy shares a target with data where it must not. The file then has to be protected again.
    fn is_misplaced(&self, again: &ProtectedFile) -> bool {
        let ProtectedFile { header, parts, .. } = again;
        let storage = &self.vault.storage;
        let homes = storage.layout(self.path, &header.code, header.geometry.block()).ok();
        let homes = homes.and_then(|layout| storage.parity_placements(self.path, &header.code, &layout).ok());
        homes.is_some_and(|homes| {
            parts.iter().any(|part| homes.iter().all(|home| !home.place.is(&part.place)))
        })
    }

    /// True if owner, permissions or attributes differ from those in the redundancy. The file then has to be protected
    /// again.
    fn has_other_metadata(&self, again: &ProtectedFile) -> bool {
        let metadata = again.content.as_ref().and_then(|content| content.metadata().ok());
        metadata.is_some_and(|metadata| metadata != again.header.metadata)
    }

    /// Examines the written file again and records its state.
    fn conclude(mut self, findings: &Findings, written: Written) -> Result<Repaired, RepairError> {
        let Written { stat, examined } = written;
        self.done.lost = crate::geometry::merge(std::mem::take(&mut self.done.lost));
        if self.edited.is_some() && self.done.lost.is_empty() {
            self.done.notes.push("`gabion protect` takes the file as it is now".to_owned());
            return Ok(self.done);
        }
        let (again, after) = match examined {
            Some(examined) => examined,
            None => self.examine_again(&|| false)?,
        };
        if again.stat.map(|stat| stat.inode) != stat.map(|stat| stat.inode) {
            let why = "it was renamed or removed while it was repaired";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why).into());
        }
        let left = damage_report(self.path, &again, &after);
        // Content that could not be restored is lost, even where others have written since.
        self.done.state = match after.is_lost() {
            true => State::Lost,
            false => left.as_ref().map_or(State::Protected, |left| left.state),
        };
        if !findings.missing.is_empty() {
            self.done.notes.push("missing redundancy is made again by `gabion protect`".to_owned());
        }
        let catalogue = &self.vault.catalogue;
        let Some(entry) = self.known()? else { return Ok(self.done) };
        let problems = left.map_or(Vec::new(), |left| left.problems);
        let generation = match (&self.done.state, stat) {
            (State::Protected | State::Degraded, Some(stat))
                if !self.is_misplaced(&again) && !self.has_other_metadata(&again) =>
            {
                stat.generation()
            }
            _ => entry.generation,
        };
        catalogue.together(|| -> Result<(), CatalogueError> {
            let (state, now) = (self.done.state, self.vault.clock.now());
            let columns =
                if after.faults.is_empty() { remaining_redundancy(&again, &after) } else { entry.columns };
            catalogue
                .put(self.path, &Entry { generation, state, columns, scrubbed_at: Some(now), ..entry })?;
            catalogue.set_problems(self.path, &problems, now)
        })?;
        Ok(self.done)
    }
}
