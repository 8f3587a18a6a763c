//! Group commit: one thread makes the changes of many writers durable together.
//!
//! A writer puts its changes into the open group and gets a [`Ticket`]. The committer takes the group as soon as a
//! writer waits for one of its tickets, so a single writer is answered after one commit; while it commits, the next
//! group fills. A group without a waiting writer is taken when it is half full or [`GROUP_TIME`] old: few commits
//! under load, and a bounded time in memory.

use crate::change::Change;
use crate::entry::Sequence;
use crate::error::{Error, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most bytes of changes that wait for their commit; writers wait when there are more.
pub const QUEUE_BYTES: usize = 512 << 10;

/// Longest time that changes lie in memory before their commit begins, if no writer waits for them.
pub const GROUP_TIME: Duration = Duration::from_millis(10);

/// Changes in the form in which an engine stores or sends them.
#[derive(Default)]
pub(crate) struct Batch {
    /// One after the other.
    pub(crate) bytes: Vec<u8>,
    /// How many.
    pub(crate) count: u64,
}

/// Makes a batch durable; returns the number of its last change, or of the last change of all for an empty batch.
pub(crate) type Commit = Box<dyn FnMut(&Batch) -> Result<Sequence> + Send>;

/// Runs between a commit, whose writers were answered, and the next group, which fills meanwhile.
pub(crate) type Rest = Box<dyn FnMut(&Batch) + Send>;

/// Changes that are on their way; dropping it does not stop them.
#[must_use = "the changes are acknowledged only by `wait`"]
pub struct Ticket(State);

enum State {
    #[cfg(feature = "testing")]
    Ready(Sequence),
    Waiting {
        group: Arc<Group>,
        shared: Arc<Shared>,
        position: u64,
    },
}

/// Result of one group: last sequence and number of changes, or the error of all.
#[derive(Default)]
struct Group {
    fate: Mutex<Option<Result<(Sequence, u64)>>>,
    decided: Condvar,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Open>,
    /// The committer waits here for work.
    filled: Condvar,
    /// Writers wait here for room.
    room: Condvar,
}

#[derive(Default)]
struct Open {
    batch: Batch,
    group: Arc<Group>,
    /// Tickets given out for this group.
    tickets: u64,
    /// A writer waits for this group.
    urgent: bool,
    /// No more changes are taken.
    closed: bool,
}

impl Open {
    fn is_full(&self) -> bool {
        self.batch.bytes.len() >= QUEUE_BYTES
    }

    fn is_ripe(&self) -> bool {
        self.urgent || self.closed || self.batch.bytes.len() >= QUEUE_BYTES / 2
    }
}

/// The queue in front of an engine.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    committer: Option<JoinHandle<()>>,
}

impl Queue {
    /// Starts the committer.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(commit: Commit, rest: Rest) -> Result<Queue> {
        let shared = Arc::new(Shared::default());
        let theirs = Closing(Arc::clone(&shared));
        let committer = thread::Builder::new()
            .name("changelog".to_owned())
            .spawn(move || run(&theirs.0, commit, rest))
            .map_err(|reason| Error::System { doing: "start a thread", reason: Arc::new(reason) })?;
        Ok(Queue { shared, committer: Some(committer) })
    }

    /// Puts changes into the open group, written by `encode`; waits while the queue is full.
    ///
    /// # Errors
    /// A change that cannot be; none of them is recorded then. Or the committer has ended.
    pub(crate) fn submit(
        &self,
        changes: &[Change],
        encode: impl Fn(&Change, &mut Vec<u8>),
    ) -> Result<Ticket> {
        changes.iter().try_for_each(Change::check)?;
        let mut open = lock(&self.shared.open);
        while open.is_full() && !open.closed {
            open = self.shared.room.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        if open.closed {
            return Err(Error::Closed);
        }
        let was_quiet = open.tickets == 0;
        let was_ripe = open.is_ripe();
        changes.iter().for_each(|change| encode(change, &mut open.batch.bytes));
        open.batch.count += changes.len() as u64;
        open.tickets += 1;
        if was_quiet || (!was_ripe && open.is_ripe()) {
            self.shared.filled.notify_one();
        }
        Ok(Ticket(State::Waiting {
            group: Arc::clone(&open.group),
            position: open.batch.count,
            shared: Arc::clone(&self.shared),
        }))
    }
}

impl Drop for Queue {
    /// Commits what is queued.
    fn drop(&mut self) {
        lock(&self.shared.open).closed = true;
        self.shared.filled.notify_all();
        if let Some(committer) = self.committer.take() {
            // Tickets report a panic of the committer.
            let _ = committer.join();
        }
    }
}

/// Ends the waits of writers when the committer ends, even by a panic.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut open = lock(&self.0.open);
        open.closed = true;
        open.group.decide(Err(Error::Closed));
        self.0.room.notify_all();
    }
}

fn run(shared: &Shared, mut commit: Commit, mut rest: Rest) {
    let mut spare = Batch::default();
    loop {
        let mut open = lock(&shared.open);
        while open.tickets == 0 && !open.closed {
            open = shared.filled.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        if open.tickets == 0 {
            return;
        }
        let waited = shared.filled.wait_timeout_while(open, GROUP_TIME, |open| !open.is_ripe());
        let mut open = waited.unwrap_or_else(PoisonError::into_inner).0;
        let batch = std::mem::replace(&mut open.batch, std::mem::take(&mut spare));
        let group = Pending(std::mem::take(&mut open.group));
        open.tickets = 0;
        open.urgent = false;
        drop(open);
        shared.room.notify_all();

        group.0.decide(commit(&batch).map(|last| (last, batch.count)));
        rest(&batch);
        spare = batch;
        spare.bytes.clear();
        spare.count = 0;
    }
}

/// A group that was taken; if the commit panics, its writers get [`Error::Closed`].
struct Pending(Arc<Group>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.decide(Err(Error::Closed));
    }
}

