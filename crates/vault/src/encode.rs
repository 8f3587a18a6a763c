//! Makes the redundancy of one file.
//!
//! The file is read run by run, row by row: k blocks, which stay in the cache while they are signed and encoded. What lies in
//! memory anyway is encoded where it lies. What some rows
//! give goes into one buffer per redundancy file and, while it is in the cache as well, from there to the file. A file that has
//! redundancy already is compared with it by signatures, and rows that did not change keep their frames. The version of the
//! file is asked for before and after: if it changed meanwhile, nothing of this is used.

mod adopt;
mod existing;
mod outflow;
mod publish;
mod rows;
mod settle;
mod source;
mod totals;
mod untouched;
mod unwritten;

use crate::coder::{Coder, Coders};
use crate::damage::Trouble;
use crate::examine::ExamineError;
use crate::format::{FileId, Header, Records, Version};
use crate::geometry::merge;
use crate::reconstruct::{ReconstructError, reconstruct_ranges};
use crate::redundancy::{Draft, Part, PartError, PartPath, redo};
use crate::shown::Shown;
use crate::storage::{Content, Fault, Layout, LayoutError, ParityPlacement, Storage};
use crate::tree::{Generation, Stat};
use crate::version::{is_doubtful, is_in_doubt, is_same_content};
use crate::world::{Clock, Nanos, unique_id};
use adopt::adopt;
use existing::open_old;
pub(crate) use publish::sync_names;
use rows::Rows;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use totals::{Totals, work};
use untouched::Untouched;

/// Redundancy files up to this size are made anew rather than updated in place: many of them are made durable together,
/// an update in place waits for the disk by itself.
const SMALL_PART: u64 = 1 << 20;

/// What makes redundancy: codes, storage, the time.
#[derive(Debug)]
pub struct Encoder<'a> {
    /// Where files are.
    pub storage: &'a dyn Storage,
    /// Codes made ready.
    pub coders: &'a Coders,
    /// The time.
    pub clock: &'a Clock,
}

/// Why a file has no new redundancy. What it had before is untouched.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It changed while it was read.
    #[error("it changed while it was read")]
    Changed,
    /// It is gone.
    #[error("it is gone")]
    Gone,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] Fault),
    /// It cannot be cut for this code.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The redundancy cannot be written.
    #[error("its redundancy cannot be written to {}: {source}", Shown::path(.path))]
    Write {
        /// Where.
        path: std::path::PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Redundancy that is there must not be overwritten: a later program wrote it, or it cannot be read now.
    #[error("its redundancy {} is left as it is: {source}", Shown::path(.path))]
    Redundancy {
        /// Where.
        path: std::path::PathBuf,
        /// What is wrong.
        source: Box<PartError>,
    },
    /// Something about the file cannot be put into a header or a code.
    #[error("{0}")]
    Engine(#[from] gabion_engine::Error),
    /// The file system says that nobody wrote to it, and yet it is not what was protected. It keeps the redundancy that it has.
    #[error(
        "it is damaged: by its size and time nobody wrote to it, and it is not what was protected. Repair it first"
    )]
    Damaged(Box<Encoded>),
    /// It has another name, by which it is protected, and it is not what was protected then.
    #[error("it is damaged: it is the same file as {}, and not what was protected. Repair that first", Shown::bytes(.0))]
    OtherName(Vec<u8>),
    /// What it has cannot be examined.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
}

impl EncodeError {
    fn read(error: io::Error) -> EncodeError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => EncodeError::Gone,
            _ => EncodeError::Read(Fault::Io(error)),
        }
    }

    fn write(place: &PartPath) -> impl Fn(io::Error) -> EncodeError + '_ {
        |source| EncodeError::Write { path: place.tree.shown(&place.path), source }
    }

    /// True for a transient error. An obstacle in the place of redundancy may be redundancy of a deleted file, which is removed soon.
    pub fn is_transient(&self) -> bool {
        use io::ErrorKind::{AlreadyExists, NotADirectory};
        let is_obstacle = |error: &io::Error| matches!(error.kind(), AlreadyExists | NotADirectory);
        match self {
            EncodeError::Write { source, .. } => is_obstacle(source),
            error => matches!(error, EncodeError::Changed | EncodeError::Gone | EncodeError::Stopped),
        }
    }
}

