//! Encoder: creates or updates the redundancy files of one file.
//!
//! The file is read in runs, row by row. The k blocks of a row stay in the cache while they are signed and encoded;
//! data in the page cache is encoded in place, without a copy. The frames of several rows are collected in one buffer
//! per redundancy file and written while they are still in the cache. Existing redundancy is compared by signatures,
//! and unchanged rows keep their frames. The version of the file is checked before and after; if it changed, the result
//! is discarded.

mod adopt;
mod columns;
mod damage_check;
mod error;
mod existing;
mod fenced;
mod publish;
mod row_source;
mod rows;
mod shared;
mod stable_version;
mod totals;
mod write_buffer;
mod write_tracker;

use crate::coder::{Coder, Coders};
use crate::damage::DamageReport;
use crate::examine::open_in_order;
use crate::format::{FileId, Header, Records, Version};
use crate::geometry::merge;
use crate::reconstruct::{ReconstructError, reconstruct_ranges};
use crate::redundancy::{Draft, Part, PartPath, redo};
use crate::storage::{Content, Layout, ParityPlacement, RedundancyLocation, Storage};
use crate::team::Team;
use crate::tree::{Generation, Stat};
use crate::version::{is_doubtful, is_in_doubt, is_same_content};
use crate::world::{Clock, Timestamp, unique_id};
use adopt::adopt;
pub use error::EncodeError;
use existing::open_old;
pub use fenced::{Fenced, Recorded};
use gabion_platform::lock::Lockable;
pub(crate) use publish::sync_names;
use rows::Rows;
pub(crate) use shared::ENCODE;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use totals::{Totals, encode_rows};
use write_tracker::WriteTracker;

/// Largest redundancy file that is rewritten rather than updated in place, in bytes. Rewritten files are made durable
/// together; each update in place waits for the disk.
pub(crate) const SMALL_PART: u64 = 1 << 20;

/// Encoder with the parts of the vault that it uses.
#[derive(Debug)]
pub struct Encoder<'a> {
    /// Storage of the files.
    pub storage: &'a dyn Storage,
    /// Prepared codes.
    pub coders: &'a Coders,
    /// Clock.
    pub clock: &'a Clock,
}

/// Result of encoding one file, with the drafts that are still to be published.
#[derive(Debug)]
pub struct Encoded {
    /// Identity of the redundancy.
    pub id: FileId,
    /// Version of the file.
    pub stat: Stat,
    /// Time of protection, as in the headers.
    pub protected_at: Timestamp,
    /// The code in full, and what blocks have besides signatures.
    pub code: String,
    /// Redundancy columns with a placement.
    pub columns: usize,
    /// Redundancy columns of the code.
    pub wanted: usize,
    /// Size of all redundancy files in bytes.
    pub redundancy_bytes: u64,
    /// Bytes of data that were read.
    pub read_bytes: u64,
    /// Existing redundancy was valid and nothing was read.
    pub adopted: bool,
    /// Stripes that were encoded, and stripes whose frames were kept.
    pub encoded: u64,
    /// See `encoded`.
    pub kept: u64,
    /// Damage of the file, whose redundancy was left unchanged.
    pub damage: Option<DamageReport>,
    /// Ranges that were corrupt although they were not written, and that could not be reconstructed. They are protected
    /// as they are.
    pub unrecoverable: Vec<Range<u64>>,
    /// Ranges of a plain directory's file that were corrupt although they were not written, and that were reconstructed
    /// before encoding.
    pub reconstructed: Vec<Range<u64>>,
    /// Ranges of blocks that existed before the file grew and that changed. The writer is unknown: a program, or
    /// corruption.
    pub changed: Vec<Range<u64>>,
    drafts: Vec<Draft>,
    /// Paths of drafts that were published.
    published: Vec<PartPath>,
    /// Files that they replaced, open so that their space is not freed yet.
    replaced: Vec<Lockable>,
    obsolete: Vec<PartPath>,
}

