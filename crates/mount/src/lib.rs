//! FUSE mounts of protected directories and pools.
//!
//! A mount passes file operations to its source and records each change in the changelog. Reads and writes never wait
//! for redundancy, which workers make later.
//!
//! # The path of a write
//!
//! 1. The kernel sends a request with an open file, an offset and bytes. `served` decodes it and calls `write` of the
//!    mounted [`Directory`] (`directory/content.rs`) or [`Pool`] (`pool/content.rs`).
//! 2. The bytes are written to the file in the source directory, or in place to the objects on the pool's targets. The
//!    write history (`directory/history.rs`; of a pool `gabion_vault::live`) keeps in memory which bytes were written
//!    since the file was protected. Workers of this process read only these, and take other bytes that do not match
//!    their signatures for corruption.
//! 3. Before the write counts as done, `pending` adds its range to that of earlier writes to the file if they touch.
//!    Then the request is answered.
//! 4. Every half second, and at `fsync`, close and the end of a write with `O_SYNC`, the range is handed to
//!    [`recorder`] under each path of the file, which `nodes` knows.
//!    With it go the versions of the file between which nothing else was written, so that workers of other processes
//!    can read as little.
//! 5. The [`Recorder`] adds when the file is due by the policy, and queues the entry for the changelog, which commits
//!    groups of entries. `fsync`, and writes with `O_SYNC`, return when the source and the changelog are durable.
//! 6. A mark lies in the repository, or on the server of several hosts, while the mount runs. If the process dies with
//!    ranges that the changelog does not have, the next mount, or any other process of the deployment, finds the mark
//!    and records that anything may have changed, and a scan finds what did.
//!
//! Other changes (names, sizes, attributes) take the same path from step 1, and most of them skip step 3.
#![forbid(unsafe_code)]

mod attributes;
pub mod directory;
mod handles;
mod memory;
pub mod nodes;
mod pending;
pub mod pool;
pub mod recorder;
mod replies;
mod served;
mod session;

pub use directory::{Directory, VerifiedReads};
pub use pool::Pool;
pub use recorder::{Outage, Recorder};
pub use session::{MountError, Mounted, Options, Privileges, clear_dead_mount, mount};
