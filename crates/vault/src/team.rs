//! Work that several workers share, by tasks of the changelog.
//!
//! The owner of the work adds portions to a task, takes them like any other worker, and collects the results of the
//! others (`share`). A worker without work of its own takes portions of such tasks (`help`). A portion at which a
//! worker fails comes back with an empty result, and the owner does it. Without a changelog that has tasks, and when
//! its server goes away, the owner does everything itself.

use crate::changelog::tasks::{
    Amounts, Held, MAX_COLLECTED, NewTask, Portion, TaskId, TaskKind, Tasks, Wanted,
};
use crate::changelog::{self, WorkerId};
use crate::timer::with_timer;
use crate::world::unique_id;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lifetime of a claim, or of a portion, after its last renewal, which is also the delay before the work of a dead
/// host may be taken over. With the time for which another worker is busy (two seconds), and differences of clocks
/// that are left alone ([`CLOCK_TOLERANCE`](crate::changelog)), claims are taken over within ten seconds. A worker
/// that cannot reach the changelog for longer loses what it holds: its results are refused, and the work is done
/// twice.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// Interval at which the owner of a task looks for results of the others.
const POLL: Duration = Duration::from_millis(50);

/// Portions of a task that are not finished, at most.
const AHEAD: usize = 64;

/// Longest result of a portion. Longer ones are left to the owner of the task.
const MAX_RESULT: usize = 1 << 20;

/// Paths as the content of a portion: each with its length before it, as u32, little endian.
pub(crate) fn put_paths<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for path in paths {
        out.extend((path.len() as u32).to_le_bytes());
        out.extend(path);
    }
    out
}

/// The paths of a content; none if it is not one.
pub(crate) fn paths_of(mut content: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    while !content.is_empty() {
        let (length, rest) = content.split_first_chunk()?;
        let (path, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        paths.push(path.to_vec());
        content = rest;
    }
    Some(paths)
}

/// The workers of a deployment, and the one that is speaking.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// Their tasks.
    pub tasks: &'a dyn Tasks,
    /// Name of this worker.
    pub worker: &'a WorkerId,
}

/// Work in portions.
pub(crate) trait Divisible {
    /// A portion.
    type Portion;
    /// Why the work cannot go on.
    type Error;

    /// What another worker has to know of a portion besides its number.
    fn content(&self, portion: &Self::Portion) -> Vec<u8>;

    /// Does a portion in this process.
    fn work(&mut self, number: u64, portion: Self::Portion) -> Result<(), Self::Error>;

    /// Takes the result of another worker, which may be any bytes. False if it is none; then the portion is done here.
    fn collect(&mut self, number: u64, portion: &Self::Portion, result: &[u8]) -> Result<bool, Self::Error>;
}

/// How to share.
pub(crate) struct Terms<'a> {
    /// Kind of the work.
    pub(crate) kind: TaskKind,
    /// Tasks of higher priority are done first.
    pub(crate) priority: u8,
    /// What others have to know for all portions.
    pub(crate) about: &'a [u8],
    /// What is done, for those who ask.
    pub(crate) amounts: &'a (dyn Fn() -> Amounts + Sync),
    /// True stops the work: what is not done is left.
    pub(crate) stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Shares work: `add` adds the portions. True if workers that were given up may still be at portions.
