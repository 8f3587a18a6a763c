//! Recovery: completes the last change of the namespace before anything is looked up, for readers as well.
//!
//! A process that changes the namespace completes it under the locks. A reader does the same if the locks are free;
//! otherwise the process that holds them has done so. A reader that cannot write uses the mirrors that have applied the
//! last change, or all if none has: either is a consistent state.

use super::Shared;
use super::change::{Change, on_each};
use super::config::Mirror;
use super::error::PoolError;
use super::sequence::{Position, Record, read};
use super::view::MirrorCopy;
use crate::world::Stopwatch;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of attempts to read records that change meanwhile.
const ATTEMPTS: usize = 3;

/// How long a process that has the pool mounted relies on a survey that found all mirrors at the last change. Without
/// this, each lookup of a name reads two records of every mirror.
const SURVEY_LIFETIME: Duration = Duration::from_millis(100);

/// Mirrors that all had applied the last change when they were surveyed.
#[derive(Debug)]
pub(crate) struct ConsistentMirrors {
    seen: Stopwatch,
    epoch: u64,
    mirrors: Vec<usize>,
}

/// Comparison of the records of all mirrors.
struct RecordSurvey {
    /// The last change; none if no mirror has a record.
    newest: Option<Record>,
    /// Mirrors that have its record, or the previous one.
    recoverable: Vec<MirrorCopy>,
    /// For each mirror of `recoverable`: whether it has the record.
    has_newest: Vec<bool>,
    /// Mirrors that are further behind or have another history.
    behind: Vec<MirrorCopy>,
    /// Mirrors with unreadable records.
    failed: Vec<MirrorCopy>,
}

impl RecordSurvey {
    fn of(copies: &[MirrorCopy]) -> Result<RecordSurvey, PoolError> {
        let (mut found, mut failed, mut error) = (Vec::new(), Vec::new(), None);
        for copy in copies {
            match read(&copy.tree) {
                Ok(record) => found.push((copy, record)),
                Err(why) => {
                    failed.push(copy.clone());
                    error = Some(PoolError::target(&copy.name, "reading its last change record")(why));
                }
            }
        }
        if let (true, Some(error)) = (found.is_empty(), error) {
            return Err(error);
        }
        let position = |record: &Option<Record>| record.as_ref().map(Record::position);
        let positions: Vec<Option<Position>> = found.iter().map(|(_, record)| position(record)).collect();
        // If two histories reached the same number, the one on more mirrors wins, then the one of the later epoch.
        let support = |at: &Option<Position>| positions.iter().filter(|other| *other == at).count();
        let rank =
            |at: usize| (positions[at].map(|at| at.number), support(&positions[at]), found[at].0.epoch);
        let best = (0..found.len()).max_by_key(|&at| rank(at));
        let newest = best.and_then(|at| found[at].1.clone());
        let last = best.and_then(|at| positions[at]);
        let mut survey = RecordSurvey {
            newest,
            recoverable: Vec::new(),
            has_newest: Vec::new(),
            behind: Vec::new(),
            failed,
        };
        for ((copy, _), at) in found.iter().zip(&positions) {
            let follows = survey.newest.as_ref().is_some_and(|newest| newest.follows(*at));
            match *at == last || follows {
                true => {
                    survey.recoverable.push((*copy).clone());
                    survey.has_newest.push(*at == last);
                }
                false => survey.behind.push((*copy).clone()),
            }
        }
        Ok(survey)
    }

    fn position(&self) -> Position {
        self.newest.as_ref().map_or_else(Position::start, Record::position)
    }

    fn is_consistent(&self) -> bool {
        self.behind.is_empty()
            && self.failed.is_empty()
            && self.has_newest.iter().all(|has_newest| *has_newest)
    }

    /// Applies the last change on mirrors that lack it.
    fn redo(&self) -> Vec<io::Result<()>> {
        let Some(newest) = &self.newest else { return Vec::new() };
        let has_newest =
            |tree: &_| read(tree).map(|it| it.is_some_and(|it| it.position() == self.position()));
        on_each(&self.recoverable, &|tree| match has_newest(tree)? {
            true => read(tree)?.map_or(Ok(()), |own| own.redo(tree, true)),
            false => newest.redo(tree, false),
        })
    }

    /// Mirrors in one consistent state.
    fn consistent_mirrors(self) -> Vec<MirrorCopy> {
        let Some(newest) = &self.newest else { return self.recoverable };
        let own = |copy: &MirrorCopy| {
            read(&copy.tree).ok().flatten().filter(|own| own.position() == newest.position())
        };
        let has_made =
            |copy: &MirrorCopy| own(copy).is_some_and(|own| own.is_applied(&copy.tree).unwrap_or(false));
        let made: Vec<MirrorCopy> = self.recoverable.iter().filter(|copy| has_made(copy)).cloned().collect();
        if made.is_empty() { self.recoverable } else { made }
    }
}

