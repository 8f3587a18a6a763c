//! The protector as a library: redundancy per file, beside storage that people already have.
//!
//! Nothing is printed here and no argument parsed. Time and chance come through [`world`] alone.

#![forbid(unsafe_code)]

pub mod accept;
pub mod accounting;
mod bit_set;
pub mod catalogue;
pub mod catalogue_rebuild;
pub mod check;
pub mod coder;
pub mod damage;
pub mod deduplication;
pub mod degraded;
mod displaced;
pub mod encode;
pub mod examine;
pub mod format;
pub mod geometry;
pub mod guard;
mod host_limits;
#[cfg(feature = "testing")]
pub mod hostile;
mod identity;
pub mod live;
pub mod mark;
pub mod metadata;
mod missing;
pub mod monitor;
pub mod nanoseconds;
pub mod placed_loss;
pub mod placed_rebuild;
pub mod policy;
pub mod pool_rebuild;
pub mod portions;
pub mod promises;
pub mod protect;
mod reconstruct;
pub mod redundancy;
pub mod repair;
pub mod repair_mark;
pub mod replaced;
pub mod retry;
pub mod run;
pub mod runs;
pub mod scan;
pub mod schedule;
pub mod scrub;
pub mod status;
pub mod storage;
pub mod team;
mod throttle;
mod timer;
pub mod vault;
pub mod version;
pub mod watchdog;
pub mod whatif;
pub mod worker;
pub mod write_once;

pub use gabion_changelog as changelog;
pub use gabion_platform::{display_path, fault, local_time, private, tree, world};