/// Options for one file.
#[derive(Clone, Copy)]
pub struct EncodeOptions<'a> {
    /// Number of threads.
    pub threads: usize,
    /// The file was only renamed: changes of its version that a rename causes are ignored.
    pub moved: bool,
    /// The inode is known under another name that it had before. It is then no copy of the file that had this name.
    pub known_elsewhere: bool,
    /// What the catalogue knows of the file under this name.
    pub known: Option<Known>,
    /// What the changelog knows of the ranges that were written.
    pub recorded: Option<Recorded<'a>>,
    /// Flush of the file system before this call.
    pub flushed: Option<Flushed>,
    /// Called with the bytes of data that were processed.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Workers to share a large file with.
    pub team: Option<Team<'a>>,
    /// Called with the bytes of data that others processed.
    pub elsewhere: &'a (dyn Fn(u64) + Sync),
    /// Polled during work; true stops the encoder.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// What the catalogue knows of a file. Redundancy columns are removed without reading the file only if this permits it.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Version that is protected. Repair changes the ctime of a file, and not that in the headers.
    pub generation: Generation,
    /// The file is damaged or lost.
    pub is_damaged: bool,
}

/// A flush of all dirty pages of a file system. A later store into a mapped page changes the mtime of its file again.
#[derive(Debug, Clone, Copy)]
pub struct Flushed {
    /// Device number, as in [`Stat`].
    pub device: u64,
    /// Start of the flush.
    pub at: Timestamp,
}

/// Plan for one redundancy file.
#[derive(Debug)]
struct ParityFilePlan {
    placement: ParityPlacement,
    header: Header,
    header_bytes: usize,
    records: Records,
    /// Existing redundancy file, if it has the same division into blocks up to the end of the file.
    old: Option<Part>,
    /// Existing redundancy file that differs from that only in the number of columns in use.
    other_columns: Option<Part>,
    draft: Option<Draft>,
}

/// Redundancy files to write, with the existing ones.
struct RedundancyPlan {
    /// For the code of the new redundancy.
    coder: Arc<Coder>,
    parity_files: Vec<ParityFilePlan>,
    /// Existing redundancy of another code or division into blocks.
    former: Option<Part>,
    /// Existing redundancy files that are no longer needed.
    obsolete: Vec<PartPath>,
    /// Some existing redundancy is of this version of the file.
    same_version: bool,
    /// Some existing redundancy is of a version with the same size and mtime.
    unmodified: bool,
}

impl RedundancyPlan {
    /// Version that the existing redundancy describes.
    fn newest(&self) -> Option<Generation> {
        let old =
            self.parity_files.iter().filter_map(|parity_file| parity_file.old.as_ref()).chain(&self.former);
        old.max_by_key(|old| old.header.revision).map(|old| old.header.generation)
    }
}

/// The redundancy file of the higher revision.
fn newer(one: Option<Part>, other: Option<Part>) -> Option<Part> {
    let revision = |part: &Option<Part>| part.as_ref().map(|part| part.header.revision);
    if revision(&other) > revision(&one) { other } else { one }
}

/// Steps that were taken before this attempt.
#[derive(Debug, Clone, Copy, Default)]
struct Checks {
    /// The file was examined and is not damaged.
    examined: bool,
    /// Damaged blocks were reconstructed as far as possible.
    reconstructed: bool,
}

/// Result of one attempt.
enum Outcome {
    Encoded(Box<Encoded>),
    /// Size and mtime are unchanged but the content seems to differ from the redundancy: the file must be examined
    /// first.
    Unexamined,
    /// These cells were not written but differ from their signatures: they must be reconstructed first.
    Damaged(Vec<Range<u64>>),
}

