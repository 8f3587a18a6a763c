//! Binary form of changes: fields in order, integers little-endian, lengths as u32. A change has a span or a window.

use crate::change::{Change, Span, What, When, Window};
use gabion_platform::world::Timestamp;
use std::ops::Range;

/// Appends a change.
pub(crate) fn put_change(change: &Change, out: &mut Vec<u8>) {
    let (tag, path) = match &change.what {
        What::Modify { path, window: Some(_), .. } => (5, path),
        What::Modify { path, span: None, .. } => (0, path),
        What::Modify { path, span: Some(_), .. } => (4, path),
        What::Rename { from, .. } => (1, from),
        What::Delete { path } => (2, path),
        What::Gap { root } => (3, root),
    };
    out.push(tag);
    put_bytes(path, out);
    match &change.what {
        What::Modify { range, span, window, .. } => {
            put_numbers(&[range.start, range.end], out);
            match window {
                Some(Window { from, to, since }) => {
                    put_span(Some(Span { from: *from, to: *to }), out);
                    put_numbers(&[*since], out);
                }
                None => put_span(*span, out),
            }
        }
        What::Rename { to, .. } => put_bytes(to, out),
        What::Delete { .. } | What::Gap { .. } => {}
    }
    let When { at, due, latest, priority } = change.when;
    put_times(&[at, due, latest], out);
    out.push(priority);
}

pub(crate) fn put_span(span: Option<Span>, out: &mut Vec<u8>) {
    span.iter().for_each(|span| out.extend([span.from, span.to].as_flattened()));
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // The longest path, a child of a renamed directory, has at most twice MAX_PATH bytes.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(crate) fn put_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

pub(crate) fn put_times(times: &[Timestamp], out: &mut Vec<u8>) {
    times.iter().for_each(|time| out.extend_from_slice(&time.nanoseconds().to_le_bytes()));
}

/// Reads what was put; `None` if the bytes end too early or are not valid.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn change(&mut self) -> Option<Change> {
        let tag = self.byte()?;
        let path = self.bytes()?;
        let what = match tag {
            0 => What::Modify { path, range: self.range()?, span: None, window: None },
            4 => What::Modify { path, range: self.range()?, span: Some(self.span()?), window: None },
            5 => What::Modify { path, range: self.range()?, span: None, window: Some(self.window()?) },
            1 => What::Rename { from: path, to: self.bytes()? },
            2 => What::Delete { path },
            3 => What::Gap { root: path },
            _ => return None,
        };
        let when = When { at: self.time()?, due: self.time()?, latest: self.time()?, priority: self.byte()? };
        let change = Change { what, when };
        change.check().is_ok().then_some(change)
    }

    pub(crate) fn span(&mut self) -> Option<Span> {
        Some(Span { from: self.take(16)?.try_into().ok()?, to: self.take(16)?.try_into().ok()? })
    }

    fn window(&mut self) -> Option<Window> {
        let Span { from, to } = self.span()?;
        Some(Window { from, to, since: self.number()? })
    }

    fn range(&mut self) -> Option<Range<u64>> {
        Some(self.number()?..self.number()?)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(usize::try_from(length).ok()?).map(<[u8]>::to_vec)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        self.number().map(|number| Timestamp::from_nanoseconds(number.cast_signed()))
    }

    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, put_change};
    use crate::change::{Change, Span, When, Window};
    use gabion_platform::world::Timestamp;

    #[test]
    fn what_was_put_is_read_and_nothing_else() {
        let when = When {
            at: Timestamp::from_nanoseconds(-5),
            due: Timestamp::MAX,
            latest: Timestamp::MIN,
            priority: 255,
        };
        let changes = [
            Change::modify("a", 3..u64::MAX, when),
            Change::modify("a", 3..4, when).between(Some(Span { from: [1; 16], to: [2; 16] })),
            Change::modify("a", 3..4, when).within(Window { from: [1; 16], to: [2; 16], since: 7 }),
            Change::rename(vec![0xff; 4096], "b", when),
            Change::delete("", when),
            Change::gap("x/y\n", when),
        ];
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| put_change(change, &mut bytes));
        let mut reader = Reader(&bytes);
        for change in changes {
            assert_eq!(reader.change(), Some(change));
        }
        assert!(reader.is_at_end());
        assert_eq!(Reader(&bytes[..20]).change(), None);
        assert_eq!(Reader(&[7; 99]).change(), None);
    }
}
