//! Storage adapters: the conformance suite for all of them, and tests of pools.

mod conformance;
mod crashes;
mod files;
mod fixture;
mod full;
mod histories;
mod mirrors;
mod order;
mod repair;
mod targets;
