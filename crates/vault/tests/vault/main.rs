//! The vault on real directories: protect, damage, scrub, repair.

mod changes;
mod damage;
mod oddities;
mod playground;
mod trust;