impl Group {
    /// The first result counts.
    fn decide(&self, fate: Result<(Sequence, u64)>) {
        lock(&self.fate).get_or_insert(fate);
        self.decided.notify_all();
    }

    fn is_decided(&self) -> bool {
        lock(&self.fate).is_some()
    }
}

impl Ticket {
    #[cfg(feature = "testing")]
    /// Changes that are durable already.
    pub(crate) fn ready(sequence: Sequence) -> Ticket {
        Ticket(State::Ready(sequence))
    }

    /// True if the commit has ended, so that `wait` returns at once.
    pub fn is_decided(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "testing")]
            State::Ready(_) => true,
            State::Waiting { group, .. } => group.is_decided(),
        }
    }

    /// Waits until the changes are durable and makes their commit urgent; returns the number of the last of them.
    ///
    /// # Errors
    /// The commit failed. Whether the changes are recorded is then unknown: record a gap.
    pub fn wait(self) -> Result<Sequence> {
        let (group, shared, position) = match self.0 {
            #[cfg(feature = "testing")]
            State::Ready(sequence) => return Ok(sequence),
            State::Waiting { group, shared, position } => (group, shared, position),
        };
        if !group.is_decided() {
            let mut open = lock(&shared.open);
            if Arc::ptr_eq(&open.group, &group) && !open.urgent {
                open.urgent = true;
                shared.filled.notify_one();
            }
        }
        let mut fate = lock(&group.fate);
        loop {
            match &*fate {
                Some(Ok((last, count))) => return Ok(Sequence(last.0 - (count - position))),
                Some(Err(error)) => return Err(error.clone()),
                None => fate = group.decided.wait(fate).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A panic leaves the data under these locks consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Batch, QUEUE_BYTES, Queue, Ticket};
    use crate::change::{Change, When};
    use crate::entry::Sequence;
    use crate::error::Error;
    use gabion_platform::world::Timestamp;
    use std::sync::mpsc;
    use std::thread;

    fn change() -> Change {
        Change::modify_whole("a", When::now(Timestamp::EPOCH, 0))
    }

    #[test]
    fn tickets_of_one_group_have_their_own_numbers() {
        let mut last = 0;
        let commit = Box::new(move |batch: &Batch| {
            last += batch.count;
            Ok(Sequence(last))
        });
        let queue = Queue::start(commit, Box::new(|_| ())).expect("a thread");
        let tickets: Vec<_> =
            (1..=3).map(|n| queue.submit(&vec![change(); n], |_, _| ()).expect("open")).collect();
        let numbers: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().expect("committed")).collect();
        assert_eq!(numbers, [1, 3, 6].map(Sequence));
    }

    #[test]
    fn writers_wait_when_the_queue_is_full() {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let commit = Box::new(move |batch: &Batch| {
            // An error means that the test has ended.
            let _ = may_go_on.recv();
            Ok(Sequence(batch.count))
        });
        let queue = Queue::start(commit, Box::new(|_| ())).expect("a thread");
        let big = |_: &Change, bytes: &mut Vec<u8>| bytes.resize(bytes.len() + QUEUE_BYTES, 0);
        let first = queue.submit(&[change()], big).expect("room");
        thread::scope(|scope| {
            // The first is taken by the committer, the second fills the queue, the third has to wait.
            let writer = scope.spawn(|| [(); 2].map(|()| queue.submit(&[change()], big).expect("room")));
            assert!(!first.is_decided());
            go_on.send(()).expect("the committer lives");
            assert_eq!(first.wait().expect("committed"), Sequence(1));
            drop(go_on);
            for ticket in writer.join().expect("no panic") {
                assert_eq!(ticket.wait().expect("committed"), Sequence(1));
            }
        });
    }

    #[test]
    fn a_rest_keeps_nobody_waiting_whose_changes_are_durable() {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let rest = Box::new(move |_: &Batch| {
            // An error means that the test has ended.
            let _ = may_go_on.recv();
        });
        let queue = Queue::start(Box::new(|batch| Ok(Sequence(batch.count))), rest).expect("a thread");
        let first = queue.submit(&[change()], |_, _| ()).expect("open");
        assert_eq!(first.wait().expect("committed"), Sequence(1));
        // What comes during the rest is one group.
        let tickets = [(); 3].map(|()| queue.submit(&[change()], |_, _| ()).expect("open"));
        assert!(tickets.iter().all(|ticket| !ticket.is_decided()));
        drop(go_on);
        assert_eq!(tickets.map(|ticket| ticket.wait().expect("committed")), [1, 2, 3].map(Sequence));
    }

    #[test]
    fn a_committer_that_panics_ends_all_waits() {
        let queue = Queue::start(Box::new(|_| panic!("planted")), Box::new(|_| ())).expect("a thread");
        let ticket = queue.submit(&[change()], |_, _| ()).expect("open");
        assert!(matches!(ticket.wait(), Err(Error::Closed)));
        // Taken or not, depending on who was faster.
        let next = queue.submit(&[change()], |_, _| ()).and_then(Ticket::wait);
        assert!(matches!(next, Err(Error::Closed)));
    }
}
