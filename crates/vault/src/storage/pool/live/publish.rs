//! Stubs in place of others, on all mirrors, with as much care as they need.

use super::super::change::Change;
use super::super::config::Mirror;
use super::super::error::PoolError;
use super::super::namespace::{Entry, TREE, beneath, home, look_up, look_up_shared, make_directories};
use super::super::stub::Stub;
use super::super::view::Copy;
use super::turns::Lease;
use super::{Inner, lock};
use crate::redundancy::STAGING;
use crate::tree::{Tree, join, split};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::Ordering;

/// What a stub has to outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// The process.
    Cheap,
    /// A crash of the machine leaves the stub that was there, or this one.
    Synced,
    /// A crash of the machine leaves this one.
    Durable,
}

/// Whether programs were told already of what a stub says: then its time of change stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// They see it from now on.
    Fresh,
    /// They saw it when it happened.
    Known,
}

/// What became of a stub that was to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// It is what its path stands for, under the lease of this number.
    As(u64),
    /// Its path stands for something else by now, or for nothing.
    Gone,
}

/// Directories up to this number are synced one by one; if there are more, everything is.
const MAX_DIRECTORIES: usize = 8;

/// Bytes that a file gets all at once, whenever its writer is killed: a page.
const AT_ONCE: usize = 4096;

