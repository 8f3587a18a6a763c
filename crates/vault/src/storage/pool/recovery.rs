//! Recovery: the last change of the namespace is finished before anything is looked up, by readers as well.
//!
//! A process that changes the namespace finishes it under the locks. A reader does the same if nobody holds them; if they are held,
//! a process is at work that has done so. Where a reader cannot write, it believes the mirrors that have made the last change, or
//! all if none has: either is a state between two changes.

use super::Shared;
use super::change::{Change, on_each};
use super::config::Mirror;
use super::error::PoolError;
use super::sequence::{Position, Record, read};
use super::view::Copy;
use crate::world::Stopwatch;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a reader looks at records that change while it reads them.
const ATTEMPTS: usize = 3;

/// How long a process that has the pool mounted believes mirrors that all have made the last change. Every look at a name would read two records of
/// every mirror otherwise.
const BELIEVED: Duration = Duration::from_millis(100);

/// Mirrors that all had made the last change when they were looked at.
#[derive(Debug)]
pub(crate) struct Even {
    seen: Stopwatch,
    epoch: u64,
    mirrors: Vec<usize>,
}

/// Records of mirrors, compared.
struct Survey {
    /// The last change; none if no mirror has a record.
    top: Option<Record>,
    /// Mirrors that have its record, or the one before.
    near: Vec<Copy>,
    /// By mirror of `near`: whether it has the record.
    has_it: Vec<bool>,
    /// Mirrors that are further behind or have another history.
    far: Vec<Copy>,
    /// Mirrors whose records cannot be read.
    failed: Vec<Copy>,
}

impl Survey {
    fn of(copies: &[Copy]) -> Result<Survey, PoolError> {
        let (mut found, mut failed, mut error) = (Vec::new(), Vec::new(), None);
        for copy in copies {
            match read(&copy.tree) {
                Ok(record) => found.push((copy, record)),
                Err(why) => {
                    failed.push(copy.clone());
                    error = Some(PoolError::target(&copy.name, "reading its last change")(why));
                }
            }
        }
        if let (true, Some(error)) = (found.is_empty(), error) {
            return Err(error);
        }
        let position = |record: &Option<Record>| record.as_ref().map(Record::position);
        let positions: Vec<Option<Position>> = found.iter().map(|(_, record)| position(record)).collect();
        // Of two histories that came to the same number, that of more mirrors counts, then that of the later epoch.
        let support = |at: &Option<Position>| positions.iter().filter(|other| *other == at).count();
        let rank =
            |at: usize| (positions[at].map(|at| at.number), support(&positions[at]), found[at].0.epoch);
        let best = (0..found.len()).max_by_key(|&at| rank(at));
        let top = best.and_then(|at| found[at].1.clone());
        let last = best.and_then(|at| positions[at]);
        let mut survey = Survey { top, near: Vec::new(), has_it: Vec::new(), far: Vec::new(), failed };
        for ((copy, _), at) in found.iter().zip(&positions) {
            let follows = survey.top.as_ref().is_some_and(|top| top.follows(*at));
            match *at == last || follows {
                true => {
                    survey.near.push((*copy).clone());
                    survey.has_it.push(*at == last);
                }
                false => survey.far.push((*copy).clone()),
            }
        }
        Ok(survey)
    }

    fn position(&self) -> Position {
        self.top.as_ref().map_or_else(Position::begin, Record::position)
    }

    fn is_even(&self) -> bool {
        self.far.is_empty() && self.failed.is_empty() && self.has_it.iter().all(|has_it| *has_it)
    }

    /// Makes the last change on mirrors that have not.
    fn redo(&self) -> Vec<io::Result<()>> {
        let Some(top) = &self.top else { return Vec::new() };
        let has_it = |tree: &_| read(tree).map(|it| it.is_some_and(|it| it.position() == self.position()));
        on_each(&self.near, &|tree| match has_it(tree)? {
            true => read(tree)?.map_or(Ok(()), |own| own.redo(tree, true)),
            false => top.redo(tree, false),
        })
    }