impl Encoder<'_> {
    /// Encodes `path` with the given code and with blocks of at most `largest_block` bytes.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn encode(
        &self,
        path: &[u8],
        coder: &Arc<Coder>,
        largest_block: u64,
        options: EncodeOptions<'_>,
    ) -> Result<Encoded, EncodeError> {
        match self.encode_readable(path, coder, largest_block, options) {
            Err(EncodeError::Read(fault)) => self.adopt_degraded(path)?.ok_or(EncodeError::Read(fault)),
            encoded => encoded,
        }
    }

    fn encode_readable(
        &self,
        path: &[u8],
        coder: &Arc<Coder>,
        largest_block: u64,
        options: EncodeOptions<'_>,
    ) -> Result<Encoded, EncodeError> {
        let mut checks = Checks::default();
        loop {
            match self.encode_once(path, coder, largest_block, options, checks)? {
                Outcome::Encoded(encoded) => return Ok(*encoded),
                Outcome::Unexamined => {
                    self.refuse_damaged(path, options)?;
                    checks.examined = true;
                }
                Outcome::Damaged(cells) => {
                    self.storage
                        .repair_blocks(path, &cells, &|cell, is_in| self.reconstruct(path, cell, is_in));
                    checks.reconstructed = true;
                }
            }
        }
    }

    /// Reconstructs a range of a file; returns nothing if too few blocks of its stripe are left.
    fn reconstruct(
        &self,
        path: &[u8],
        range: &Range<u64>,
        is_in: &dyn Fn(&Generation, &Range<u64>) -> bool,
    ) -> io::Result<Vec<(Range<u64>, Vec<u8>)>> {
        let (paths, ranges) = ([path.to_vec()], std::slice::from_ref(range));
        let mut made = Vec::new();
        let given = reconstruct_ranges(self.storage, self.coders, &paths, ranges, is_in, |range, bytes| {
            made.push((range, bytes.to_vec()));
            Ok(())
        });
        match given {
            Ok(()) | Err(ReconstructError::TooLittle) => Ok(made),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Returns instead of repairing here: repair needs redundancy files that this function holds locked.
    fn encode_once(
        &self,
        path: &[u8],
        coder: &Arc<Coder>,
        largest_block: u64,
        options: EncodeOptions<'_>,
        checks: Checks,
    ) -> Result<Outcome, EncodeError> {
        self.storage.finish_abandoned_write(path).map_err(EncodeError::read)?;
        let content = self.storage.open(path).map_err(EncodeError::read)?;
        let (read_at, stat) = self.stable_version(&*content, options)?;
        self.refuse_being_written(path)?;
        self.storage.relocate_former_redundancy(path, self.coders).map_err(EncodeError::read)?;
        let block = self.storage.block(coder.code(), stat.size, largest_block);
        let layout = self.storage.layout(path, coder.code(), block)?;
        layout.check(coder.code(), stat.size)?;
        let mut plan = self.plan(path, coder, &layout, &*content, (&stat, read_at), options)?;
        let coder = &Arc::clone(&plan.coder);
        if !checks.examined
            && let Some(changed) = self.change_columns(&mut plan, &*content, &stat, options, &|| {
                self.check_unchanged(path, &stat, coder, block, &layout)
            })?
        {
            return Ok(Outcome::Encoded(Box::new(changed)));
        }
        let adopted = adopt(&plan.parity_files, coder, &stat, options.moved);
        plan.encode_again();
        let tracker = WriteTracker::of(self.storage, path, &plan, &stat, options.recorded);
        self.storage.note_encoding_start(path, plan.newest().as_ref(), &stat.generation());
        if let Some(adopted) = adopted {
            return Ok(Outcome::Encoded(Box::new(Encoded { obsolete: plan.obsolete, ..adopted })));
        }
        // The version is protected already but with other redundancy: verify the content before it is encoded again.
        if plan.same_version && !checks.examined {
            return Ok(Outcome::Unexamined);
        }
        let cut = layout.geometry.cut(stat.size);
        let in_place = plan.parity_files.iter().all(|parity_file| {
            let old = parity_file.old.as_ref();
            old.is_some_and(|old| old.records == parity_file.records && old.head_damage.is_none())
                && parity_file.records.file() > SMALL_PART
        });
        if !in_place {
            self.add_drafts(&mut plan.parity_files)?;
        }
        let tracker = tracker.as_ref();
        let old_coders = self.old_coders(&plan.parity_files)?;
        let former = plan.former.as_ref().map(|old| self.coders.of_header(&old.header)).transpose()?;
        let others = tracker
            .map(|it| it.compare_others(&*content, &plan, &old_coders, former.as_ref(), options))
            .transpose()?
            .unwrap_or_default();
        let written = tracker.and_then(|it| it.written_stripes(&plan, &old_coders, coder, &cut));
        let (old_coders, content) = (&old_coders[..], &*content);
        let encode_plan = |plan: &RedundancyPlan, written: Option<&[Range<u64>]>, in_place| {
            let parity_files = &plan.parity_files[..];
            encode_rows(
                &Rows { coder, old_coders, content, parity_files, tracker, written, in_place },
                &cut,
                0..cut.stripes(),
                options,
            )
        };
        let mut share = || self.share(path, coder, content, &mut plan.parity_files, &cut, options);
        let shared = if tracker.is_none() && !in_place { share()? } else { None };
        let mut totals = shared.map_or_else(|| encode_plan(&plan, written.as_deref(), in_place), Ok)?;
        if totals.root_is_unknown {
            totals = encode_plan(&plan, None, in_place)?;
        }
        totals.compared = totals.compared.and(others);
        let damaged = tracker.map_or_else(Vec::new, |it| it.damaged(&totals.compared));
        if !damaged.is_empty() && !checks.reconstructed {
            return Ok(Outcome::Damaged(damaged));
        }
        let changed = tracker.map_or_else(Vec::new, |it| it.changed(&totals.compared));
        if in_place && totals.changes_are_too_many() {
            self.add_drafts(&mut plan.parity_files)?;
            totals = encode_plan(&plan, written.as_deref(), false)?;
        }
        let RedundancyPlan { parity_files, obsolete, unmodified, .. } = plan;
        if unmodified && totals.encoded > 0 && !checks.examined {
            return Ok(Outcome::Unexamined);
        }
        self.check_unchanged(path, &stat, coder, block, &layout)?;
        let encoded = self.conclude(parity_files, totals, coder, stat, obsolete)?;
        let (unrecoverable, reconstructed) = (merge(damaged), merge(self.storage.take_repaired(path)));
        Ok(Outcome::Encoded(Box::new(Encoded {
            unrecoverable,
            reconstructed,
            changed: merge(changed),
            ..encoded
        })))
    }

    /// Refuses a file that changed while it was read.
    fn check_unchanged(
        &self,
        path: &[u8],
        stat: &Stat,
        coder: &Coder,
        block: u64,
        layout: &Layout,
    ) -> Result<(), EncodeError> {
        let after = self.storage.find(path).map_err(EncodeError::read)?.ok_or(EncodeError::Gone)?;
        if after.generation() != stat.generation() {
            return Err(EncodeError::Changed);
        }
        // Columns of the file may have moved to the targets of the planned redundancy.
        if self.storage.layout(path, coder.code(), block)? != *layout {
            return Err(EncodeError::Changed);
        }
        self.refuse_being_written(path)
    }

    /// While a file is written in place its version is not meaningful. It is encoded after the write has ended.
    fn refuse_being_written(&self, path: &[u8]) -> Result<(), EncodeError> {
        match self.storage.is_being_written(path).map_err(EncodeError::read)? {
            true => Err(EncodeError::Changed),
            false => Ok(()),
        }
    }

    /// For each existing redundancy file, the coder of its format version.
    fn old_coders(&self, parity_files: &[ParityFilePlan]) -> Result<Vec<Option<Arc<Coder>>>, EncodeError> {
        let old_coder = |parity_file: &ParityFilePlan| {
            parity_file.old.as_ref().map(|old| self.coders.of_header(&old.header))
        };
        Ok(parity_files
            .iter()
            .map(|parity_file| old_coder(parity_file).transpose())
            .collect::<Result<_, _>>()?)
    }

    fn add_drafts(&self, parity_files: &mut [ParityFilePlan]) -> Result<(), EncodeError> {
        for parity_file in parity_files {
            let place = &parity_file.placement.place;
            let draft = Draft::of_length(place.clone(), parity_file.records.file());
            parity_file.draft = Some(draft.map_err(EncodeError::write(place))?);
        }
        Ok(())
    }

    /// Determines the redundancy files to write and those that are obsolete.
    fn plan(
        &self,
        path: &[u8],
        coder: &Arc<Coder>,
        layout: &Layout,
        content: &dyn Content,
        (stat, read_at): (&Stat, Timestamp),
        options: EncodeOptions<'_>,
    ) -> Result<RedundancyPlan, EncodeError> {
        let placements =
            self.storage.parity_placements(path, coder.code(), layout).map_err(EncodeError::read)?;
        let (mut found, mut obsolete) = (Vec::new(), Vec::new());
        let (mut same_version, mut unmodified) = (false, false);
        let mut newest: Option<Header> = None;
        let holders = self.storage.redundancy_locations(path).map_err(EncodeError::read)?;
        // The name may refer to another file since this one was opened.
        if holders.iter().any(|holder| holder.owner.is_some_and(|id| id.inode() != stat.inode)) {
            return Err(EncodeError::Changed);
        }
        let is_planned = |place: &PartPath| placements.iter().any(|it| it.place.is(place));
        let open = |at: &RedundancyLocation| open_old(&at.place, self.coders, is_planned(&at.place));
        for (holder, opened) in holders.iter().zip(open_in_order(&holders, open)?) {
            let place = holder.place.clone();
            let is_planned = is_planned(&place);
            if opened.is_unusable && !is_planned {
                obsolete.push(place);
                continue;
            }
            let part = opened.part.filter(|part| holder.owns(&part.header));
            if let Some(Part { header, .. }) = &part {
                let now = stat.generation();
                same_version |= header.generation == now && !is_doubtful(header);
                let is_copy = now.inode != header.generation.inode;
                let in_doubt = is_in_doubt(header.generation.mtime, header.protected_at);
                unmodified |=
                    is_same_content(header, &now) && !in_doubt && !(is_copy && options.known_elsewhere);
                let order = |header: &Header| (header.revision, header.id);
                if newest.as_ref().map(order) < Some(order(header)) {
                    newest = Some(header.clone());
                }
            }
            match part {
                Some(part) if is_planned => found.push(part),
                Some(_) => obsolete.push(place),
                None => {}
            }
        }
        let coder = self.coder_like(coder, newest.as_ref())?;
        let code = coder.code();
        let (revision, id) = match newest {
            Some(newest) => (newest.revision + 1, newest.id),
            // With the storage's own identity, two workers produce identical redundancy for one version.
            None => match self.storage.identity(path).map_err(EncodeError::read)? {
                Some(id) => (1, id),
                None => (1, FileId(unique_id().map_err(EncodeError::read)?)),
            },
        };
        let metadata = content.metadata().map_err(EncodeError::read)?;
        let mut targets = layout.targets.clone();
        if !targets.is_empty() {
            targets.resize(code.blocks(), Vec::new());
            for placement in &placements {
                targets[code.k() + placement.first..][..placement.columns].fill(placement.target.clone());
            }
        }
        let binding = self.storage.binding(path).map_err(EncodeError::read)?;
        let (mut parity_files, mut former) = (Vec::new(), None::<Part>);
        for placement in placements {
            let header = Header {
                version: Version::NEWEST,
                id,
                revision,
                generation: stat.generation(),
                protected_at: read_at,
                code: code.clone(),
                strong: coder.is_strong(),
                geometry: layout.geometry,
                first: placement.first,
                columns: placement.columns,
                root: [0; 16],
                metadata: metadata.clone(),
                targets: targets.clone(),
                binding: Some(binding),
                extensions: Vec::new(),
            };
            let old =
                found.iter().position(|part| part.place.is(&placement.place)).map(|at| found.swap_remove(at));
            let fits = |old: &mut Part| {
                let (was, now) = (&old.header, &header);
                // Version 1 is replaced, whatever its redundancy columns are made of.
                let same_code =
                    was.code == now.code || was.version < now.version && was.code.is_like(&now.code);
                same_code
                    && was.strong == now.strong
                    && was.geometry == now.geometry
                    && (was.first, was.columns) == (now.first, now.columns)
            };
            let mut rest = old.filter(|old| old.header.id == id);
            let old = rest.take_if(fits);
            let other_columns = rest.take_if(|old| columns::differs_in_columns(&old.header, &header));
            former = newer(former, rest);
            let at_least = old.as_ref().or(other_columns.as_ref()).map_or(0, Part::header_bytes);
            let write = EncodeError::write(&placement.place);
            let header_bytes = header.encode(at_least).map_err(|error| write(io::Error::other(error)))?.len();
            let records = Records::new(&header, header_bytes);
            drop(write);
            let draft = None;
            parity_files.push(ParityFilePlan {
                placement,
                header,
                header_bytes,
                records,
                old,
                other_columns,
                draft,
            });
        }
        Ok(RedundancyPlan { coder, parity_files, former, obsolete, same_version, unmodified })
    }

    /// Writes headers and, for updates in place, the changed frames.
    fn conclude(
        &self,
        parity_files: Vec<ParityFilePlan>,
        totals: Totals,
        coder: &Arc<Coder>,
        stat: Stat,
        obsolete: Vec<PartPath>,
    ) -> Result<Encoded, EncodeError> {
        let code = coder.code();
        let mut encoded = Encoded {
            id: parity_files.first().map_or(FileId([0; 16]), |parity_file| parity_file.header.id),
            stat,
            protected_at: parity_files.first().map_or_else(|| self.clock.now(), |it| it.header.protected_at),
            code: coder.coding(),
            columns: parity_files.iter().map(|parity_file| parity_file.placement.columns).sum(),
            wanted: code.m(),
            redundancy_bytes: parity_files.iter().map(|parity_file| parity_file.records.file()).sum(),
            read_bytes: totals.read,
            adopted: false,
            encoded: totals.encoded,
            kept: totals.kept,
            damage: None,
            unrecoverable: Vec::new(),
            reconstructed: Vec::new(),
            changed: Vec::new(),
            drafts: Vec::new(),
            published: Vec::new(),
            replaced: Vec::new(),
            obsolete,
        };
        for ((mut parity_file, root), changes) in
            parity_files.into_iter().zip(totals.roots).zip(totals.changes)
        {
            let place = parity_file.placement.place.clone();
            let write = EncodeError::write(&place);
            parity_file.header.root = root;
            if let Some(draft) = parity_file.draft {
                draft.write_headers(&parity_file.header, parity_file.header_bytes).map_err(&write)?;
                encoded.drafts.push(draft);
            } else if let Some(old) = parity_file.old {
                let header = parity_file.header.encode(parity_file.header_bytes).map_err(io::Error::other);
                let header = header.map_err(&write)?;
                let mut writes = changes;
                writes.push((parity_file.records.trailer(), header.clone()));
                writes.push((0, header));
                redo::update(&old.place, &old.file, &parity_file.header, &writes).map_err(&write)?;
            }
        }
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests;
