//! Journal of a deployment: records in one order that all its hosts read.
//!
//! Hosts that share a server tell each other by it what became of files. A record is any bytes; it is durable when
//! [`append`](Journal::append) returns. The journal begins with records that describe everything, so a host that knows
//! nothing reads it from its beginning, and from then on what is new. [`begin_at`](Journal::begin_at) moves the
//! beginning and drops what is older.

use crate::error::Result;

/// Place and name of a record. A reader whose last record has another name by now is told so: the journal was lost, or
/// the server came back with less than it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the record, from 1.
    pub position: u64,
    /// Random name.
    pub name: [u8; NAME],
}

/// Bytes of a record's name.
pub const NAME: usize = 16;

/// Most bytes that one call of [`Journal::read`] gives, unless a single record has more.
pub const READ_BYTES: usize = 4 << 20;

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub mark: Mark,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What follows a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The next records; none at the end.
    Records(Vec<Record>),
    /// The journal has no record with this mark (any more): read from the beginning.
    Unknown,
}

/// The journal; see the [module](self).
pub trait Journal {
    /// Appends a record. With `after`, only if that is the last record, or there is none yet for `Some(None)`; returns
    /// nothing if it is not.
    ///
    /// # Errors
    /// The engine's. The record may be there or not.
    fn append(&self, bytes: &[u8], after: Option<Option<&Mark>>) -> Result<Option<Mark>>;

    /// Reads what follows a record, or the journal from its beginning.
    ///
    /// # Errors
    /// The engine's.
    fn read(&self, after: Option<&Mark>) -> Result<Reading>;

    /// Makes a record the first one and drops the earlier ones.
    ///
    /// # Errors
    /// The engine's.
    fn begin_at(&self, first: &Mark) -> Result<()>;

    /// Bytes of all records.
    ///
    /// # Errors
    /// The engine's.
    fn size(&self) -> Result<u64>;
}