    /// Mirrors in one state between two changes.
    fn in_one_state(self) -> Vec<Copy> {
        let Some(top) = &self.top else { return self.near };
        let own =
            |copy: &Copy| read(&copy.tree).ok().flatten().filter(|own| own.position() == top.position());
        let has_made = |copy: &Copy| own(copy).is_some_and(|own| own.is_made(&copy.tree).unwrap_or(false));
        let made: Vec<Copy> = self.near.iter().filter(|copy| has_made(copy)).cloned().collect();
        if made.is_empty() { self.near } else { made }
    }
}

impl Shared {
    /// The change of this position is made on all mirrors that answer.
    pub(crate) fn settle(&self, position: Position) {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }

    fn is_settled(&self, position: Position) -> bool {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) == Some(position)
    }

    /// The mirrors that a reader believes, after the last change was finished where that is possible. While the pool is mounted here, all of them are
    /// believed for [`BELIEVED`] after they were found even: a reader may then see a change of another process in the middle although that process has
    /// died, as it may while the process lives.
    pub(crate) fn believed(&self, copies: Vec<Copy>) -> Result<Vec<Copy>, PoolError> {
        if !self.is_mounted.load(Ordering::Acquire) {
            return Ok(self.survey(copies)?.0);
        }
        let epoch = self.known().config.epoch;
        let is_fresh = |even: &Even| {
            even.epoch == epoch
                && even.mirrors.iter().eq(copies.iter().map(|copy| &copy.index))
                && even.seen.elapsed() < BELIEVED
        };
        if self.even.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_fresh) {
            return Ok(copies);
        }
        let mirrors = copies.iter().map(|copy| copy.index).collect();
        // Taken before the look: what is found holds from then on.
        let seen = Stopwatch::start();
        let (near, is_even) = self.survey(copies)?;
        let even = is_even.then_some(Even { seen, epoch, mirrors });
        *self.even.lock().unwrap_or_else(PoisonError::into_inner) = even;
        Ok(near)
    }

    /// The mirrors that a reader believes, and whether that is all of them because all have made the last change.
    fn survey(&self, copies: Vec<Copy>) -> Result<(Vec<Copy>, bool), PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let survey = Survey::of(&copies)?;
            let is_even = survey.is_even();
            if self.is_settled(survey.position()) && (is_even || attempt == ATTEMPTS) {
                return Ok((survey.near, is_even));
            }
            match self.turn_if_free() {
                Ok(mut change) => match change.finish() {
                    Ok(survey) => return Ok((survey.near, false)),
                    Err(_) => return Ok((Survey::of(&copies)?.in_one_state(), false)),
                },
                // Records that were read while they changed may look further apart than they are.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if survey.far.is_empty() || attempt == ATTEMPTS {
                        return Ok((survey.near, false));
                    }
                }
                Err(_) => return Ok((survey.in_one_state(), false)),
            }
        }
    }
}

impl Change<'_> {
    /// Makes the last change on all mirrors that have its record or the one before; fails if one of them does.
    fn finish(&mut self) -> Result<Survey, PoolError> {
        let survey = Survey::of(&self.copies)?;
        if !(survey.is_even() && self.shared.is_settled(survey.position())) {
            if survey.top.is_none() {
                self.finish_notes()?;
            }
            survey
                .redo()
                .into_iter()
                .collect::<io::Result<Vec<()>>>()
                .map_err(|error| PoolError::path(b"", error))?;
            self.shared.settle(survey.position());
        }
        Ok(survey)
    }

    /// Finishes the last change. Mirrors that fail at that are stale from now on; those that are behind are healed.
    pub(crate) fn recover(&mut self) -> Result<(), PoolError> {
        let survey = Survey::of(&self.copies)?;
        self.last = survey.position();
        if survey.is_even() && self.shared.is_settled(self.last) {
            return Ok(());
        }
        if survey.top.is_none() {
            self.finish_notes()?;
        }
        let results = survey.redo();
        let Survey { near, far, failed, .. } = survey;
        let behind: Vec<usize> = far.iter().chain(&failed).map(|copy| copy.index).collect();
        self.copies = near;
        if !results.is_empty() {
            self.leave_behind_those_that_failed(b"", results)?;
        }
        self.mark(&behind, Mirror::Stale)?;
        self.shared.settle(self.last);
        if far.is_empty() { Ok(()) } else { self.bring_up(far) }
    }
}
