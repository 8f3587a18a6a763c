//! Protected files as a file system.
//!
//! A mount shows a source and watches what happens to it: every change is in the changelog before anyone is told that it
//! is durable, and reads and writes never wait for redundancy. `Directory` shows any directory, `Pool` a pool; `nodes` and
//! `recorder` are what every file system here needs.
#![forbid(unsafe_code)]

mod attributes;
pub mod directory;
mod handles;
mod memory;
pub mod nodes;
pub mod pool;
pub mod recorder;
mod served;
mod session;

pub use directory::{Directory, VerifiedReads};
pub use pool::Pool;
pub use recorder::{Outage, Recorder};
pub use session::{MountError, Mounted, Options, Privileges, clear_dead_mount, mount};
