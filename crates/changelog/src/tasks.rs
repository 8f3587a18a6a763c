//! Tasks: work that several workers share.
//!
//! A worker with much to do for one thing opens a task and divides it into portions, numbered from 0. Any worker takes
//! a portion, does it, and hands in a result, which the owner of the task collects. A portion is taken for the time of
//! a lease; a worker that does not renew it in time loses it, and the portion is given to another one. Then two workers
//! may be at it, and the owner is told ([`Collected::overtaken`]). A task whose owner does not renew it is dropped.
//!
//! What a task is about, its portions and their results are any bytes. Leases are counted by the clock of the server,
//! since those of hosts may differ.

use crate::entry::WorkerId;
use crate::error::Result;
use std::time::Duration;

/// Longest lease. One that ends later was given before the clock of the server was set back.
pub const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// Most portions whose results one call of [`Tasks::collect`] gives.
pub const MAX_COLLECTED: usize = 512;

/// Random name of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId(pub [u8; 16]);

/// Kind of work, one letter. Workers are given the kinds that they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskKind(pub u8);

/// A task to open.
#[derive(Debug, Clone, Copy)]
pub struct NewTask<'a> {
    /// Its name.
    pub id: TaskId,
    /// Kind of work.
    pub kind: TaskKind,
    /// Tasks of higher priority are done first.
    pub priority: u8,
    /// Worker that opens it.
    pub owner: &'a WorkerId,
    /// What it is about.
    pub about: &'a [u8],
    /// How much there is to do.
    pub amounts: Amounts,
}

/// A portion that a worker took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// Its task.
    pub task: TaskId,
    /// Kind of the task.
    pub kind: TaskKind,
    /// Number of the portion within the task.
    pub number: u64,
    /// Names this taking: another worker that takes the portion later gets another token.
    pub token: u64,
    /// What the task is about.
    pub about: Vec<u8>,
    /// Content of the portion; empty if its number says everything.
    pub content: Vec<u8>,
}

/// Which portion a worker wants.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// One of this task.
    Of(TaskId),
    /// One of the tasks of these kinds with the highest priority, the oldest first, except for some tasks.
    Any {
        /// Kinds that the worker knows.
        kinds: &'a [TaskKind],
        /// Tasks at which it failed before.
        except: &'a [TaskId],
        /// Least priority.
        priority: u8,
    },
}

/// How much of a task is done, in files and bytes. None of it is used but shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Files that are done.
    pub files: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// All files, as far as it is known.
    pub all_files: u64,
    /// All bytes, as far as it is known.
    pub all_bytes: u64,
}

/// What a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A task that it opened, and how much of it is done.
    Task(TaskId, Amounts),
    /// A portion that it took.
    Portion {
        /// Its task.
        task: TaskId,
        /// Number of the portion.
        number: u64,
        /// See [`Portion::token`].
        token: u64,
    },
}

/// Progress of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Number of portions that are finished.
    pub finished: u64,
    /// How often a portion was taken from a worker whose lease ran out, and which may still be at it.
    pub overtaken: u64,
    /// Results, with the numbers of their portions.
    pub results: Vec<(u64, Vec<u8>)>,
}

/// A task as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTask {
    /// Its name.
    pub id: TaskId,
    /// Kind of work.
    pub kind: TaskKind,
    /// Worker that opened it.
    pub owner: WorkerId,
    /// Number of portions so far.
    pub portions: u64,
    /// Number of those that are finished.
    pub finished: u64,
    /// Number of those at which workers are.
    pub taken: u64,
    /// Workers that are at them, in the order of their names.
    pub workers: Vec<WorkerId>,
    /// Time since it was opened.
    pub age: Duration,
    /// What its owner said last.
    pub amounts: Amounts,
}

/// The tasks of a deployment; see the [module](self).
pub trait Tasks: Send + Sync {
    /// Opens a task without portions.
    ///
    /// # Errors
    /// The engine's.
    fn open_task(&self, task: &NewTask<'_>, lease: Duration) -> Result<()>;

    /// From now on the task has `count` portions, the last of them with these contents. False if the task was dropped.
    ///
    /// # Errors
    /// The engine's.
    fn add_portions(&self, id: TaskId, count: u64, contents: &[Vec<u8>]) -> Result<bool>;

    /// Takes a portion for the time of a lease; none if there is none to take now.
    ///
    /// # Errors
    /// The engine's.
    fn take(&self, worker: &WorkerId, wanted: Wanted<'_>, lease: Duration) -> Result<Option<Portion>>;

    /// Lets leases end `lease` from now. Says of each whether it is still held.
    ///
    /// # Errors
    /// The engine's.
    fn keep(&self, held: &[Held], lease: Duration) -> Result<Vec<bool>>;

    /// Hands in the result of a portion. False if it was lost meanwhile, or its task dropped: then it does not count.
    ///
    /// # Errors
    /// The engine's.
    fn finish(&self, portion: &Portion, result: &[u8]) -> Result<bool>;

    /// Gives back a portion that was not done. Nothing writes for it any more.
    ///
    /// # Errors
    /// The engine's.
    fn put_back(&self, portion: &Portion) -> Result<()>;

    /// Progress of a task, with results of portions of these numbers, at most [`MAX_COLLECTED`] of them. None if the
    /// task was dropped.
    ///
    /// # Errors
    /// The engine's.
    fn collect(&self, id: TaskId, numbers: &[u64]) -> Result<Option<Collected>>;

    /// Removes results that were collected.
    ///
    /// # Errors
    /// The engine's.
    fn forget_results(&self, id: TaskId, numbers: &[u64]) -> Result<()>;

    /// Removes a task. Workers that are at portions of it are refused when they finish.
    ///
    /// # Errors
    /// The engine's.
    fn close_task(&self, id: TaskId) -> Result<()>;

    /// All tasks, the oldest first.
    ///
    /// # Errors
    /// The engine's.
    fn known_tasks(&self) -> Result<Vec<KnownTask>>;
}