/// What was made of a file, and what must still happen to it.
#[derive(Debug)]
pub struct Encoded {
    /// Whose redundancy it is.
    pub id: FileId,
    /// The version of the file.
    pub stat: Stat,
    /// When its redundancy was made, as the headers say.
    pub protected_at: Nanos,
    /// The code, in full, and what blocks have besides signatures.
    pub code: String,
    /// Redundancy columns that found a place.
    pub columns: usize,
    /// Redundancy columns that were asked for.
    pub wanted: usize,
    /// Bytes of all redundancy files.
    pub redundancy_bytes: u64,
    /// Bytes of data that were read.
    pub read_bytes: u64,
    /// It had this very redundancy already, and nothing was read.
    pub adopted: bool,
    /// Stripes that were encoded, and those that kept what they had.
    pub encoded: u64,
    /// See `encoded`.
    pub kept: u64,
    /// It is damaged, and this is what is wrong: its redundancy stays what it was.
    pub trouble: Option<Trouble>,
    /// Bytes that were damaged before, although nobody wrote to them, and that nothing could put right: from now on they are protected as
    /// they are.
    pub spoilt: Vec<Range<u64>>,
    /// Bytes of a plain directory that were damaged, although nobody wrote to them, and that were put right before this.
    pub mended: Vec<Range<u64>>,
    /// Bytes that changed in the middle of a file that grew, where nobody knows what was written: a program did that, or they are corrupt.
    pub changed: Vec<Range<u64>>,
    drafts: Vec<Draft>,
    /// Where drafts were put in place.
    published: Vec<PartPath>,
    obsolete: Vec<PartPath>,
}

/// How to go about one file.
#[derive(Clone, Copy)]
pub struct EncodeOptions<'a> {
    /// Threads for a large file.
    pub threads: usize,
    /// The file got another name and nothing else: what moving changes of its version does not count.
    pub moved: bool,
    /// The inode is known by another name, which it had before: at this name it is no copy of the file that had it.
    pub elsewhere: bool,
    /// The file system that was flushed before, and when that began.
    pub flushed: Option<Flushed>,
    /// Called with bytes of data as they are done.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Asked now and then; true stops.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// A file system whose dirty pages were all written, beginning at `at`: a store into a mapped page changes the mtime of its file again.
#[derive(Debug, Clone, Copy)]
pub struct Flushed {
    /// Device number, as in [`Stat`].
    pub device: u64,
    /// When it began.
    pub at: Nanos,
}

/// One redundancy file that is being made.
#[derive(Debug)]
struct Making {
    home: ParityPlacement,
    header: Header,
    header_bytes: usize,
    records: Records,
    /// What is there already, if it is for the same cut up to the file's end.
    old: Option<Part>,
    draft: Option<Draft>,
}

/// Which redundancy files are to be.
struct Planned {
    makings: Vec<Making>,
    /// What is there, if it is for another cut or another code.
    former: Option<Part>,
    /// Those that are no longer to be.
    obsolete: Vec<PartPath>,
    /// Some that is there is for this very version of the file.
    same_version: bool,
    /// Some that is there is for a version with the same content, by all that the file system says.
    unwritten: bool,
}

impl Planned {
    /// The version that the redundancy which is there was made of.
    fn newest(&self) -> Option<Generation> {
        let old = self.makings.iter().filter_map(|making| making.old.as_ref()).chain(&self.former);
        old.max_by_key(|old| old.header.revision).map(|old| old.header.generation)
    }
}

/// What was seen to before a file is encoded.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// It was examined: nobody wrote to it, and it is not damaged.
    examined: bool,
    /// What was damaged was put right, as far as that could be.
    mended: bool,
}