impl Shared {
    /// Notes that the change of this position is applied on all reachable mirrors.
    pub(crate) fn note_completed(&self, position: Position) {
        *self.completed.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }

    fn is_completed(&self, position: Position) -> bool {
        *self.completed.lock().unwrap_or_else(PoisonError::into_inner) == Some(position)
    }

    /// The mirrors that a reader uses, after the last change was completed where possible. While the pool is mounted
    /// here, all of them are used for [`SURVEY_LIFETIME`] after they were found consistent: a reader may then see a
    /// half-applied change of another process although that process has died, as it may while the process lives.
    pub(crate) fn readable_mirrors(&self, copies: Vec<MirrorCopy>) -> Result<Vec<MirrorCopy>, PoolError> {
        if !self.is_mounted.load(Ordering::Acquire) {
            return Ok(self.survey(copies)?.0);
        }
        let epoch = self.cached_view().config.epoch;
        let is_fresh = |consistent: &ConsistentMirrors| {
            consistent.epoch == epoch
                && consistent.mirrors.iter().eq(copies.iter().map(|copy| &copy.index))
                && consistent.seen.elapsed() < SURVEY_LIFETIME
        };
        if self.consistent.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_fresh) {
            return Ok(copies);
        }
        let mirrors = copies.iter().map(|copy| copy.index).collect();
        // Taken before the look: what is found holds from then on.
        let seen = Stopwatch::start();
        let (recoverable, is_consistent) = self.survey(copies)?;
        let consistent = is_consistent.then_some(ConsistentMirrors { seen, epoch, mirrors });
        *self.consistent.lock().unwrap_or_else(PoisonError::into_inner) = consistent;
        Ok(recoverable)
    }

    /// The mirrors that a reader uses; true if these are all of them, because all have applied the last change.
    fn survey(&self, copies: Vec<MirrorCopy>) -> Result<(Vec<MirrorCopy>, bool), PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let survey = RecordSurvey::of(&copies)?;
            let is_consistent = survey.is_consistent();
            if self.is_completed(survey.position()) && (is_consistent || attempt == ATTEMPTS) {
                return Ok((survey.recoverable, is_consistent));
            }
            match self.try_lock_namespace() {
                Ok(mut change) => match change.finish() {
                    Ok(survey) => return Ok((survey.recoverable, false)),
                    Err(_) => return Ok((RecordSurvey::of(&copies)?.consistent_mirrors(), false)),
                },
                // Records that were read while they changed may look further apart than they are.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if survey.behind.is_empty() || attempt == ATTEMPTS {
                        return Ok((survey.recoverable, false));
                    }
                }
                Err(_) => return Ok((survey.consistent_mirrors(), false)),
            }
        }
    }
}

impl Change<'_> {
    /// Applies the last change on all mirrors that have its record or the previous one; fails if one of them does.
    fn finish(&mut self) -> Result<RecordSurvey, PoolError> {
        let survey = RecordSurvey::of(&self.copies)?;
        if !(survey.is_consistent() && self.shared.is_completed(survey.position())) {
            if survey.newest.is_none() {
                self.finish_notes()?;
            }
            survey
                .redo()
                .into_iter()
                .collect::<io::Result<Vec<()>>>()
                .map_err(|error| PoolError::path(b"", error))?;
            self.shared.note_completed(survey.position());
        }
        Ok(survey)
    }

    /// Completes the last change. Mirrors that fail become stale; mirrors that are behind are healed.
    pub(crate) fn recover(&mut self) -> Result<(), PoolError> {
        let survey = RecordSurvey::of(&self.copies)?;
        self.last = survey.position();
        if survey.is_consistent() && self.shared.is_completed(self.last) {
            return Ok(());
        }
        if survey.newest.is_none() {
            self.finish_notes()?;
        }
        let results = survey.redo();
        let RecordSurvey { recoverable, behind, failed, .. } = survey;
        let stale: Vec<usize> = behind.iter().chain(&failed).map(|copy| copy.index).collect();
        self.copies = recoverable;
        if !results.is_empty() {
            self.mark_failed_stale(b"", results)?;
        }
        self.mark(&stale, Mirror::Stale)?;
        self.shared.note_completed(self.last);
        if behind.is_empty() { Ok(()) } else { self.heal_mirrors(behind) }
    }
}