///
/// # Errors
/// Errors of the work. A failing changelog is none: then everything is done here.
pub(crate) fn share<W: Divisible>(
    team: Option<Team<'_>>,
    terms: &Terms<'_>,
    work: &mut W,
    add: impl FnOnce(&mut Sharing<'_, W>) -> Result<(), W::Error>,
) -> Result<bool, W::Error> {
    let opened = team.and_then(|team| Some((team, TaskId(unique_id().ok()?))));
    let opened = opened.filter(|(Team { tasks, worker }, task)| {
        let Terms { kind, priority, about, amounts, .. } = *terms;
        let task = NewTask { id: *task, kind, priority, owner: worker, about, amounts: amounts() };
        tasks.open_task(&task, LEASE).is_ok()
    });
    let (stopped, added, unfinished) = (terms.stopped, 0, BTreeMap::new());
    let Some((team, task)) = opened else {
        let mut sharing = Sharing { work, others: None, was_left: false, added, unfinished, stopped };
        return add(&mut sharing).map(|()| false);
    };
    let keeping = Keeping::new(team.tasks, Held::Task(task, Amounts::default()), Some(terms.amounts));
    let others = Some(Others { team, task, keeping: &keeping });
    let mut sharing = Sharing { work, others, was_left: false, added, unfinished, stopped };
    let done = with_timer("tasks", &|| keeping.renew(), || {
        add(&mut sharing)?;
        while !sharing.unfinished.is_empty() && !stopped() {
            sharing.step()?;
        }
        Ok(())
    });
    let collected = team.tasks.collect(task, &[]);
    // A task that stays is dropped when its lease ends.
    let _ = team.tasks.close_task(task);
    let overtaken = !matches!(collected, Ok(Some(collected)) if collected.overtaken == 0);
    done.map(|()| sharing.was_left || overtaken)
}

/// The other workers of a task.
#[derive(Clone, Copy)]
struct Others<'a> {
    team: Team<'a>,
    task: TaskId,
    keeping: &'a Keeping<'a>,
}

/// Work that is being shared.
pub(crate) struct Sharing<'a, W: Divisible> {
    work: &'a mut W,
    /// None if this worker is alone.
    others: Option<Others<'a>>,
    /// The others were left while they may have been at portions.
    was_left: bool,
    added: u64,
    unfinished: BTreeMap<u64, W::Portion>,
    stopped: &'a (dyn Fn() -> bool + Sync),
}

impl<W: Divisible> Sharing<'_, W> {
    /// Adds a portion, and works while many are not finished.
    pub(crate) fn add(&mut self, portion: W::Portion) -> Result<(), W::Error> {
        let number = self.added;
        self.added += 1;
        let Some(Others { team, task, .. }) = self.others else {
            return if (self.stopped)() { Ok(()) } else { self.work.work(number, portion) };
        };
        let content = self.work.content(&portion);
        let contents = if content.is_empty() { &[][..] } else { std::slice::from_ref(&content) };
        let added = team.tasks.add_portions(task, self.added, contents);
        self.unfinished.insert(number, portion);
        if !matches!(added, Ok(true)) {
            self.leave();
        }
        while self.unfinished.len() >= AHEAD && !(self.stopped)() {
            // First what others have done: as long as it counts as unfinished, they get nothing new.
            if !self.collect()? {
                self.step()?;
            }
        }
        Ok(())
    }

    /// True if nobody else does portions.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.is_none()
    }

    /// Goes on alone.
    fn leave(&mut self) {
        self.others = None;
        self.was_left = true;
    }

    /// Does one portion, or collects results.
    fn step(&mut self) -> Result<(), W::Error> {
        let Some(Others { team, task, keeping }) = self.others else {
            let Some((number, portion)) = self.unfinished.pop_first() else { return Ok(()) };
            return self.work.work(number, portion);
        };
        match team.tasks.take(team.worker, Wanted::Of(task), LEASE) {
            Ok(Some(taken)) => {
                keeping.hold(&taken);
                if let Some(portion) = self.unfinished.remove(&taken.number) {
                    self.work.work(taken.number, portion)?;
                }
                keeping.release(&taken);
                if team.tasks.finish(&taken, &[]).is_err() {
                    self.leave();
                }
                Ok(())
            }
            Ok(None) => {
                if !self.collect()? {
                    std::thread::sleep(POLL);
                }
                Ok(())
            }
            Err(_) => {
                self.leave();
                Ok(())
            }
        }
    }

    /// Takes what others have done. False if there is nothing.
    fn collect(&mut self) -> Result<bool, W::Error> {
        let Some(Others { team: Team { tasks, .. }, task, .. }) = self.others else { return Ok(false) };
        let wanted: Vec<u64> = self.unfinished.keys().copied().take(MAX_COLLECTED).collect();
        let Ok(Some(found)) = tasks.collect(task, &wanted) else {
            self.leave();
            return Ok(true);
        };
        if found.results.is_empty() {
            return Ok(false);
        }
        let numbers: Vec<u64> = found.results.iter().map(|(number, _)| *number).collect();
        for (number, result) in found.results {
            let Some(portion) = self.unfinished.remove(&number) else { continue };
            if result.is_empty() || !self.work.collect(number, &portion, &result)? {
                self.work.work(number, portion)?;
            }
        }
        if tasks.forget_results(task, &numbers).is_err() {
            self.leave();
        }
        Ok(true)
    }
}

