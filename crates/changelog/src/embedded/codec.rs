//! How a state is written into the table.

use crate::change::is_plain;
use crate::codec::{Reader, put_bytes, put_numbers, put_span, put_times};
use crate::embedded::state::State;
use crate::entry::Kind;

/// The state as one value.
pub(super) fn put_state(state: &State) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(state.kind as u8);
    out.push(u8::from(state.origin.is_some()) | u8::from(state.span.is_some()) << 1);
    if let Some(origin) = &state.origin {
        put_bytes(origin, &mut out);
    }
    put_span(state.span, &mut out);
    let State { first, stamp, due, latest, .. } = *state;
    put_times(&[first, stamp, due, latest], &mut out);
    out.push(state.priority);
    for range in state.ranges.as_slice() {
        put_numbers(&[range.start, range.end], &mut out);
    }
    out
}

/// The state in a value, if it is one.
pub(super) fn read_state(value: &[u8]) -> Option<State> {
    let mut reader = Reader(value);
    let kind = Kind::from_number(reader.byte()?)?;
    let has = reader.byte()?;
    let origin = if has & 1 == 0 { None } else { Some(reader.bytes().filter(|path| is_plain(path))?) };
    let span = if has & 2 == 0 { None } else { Some(reader.span()?) };
    let (first, stamp, due, latest) = (reader.time()?, reader.time()?, reader.time()?, reader.time()?);
    let priority = reader.byte()?;
    let mut ranges = Vec::new();
    while !reader.is_at_end() {
        ranges.push(reader.number()?..reader.number()?);
    }
    let ranges = ranges.into_iter().collect();
    Some(State { kind, origin, ranges, span, first, stamp, due, latest, priority })
}

#[cfg(test)]
mod tests {
    use super::{put_state, read_state};
    use crate::change::{Span, When};
    use crate::embedded::state::State;
    use crate::entry::Kind;
    use gabion_platform::world::Timestamp;

    #[test]
    fn what_was_put_is_read_and_nothing_else() {
        let when = When {
            at: Timestamp::from_nanoseconds(-5),
            due: Timestamp::MAX,
            latest: Timestamp::MIN,
            priority: 255,
        };
        let mut state = State::fresh(Kind::Move, when);
        state.origin = Some(b"from".to_vec());
        state.ranges.insert(1..2);
        state.ranges.insert(9..u64::MAX);
        assert_eq!(read_state(&put_state(&state)), Some(state.clone()));
        state.span = Some(Span { from: [1; 16], to: [2; 16] });
        assert_eq!(read_state(&put_state(&state)), Some(state));
        assert_eq!(read_state(&[7; 99]), None);
        assert_eq!(read_state(&[]), None);
    }
}
