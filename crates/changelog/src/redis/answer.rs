//! Answers of the functions of the library on the server.

use crate::change::{Span, is_plain};
use crate::entry::{Entry, Kind, Sequence, Summary, WorkerId};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::ranges::Ranges;
use crate::redis::clock::Shift;
use crate::share::KnownWorker;
use gabion_platform::world::Timestamp;
use redis::Value;

/// A value, with the function and the server it came from.
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) doing: &'static str,
    pub(super) address: String,
    pub(super) shift: Shift,
}

impl Answer {
    pub(super) fn nonsense(&self) -> Error {
        Error::Answer { doing: self.doing, address: self.address.clone() }
    }

    pub(super) fn bytes(&self) -> Result<&[u8]> {
        match &self.value {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.as_bytes()),
            _ => Err(self.nonsense()),
        }
    }

    /// A path that leads nowhere but into the tree, whatever the server holds.
    pub(super) fn path(&self) -> Result<Vec<u8>> {
        self.path_of(self.bytes()?)
    }

    fn path_of(&self, path: &[u8]) -> Result<Vec<u8>> {
        is_plain(path).then(|| path.to_vec()).ok_or_else(|| self.nonsense())
    }

    pub(super) fn text(&self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| self.nonsense())
    }

    /// A decimal number.
    pub(super) fn number(&self) -> Result<u64> {
        match self.value {
            Value::Int(number) => u64::try_from(number).map_err(|_| self.nonsense()),
            _ => self.text()?.parse().map_err(|_| self.nonsense()),
        }
    }

    /// 0 or 1.
    pub(super) fn flag(&self) -> Result<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.nonsense()),
        }
    }

    /// A worker that attends or holds claims.
    pub(super) fn known_worker(&self) -> Result<KnownWorker> {
        let fields = self.list()?;
        let [name, since, claims, attends, is_draining] = fields.as_slice() else {
            return Err(self.nonsense());
        };
        Ok(KnownWorker {
            worker: WorkerId(name.text()?),
            since: since.time()?,
            claims: claims.number()?,
            attends: attends.flag()?,
            is_draining: is_draining.flag()?,
        })
    }

    /// Limits of a host.
    pub(super) fn limits(&self) -> Result<Limits> {
        Limits::from_text(&self.text()?).ok_or_else(|| self.nonsense())
    }

    /// The number of a change.
    pub(super) fn sequence(&self) -> Result<Sequence> {
        self.number().map(Sequence)
    }

    fn small<T: TryFrom<u64>>(&self) -> Result<T> {
        T::try_from(self.number()?).map_err(|_| self.nonsense())
    }

    pub(super) fn ranges(&self) -> Result<Ranges> {
        let range = |pair: &[u8]| Ok(self.hex_of(&pair[..16])?..self.hex_of(&pair[16..])?);
        let ranges = self.bytes()?.chunks_exact(32).map(range).collect::<Result<Vec<_>>>()?;
        Ok(ranges.into_iter().collect())
    }

    pub(super) fn hex(&self) -> Result<u64> {
        self.hex_of(self.bytes()?)
    }

    fn hex_of(&self, digits: &[u8]) -> Result<u64> {
        let digits = std::str::from_utf8(digits).map_err(|_| self.nonsense())?;
        u64::from_str_radix(digits, 16).map_err(|_| self.nonsense())
    }

    /// A time, by the clock of this host.
    pub(super) fn time(&self) -> Result<Timestamp> {
        self.hex()
            .map(|number| self.shift.here(Timestamp::from_nanoseconds((number ^ 1 << 63).cast_signed())))
    }

    pub(super) fn list(&self) -> Result<Vec<Answer>> {
        match &self.value {
            Value::Array(values) => Ok(values
                .iter()
                .map(|value| Answer {
                    value: value.clone(),
                    doing: self.doing,
                    address: self.address.clone(),
                    shift: self.shift,
                })
                .collect()),
            _ => Err(self.nonsense()),
        }
    }

    pub(super) fn entries(&self) -> Result<Vec<Entry>> {
        self.list()?.iter().map(Answer::entry).collect()
    }

    fn entry(&self) -> Result<Entry> {
        let fields = self.list()?;
        let [path, kind, origin, ranges, sequence, first, due, priority, attempts, token, from, to] =
            fields.as_slice()
        else {
            return Err(self.nonsense());
        };
        let token: u64 = token.number()?;
        Ok(Entry {
            path: path.path()?,
            kind: Kind::from_number(kind.small()?).ok_or_else(|| self.nonsense())?,
            origin: match origin.bytes()?.split_first() {
                Some((b'-', [])) => None,
                Some((b'+', path)) => Some(origin.path_of(path)?),
                _ => return Err(self.nonsense()),
            },
            ranges: ranges.ranges()?,
            span: match (from.bytes()?, to.bytes()?) {
                ([], []) => None,
                (from, to) => {
                    let name = |bytes: &[u8]| bytes.try_into().map_err(|_| self.nonsense());
                    Some(Span { from: name(from)?, to: name(to)? })
                }
            },
            sequence: Sequence(sequence.hex()?),
            first: first.time()?,
            due: due.time()?,
            priority: priority.small()?,
            attempts: attempts.small()?,
            token: (token != 0).then_some(token),
        })
    }

    /// The sums, and the number of the last change.
    pub(super) fn sums(&self) -> Result<(Summary, Sequence)> {
        let fields = self.list()?;
        let [modify, moved, delete, gap, claimed, oldest, sequence] = fields.as_slice() else {
            return Err(self.nonsense());
        };
        let oldest = if oldest.bytes()?.is_empty() { None } else { Some(oldest.time()?) };
        let by_kind = [modify.number()?, moved.number()?, delete.number()?, gap.number()?];
        Ok((Summary { by_kind, claimed: claimed.number()?, oldest }, sequence.sequence()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Shift, Value};

    fn list(values: Vec<Value>) -> Answer {
        let (value, doing, address) = (Value::Array(values), "claim", String::new());
        Answer { value, doing, address, shift: Shift::default() }
    }

    /// A server that others write to leads no worker out of the tree.
    #[test]
    fn entries_with_paths_out_of_the_tree_are_refused() {
        let entry = |path: &str, origin: &str| {
            let (zero, none) = ("0000000000000000", "");
            let fields = [path, "1", origin, none, zero, zero, zero, "0", "0", "0", none, none];
            list(fields.map(|field| Value::BulkString(field.into())).to_vec()).entry()
        };
        assert!(entry("a/b", "-").is_ok() && entry("a", "+b/c").is_ok() && entry("", "+").is_ok());
        for wrong in ["../a", "/etc/passwd", "a/../../b", "a//b", "a\0b", "."] {
            assert!(entry(wrong, "-").is_err() && entry("a", &format!("+{wrong}")).is_err(), "{wrong:?}");
        }
    }
}
