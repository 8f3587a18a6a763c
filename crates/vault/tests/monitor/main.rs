//! Live protection on real file systems: whatever happens to files ends in protection.

mod events;
mod forgetful;
mod guards;
mod playground;
#[path = "../vault/seed.rs"]
mod seed;
#[path = "../../../changelog/tests/changelog/server.rs"]
mod server;
mod storms;
mod write_once;
mod writers;
