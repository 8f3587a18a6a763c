//! The vault on real directories: protect, damage, scrub, repair.

mod admission;
mod changes;
mod clock;
mod damage;
mod due;
mod every_byte;
mod existing;
mod faulty;
mod growth;
mod killed;
mod model;
mod obstacles;
mod oddities;
mod own;
mod playground;
mod pool;
mod redis;
mod renamed;
mod resumed;
mod seed;
#[path = "../../../changelog/tests/changelog/server.rs"]
mod server;
mod sharing;
mod strong;
mod trust;
mod unwritten;
mod version_1;
mod versions;
mod wandering;
mod write_once;
mod written;
