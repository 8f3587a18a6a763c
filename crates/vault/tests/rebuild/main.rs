//! Targets are lost, retired, killed, filled, and return: every file is unchanged, or is reported.

mod beside;
mod description;
mod disks;
mod fixture;
mod former;
mod kills;
mod loops;
mod loss;
mod moves;
mod names;
mod reading;
mod returns;
#[path = "../vault/seed.rs"]
mod seed;
mod sequence;
