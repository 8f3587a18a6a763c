//! Brings files back to what was protected.
//!
//! A file is examined and its damage listed; nothing is written then. Carried out, a stripe is read again, its bad blocks are
//! made from good ones, each is checked against its signature, and only then written in place: only blocks that were wrong
//! are ever written, so a crash in between leaves a file no worse than it was. What a bad block held is kept in the
//! repository, for it may have been someone's work. Redundancy is mended by the same stripe through an update that
//! happens as a whole.

mod noting;

use crate::catalogue::{CatalogueError, Entry, State};
use crate::damage::{Trouble, margin, trouble};
use crate::examine::{ExamineError, ExamineOptions, Findings, Stripe, StripeFault, Subject, examine};
use crate::format::{Frame, Metadata};
use crate::metadata::without_privileges;
use crate::redundancy::redo;
use crate::repair_mark::{self, Interrupted, Mark, forget_repair};
use crate::replaced;
use crate::run::{Progress, RunContext};
use crate::scrub::{is_gone, is_of_another, is_replaced, note_bare};
use crate::storage::Repairable;
use crate::throttle::Throttle;
use crate::tree::{Stat, absent_is_none, split};
use crate::vault::Vault;
use gabion_platform::lock::Lockable;
use noting::{note_right, without_redundancy};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Which files to look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Only those that scrub found damaged.
    pub known_only: bool,
    /// Leave files alone that were written since they were protected. A repair that was interrupted is finished all the same.
    pub keep_changed: bool,
    /// Bring back files that are gone, where redundancy suffices.
    pub missing: bool,
}

/// What would be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Files to repair, as far as they can be.
    pub files: Vec<Trouble>,
    /// Files that were written since and shall be left alone.
    pub kept: Vec<Trouble>,
    /// Files that could not be examined, and why.
    pub failed: Vec<(Vec<u8>, String)>,
    /// Files that were examined.
    pub examined: u64,
}

/// What was done with one file.
#[derive(Debug)]
pub struct Repaired {
    /// Which one.
    pub path: Vec<u8>,
    /// How it is now.
    pub state: State,
    /// Blocks of the file that were written.
    pub data_blocks: u64,
    /// Blocks of redundancy that were written.
    pub redundancy_blocks: u64,
    /// Bytes of the file that cannot be brought back.
    pub lost: Vec<std::ops::Range<u64>>,
    /// Where the bytes are that were replaced.
    pub replaced: Option<std::path::PathBuf>,
    /// What could not be done, in words.
    pub notes: Vec<String>,
}

/// Why a file was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It cannot be examined.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// The operating system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

/// Examines the files at and below `path` and says what would be done.
///
/// # Errors
/// The catalogue fails.
pub fn plan(
    vault: &Vault,
    path: &[u8],
    options: Options,
    context: RunContext<'_>,
) -> Result<Plan, CatalogueError> {
    let total = vault.catalogue.matrix(path)?.iter().fold((0, 0), |sum, row| (sum.0 + row.2, sum.1 + row.3));
    (context.progress)(Progress::Step("examining", Some(total)));
    let throttle = Throttle::new(context.rate.or(vault.policy.rate));
    let progress = |bytes: u64| {
        throttle.take(bytes);
        (context.progress)(Progress::Done(0, bytes));
    };
    // If nobody can say which were interrupted, none is treated as such; protect names the reason.
    let interrupted = Interrupted::of(&*vault.storage).unwrap_or_default();
    let mut plan = Plan::default();
    vault.catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        for (path, entry) in page {
            if (context.stopped)() || (options.known_only && entry.state == State::Protected) {
                continue;
            }
            let look = ExamineOptions {
                threads: context.threads,
                from_medium: false,
                progress: &progress,
                stopped: context.stopped,
            };
            let found = Subject::open_known(&*vault.storage, &vault.coders, &path, &entry)
                .and_then(|subject| examine(&subject, look).map(|findings| (subject, findings)));
            plan.examined += 1;
            (context.progress)(Progress::Done(1, 0));
            let stat = found.as_ref().ok().and_then(|(subject, _)| subject.stat);
            let is_begun = interrupted.has(&path, stat.as_ref()).unwrap_or(false);
            match found {
                Ok((subject, _)) if subject.content.is_none() && !options.missing => {}
                Ok((subject, findings)) => match trouble(&path, &subject, &findings) {
                    // A file that is gone is wanted back; nobody has written to it.
                    Some(trouble)
                        if trouble.changed
                            && options.keep_changed
                            && !is_begun
                            && subject.content.is_some() =>
                    {
                        plan.kept.push(trouble);
                    }
                    Some(trouble) => plan.files.push(trouble),
                    // Its bytes are right, its times are not yet.
                    None if is_begun => plan.files.push(Trouble {
                        path,
                        state: State::Protected,
                        problems: Vec::new(),
                        changed: false,
                        notes: vec!["a repair of it was interrupted".to_owned()],
                    }),
                    // Mended since it was found damaged: by another of its names, or by a repair that came no further.
                    None if entry.state != State::Protected && !is_of_another(vault, &path, &entry) => {
                        note_right(vault, &path, entry, margin(&subject, &findings))?;
                    }
                    None => {}
                },
                // Where files take their redundancy along, there is nothing to bring back.
                Err(ExamineError::Unprotected | ExamineError::Unusable(_))
                    if (!options.missing || vault.storage.keeps_by_identity()) && is_gone(vault, &path) => {}
                Err(ExamineError::Unprotected) if is_replaced(vault, &path, &entry) => {}
                Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_))) => {
                    plan.files.push(note_bare(vault, path, entry, &error)?);
                }
                Err(error) => plan.failed.push((path, error.to_string())),
            }
        }
        Ok(())
    })?;
    Ok(plan)
}

