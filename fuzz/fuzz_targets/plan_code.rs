//! Any bytes as a plan: compiled code of every kernel against the reference.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gabion_engine::conformance::from_bytes(bytes));
