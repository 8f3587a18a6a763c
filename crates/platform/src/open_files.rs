//! Limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Default of Linux for `fs.nr_open`: the highest limit of any process.
pub const MOST: u64 = 1 << 20;

/// Raises the limit to so many descriptors, or as far as the hard limit allows. If that is too low, opening a file
/// reports it.
pub fn allow(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let current = limit.maximum.map_or(Some(count), |maximum| Some(count.min(maximum)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}
