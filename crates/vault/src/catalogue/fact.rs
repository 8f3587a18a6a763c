//! Facts: changes of a catalogue that all hosts of a deployment are told.
//!
//! A fact replaces what was known of one file or name, so hosts that apply the same facts in the same order know the
//! same. As bytes: a tag, then the fields in order; integers little endian, lengths as u32.

use super::{Entry, Piece, Problem, State};
use crate::format::FileId;
use crate::tree::Generation;
use crate::world::Timestamp;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact {
    /// A file is protected so.
    Put { path: Vec<u8>, entry: Entry },
    /// Nothing is known of a file.
    Forget { path: Vec<u8> },
    /// Damage of a file, in place of what was recorded.
    Problems { path: Vec<u8>, problems: Vec<Problem>, found_at: Timestamp },
    /// A file has no damage.
    NoProblems { path: Vec<u8> },
    /// A version of a write-once file is accepted.
    Accepted { path: Vec<u8>, version: Generation },
    /// No version of a file is accepted.
    NotAccepted { path: Vec<u8> },
    /// A worker moves redundancy to a name.
    Moving { worker: String, path: Vec<u8> },
    /// A worker moves nothing.
    NotMoving { worker: String },
    /// A protected file changed or was removed.
    Recent { path: Vec<u8>, removed: bool, at: Timestamp },
    /// Earlier changes and removals do not count.
    NotRecent { before: Timestamp },
    /// A note; none removes it.
    Note { key: String, value: Option<String> },
    /// Nothing is known of any file.
    Clear,
    /// Everything was told.
    Made,
}

fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn generation(version: &Generation, out: &mut Vec<u8>) {
    number(version.size, out);
    time(version.mtime, out);
    time(version.ctime, out);
    number(version.inode, out);
}

fn optional_time(time: Option<Timestamp>, out: &mut Vec<u8>) {
    out.push(u8::from(time.is_some()));
    time.iter().for_each(|it| self::time(*it, out));
}

fn time(time: Timestamp, out: &mut Vec<u8>) {
    number(time.nanoseconds().cast_unsigned(), out);
}

impl Fact {
    /// Appends the fact.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Fact::Put { path, entry } => {
                out.push(0);
                bytes(path, out);
                out.extend_from_slice(&entry.id.0);
                generation(&entry.generation, out);
                bytes(entry.code.as_bytes(), out);
                out.extend_from_slice(&entry.wanted.to_le_bytes());
                out.extend_from_slice(&entry.columns.to_le_bytes());
                number(entry.redundancy, out);
                time(entry.protected_at, out);
                optional_time(entry.scrubbed_at, out);
                out.push(entry.state as u8);
            }
            Fact::Forget { path } => {
                out.push(1);
                bytes(path, out);
            }
            Fact::Problems { path, problems, found_at } => {
                out.push(2);
                bytes(path, out);
                time(*found_at, out);
                out.extend_from_slice(&(problems.len() as u32).to_le_bytes());
                for Problem { piece, range } in problems {
                    out.push(*piece as u8);
                    number(range.start, out);
                    number(range.end, out);
                }
            }
            Fact::NoProblems { path } => {
                out.push(3);
                bytes(path, out);
            }
            Fact::Accepted { path, version } => {
                out.push(4);
                bytes(path, out);
                generation(version, out);
            }
            Fact::NotAccepted { path } => {
                out.push(5);
                bytes(path, out);
            }
            Fact::Moving { worker, path } => {
                out.push(6);
                bytes(worker.as_bytes(), out);
                bytes(path, out);
            }
            Fact::NotMoving { worker } => {
                out.push(7);
                bytes(worker.as_bytes(), out);
            }
            Fact::Recent { path, removed, at } => {
                out.push(8);
                bytes(path, out);
                out.push(u8::from(*removed));
                time(*at, out);
            }
            Fact::NotRecent { before } => {
                out.push(9);
                time(*before, out);
            }
            Fact::Note { key, value } => {
                out.push(10);
                bytes(key.as_bytes(), out);
                out.push(u8::from(value.is_some()));
                value.iter().for_each(|value| bytes(value.as_bytes(), out));
            }
            Fact::Clear => out.push(11),
            Fact::Made => out.push(12),
        }
    }
}

/// The facts of a record, in order. Bytes that are no facts give `None` and end it.
pub(super) struct Facts<'a> {
    rest: &'a [u8],
}

