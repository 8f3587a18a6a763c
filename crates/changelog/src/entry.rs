//! Entries, claims and sums of a changelog.

use crate::change::Span;
use crate::ranges::Ranges;
use gabion_platform::world::Timestamp;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use std::fmt;

/// The number of a change: one more for each, in the order in which they became durable. 0 is before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The number of the change after it.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }

    /// The number so many changes before it, if there were as many.
    pub fn before(self, changes: u64) -> Option<Sequence> {
        self.0.checked_sub(changes).map(Sequence)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ToSql for Sequence {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for Sequence {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Sequence> {
        u64::column_result(value).map(Sequence)
    }
}

/// Work to do for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Bring redundancy up to date for the ranges.
    Modify,
    /// Nothing but the name changed: the redundancy found at the origin becomes that of the path.
    Move,
    /// Remove the redundancy of whatever is absent at and beneath the path.
    Delete,
    /// Scan: compare everything at and beneath the path with its redundancy.
    Gap,
}

impl Kind {
    /// All of them, in the order of their numbers in storage.
    pub const ALL: [Kind; 4] = [Kind::Modify, Kind::Move, Kind::Delete, Kind::Gap];

    pub(crate) fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }
}

/// All that is pending for one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path.
    pub path: Vec<u8>,
    /// The work to do.
    pub kind: Kind,
    /// Where redundancy of this path may still lie. A place to look, not a promise: what lies there counts only
    /// if its header agrees with the file, and when the entry is done, nothing may remain there that belongs
    /// to no file.
    pub origin: Option<Vec<u8>>,
    /// The bytes that changed; empty unless something was modified.
    pub ranges: Ranges,
    /// Versions between which nothing but the ranges was written, if they are known.
    pub span: Option<Span>,
    /// The last change in it.
    pub sequence: Sequence,
    /// When the first change in it happened.
    pub first: Timestamp,
    /// When it may be claimed.
    pub due: Timestamp,
    /// Higher goes first.
    pub priority: u8,
    /// How often a worker gave it back or let its lease run out since it was last done.
    pub attempts: u32,
    /// The claim that it is under.
    pub token: Option<u64>,
}

/// Name of a worker, unique among all workers of all hosts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId(pub String);

impl WorkerId {
    /// The host: what is before the first slash.
    pub fn host(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// The process id, if the name has one: what is between the first and the second slash.
    pub fn process(&self) -> Option<u32> {
        self.0.split('/').nth(1)?.parse().ok()
    }
}

/// An entry that one worker holds until its lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Fencing number: a later claim has a higher one, of whatever path.
    pub token: u64,
    /// The worker that holds it.
    pub worker: WorkerId,
    /// The work to do, up to [`Entry::sequence`].
    pub entry: Entry,
    /// When other workers may take it over, unless it is renewed.
    pub expires: Timestamp,
}

/// Remainder after a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Nothing: the path is protected.
    Done,
    /// What was recorded after the claim; it is due in its turn.
    Newer,
}

/// How much is pending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Entries, by the order of [`Kind::ALL`].
    pub by_kind: [u64; 4],
    /// Entries that workers hold.
    pub claimed: u64,
    /// When the oldest change that is not yet protected happened.
    pub oldest: Option<Timestamp>,
}

impl Summary {
    /// All entries.
    pub fn entries(&self) -> u64 {
        self.by_kind.iter().sum()
    }

    /// Entries of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.by_kind[kind as usize]
    }
}

/// What an acknowledgment guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The change is on stable storage: it outlives a crash of the process, of the server and of the machine.
    Stable,
    /// It ends with the process or server that holds it.
    Volatile,
}

/// Identity and length of a server's changelog, to notice a loss of recorded changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Made at random for a changelog that begins.
    pub identity: String,
    /// The number of the last change that was recorded.
    pub sequence: Sequence,
}

impl Memory {
    /// True if the server lost changes that it had recorded before `now`: it came back without its files, or with
    /// older ones.
    pub fn is_lost(&self, now: &Memory) -> bool {
        self.identity != now.identity || now.sequence < self.sequence
    }
}
