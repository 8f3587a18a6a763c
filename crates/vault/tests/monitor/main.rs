//! Live protection on real file systems: whatever happens to files ends in protection.

mod events;
mod guards;
mod playground;
#[path = "../vault/seed.rs"]
mod seed;
mod storms;
mod write_once;
mod writers;
