//! Rebuild of one file: columns on lost or retired targets move to other targets.
//!
//! Blocks are read or reconstructed, verified, and written under temporary names; the stub refers only to objects that
//! are complete and durable. Nothing valid is removed before its replacement exists.

use super::survey::{FileHealth, TargetStates, survey};
use crate::coder::Coders;
use crate::display_path::DisplayPath;
use crate::encode::{self, EncodeError, Encoder};
use crate::examine::{BlockFault, BlockState, ExamineError, ProtectedFile, StripeBuffer};
use crate::format::frame::{Check, toggle};
use crate::format::{Frame, Header, Records};
use crate::redundancy::{Draft, InconclusivePart, PartPath};
use crate::retry::{Failure, Retry, Retryable};
use crate::runs::{each_run, pieces};
use crate::storage::pool::config::TargetName;
use crate::storage::pool::stub::Stub;
use crate::storage::pool::{ColumnPlacement, Pool, PoolError, Relocation, parity_path};
use crate::storage::{Storage, TargetState};
use crate::world::Clock;
use std::collections::BTreeSet;
use std::io;

/// Why a file could not be rebuilt. It is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Error of the pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// It cannot be examined.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// Some of its redundancy cannot be identified.
    #[error(transparent)]
    Unknown(#[from] InconclusivePart),
    /// Too few blocks are left.
    #[error("it is lost: too few blocks are left of the stripe at byte {offset} ({why})")]
    Lost {
        /// Offset of the stripe.
        offset: u64,
        /// Bad blocks and their faults.
        why: Failure,
    },
    /// It has no redundancy, and bytes are on a lost target.
    #[error("it is lost: it was not protected, and target {0} is lost")]
    Unprotected(TargetName),
    /// Frames are older than their header.
    #[error("some of its redundancy is older than its header says: scrub and repair it first")]
    Doubtful,
    /// Redundancy cannot be written.
    #[error("its redundancy on {}: {source}", .target.as_deref().unwrap_or("other targets"))]
    Write {
        /// Target, if it is known.
        target: Option<TargetName>,
        /// Error of the operating system.
        source: io::Error,
    },
    /// It cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// It was renamed meanwhile.
    #[error("it was renamed to {}: protect it under that name, then rebuild again", DisplayPath::bytes(.0))]
    Moved(Vec<u8>),
    /// It was stopped.
    #[error("stopped")]
    Stopped,
}

impl Retryable for FileError {
    fn retry(&self) -> Retry {
        match self {
            FileError::Pool(error) => error.retry(),
            FileError::Examine(error) => error.retry(),
            FileError::Unknown(part) => part.retry(),
            FileError::Lost { why, .. } => why.retry(),
            FileError::Write { source, .. } => source.retry(),
            FileError::Encode(error) => error.retry(),
            FileError::Unprotected(_) | FileError::Stopped => Retry::Later,
            FileError::Doubtful | FileError::Moved(_) => Retry::AfterChange,
        }
    }
}

impl FileError {
    /// True if bytes cannot be restored.
    pub fn is_loss(&self) -> bool {
        matches!(self, FileError::Lost { .. } | FileError::Unprotected(_))
    }

    fn is_full(&self) -> Option<&TargetName> {
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        match self {
            FileError::Pool(PoolError::Target { target, source, .. }) if full(source) => Some(target),
            FileError::Write { target, source } if full(source) => target.as_ref(),
            _ => None,
        }
    }
}

/// Result of rebuilding a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileResult {
    /// Data columns that were placed on other targets.
    pub data: usize,
    /// Redundancy columns that were reconstructed or moved.
    pub redundancy: usize,
    /// Bytes written.
    pub bytes: u64,
    /// Columns that were verified in place.
    pub verified: usize,
    /// Blocks that were reconstructed; the others were copied.
    pub reconstructed: u64,
    /// Source blocks that were corrupt.
    pub wrong: u64,
    /// Columns without a suitable target, redundancy last.
    pub unplaced: Vec<usize>,
    /// Columns that stay on retired targets for lack of another target.
    pub unmoved: usize,
    /// Files removed from returned targets because they were reconstructed elsewhere.
    pub removed: u64,
    /// Returned targets that keep such files, because the reconstructed ones are damaged.
    pub retained: Vec<TargetName>,
    /// Data columns of the code; 0 without redundancy.
    pub k: usize,
    /// Redundancy columns of the code.
    pub m: usize,
}