/// Repairs one file as far as it can be.
///
/// # Errors
/// See [`RepairError`]; what is lost is no error.
pub fn repair(vault: &Vault, path: &[u8], context: RunContext<'_>) -> Result<Repaired, RepairError> {
    let opened = match vault.catalogue.find(path)? {
        Some(entry) => Subject::open_known(&*vault.storage, &vault.coders, path, &entry),
        None => Subject::open(&*vault.storage, &vault.coders, path),
    };
    let subject = match opened {
        Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_))) => {
            return without_redundancy(vault, path, error);
        }
        subject => subject?,
    };
    refuse_redundancy_of_another_file(vault, path, &subject)?;
    let quiet = |_: u64| {};
    let look = ExamineOptions {
        threads: context.threads,
        from_medium: false,
        progress: &quiet,
        stopped: context.stopped,
    };
    let findings = examine(&subject, look)?;
    let mark = repair_mark::read(&vault.repository, path)?.filter(|mark| mark.is_of(subject.stat.as_ref()));
    let mut work = Work {
        vault,
        subject: &subject,
        path,
        mark,
        edited: None,
        replaced: None,
        done: Repaired::new(path),
    };
    if subject.stat.is_some() {
        work.refuse_other_version()?;
    }
    work.find_edits(&findings)?;
    work.begin(&findings)?;
    work.redundancy_first(&findings)?;
    let stat = work.data(&findings)?;
    let done = work.conclude(&findings, stat)?;
    forget_repair(&*vault.storage, path)?;
    Ok(done)
}

