//! Watches on real file systems: every history of changes ends with all files protected.

mod events;
mod fixture;
mod forgetful;
mod guards;
#[path = "../../../changelog/tests/changelog/server.rs"]
mod server;
mod storms;
#[path = "../vault/test_rng.rs"]
mod test_rng;
mod write_once;
mod writers;