impl FileResult {
    /// Number of further blocks of a stripe that may be lost; none without redundancy.
    pub fn remaining_redundancy(&self) -> Option<u32> {
        (self.k > 0).then(|| self.m.saturating_sub(self.unplaced.len()) as u32)
    }
}

/// Bytes of data that a thread prefetches.
const PREFETCH_BYTES: u64 = 8 << 20;

/// Ignored by storage that stripes files.
const ANY_BLOCK: u64 = 1 << 16;

/// Rebuilds files.
pub(super) struct Rebuilder<'a> {
    pub(super) pool: &'a Pool,
    pub(super) coders: &'a Coders,
    pub(super) clock: &'a Clock,
    pub(super) target_states: TargetStates,
    /// Targets that receive nothing.
    pub(super) excluded: BTreeSet<TargetName>,
    /// Called with bytes read, and bytes written or verified.
    pub(super) progress: &'a (dyn Fn(u64, u64) + Sync),
    pub(super) stopped: &'a (dyn Fn() -> bool + Sync),
}

/// New placements of columns.
struct Moves {
    data: Vec<(usize, ColumnPlacement)>,
    redundancy: Vec<(usize, ColumnPlacement)>,
}

/// Totals over all threads.
struct Totals {
    roots: Vec<Check>,
    /// For each source part: the sum of the checks of its frames while all of them were read.
    sums: Vec<Option<Check>>,
    reconstructed: u64,
    wrong: u64,
}

