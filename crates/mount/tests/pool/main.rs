//! A pool that is mounted: programs use it like any file system, and disks go, fill up or die under it.

mod crash;
mod disks;
mod links;
mod model;
mod names;
mod ordinary;
mod others;
mod playground;
mod suites;
