//! The changelog engines: one suite for all, the model beside them, and crashes.

mod access;
mod crash;
mod embedded;
mod monitors;
mod redis;
mod server;
mod tasks;
mod windows;

use gabion_changelog::conformance;
use gabion_changelog::model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Seeds of the comparison with the model, of which a plain test run takes the first quarter, and operations for each.
const SEEDS: usize = 10;
const OPERATIONS: u32 = 400;

/// Compares an engine with the model. Every kind of operation, and the answers that are hard to come by, happen in the
/// seeds of a plain run as well.
fn compare_with_model(site: conformance::Site<'_>) {
    let mut seen = BTreeSet::new();
    for seed in 0..gabion_testkit::rounds(SEEDS) as u64 {
        seen.extend(conformance::compare_with_model(site, &format!("seed-{seed}"), seed, OPERATIONS));
    }
    let missing: Vec<&str> = conformance::KINDS.into_iter().filter(|kind| !seen.contains(kind)).collect();
    assert!(missing.is_empty(), "never tried: {missing:?}");
}

/// The model is an implementation as well: what it says is checked against values written by hand.
#[test]
fn the_model_conforms() {
    let models: Mutex<BTreeMap<String, Model>> = Mutex::default();
    conformance::check(&|name| {
        Box::new(models.lock().expect("no panic").entry(name.to_owned()).or_default().clone())
    });
}
