//! Any bytes as the settings of a pool.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gabion_vault::hostile::pool(bytes));