/// What became of a portion of another worker's task.
#[derive(Debug)]
pub enum Help {
    /// It is done.
    Done(Vec<u8>),
    /// It cannot be done here.
    Failed,
    /// This worker was stopped.
    Stopped,
}

/// A worker's answer: what it found, unless it was stopped, failed, or the result is too long.
pub(crate) fn result_of(found: Option<&impl Serialize>, stopped: &dyn Fn() -> bool) -> Help {
    match found.and_then(|found| serde_json::to_vec(found).ok()) {
        _ if stopped() => Help::Stopped,
        Some(result) if result.len() <= MAX_RESULT => Help::Done(result),
        _ => Help::Failed,
    }
}

/// Takes a portion of a task of these kinds and at least this priority, and does it with `work`, which is told how to
/// find that it is no longer wanted. None if there is no portion; false if it does not count. `failed` are tasks at
/// which this worker failed.
///
/// # Errors
/// The changelog failed.
pub(crate) fn help(
    team: Team<'_>,
    (kinds, priority): (&[TaskKind], u8),
    failed: &mut Vec<TaskId>,
    work: impl FnOnce(&Portion, &(dyn Fn() -> bool + Sync)) -> Help,
) -> changelog::Result<Option<bool>> {
    let Team { tasks, worker } = team;
    let wanted = Wanted::Any { kinds, except: failed, priority };
    let Some(portion) = tasks.take(worker, wanted, LEASE)? else { return Ok(None) };
    let keeping = Keeping::new(tasks, held(&portion), None);
    let is_lost = || keeping.is_lost.load(Ordering::Relaxed);
    let done = with_timer("tasks", &|| keeping.renew(), || work(&portion, &is_lost));
    match done {
        Help::Done(result) => tasks.finish(&portion, &result).map(Some),
        Help::Failed => {
            // The owner looks at the same files, and reports what is wrong with them.
            failed.push(portion.task);
            tasks.finish(&portion, &[]).map(|_| Some(false))
        }
        Help::Stopped => tasks.put_back(&portion).map(|()| Some(false)),
    }
}

/// What a worker holds, and renews.
struct Keeping<'a> {
    tasks: &'a dyn Tasks,
    /// The task or portion that it works at, then portions.
    held: Mutex<Vec<Held>>,
    amounts: Option<&'a (dyn Fn() -> Amounts + Sync)>,
    /// What is first was given to another worker, or its task dropped.
    is_lost: AtomicBool,
}

fn held(portion: &Portion) -> Held {
    Held::Portion { task: portion.task, number: portion.number, token: portion.token }
}

impl<'a> Keeping<'a> {
    fn new(
        tasks: &'a dyn Tasks,
        first: Held,
        amounts: Option<&'a (dyn Fn() -> Amounts + Sync)>,
    ) -> Keeping<'a> {
        Keeping { tasks, held: Mutex::new(vec![first]), amounts, is_lost: AtomicBool::new(false) }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, portion: &Portion) {
        self.held().push(held(portion));
    }

    fn release(&self, portion: &Portion) {
        self.held().retain(|it| *it != held(portion));
    }

    /// Renews all leases. After an error they are renewed a second later.
    fn renew(&self) {
        let mut all = self.held().clone();
        if let (Some(amounts), Some(Held::Task(_, said))) = (self.amounts, all.first_mut()) {
            *said = amounts();
        }
        if let Ok(kept) = self.tasks.keep(&all, LEASE)
            && kept.first() == Some(&false)
        {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
