//! FUSE mounts of protected directories and pools.
//!
//! A mount passes file operations to its source and records each change in the changelog. An `fsync` returns when its
//! changes are durable in the source and in the changelog. Reads and writes never wait for redundancy, which workers
//! make later.
//!
//! - [`Directory`] mounts a plain directory, [`Pool`] a pool; both implement the trait `served::Files`.
//! - `nodes` maps inode numbers to paths, `pending` merges written ranges, [`recorder`] writes the changelog, `session`
//!   mounts and unmounts.
#![forbid(unsafe_code)]

mod attributes;
pub mod directory;
mod handles;
mod memory;
pub mod nodes;
mod pending;
pub mod pool;
pub mod recorder;
mod served;
mod session;

pub use directory::{Directory, VerifiedReads};
pub use pool::Pool;
pub use recorder::{Outage, Recorder};
pub use session::{MountError, Mounted, Options, Privileges, clear_dead_mount, mount};
