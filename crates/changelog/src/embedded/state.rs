//! State of one pending path, and how changes merge into it.

use crate::change::{Span, When};
use crate::entry::{Entry, Kind, Sequence};
use crate::ranges::Ranges;
use gabion_platform::world::Timestamp;
use std::ops::Range;

/// Work to do for a path, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) kind: Kind,
    pub(super) origin: Option<Vec<u8>>,
    pub(super) ranges: Ranges,
    pub(super) span: Option<Span>,
    /// The first change in it.
    pub(super) first: Timestamp,
    /// When `due` was last set; later than now only if the clock was set back since.
    pub(super) stamp: Timestamp,
    pub(super) due: Timestamp,
    pub(super) latest: Timestamp,
    pub(super) priority: u8,
}

impl State {
    pub(super) fn fresh(kind: Kind, when: When) -> State {
        State {
            kind,
            origin: None,
            ranges: Ranges::new(),
            span: None,
            first: when.at,
            stamp: when.at,
            due: when.due.min(when.latest),
            latest: when.latest,
            priority: when.priority,
        }
    }

    /// Moves the due time on, up to `latest`.
    fn postpone(&mut self, when: When) {
        self.latest = self.latest.min(when.latest);
        self.due = when.due.min(self.latest);
        self.stamp = when.at;
        self.priority = self.priority.max(when.priority);
    }

    pub(super) fn modify(state: Option<State>, range: Range<u64>, span: Option<Span>, when: When) -> State {
        let Some(mut state) = state else {
            let mut state = State { span, ..State::fresh(Kind::Modify, when) };
            state.ranges.insert(range);
            return state;
        };
        // A scan reads the file anyway.
        if state.kind != Kind::Gap {
            state.kind = Kind::Modify;
            state.ranges.insert(range);
            state.span = Span::join(state.span, span);
        }
        state.postpone(when);
        state
    }

    pub(super) fn delete(state: Option<State>, when: When) -> State {
        State { origin: state.and_then(|state| state.origin), ..State::fresh(Kind::Delete, when) }
    }

    pub(super) fn gap(state: Option<State>, when: When) -> State {
        let Some(mut state) = state else {
            return State::fresh(Kind::Gap, when);
        };
        state.kind = Kind::Gap;
        (state.ranges, state.span) = (Ranges::new(), None);
        state.postpone(when);
        state
    }

    /// Corrects times after the clock was set back: the remaining wait counts from now.
    pub(super) fn pull_back(&mut self, now: Timestamp) {
        let ahead = self.stamp.since(now);
        self.due = self.due - ahead;
        self.latest = self.latest - ahead;
        self.first = self.first.min(now);
        self.stamp = now;
    }

    /// Sets the time of the next attempt.
    pub(super) fn retry(&mut self, now: Timestamp, retry_at: Timestamp) {
        self.stamp = now;
        self.due = retry_at;
        self.latest = self.latest.max(retry_at);
    }
}

/// A path's place in the table of what is pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    /// Everything that is pending.
    pub(super) state: State,
    /// Under a claim: the state of what was recorded after it, which stays when the claim is completed.
    pub(super) newer: Option<State>,
    pub(super) sequence: Sequence,
    /// The claim, 0 for none.
    pub(super) token: u64,
    pub(super) attempts: u32,
}

impl Slot {
    /// A state that takes the place of `replaced`: for the claim on that, all of it is newer.
    pub(super) fn new(state: State, sequence: Sequence, attempts: u32, replaced: Option<&Slot>) -> Slot {
        let token = replaced.map_or(0, |slot| slot.token);
        let newer = (token != 0).then(|| state.clone());
        Slot { state, newer, sequence, token, attempts }
    }

    /// One more change of the same path.
    pub(super) fn changed(
        slot: Option<Slot>,
        sequence: Sequence,
        change: impl Fn(Option<State>) -> State,
    ) -> Slot {
        let Some(slot) = slot else {
            return Slot::new(change(None), sequence, 0, None);
        };
        let newer = if slot.token == 0 { None } else { Some(change(slot.newer)) };
        Slot { state: change(Some(slot.state)), newer, sequence, ..slot }
    }

    pub(super) fn entry(self, path: Vec<u8>) -> Entry {
        Entry {
            path,
            kind: self.state.kind,
            origin: self.state.origin,
            ranges: self.state.ranges,
            span: self.state.span,
            sequence: self.sequence,
            first: self.state.first,
            due: self.state.due,
            priority: self.state.priority,
            attempts: self.attempts,
            token: (self.token != 0).then_some(self.token),
        }
    }
}