impl Rebuilder<'_> {
    /// Rebuilds one file with several threads. A file that lost only its redundancy is encoded with `code`.
    pub(super) fn file(
        &self,
        path: &[u8],
        code: Option<&str>,
        threads: usize,
    ) -> Result<FileResult, FileError> {
        let stub = self.pool.stub(path)?;
        self.pool.refuse_being_written(path, &stub)?;
        let Some(protected) = ProtectedFile::open_to_read(self.pool, self.coders, path)? else {
            let mut done = self.copy_unprotected(path, &stub)?;
            if let Some(code) = code {
                self.protect(path, code, threads, &mut done)?;
            }
            return Ok(done);
        };
        let code = protected.header.code.clone();
        let mut done = FileResult { k: code.k(), m: code.m(), ..FileResult::default() };
        let state = |column: usize| self.target_states.state_of(protected.target(column));
        let has_bytes = |column: usize| column >= code.k() || stub.object_bytes(column, stub.size) > 0;
        // Columns on returned targets stay if they are completely valid.
        let returned: Vec<usize> = (0..code.blocks())
            .filter(|&column| has_bytes(column) && state(column) == TargetState::Returned)
            .collect();
        let mut bad: BTreeSet<usize> = BTreeSet::new();
        if !returned.is_empty() {
            bad = self.verify(&protected, &returned, threads)?;
            done.verified = returned.len() - bad.len();
        }
        let stays = |column: usize| match state(column) {
            TargetState::Online => true,
            TargetState::Returned => returned.contains(&column) && !bad.contains(&column),
            _ => false,
        };
        let mut wanted: Vec<usize> = (0..code.blocks()).filter(|&column| !stays(column)).collect();
        // If targets are scarce, columns without bytes must not take one.
        wanted.sort_by_key(|&column| !has_bytes(column));
        let stay: BTreeSet<TargetName> = (0..code.blocks())
            .filter(|&column| stays(column))
            .filter_map(|column| TargetName::from_bytes(protected.target(column)))
            .collect();
        let mut full = self.excluded.clone();
        let now = loop {
            let made =
                self.rebuild_columns(path, &stub, &protected, &wanted, &stay, &full, threads, &mut done);
            match made {
                // Another target may have space.
                Err(error) if error.is_full().is_some_and(|target| full.insert(target.clone())) => {}
                made => break made?,
            }
        };
        drop(protected);
        self.remove_superseded(path, &now, &wanted, &mut done, threads)?;
        if done.data + done.redundancy > 0 {
            self.update_target_lists(path, &now)?;
        }
        Ok(done)
    }

    #[expect(clippy::too_many_arguments, reason = "one attempt, with other targets left out")]
    fn rebuild_columns(
        &self,
        path: &[u8],
        stub: &Stub,
        protected: &ProtectedFile,
        wanted: &[usize],
        stay: &BTreeSet<TargetName>,
        full: &BTreeSet<TargetName>,
        threads: usize,
        done: &mut FileResult,
    ) -> Result<Stub, FileError> {
        let k = protected.header.code.k();
        let redundancy_bytes = protected.parts.first().map_or(0, |part| part.records.file());
        let needs: Vec<u64> = wanted
            .iter()
            .map(|&column| if column < k { stub.object_bytes(column, stub.size) } else { redundancy_bytes })
            .collect();
        let placements = self.pool.column_placements(&stub.id.0, &needs, stay, full);
        let mut moves = Moves { data: Vec::new(), redundancy: Vec::new() };
        done.unplaced.clear();
        done.unmoved = 0;
        for (&column, placement) in wanted.iter().zip(placements) {
            match placement {
                Some(placement) if column < k => moves.data.push((column, placement)),
                Some(placement) => moves.redundancy.push((column - k, placement)),
                // A column without bytes needs no target, and one that is only to be moved still exists.
                None if column < k && stub.object_bytes(column, stub.size) == 0 => {}
                None => match self.target_states.state_of(protected.target(column)) {
                    TargetState::Retired => done.unmoved += 1,
                    _ => done.unplaced.push(column),
                },
            }
        }
        if moves.data.is_empty() && moves.redundancy.is_empty() {
            return Ok(stub.clone());
        }
        let relocation = self.pool.relocate(path, stub, &moves.data)?;
        let mut headers = Vec::new();
        let mut drafts = Vec::new();
        for (column, placement) in &moves.redundancy {
            let location = PartPath { tree: placement.tree.clone(), path: parity_path(stub.id) };
            let draft = Draft::new(location).map_err(at(&placement.target))?;
            let header = header(protected, &moves, stub, *column);
            let length = header.encode(0).map_err(io::Error::other).map_err(at(&placement.target))?.len();
            headers.push((header.clone(), Records::new(&header, length), length));
            drafts.push((placement.target.clone(), draft));
        }
        let totals = self.stripes(protected, &relocation, &moves, &headers, &drafts, threads)?;
        for (sum, part) in totals.sums.iter().zip(&protected.parts) {
            if sum.is_some_and(|sum| sum != part.header.root) {
                return Err(FileError::Doubtful);
            }
        }
        for (((header, _, length), root), (target, draft)) in headers.iter().zip(totals.roots).zip(&drafts) {
            let header = Header { root, ..header.clone() };
            draft.write_headers(&header, *length).map_err(at(target))?;
        }
        let now = relocation.finish(drafts)?;
        done.data +=
            moves.data.iter().filter(|(column, _)| stub.object_bytes(*column, stub.size) > 0).count();
        done.redundancy += moves.redundancy.len();
        done.bytes += moves.data.iter().map(|(column, _)| stub.object_bytes(*column, stub.size)).sum::<u64>()
            + moves.redundancy.len() as u64 * redundancy_bytes;
        done.reconstructed += totals.reconstructed;
        done.wrong += totals.wrong;
        Ok(now)
    }

    /// Reads or reconstructs the wanted blocks of every stripe, and writes them.
    fn stripes(
        &self,
        protected: &ProtectedFile,
        relocation: &Relocation,
        moves: &Moves,
        headers: &[(Header, Records, usize)],
        drafts: &[(TargetName, Draft)],
        threads: usize,
    ) -> Result<Totals, FileError> {
        let (k, block) = (protected.header.code.k(), protected.header.geometry.block());
        let data = moves.data.iter().map(|(column, _)| *column);
        let wanted: Vec<usize> = data.chain(moves.redundancy.iter().map(|(column, _)| k + column)).collect();
        let new = || Totals {
            roots: vec![[0; 16]; headers.len()],
            sums: vec![Some([0; 16]); protected.parts.len()],
            reconstructed: 0,
            wrong: 0,
        };
        let state = || (StripeBuffer::default(), new(), Vec::new());
        // Number of frames read per stripe in place of lost data.
        let gone = moves.data.iter().filter(|(column, _)| {
            self.target_states.state_of(protected.target(*column)) == TargetState::Offline
        });
        let frames = gone.count();
        let announce = |stripe: u64| {
            protected.prefetch(stripe..stripe + 1);
            protected.prefetch_frames(stripe, frames);
        };
        let ahead = (PREFETCH_BYTES / (k as u64 * block).max(1)).clamp(1, 16) * threads.max(1) as u64;
        (0..ahead).for_each(announce);
        let states = each_run(
            &protected.cut(),
            pieces(k),
            None,
            threads,
            state,
            |run, (stripe_buffer, totals, frame)| {
                for stripe in run.first..run.first + run.count {
                    if (self.stopped)() {
                        return Err(FileError::Stopped);
                    }
                    announce(stripe + ahead);
                    self.gather(protected, stripe_buffer, stripe, &wanted)?;
                    totals.add_stripe(stripe_buffer, &wanted);
                    let (cells, mut written) = (protected.cut().run(stripe, 1), 0);
                    for (column, _) in &moves.data {
                        let cell = cells.cell(0, *column);
                        let bytes = &stripe_buffer.blocks[*column][..(cell.end - cell.start) as usize];
                        relocation.write(*column, stripe * block, bytes)?;
                        written += bytes.len() as u64;
                    }
                    let seals = stripe_buffer.data_seals(k);
                    for (at, (column, _)) in moves.redundancy.iter().enumerate() {
                        let bytes = &stripe_buffer.blocks[k + column];
                        let (Some(seals), Some(own)) = (&seals, stripe_buffer.seals[k + column]) else {
                            return Err(FileError::Doubtful);
                        };
                        frame.clear();
                        frame.extend_from_slice(bytes);
                        frame.resize(bytes.len() + protected.coder.table_bytes(), 0);
                        let key = headers[at].0.frame_key();
                        let check = Frame::seal(frame, key, *column, stripe, seals, &own);
                        toggle(&mut totals.roots[at], &check);
                        let (target, draft) = &drafts[at];
                        draft
                            .write(headers[at].1.frame_offset(0, stripe), frame)
                            .map_err(self::at(target))?;
                        written += frame.len() as u64;
                    }
                    (self.progress)(0, written);
                }
                Ok(())
            },
        )?;
        Ok(states.into_iter().fold(new(), |all, (_, totals, _)| all.merge(totals)))
    }

    /// Loads the wanted blocks of a stripe, or reports the bad ones.
    fn gather(
        &self,
        protected: &ProtectedFile,
        stripe_buffer: &mut StripeBuffer,
        stripe: u64,
        wanted: &[usize],
    ) -> Result<(), FileError> {
        protected.begin(stripe_buffer, stripe);
        let had = protected.load(stripe_buffer, wanted)?;
        let read = stripe_buffer.states.iter().filter(|state| **state == BlockState::Verified).count();
        (self.progress)((read * stripe_buffer.block) as u64, 0);
        if stripe_buffer.unsure {
            return Err(FileError::Doubtful);
        }
        if had {
            return Ok(());
        }
        let retry = BlockFault::retry_of_lost(stripe_buffer.bad().map(|(_, why)| why));
        let why = stripe_buffer.bad().map(|(column, why)| match protected.target(column) {
            b"" => format!("redundancy {} is nowhere", column - protected.header.code.k()),
            name => {
                let word = why.map_or("not right", BlockFault::words);
                format!("{}: {word}", String::from_utf8_lossy(name))
            }
        });
        let why = Failure::new(why.collect::<Vec<_>>().join(", "), retry);
        let offset = protected.cut().run(stripe, 1).cell(0, 0).start;
        Err(FileError::Lost { offset, why })
    }

    /// Verifies columns in place; returns those with a bad block.
    pub(super) fn verify(
        &self,
        protected: &ProtectedFile,
        columns: &[usize],
        threads: usize,
    ) -> Result<BTreeSet<usize>, FileError> {
        let state = || (StripeBuffer::default(), BTreeSet::new());
        let states = each_run(
            &protected.cut(),
            pieces(columns.len()),
            None,
            threads,
            state,
            |run, (stripe_buffer, bad)| {
                for stripe in run.first..run.first + run.count {
                    if (self.stopped)() {
                        return Err(FileError::Stopped);
                    }
                    let has_table = protected.begin(stripe_buffer, stripe);
                    for &column in columns {
                        if !has_table || protected.fetch(stripe_buffer, column)? != BlockState::Verified {
                            bad.insert(column);
                        }
                    }
                    let bytes = (columns.len() * stripe_buffer.block) as u64;
                    (self.progress)(bytes, bytes);
                }
                Ok(())
            },
        )?;
        Ok(states.into_iter().flat_map(|(_, bad)| bad).collect())
    }

    /// Handles a file without current redundancy: columns on retired targets are copied unverified.
    fn copy_unprotected(&self, path: &[u8], stub: &Stub) -> Result<FileResult, FileError> {
        let mut done = FileResult::default();
        let state = |column: usize| self.target_states.state(&stub.targets[column]);
        let bytes = |column: usize| stub.object_bytes(column, stub.size);
        let columns = || 0..stub.targets.len();
        if let Some(gone) = columns().find(|&it| bytes(it) > 0 && state(it) == TargetState::Offline) {
            return Err(FileError::Unprotected(stub.targets[gone].clone()));
        }
        // Columns on returned targets stay, since they cannot be verified.
        // Of those on unreachable targets only the ones without bytes are left here.
        let moves = |it: usize| matches!(state(it), TargetState::Retired | TargetState::Offline);
        let wanted: Vec<usize> = columns().filter(|&it| moves(it)).collect();
        let stay: BTreeSet<TargetName> =
            columns().filter(|&it| !moves(it)).map(|it| stub.targets[it].clone()).collect();
        let needs: Vec<u64> = wanted.iter().map(|&column| bytes(column)).collect();
        let placements = self.pool.column_placements(&stub.id.0, &needs, &stay, &self.excluded);
        let moves: Vec<(usize, ColumnPlacement)> = wanted
            .iter()
            .zip(placements)
            .filter_map(|(&column, placement)| Some((column, placement?)))
            .collect();
        let placed = |column: &usize| moves.iter().any(|(moved, _)| moved == column);
        done.unmoved = wanted.iter().filter(|column| bytes(**column) > 0 && !placed(column)).count();
        if moves.is_empty() {
            return Ok(done);
        }
        let relocation = self.pool.relocate(path, stub, &moves)?;
        let content = self.pool.open(path).map_err(ExamineError::Read)?;
        let mut buffer = vec![0; stub.block as usize];
        let mut offset = 0;
        while offset < stub.size {
            if (self.stopped)() {
                return Err(FileError::Stopped);
            }
            let want = stub.block.min(stub.size - offset) as usize;
            let column = (offset / stub.block % stub.stripe()) as usize;
            if placed(&column) {
                let got = content.read_at(offset, &mut buffer[..want]);
                if !matches!(got, Ok(got) if got == want) {
                    return Err(FileError::Unprotected(stub.targets[column].clone()));
                }
                relocation.write(
                    column,
                    offset / stub.block / stub.stripe() * stub.block,
                    &buffer[..want],
                )?;
                (self.progress)(want as u64, want as u64);
                done.bytes += want as u64;
            }
            offset += want as u64;
        }
        let now = relocation.finish(Vec::new())?;
        done.data = moves.iter().filter(|(column, _)| bytes(*column) > 0).count();
        // The copies are durable, and could not be verified.
        for target in self.target_states.in_state(TargetState::Retired) {
            done.removed += self.pool.remove_stale_objects(path, &target, &now)?;
        }
        Ok(done)
    }

    /// Encodes a file.
    fn protect(
        &self,
        path: &[u8],
        code: &str,
        threads: usize,
        done: &mut FileResult,
    ) -> Result<(), FileError> {
        let coder = self.coders.get(code).map_err(ExamineError::from)?;
        let encoder = Encoder { storage: self.pool, coders: self.coders, clock: self.clock };
        let progress = |bytes: u64| (self.progress)(bytes, bytes);
        let context = encode::EncodeOptions {
            threads,
            moved: false,
            known_elsewhere: false,
            known: None,
            recorded: None,
            flushed: None,
            progress: &progress,
            team: None,
            elsewhere: &|_| {},
            stopped: self.stopped,
        };
        // The block size is that of the striping.
        let mut encoded = encoder.encode(path, &coder, ANY_BLOCK, context)?;
        let written = encoded.sync().and_then(|()| encoded.publish());
        written.map_err(|source| FileError::Write { target: None, source })?;
        (done.k, done.m) = (coder.code().k(), coder.code().m());
        done.redundancy += encoded.columns;
        done.bytes += encoded.redundancy_bytes;
        done.unplaced = (encoded.columns..encoded.wanted).map(|column| done.k + column).collect();
        Ok(())
    }

    /// Present health of a file.
    pub(super) fn health(&self, path: &[u8]) -> Result<FileHealth, FileError> {
        let stub = self.pool.stub(path)?;
        Ok(survey(self.pool, self.coders, &self.target_states, path, &stub)?.health)
    }
}

