//! `gabion mount` on real mounts. They need root: without it, each test says that it was skipped.

mod can_mount;
#[path = "../vault/captured_output.rs"]
mod captured_output;
mod cold;
#[path = "../vault/corruption.rs"]
mod corruption;
mod crashes;
mod durable;
mod fixture;
mod ordinary;
mod others;
mod outage;
mod output;
mod posix;
mod privileges;
mod protection;
mod recorded;
mod renamed;
mod rights;
mod rot;
#[path = "../vault/test_rng.rs"]
mod test_rng;
mod unprivileged;
mod users;
mod wanderers;
mod write_once;
