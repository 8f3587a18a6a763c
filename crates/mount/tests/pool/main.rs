//! A pool that is mounted: programs use it like any file system, and disks go, fill up or die under it.

mod crash;
mod disks;
mod failing;
mod fixture;
mod links;
#[path = "../../../vault/tests/rebuild/loops.rs"]
mod loops;
mod model;
mod names;
mod ordinary;
mod others;
mod pulled;
mod rot;
#[path = "../../../vault/tests/vault/seed.rs"]
mod seed;
mod suites;
mod versions;