pub(super) fn at(target: &TargetName) -> impl Fn(io::Error) -> FileError + '_ {
    |source| FileError::Write { target: Some(target.clone()), source }
}

/// Header of a reconstructed redundancy column: the same version, with other targets.
fn header(protected: &ProtectedFile, moves: &Moves, stub: &Stub, column: usize) -> Header {
    let k = protected.header.code.k();
    let mut targets: Vec<Vec<u8>> = stub.targets.iter().map(|name| name.clone().into_bytes()).collect();
    targets.extend((k..protected.header.code.blocks()).map(|column| protected.target(column).to_vec()));
    for (column, placement) in &moves.data {
        targets[*column] = placement.target.clone().into_bytes();
    }
    for (column, placement) in &moves.redundancy {
        targets[k + column] = placement.target.clone().into_bytes();
    }
    Header { first: column, columns: 1, targets, ..protected.header.clone() }
}

impl Totals {
    fn add_stripe(&mut self, stripe_buffer: &mut StripeBuffer, wanted: &[usize]) {
        for (sum, check) in self.sums.iter_mut().zip(&stripe_buffer.checks) {
            match (sum.as_mut(), check) {
                (Some(sum), Some(check)) => toggle(sum, check),
                _ => *sum = None,
            }
        }
        let made = wanted
            .iter()
            .filter(|&&column| stripe_buffer.states[column] == BlockState::Reconstructed)
            .count();
        self.reconstructed += made as u64;
        let wrong = stripe_buffer.faults.drain(..).filter(|(_, why)| *why == BlockFault::Wrong);
        self.wrong += wrong.count() as u64;
    }

    fn merge(mut self, other: Totals) -> Totals {
        self.roots.iter_mut().zip(&other.roots).for_each(|(root, other)| toggle(root, other));
        for (sum, other) in self.sums.iter_mut().zip(other.sums) {
            match (sum.as_mut(), other) {
                (Some(sum), Some(other)) => toggle(sum, &other),
                _ => *sum = None,
            }
        }
        self.reconstructed += other.reconstructed;
        self.wrong += other.wrong;
        self
    }
}
