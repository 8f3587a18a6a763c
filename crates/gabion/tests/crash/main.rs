//! Commands and mounts that are killed before each system call that changes something (`kill -9`), one moment after the other.
//!
//! After every kill: files that were synced are there, the next commands come to their end with exit code 0, and nothing is left over. By
//! default each test visits a sample of the moments; `GABION_CRASH_POINTS=all`, which `cargo xtask test --full` sets, has it visit all.

mod ground;
mod mounted;
mod plain;
mod pool;
mod repaired;
