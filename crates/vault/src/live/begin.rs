//! A file is about to be written in place: its objects are locked, its stub says so, and nobody else came between.

use super::column::Anew;
use super::file::{LiveFile, Name};
use super::publish::{Durability, Published};
use super::state::State;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::stub::Stub;

/// How often to begin anew when others change the file at the same time.
pub(super) const ATTEMPTS: usize = 16;

impl LiveFile {
    /// Says in the stub that the file is being written, if it does not say so yet. `size` is what it will have.
    pub(super) fn mark(&self, state: &mut State, name: Name<'_>, size: Option<u64>) -> Result<(), PoolError> {
        if state.gone || (state.marked && size.is_none()) {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            self.catch_up(state, name)?;
            if self.take_objects(state, name)? && self.say_so(state, name, size)? {
                self.cut_leftovers(state)?;
                return Ok(());
            }
        }
        Err(PoolError::Changed { path: name().into_iter().next().unwrap_or_default() })
    }

    /// Whether others changed the file since it was seen last.
    pub(super) fn is_overtaken(&self, state: &State, name: Name<'_>) -> Result<bool, PoolError> {
        match self.path(state, name).filter(|_| !state.gone) {
            Some(path) => self.inner.is_overtaken(&path, &state.stub),
            None => Ok(false),
        }
    }

    /// Takes over what others changed: columns may have been brought elsewhere since the file was opened.
    pub(super) fn catch_up(&self, state: &mut State, name: Name<'_>) -> Result<(), PoolError> {
        let Some(mut path) = self.path(state, name).filter(|_| !state.gone) else {
            state.gone = true;
            return Ok(());
        };
        let (mut stub, before) = (state.stub.clone(), state.stub.stat(0).generation());
        match self.inner.catch_up(&mut path, &mut stub, state.seen)? {
            Published::As(number) => {
                self.note_path(state, name, path);
                self.follow(state, stub, number);
                if !state.marked {
                    let now = state.stub.stat(0).generation();
                    state.began_as([before, now]);
                }
            }
            Published::Gone => state.gone = true,
        }
        Ok(())
    }

    /// Locks the objects of a file that is not marked yet. Whoever repairs or moves it must see our locks before we say that it is
    /// ours. Then what is lost is made again, while its redundancy is current. Says whether nobody came between.
    fn take_objects(&self, state: &mut State, name: Name<'_>) -> Result<bool, PoolError> {
        if state.marked || state.gone {
            return Ok(true);
        }
        let mut lost = Vec::new();
        for column in 0..self.columns.len() {
            let has_bytes = state.stub.object_bytes(column, state.stub.size) > 0;
            if (has_bytes || column == 0) && self.existing(state, column)?.is_none() {
                lost.push(column);
            }
        }
        for column in lost {
            // One that is beyond repair stays so: nothing gets worse by writing elsewhere.
            if let Anew::Overtaken = self.make_anew(state, name, column)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Publishes that the file is being written. Says whether nobody came between.
    fn say_so(&self, state: &mut State, name: Name<'_>, size: Option<u64>) -> Result<bool, PoolError> {
        if state.gone || (state.marked && size.is_none()) {
            return Ok(true);
        }
        let Some(mut path) = self.path(state, name) else {
            state.gone = true;
            return Ok(true);
        };
        let mut stub = state.stub.clone();
        stub.writing = true;
        stub.size = size.unwrap_or(stub.size);
        stub.mtime = self.now_after(stub.mtime);
        let durability =
            if self.inner.is_young(self.id) { Durability::Volatile } else { Durability::Durable };
        match self.inner.publish_unless_overtaken(&mut path, &mut stub, state.seen, durability, || Ok(()))? {
            None => return Ok(false),
            Some(Published::Gone) => state.gone = true,
            Some(Published::As(number)) => {
                self.note_path(state, name, path);
                if !state.marked {
                    state.began_as([state.stub.stat(0).generation()]);
                }
                self.take_over(state, stub, number);
                state.marked = true;
            }
        }
        Ok(true)
    }

    /// The stub on the mirrors is this one now.
    pub(super) fn take_over(&self, state: &mut State, stub: Stub, seen: u64) {
        self.follow(state, stub, seen);
        state.dirty = false;
    }

    /// Objects are looked for where this stub says.
    pub(super) fn follow(&self, state: &mut State, stub: Stub, seen: u64) {
        for (column, (old, new)) in state.stub.targets.iter().zip(&stub.targets).enumerate() {
            if old != new {
                self.look_again(column);
            }
        }
        state.stub = stub;
        state.seen = seen;
    }
}