/// Redundancy that lies under the name of another file must not bring that file's content, which not everybody may read, into this one.
fn refuse_redundancy_of_another_file(vault: &Vault, path: &[u8], subject: &Subject) -> io::Result<()> {
    let Some(binding) = absent_is_none(vault.storage.binding(path))? else { return Ok(()) };
    let now = subject.stat.map(|stat| stat.generation());
    match subject.header.belongs_to(&binding, now.as_ref()) {
        true => Ok(()),
        false => {
            let why = "its redundancy was made for another file and is not used; `gabion protect` makes new redundancy";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
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

struct Work<'a> {
    vault: &'a Vault,
    subject: &'a Subject,
    path: &'a [u8],
    /// A repair of this file was begun before.
    mark: Option<Mark>,
    /// Someone wrote to the file since: these blocks, by stripe and column, stay as they are.
    edited: Option<BTreeSet<(u64, usize)>>,
    /// Where what is overwritten is kept.
    replaced: Option<(Vec<u8>, File)>,
    done: Repaired,
}

impl Work<'_> {
    /// What the catalogue knows of the file; nothing where it knows another one by this name.
    fn known(&self) -> Result<Option<Entry>, CatalogueError> {
        let Vault { catalogue, storage, .. } = self.vault;
        let is_it = |entry: &Entry| !storage.keeps_by_identity() || entry.id == self.subject.header.id;
        Ok(catalogue.find(self.path)?.filter(is_it))
    }

    /// Notes what is to be done, so that whatever becomes of this process, nobody takes half of it for the whole.
    fn begin(&mut self, findings: &Findings) -> Result<(), RepairError> {
        let Vault { repository, catalogue, clock, .. } = self.vault;
        let trouble = trouble(self.path, self.subject, findings);
        if let (Some(trouble), Some(entry)) = (trouble, self.known()?) {
            catalogue.together(|| -> Result<(), CatalogueError> {
                catalogue.put(self.path, &Entry { state: trouble.state, ..entry })?;
                catalogue.set_problems(self.path, &trouble.problems, clock.now())
            })?;
        }
        // Storage of several targets puts the new version of a file in place as a whole.
        let writes_data = findings.has_bad_data() || self.has_wrong_size();
        let is_whole = !self.subject.header.targets.is_empty();
        if findings.doubtful || !writes_data || is_whole || self.mark.is_some() {
            return Ok(());
        }
        Ok(Mark::of(self.subject, findings).write(repository, self.path)?)
    }

    /// Finds out what was written to the file since its repair was interrupted.
    fn find_edits(&mut self, findings: &Findings) -> Result<(), RepairError> {
        let (Some(mark), Some(stat)) = (&self.mark, self.subject.stat) else { return Ok(()) };
        let mut edited = BTreeSet::new();
        for fault in findings.faults.iter().filter(|fault| !fault.data.is_empty()) {
            let run = self.subject.cut().run(fault.stripe, 1);
            let whole = self.whole(fault)?;
            for &column in &fault.data {
                let cell = run.cell(0, column);
                let right = whole.as_ref().map(|stripe| {
                    &stripe.blocks[column * run.block as usize..][..(cell.end - cell.start) as usize]
                });
                if !mark.is_unfinished(self.subject, &run, column, right) {
                    edited.insert((fault.stripe, column));
                }
            }
        }
        if !edited.is_empty() || !mark.knows_size(stat.size, self.subject.header.generation.size) {
            self.edited = Some(edited);
            let note = "it was written since its repair was interrupted: what was written is kept";
            self.done.notes.push(note.to_owned());
        }
        Ok(())
    }

    /// Reads a stripe again and makes it whole; nothing if that is beyond what is left of it.
    fn whole(&self, fault: &StripeFault) -> Result<Option<Stripe>, RepairError> {
        let run = self.subject.cut().run(fault.stripe, 1);
        let mut stripe = Stripe::default();
        stripe.read_records(self.subject, &run);
        stripe.examine(self.subject, &run, 0)?;
        if fault.stale {
            return Ok(Some(stripe.trusting(self.subject, run.block as usize)?));
        }
        Ok(stripe.restore(self.subject, run.block as usize)?.then_some(stripe))
    }

    /// Mends frames and headers. The data comes after: as long as it is damaged, every good frame is needed.
    fn redundancy_first(&mut self, findings: &Findings) -> Result<(), RepairError> {
        let k = self.subject.header.code.k();
        let current = self.subject.parts.iter().enumerate();
        for (at, part) in current.filter(|(_, part)| self.subject.is_current(part)) {
            let (mut writes, mut bytes) = (Vec::new(), 0);
            let columns = part.columns();
            for fault in
                findings.faults.iter().filter(|fault| fault.redundancy.iter().any(|c| columns.contains(c)))
            {
                let Some(stripe) = self.whole(fault)? else { continue };
                let Some(seals) = &stripe.seals else { continue };
                let block = stripe.blocks.len() / seals.len();
                let frame = block + self.subject.coder.table_bytes();
                for &column in fault.redundancy.iter().filter(|column| columns.contains(column)) {
                    let mut mended = vec![0; frame];
                    mended[..block].copy_from_slice(&stripe.blocks[(k + column) * block..][..block]);
                    let (data, own) = (&seals[..k], &seals[k + column]);
                    Frame::seal(&mut mended, part.header.frame_key(), column, fault.stripe, data, own);
                    let within = column - part.header.first;
                    writes.push((part.records.frame_offset(within, fault.stripe), mended));
                    bytes += frame;
                    self.done.redundancy_blocks += 1;
                }
                if bytes > redo::MAX_BYTES {
                    self.update(at, std::mem::take(&mut writes))?;
                    bytes = 0;
                }
            }
            if !writes.is_empty() || findings.headers.contains(&at) {
                let header = part.header.encode(part.header_bytes()).map_err(io::Error::other)?;
                writes.push((part.records.trailer(), header.clone()));
                writes.push((0, header));
                self.update(at, writes)?;
            }
        }
        Ok(())
    }

    fn update(&self, part: usize, writes: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        let part = &self.subject.parts[part];
        // Ours is open for reading, and readers keep writers out.
        part.file.unlock()?;
        let file = Lockable::exclusive(part.place.tree.write(&part.place.path)?)?;
        redo::update(&part.place, &file, &part.header, &writes)?;
        // What lies behind its end is of nobody's making, and hides the second header.
        file.set_len(part.records.file())?;
        drop(file);
        part.file.lock_shared()
    }

    /// Writes the blocks of the file that were wrong. Gives the file as it is then.
    fn data(&mut self, findings: &Findings) -> Result<Option<Stat>, RepairError> {
        let header = &self.subject.header;
        let size = header.generation.size;
        let wrong_size = self.has_wrong_size();
        if !findings.has_bad_data() && !wrong_size && self.mark.is_none() {
            return Ok(self.subject.stat);
        }
        if findings.doubtful && self.subject.content.is_some() {
            self.done.notes.push("its data was left alone: it may be newer than its redundancy".to_owned());
            return Ok(self.subject.stat);
        }
        // A file that is gone comes back whole or not at all.
        if self.subject.content.is_none() && findings.is_lost() {
            self.done.lost.push(0..size);
            return Ok(None);
        }
        let metadata = match &self.subject.content {
            Some(content) if !self.mark.as_ref().is_some_and(Mark::was_gone) => content.metadata()?,
            _ => {
                let (metadata, left_out) = without_privileges(&header.metadata);
                self.done.notes.extend(left_out);
                metadata
            }
        };
        self.keep_replaced(findings)?;
        let mut file = self.vault.storage.open_for_repair(self.path)?;
        self.refuse_other_version()?;
        repair_mark::note_made(
            &*self.vault.storage,
            &self.vault.repository,
            self.subject,
            findings,
            self.path,
        )?;
        let mut resized = !wrong_size;
        for fault in findings.faults.iter().filter(|fault| !fault.data.is_empty()) {
            let run = self.subject.cut().run(fault.stripe, 1);
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
                let bytes = &stripe.blocks[column * run.block as usize..][..(cell.end - cell.start) as usize];
                file.write(&run, 0, column, bytes)?;
                self.done.data_blocks += 1;
            }
        }
        if !resized && findings.faults.iter().all(|fault| !fault.lost) {
            file.set_size(size)?;
        }
        self.finish(file, &metadata)
    }

    /// A size that someone gave the file since its repair was interrupted is right.
    fn has_wrong_size(&self) -> bool {
        self.edited.is_none()
            && self.subject.stat.is_none_or(|stat| stat.size != self.subject.header.generation.size)
    }

    /// What someone wrote while the file was examined differs from what was protected, and is no damage.
    fn refuse_other_version(&self) -> io::Result<()> {
        let now = self.vault.storage.find(self.path)?;
        let same = match (self.subject.stat, now) {
            (Some(was), now) => now.is_some_and(|now| now.generation() == was.generation()),
            // Opening it may have made an empty one.
            (None, now) => now.is_none_or(|now| now.size == 0),
        };
        match same {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::ResourceBusy, "it was written while it was examined")),
        }
    }

    fn finish(
        &mut self,
        mut file: Box<dyn Repairable>,
        metadata: &Metadata,
    ) -> Result<Option<Stat>, RepairError> {
        // What is still damaged must not look like the protected version.
        let mtime = match self.done.lost.is_empty() && self.edited.is_none() {
            true => self.subject.header.generation.mtime,
            false => self.subject.stat.map_or(self.subject.header.generation.mtime, |stat| stat.mtime),
        };
        let (failed, stat) = file.finish(metadata, mtime)?;
        self.done.notes.extend(failed.into_iter().map(|what| format!("could not be given back: {what}")));
        Ok(Some(stat))
    }

    /// Keeps everything that will be overwritten or cut off, and makes it durable with its directories: after a crash the old bytes are in the file or here.
    fn keep_replaced(&mut self, findings: &Findings) -> Result<(), RepairError> {
        if self.has_wrong_size() {
            self.keep_tail(self.subject.header.generation.size)?;
        }
        for fault in findings.faults.iter().filter(|fault| !fault.lost) {
            let run = self.subject.cut().run(fault.stripe, 1);
            fault.data.iter().try_for_each(|&column| self.keep_block(&run, column))?;
        }
        if let Some((path, file)) = &self.replaced {
            file.sync_all()?;
            self.vault.repository.sync_directories(split(path).0)?;
        }
        Ok(())
    }

    /// Keeps what a block holds before it is written, at the same place of a sparse file.
    fn keep_block(&mut self, run: &crate::geometry::Run, column: usize) -> Result<(), RepairError> {
        let Some(content) = &self.subject.content else { return Ok(()) };
        let mut bytes = vec![0; run.block as usize];
        let Ok(got) = content.read(run, 0, column, &mut bytes) else { return Ok(()) };
        if got > 0 {
            let start = run.cell(0, column).start;
            self.keep(&bytes[..got], start)?;
        }
        Ok(())
    }

    /// Keeps what lies behind the end that the file had.
    fn keep_tail(&mut self, size: u64) -> Result<(), RepairError> {
        let Some(stat) = self.subject.stat.filter(|stat| stat.size > size) else { return Ok(()) };
        let Some(content) = &self.subject.content else { return Ok(()) };
        // Cut as it is now, every byte of it lies in some cell.
        for run in self.subject.header.geometry.cut(stat.size).runs(1) {
            for column in 0..self.subject.header.code.k() {
                let cell = run.cell(0, column);
                if cell.end > size {
                    let mut bytes = vec![0; run.block as usize];
                    let got = content.read(&run, 0, column, &mut bytes).unwrap_or(0);
                    let skip = size.saturating_sub(cell.start).min(got as u64);
                    self.keep(&bytes[skip as usize..got], cell.start + skip)?;
                }
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

    /// Whether redundancy lies where it may not, now that the data is where it is: then it is to be protected once more.
    fn is_misplaced(&self, again: &Subject) -> bool {
        let Subject { header, parts, .. } = again;
        let storage = &self.vault.storage;
        let homes = storage.layout(self.path, &header.code, header.geometry.block()).ok();
        let homes = homes.and_then(|layout| storage.parity_placements(self.path, &header.code, &layout).ok());
        homes.is_some_and(|homes| {
            parts.iter().any(|part| homes.iter().all(|home| !home.place.is(&part.place)))
        })
    }

    /// Whether owner, permissions or attributes are others than redundancy has: then it is to be protected once more.
    fn has_other_metadata(&self, again: &Subject) -> bool {
        let metadata = again.content.as_ref().and_then(|content| content.metadata().ok());
        metadata.is_some_and(|metadata| metadata != again.header.metadata)
    }

    /// Looks once more at what was written, and notes it.
    fn conclude(mut self, findings: &Findings, stat: Option<Stat>) -> Result<Repaired, RepairError> {
        self.done.lost = crate::geometry::merge(std::mem::take(&mut self.done.lost));
        if self.edited.is_some() && self.done.lost.is_empty() {
            self.done.notes.push("`gabion protect` takes the file as it is now".to_owned());
            return Ok(self.done);
        }
        let again = Subject::open(&*self.vault.storage, &self.vault.coders, self.path)?;
        let look = ExamineOptions { threads: 1, from_medium: false, progress: &|_| {}, stopped: &|| false };
        let after = examine(&again, look)?;
        let left = trouble(self.path, &again, &after);
        // What was to be brought back is lost, also where somebody wrote to the file.
        self.done.state = match after.is_lost() {
            true => State::Lost,
            false => left.as_ref().map_or(State::Protected, |left| left.state),
        };
        if !findings.missing.is_empty() {
            self.done.notes.push("missing redundancy is made anew by `gabion protect`".to_owned());
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
            let columns = if after.faults.is_empty() { margin(&again, &after) } else { entry.columns };
            catalogue
                .put(self.path, &Entry { generation, state, columns, scrubbed_at: Some(now), ..entry })?;
            catalogue.set_problems(self.path, &problems, now)
        })?;
        Ok(self.done)
    }
}
