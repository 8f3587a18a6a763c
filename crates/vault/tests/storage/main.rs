//! Storage adapters: the suite for all of them, and what only pools promise.

mod conformance;
mod crashes;
mod files;
mod full;
mod histories;
mod mirrors;
mod order;
mod playground;
mod repair;
mod targets;
