//! The one door through which time and chance come in, so that tests can turn the clock and repeat a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Nanoseconds since 1970, UTC. Signed: files may be older.
pub type Nanos = i64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// A clock; cheap to clone.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The time of day. It may jump in either direction: nothing that must not be lost may hang on it.
    #[default]
    System,
    /// Stands still until someone sets it; all clones show the same time.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that shows `now` until it is [set](Clock::set).
    pub fn manual(now: Nanos) -> Clock {
        Clock::Manual(Arc::new(AtomicI64::new(now)))
    }

    /// The time it shows.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub fn now(&self) -> Nanos {
        match self {
            Clock::System => match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
                Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
                Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
            },
            Clock::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// Sets a manual clock; the time of day cannot be set.
    pub fn set(&self, now: Nanos) {
        if let Clock::Manual(clock) = self {
            clock.store(now, Ordering::SeqCst);
        }
    }
}

/// Sixteen bytes that no one else has.
///
/// # Errors
/// The operating system has no random numbers to give.
pub fn unique_id() -> std::io::Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(std::io::Error::from)?;
    Ok(id)
}

/// The name of this machine, as it calls itself.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The number of this process.
pub fn process() -> u32 {
    std::process::id()
}