impl Inner {
    /// Does something on all mirrors; side by side, if it waits for disks. Those that fail are no longer believed; if all fail,
    /// nothing has changed.
    pub(super) fn on_all(
        &self,
        lease: &Lease,
        path: &[u8],
        waits: bool,
        act: impl Fn(&Tree) -> io::Result<()> + Sync,
    ) -> Result<Vec<usize>, PoolError> {
        let copies = &lease.held.copies;
        let results: Vec<io::Result<()>> = match waits && copies.len() > 1 {
            false => copies.iter().map(|copy| act(&copy.tree)).collect(),
            true => std::thread::scope(|scope| {
                let act = &act;
                let running: Vec<_> = copies.iter().map(|copy| scope.spawn(|| act(&copy.tree))).collect();
                let ended = |_| Err(io::Error::other("its thread has ended"));
                running.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
            }),
        };
        let all_failed = results.iter().all(Result::is_err);
        let mut failed = Vec::new();
        for (copy, result) in copies.iter().zip(results) {
            match result {
                Err(source) if all_failed => return Err(PoolError::path(path, source)),
                // A mirror that never had the directory gets it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let above = beneath(TREE, split(path).0)?;
                    let again = make_directories(&copy.tree, &above, 0o755).and_then(|()| act(&copy.tree));
                    failed.extend(again.is_err().then_some(copy.index));
                }
                Err(_) => failed.push(copy.index),
                Ok(()) => {}
            }
        }
        Ok(failed)
    }

    /// Mirrors that failed are stale from now on.
    pub(super) fn leave_behind(&self, failed: &[usize]) -> Result<(), PoolError> {
        if failed.is_empty() {
            return Ok(());
        }
        self.turns.alone(&self.pool.shared, |change: &mut Change<'_>| {
            change.copies.retain(|copy| !failed.contains(&copy.index));
            change.mark(failed, Mirror::Stale)
        })
    }

    /// Puts the text of a stub in place on one mirror.
    fn replace(&self, tree: &Tree, full: &[u8], text: &str, care: Care) -> io::Result<()> {
        let (prefix, count) = &self.temporary;
        let name = format!("{prefix}-{:x}.stub", count.fetch_add(1, Ordering::Relaxed));
        let temporary = join(STAGING, name.as_bytes());
        let mut file = tree.create(&temporary, 0o600)?;
        let written = file.write_all(text.as_bytes());
        let written = written.and_then(|()| if care == Care::Cheap { Ok(()) } else { file.sync_all() });
        let replaced = written.and_then(|()| match care {
            Care::Cheap => tree.supplant(&temporary, full),
            Care::Synced | Care::Durable => tree.rename(&temporary, full),
        });
        if replaced.is_err() {
            // The reason of the failure is worth more than a second one.
            let _ = tree.remove(&temporary);
        }
        replaced?;
        if care == Care::Durable { tree.sync_directory(split(full).0) } else { Ok(()) }
    }

    /// Writes a stub on one mirror at a name that none has. As long as it has no bytes it is as if nothing were there, and it gets
    /// them all at once: so it needs no other name first.
    fn write_new(&self, tree: &Tree, full: &[u8], text: &str) -> io::Result<()> {
        let created = match text.len() <= AT_ONCE {
            true => tree.create(full, 0o600),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        };
        match created {
            Ok(mut file) => file.write_all(text.as_bytes()).inspect_err(|_| {
                // The reason of the failure is worth more than a second one.
                let _ = tree.remove(full);
            }),
            // What a crash left there has no bytes.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.replace(tree, full, text, Care::Cheap)
            }
            Err(error) => Err(error),
        }
    }

    /// The text of a stub, as long as stubs may be.
    fn text(path: &[u8], stub: &Stub) -> Result<String, PoolError> {
        let text = stub.encode();
        match text.len() as u64 > super::super::stub::MAX_BYTES {
            true => Err(PoolError::path(path, io::Error::from(rustix::io::Errno::NOSPC))),
            false => Ok(text),
        }
    }

    /// Writes a stub, its revision and time of change set, on all mirrors.
    fn spread(&self, lease: &Lease, path: &[u8], stub: &Stub, care: Care) -> Result<Vec<usize>, PoolError> {
        let (full, text) = (home(stub, path)?, Inner::text(path, stub)?);
        if care == Care::Durable {
            self.sync_above(lease, path)?;
        }
        self.on_all(lease, path, care != Care::Cheap, |tree| self.replace(tree, &full, &text, care))
    }

    /// Makes directories above a path durable that are not.
    fn sync_above(&self, lease: &Lease, path: &[u8]) -> Result<(), PoolError> {
        let mut above = split(path).0;
        let mut made = lock(&self.new_directories);
        while !above.is_empty() {
            if made.remove(above) {
                let full = beneath(TREE, split(above).0)?;
                self.on_all(lease, path, true, |tree| tree.sync_directory(&full))?;
            }
            above = split(above).0;
        }
        Ok(())
    }

    /// The next revision of a stub.
    pub(super) fn advance(&self, stub: &mut Stub) {
        stub.revision += 1;
        stub.changed = self.pool.shared.clock.now().max(stub.changed.saturating_add(1));
    }

    /// Publishes a file that was not there before.
    pub(super) fn publish_new(&self, path: &[u8], stub: &mut Stub) -> Result<u64, PoolError> {
        let (number, failed) = self.turns.with(&self.pool.shared, |lease| {
            if look_up(&lease.held.copies, path)?.is_some() {
                return Err(PoolError::path(path, io::ErrorKind::AlreadyExists));
            }
            lease.held.view.refuse_leaving(&stub.targets)?;
            self.advance(stub);
            let (full, text) = (home(stub, path)?, Inner::text(path, stub)?);
            Ok((lease.number, self.on_all(lease, path, false, |tree| self.write_new(tree, &full, &text))?))
        })?;
        self.leave_behind(&failed)?;
        Ok(number)
    }

    /// The stub that a file has on the mirrors; nothing if its path stands for something else.
    fn there(copies: &[Copy], path: &[u8], stub: &Stub) -> Result<Option<Stub>, PoolError> {
        let there = match stub.names {
            0 => match look_up(copies, path)? {
                Some(Entry::File(there)) => Some(*there),
                _ => None,
            },
            _ => look_up_shared(copies, stub.id)?,
        };
        Ok(there.filter(|there| there.id == stub.id))
    }

    /// Whether the stub of a file on the mirrors is a later one.
    pub(super) fn is_overtaken(&self, path: &[u8], stub: &Stub) -> Result<bool, PoolError> {
        self.turns.read(&self.pool.shared, |copies| {
            Ok(Inner::there(copies, path, stub)?.is_some_and(|there| there.revision > stub.revision))
        })
    }

    /// Takes over what others changed about a file that was seen at `path` under the lease `seen`.
    pub(super) fn catch_up(&self, path: &[u8], stub: &mut Stub, seen: u64) -> Result<Published, PoolError> {
        self.turns.with(&self.pool.shared, |lease| {
            if lease.number != seen {
                match Inner::there(&lease.held.copies, path, stub)? {
                    Some(there) => stub.follow(&there),
                    None => return Ok(Published::Gone),
                }
            }
            Ok(Published::As(lease.number))
        })
    }

    /// Publishes a file that was seen at `path` under the lease `seen`. If someone else changed it meanwhile, where its objects are
    /// is taken from there.
    pub(super) fn publish(
        &self,
        path: &[u8],
        stub: &mut Stub,
        seen: u64,
        care: Care,
        news: News,
    ) -> Result<Published, PoolError> {
        let (published, failed) = self.turns.with(&self.pool.shared, |lease| {
            if lease.number != seen {
                match Inner::there(&lease.held.copies, path, stub)? {
                    Some(there) => stub.follow(&there),
                    None => return Ok((Published::Gone, Vec::new())),
                }
            }
            let changed = stub.changed;
            self.advance(stub);
            if news == News::Known {
                stub.changed = changed;
            }
            Ok((Published::As(lease.number), self.spread(lease, path, stub, care)?))
        })?;
        self.leave_behind(&failed)?;
        Ok(published)
    }

    /// Publishes a file unless someone else changed it since it was seen at `path` under the lease `seen`: then nothing is done, and
    /// nothing given. `prepare` is done just before, and nobody else changes the namespace meanwhile.
    pub(super) fn publish_unless_overtaken(
        &self,
        path: &[u8],
        stub: &mut Stub,
        seen: u64,
        care: Care,
        prepare: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<Option<Published>, PoolError> {
        let (published, failed) = self.turns.with(&self.pool.shared, |lease| {
            if lease.number != seen {
                match Inner::there(&lease.held.copies, path, stub)? {
                    Some(there) if there.revision == stub.revision => {}
                    Some(_) => return Ok((None, Vec::new())),
                    None => return Ok((Some(Published::Gone), Vec::new())),
                }
            }
            prepare()?;
            self.advance(stub);
            Ok((Some(Published::As(lease.number)), self.spread(lease, path, stub, care)?))
        })?;
        self.leave_behind(&failed)?;
        Ok(published)
    }

    /// Makes names in some directories durable.
    pub(super) fn sync_names(&self, directories: &BTreeSet<&[u8]>) -> Result<(), PoolError> {
        let failed = self.turns.with(&self.pool.shared, |lease| {
            self.on_all(lease, b"", true, |tree| {
                if directories.len() > MAX_DIRECTORIES {
                    return tree.sync_all();
                }
                directories.iter().try_for_each(|directory| {
                    match tree.sync_directory(&join(TREE, directory)) {
                        // One that is gone has nothing to be kept.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => tree.sync_all(),
                        synced => synced,
                    }
                })
            })
        })?;
        self.leave_behind(&failed)
    }

    /// Makes all names durable, and what stands for them.
    pub(super) fn sync_all_names(&self) -> Result<(), PoolError> {
        let failed = self
            .turns
            .with(&self.pool.shared, |lease| self.on_all(lease, b"", true, |tree| tree.sync_all()))?;
        lock(&self.new_directories).clear();
        lock(&self.young).clear();
        self.leave_behind(&failed)
    }
}
