//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as Linux lets any process have, unless an administrator says otherwise.
pub const MOST: u64 = 1 << 20;

/// Asks for so many descriptors, or as many as may be had; if the system does not give them, opening says so by name.
pub fn allow(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(Some(wanted), |maximum| Some(wanted.min(maximum)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}
