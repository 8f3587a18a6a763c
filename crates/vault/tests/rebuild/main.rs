//! Targets are lost, retired, killed, filled, and come back: every file is what it was, or is named.

mod beside;
mod description;
mod disks;
mod former;
mod kills;
mod loops;
mod loss;
mod moves;
mod names;
mod playground;
mod reading;
mod returns;
#[path = "../vault/seed.rs"]
mod seed;
mod sequence;
