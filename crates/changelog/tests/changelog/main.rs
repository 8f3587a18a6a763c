//! The changelog engines: one suite for all, the model beside them, and crashes.

mod crash;
mod embedded;
mod monitors;
mod redis;
mod server;
mod tasks;

use gabion_changelog::conformance;
use gabion_changelog::model::Model;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Seeds of the comparison with the model, and operations for each.
const SEEDS: std::ops::Range<u64> = 0..10;
const OPERATIONS: u32 = 400;

/// The model is an implementation as well: what it says is checked against values written by hand.
#[test]
fn the_model_conforms() {
    let models: Mutex<BTreeMap<String, Model>> = Mutex::default();
    conformance::check(&|name| {
        Box::new(models.lock().expect("no panic").entry(name.to_owned()).or_default().clone())
    });
}
