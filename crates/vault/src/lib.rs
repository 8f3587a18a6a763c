//! The protector as a library: redundancy per file, beside storage that people already have.
//!
//! Nothing is printed here and no argument parsed. Time and chance come through [`world`] alone.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod changelog;
pub mod coder;
pub mod degraded;
pub mod encode;
pub mod examine;
pub mod fault;
pub mod format;
pub mod gather;
pub mod geometry;
pub mod guard;
pub mod hostile;
mod marks;
pub mod metadata;
mod missing;
pub mod monitor;
pub mod policy;
pub mod private;
pub mod promises;
pub mod protect;
pub mod rebuild;
pub mod reconstruction;
pub mod redundancy;
mod renamed;
pub mod repair;
pub mod replaced;
mod rescue;
pub mod runs;
pub mod scan;
pub mod schedule;
pub mod scrub;
pub mod shown;
pub mod status;
pub mod storage;
pub mod throttle;
pub mod tree;
pub mod vault;
pub mod version;
pub mod watchdog;
pub mod worker;
pub mod world;
pub mod write_once;
