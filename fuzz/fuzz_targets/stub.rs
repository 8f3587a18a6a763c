//! Any bytes as the stub of a file of a pool.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gabion_vault::hostile::stub(bytes));