/// What came of trying to encode a file.
enum Outcome {
    Encoded(Box<Encoded>),
    /// Nobody wrote to it, and it is not what its redundancy was made of, as far as can be told: it has to be examined first.
    Unwritten,
    /// Nobody wrote to these cells, and they are not what was protected: they are to be put right first.
    Damaged(Vec<Range<u64>>),
}

impl Encoder<'_> {
    /// Makes the redundancy of `path` with the given code, of blocks of at most this many bytes.
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
        let mut seen = Seen::default();
        loop {
            match self.encode_once(path, coder, largest_block, options, seen)? {
                Outcome::Encoded(encoded) => return Ok(*encoded),
                Outcome::Unwritten => {
                    self.refuse_damaged(path, options)?;
                    seen.examined = true;
                }
                Outcome::Damaged(cells) => {
                    self.storage
                        .repair_blocks(path, &cells, &|cell, is_in| self.reconstruct(path, cell, is_in));
                    seen.mended = true;
                }
            }
        }
    }

    /// Reconstructs a range of a file; no pieces if too little is left of its stripe.
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
        seen: Seen,
    ) -> Result<Outcome, EncodeError> {
        self.storage.finish_abandoned_write(path).map_err(EncodeError::read)?;
        let content = self.storage.open(path).map_err(EncodeError::read)?;
        let (read_at, stat) = self.settle(&*content, options)?;
        self.refuse_being_written(path)?;
        self.storage.relocate_former_redundancy(path, self.coders).map_err(EncodeError::read)?;
        let block = self.storage.block(coder.code(), stat.size, largest_block);
        let layout = self.storage.layout(path, coder.code(), block)?;
        layout.check(coder.code(), stat.size)?;
        let mut planned = self.plan(path, coder, &layout, &*content, (&stat, read_at), options)?;
        let untouched = Untouched::of(self.storage, path, &planned, &stat);
        self.storage.note_encoding_start(path, planned.newest().as_ref(), &stat.generation());
        if let Some(adopted) = adopt(&planned.makings, coder, &stat, options.moved) {
            return Ok(Outcome::Encoded(Box::new(Encoded { obsolete: planned.obsolete, ..adopted })));
        }
        // Other redundancy is wanted for what nobody wrote to.
        if planned.same_version && !seen.examined {
            return Ok(Outcome::Unwritten);
        }
        let cut = layout.geometry.cut(stat.size);
        let in_place = planned.makings.iter().all(|making| {
            let old = making.old.as_ref();
            old.is_some_and(|old| old.records == making.records && old.head_damage.is_none())
                && making.records.file() > SMALL_PART
        });
        if !in_place {
            self.add_drafts(&mut planned.makings)?;
        }
        let untouched = untouched.as_ref();
        let judges = self.judges(&planned.makings)?;
        let former = planned.former.as_ref().map(|old| self.coders.of_header(&old.header)).transpose()?;
        let others = untouched
            .map(|it| it.compare_others(&*content, &planned, &judges, former.as_ref(), options))
            .transpose()?
            .unwrap_or_default();
        let written = untouched.and_then(|it| it.written_stripes(&planned, &judges, coder, &cut));
        let (judges, content) = (&judges[..], &*content);
        let work = |planned: &Planned, written: Option<&[Range<u64>]>, in_place| {
            let makings = &planned.makings[..];
            work(&Rows { coder, judges, content, makings, untouched, written, in_place }, &cut, options)
        };
        let mut totals = work(&planned, written.as_deref(), in_place)?;
        if totals.root_is_unknown {
            totals = work(&planned, None, in_place)?;
        }
        totals.compared = totals.compared.and(others);
        let damaged = untouched.map_or_else(Vec::new, |it| it.damaged(&totals.compared));
        if !damaged.is_empty() && !seen.mended {
            return Ok(Outcome::Damaged(damaged));
        }
        let changed = untouched.map_or_else(Vec::new, |it| it.changed(&totals.compared));
        if in_place && totals.changes_are_too_many() {
            self.add_drafts(&mut planned.makings)?;
            totals = work(&planned, written.as_deref(), false)?;
        }
        let Planned { makings, obsolete, unwritten, .. } = planned;
        if unwritten && totals.encoded > 0 && !seen.examined {
            return Ok(Outcome::Unwritten);
        }
        let after = self.storage.find(path).map_err(EncodeError::read)?.ok_or(EncodeError::Gone)?;
        if after.generation() != stat.generation() {
            return Err(EncodeError::Changed);
        }
        // Its columns may have been moved to where redundancy would go.
        if self.storage.layout(path, coder.code(), block)? != layout {
            return Err(EncodeError::Changed);
        }
        self.refuse_being_written(path)?;
        let encoded = self.conclude(makings, totals, coder, stat, obsolete)?;
        let (spoilt, mended) = (merge(damaged), merge(self.storage.take_repaired(path)));
        Ok(Outcome::Encoded(Box::new(Encoded { spoilt, mended, changed: merge(changed), ..encoded })))
    }

    /// While a file is written in place its version says nothing. It is looked at again when it rests.
    fn refuse_being_written(&self, path: &[u8]) -> Result<(), EncodeError> {
        match self.storage.is_being_written(path).map_err(EncodeError::read)? {
            true => Err(EncodeError::Changed),
            false => Ok(()),
        }
    }

    /// Per redundancy file that is there, what makes signatures of the version that it has.
    fn judges(&self, makings: &[Making]) -> Result<Vec<Option<Arc<Coder>>>, EncodeError> {
        let judge = |making: &Making| making.old.as_ref().map(|old| self.coders.of_header(&old.header));
        Ok(makings.iter().map(|making| judge(making).transpose()).collect::<Result<_, _>>()?)
    }

    fn add_drafts(&self, makings: &mut [Making]) -> Result<(), EncodeError> {
        for making in makings {
            let place = &making.home.place;
            let draft = Draft::of_length(place.clone(), making.records.file());
            making.draft = Some(draft.map_err(EncodeError::write(place))?);
        }
        Ok(())
    }

    /// Which redundancy files are to be, and which are no longer.
    fn plan(
        &self,
        path: &[u8],
        coder: &Arc<Coder>,
        layout: &Layout,
        content: &dyn Content,
        (stat, read_at): (&Stat, Nanos),
        options: EncodeOptions<'_>,
    ) -> Result<Planned, EncodeError> {
        let code = coder.code();
        let homes = self.storage.parity_placements(path, code, layout).map_err(EncodeError::read)?;
        let (mut found, mut obsolete) = (Vec::new(), Vec::new());
        let (mut same_version, mut unwritten) = (false, false);
        let mut newest: Option<(u64, FileId)> = None;
        let holders = self.storage.redundancy_locations(path).map_err(EncodeError::read)?;
        // Another file may have got the name since this one was opened.
        if holders.iter().any(|holder| holder.owner.is_some_and(|id| id.inode() != stat.inode)) {
            return Err(EncodeError::Changed);
        }
        for holder in holders {
            let place = holder.place.clone();
            let is_home = homes.iter().any(|home| home.place.is(&place));
            let opened = open_old(&place, self.coders, is_home)?;
            if opened.is_unusable && !is_home {
                obsolete.push(place);
                continue;
            }
            let part = opened.part.filter(|part| holder.owns(&part.header));
            if let Some(Part { header, .. }) = &part {
                let now = stat.generation();
                same_version |= header.generation == now && !is_doubtful(header);
                let is_copy = now.inode != header.generation.inode;
                let in_doubt = is_in_doubt(header.generation.mtime, header.protected_at);
                unwritten |= is_same_content(header, &now) && !in_doubt && !(is_copy && options.elsewhere);
                newest = newest.max(Some((header.revision, header.id)));
            }
            match part {
                Some(part) if is_home => found.push(part),
                Some(_) => obsolete.push(place),
                None => {}
            }
        }
        let (revision, id) = match newest {
            Some((revision, id)) => (revision + 1, id),
            // By its own identity, redundancy that two workers make of one version is the same.
            None => match self.storage.identity(path).map_err(EncodeError::read)? {
                Some(id) => (1, id),
                None => (1, FileId(unique_id().map_err(EncodeError::read)?)),
            },
        };
        let metadata = content.metadata().map_err(EncodeError::read)?;
        let mut targets = layout.targets.clone();
        if !targets.is_empty() {
            targets.resize(code.blocks(), Vec::new());
            for home in &homes {
                targets[code.k() + home.first..][..home.columns].fill(home.target.clone());
            }
        }
        let binding = self.storage.binding(path).map_err(EncodeError::read)?;
        let (mut makings, mut former) = (Vec::new(), None::<Part>);
        for home in homes {
            let header = Header {
                version: Version::NEWEST,
                id,
                revision,
                generation: stat.generation(),
                protected_at: read_at,
                code: code.clone(),
                strong: coder.is_strong(),
                geometry: layout.geometry,
                first: home.first,
                columns: home.columns,
                root: [0; 16],
                metadata: metadata.clone(),
                targets: targets.clone(),
                binding: Some(binding),
                extensions: Vec::new(),
            };
            let old =
                found.iter().position(|part| part.place.is(&home.place)).map(|at| found.swap_remove(at));
            let fits = |old: &mut Part| {
                let (was, now) = (&old.header, &header);
                was.code == now.code
                    && was.strong == now.strong
                    && was.geometry == now.geometry
                    && (was.first, was.columns) == (now.first, now.columns)
            };
            let mut old = old.filter(|old| old.header.id == id);
            let fitting = old.take_if(fits);
            if old.as_ref().map(|old| old.header.revision) > former.as_ref().map(|it| it.header.revision) {
                former = old;
            }
            let old = fitting;
            let at_least = old.as_ref().map_or(0, Part::header_bytes);
            let write = EncodeError::write(&home.place);
            let header_bytes = header.encode(at_least).map_err(|error| write(io::Error::other(error)))?.len();
            let records = Records::new(&header, header_bytes);
            drop(write);
            makings.push(Making { home, header, header_bytes, records, old, draft: None });
        }
        Ok(Planned { makings, former, obsolete, same_version, unwritten })
    }

    /// Writes headers; in place, makes the changes.
    fn conclude(
        &self,
        makings: Vec<Making>,
        totals: Totals,
        coder: &Arc<Coder>,
        stat: Stat,
        obsolete: Vec<PartPath>,
    ) -> Result<Encoded, EncodeError> {
        let code = coder.code();
        let mut encoded = Encoded {
            id: makings.first().map_or(FileId([0; 16]), |making| making.header.id),
            stat,
            protected_at: makings.first().map_or_else(|| self.clock.now(), |it| it.header.protected_at),
            code: coder.coding(),
            columns: makings.iter().map(|making| making.home.columns).sum(),
            wanted: code.m(),
            redundancy_bytes: makings.iter().map(|making| making.records.file()).sum(),
            read_bytes: totals.read,
            adopted: false,
            encoded: totals.encoded,
            kept: totals.kept,
            trouble: None,
            spoilt: Vec::new(),
            mended: Vec::new(),
            changed: Vec::new(),
            drafts: Vec::new(),
            published: Vec::new(),
            obsolete,
        };
        for ((mut making, root), changes) in makings.into_iter().zip(totals.roots).zip(totals.changes) {
            let place = making.home.place.clone();
            let write = EncodeError::write(&place);
            making.header.root = root;
            if let Some(draft) = making.draft {
                draft.write_headers(&making.header, making.header_bytes).map_err(&write)?;
                encoded.drafts.push(draft);
            } else if let Some(old) = making.old {
                let header = making.header.encode(making.header_bytes).map_err(io::Error::other);
                let header = header.map_err(&write)?;
                let mut writes = changes;
                writes.push((making.records.trailer(), header.clone()));
                writes.push((0, header));
                redo::update(&old.place, &old.file, &making.header, &writes).map_err(&write)?;
            }
        }
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests;
