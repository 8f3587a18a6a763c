//! Commands and mounts that are killed before each system call that changes something (`kill -9`), one moment after
//! the other.
//!
//! After every kill: files that were synced are there, the next commands come to their end with exit code 0, and
//! nothing is left over. Each test visits a sample of the moments, or all with `GABION_CRASH_POINTS=all`. The long
//! ones are ignored by default; `cargo xtask test --full` runs them, with all moments.

#[path = "../mount/can_mount.rs"]
mod can_mount;
mod columns;
#[path = "../vault/corruption.rs"]
mod corruption;
mod fixture;
mod mounted;
mod names;
mod plain;
mod pool;
mod repaired;
mod shared;
mod writers;
