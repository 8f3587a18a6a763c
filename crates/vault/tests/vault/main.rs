//! The vault on real directories: protect, damage, scrub, repair.

mod admission;
mod changes;
mod clock;
mod columns;
mod damage;
mod due;
mod duplicates;
mod every_byte;
mod existing;
mod faulty;
mod fixture;
mod growth;
mod killed;
mod model;
mod obstacles;
mod oddities;
mod own;
mod pool;
mod pool_columns;
mod redis;
mod renamed;
mod renamed_again;
mod resumed;
mod selected;
#[path = "../../../changelog/tests/changelog/server.rs"]
mod server;
mod shared_redundancy;
mod sharing;
mod silent_corruption;
mod strong;
mod test_rng;
mod trust;
mod version_1;
mod versions;
mod write_once;
mod written;