impl<'a> Facts<'a> {
    pub(super) fn of(record: &'a [u8]) -> Facts<'a> {
        Facts { rest: record }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn small(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp::from_nanoseconds(self.number()?.cast_signed()))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.small()? as usize;
        Some(self.take(length)?.to_vec())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn generation(&mut self) -> Option<Generation> {
        Some(Generation {
            size: self.number()?,
            mtime: self.time()?,
            ctime: self.time()?,
            inode: self.number()?,
        })
    }

    fn entry(&mut self) -> Option<Entry> {
        let id = FileId(self.take(16)?.try_into().ok()?);
        let (generation, code) = (self.generation()?, self.text()?);
        let (wanted, columns) = (self.small()?, self.small()?);
        let (redundancy, protected_at) = (self.number()?, self.time()?);
        let scrubbed_at = if self.flag()? { Some(self.time()?) } else { None };
        let state = State::from_number(i64::from(self.byte()?));
        Some(Entry { id, generation, code, wanted, columns, redundancy, protected_at, scrubbed_at, state })
    }

    fn problems(&mut self) -> Option<Vec<Problem>> {
        let count = self.small()?;
        (0..count)
            .map(|_| {
                let piece = Piece::from_number(usize::from(self.byte()?));
                Some(Problem { piece, range: self.number()?..self.number()? })
            })
            .collect()
    }

    fn fact(&mut self) -> Option<Fact> {
        Some(match self.byte()? {
            0 => Fact::Put { path: self.bytes()?, entry: self.entry()? },
            1 => Fact::Forget { path: self.bytes()? },
            2 => {
                let (path, found_at) = (self.bytes()?, self.time()?);
                Fact::Problems { path, found_at, problems: self.problems()? }
            }
            3 => Fact::NoProblems { path: self.bytes()? },
            4 => Fact::Accepted { path: self.bytes()?, version: self.generation()? },
            5 => Fact::NotAccepted { path: self.bytes()? },
            6 => Fact::Moving { worker: self.text()?, path: self.bytes()? },
            7 => Fact::NotMoving { worker: self.text()? },
            8 => Fact::Recent { path: self.bytes()?, removed: self.flag()?, at: self.time()? },
            9 => Fact::NotRecent { before: self.time()? },
            10 => {
                let key = self.text()?;
                let value = if self.flag()? { Some(self.text()?) } else { None };
                Fact::Note { key, value }
            }
            11 => Fact::Clear,
            12 => Fact::Made,
            _ => return None,
        })
    }
}

impl Iterator for Facts<'_> {
    type Item = Option<Fact>;

    fn next(&mut self) -> Option<Option<Fact>> {
        if self.rest.is_empty() {
            return None;
        }
        let fact = self.fact();
        if fact.is_none() {
            self.rest = &[];
        }
        Some(fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Fact> {
        let version = Generation {
            size: 1 << 40,
            mtime: Timestamp::from_nanoseconds(-5),
            ctime: Timestamp::from_nanoseconds(7),
            inode: u64::MAX,
        };
        let entry = Entry {
            id: FileId([9; 16]),
            generation: version,
            code: "subspace:8+2:w8".to_owned(),
            wanted: 2,
            columns: 1,
            redundancy: 12345,
            protected_at: Timestamp::from_nanoseconds(77),
            scrubbed_at: Some(Timestamp::from_nanoseconds(-1)),
            state: State::Lost,
        };
        let path = b"a/\xff\n".to_vec();
        let problems = vec![Problem { piece: Piece::Changed, range: 3..9 }];
        vec![
            Fact::Put { path: path.clone(), entry: entry.clone() },
            Fact::Put { path: Vec::new(), entry: Entry { scrubbed_at: None, ..entry } },
            Fact::Forget { path: path.clone() },
            Fact::Problems { path: path.clone(), problems, found_at: Timestamp::from_nanoseconds(5) },
            Fact::NoProblems { path: path.clone() },
            Fact::Accepted { path: path.clone(), version },
            Fact::NotAccepted { path: path.clone() },
            Fact::Moving { worker: "host:1".to_owned(), path: path.clone() },
            Fact::NotMoving { worker: "host:1".to_owned() },
            Fact::Recent { path, removed: true, at: Timestamp::from_nanoseconds(4) },
            Fact::NotRecent { before: Timestamp::MIN },
            Fact::Note { key: "key".to_owned(), value: Some("value".to_owned()) },
            Fact::Note { key: "key".to_owned(), value: None },
            Fact::Clear,
            Fact::Made,
        ]
    }

    #[test]
    fn facts_are_read_as_they_were_written() {
        let mut record = Vec::new();
        all().iter().for_each(|fact| fact.put(&mut record));
        let read: Option<Vec<Fact>> = Facts::of(&record).collect();
        assert_eq!(read, Some(all()));
    }

    /// What a server gives may be anything: it is refused, and nothing is allocated for lengths that are not there.
    #[test]
    fn other_bytes_are_refused() {
        for fact in all() {
            let mut record = Vec::new();
            fact.put(&mut record);
            for end in 1..record.len() {
                let read: Option<Vec<Fact>> = Facts::of(&record[..end]).collect();
                assert_eq!(read, None, "{fact:?} cut to {end} bytes");
            }
            record[0] = 13;
            assert_eq!(Facts::of(&record).collect::<Option<Vec<Fact>>>(), None);
        }
        let huge = [&[2][..], &[0; 12], &[0xff; 4]].concat();
        assert_eq!(Facts::of(&huge).collect::<Option<Vec<Fact>>>(), None);
    }
}
