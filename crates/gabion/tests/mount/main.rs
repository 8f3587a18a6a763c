//! `gabion mount` on real mounts. They need root: without it, each test says that it was skipped.

mod cold;
mod crashes;
mod durable;
mod ground;
mod ordinary;
mod others;
mod outage;
mod output;
mod posix;
mod privileges;
mod protection;
mod renamed;
mod rights;
mod rot;
#[path = "../vault/said.rs"]
mod said;
#[path = "../vault/seed.rs"]
mod seed;
mod unprivileged;
mod wanderers;
mod write_once;
