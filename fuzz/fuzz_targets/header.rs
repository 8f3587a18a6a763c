//! Any bytes as the header of a redundancy file.

#![no_main]

use gabion_vault::coder::Coders;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static CODERS: LazyLock<Coders> = LazyLock::new(|| Coders::new().expect("kernels"));

fuzz_target!(|bytes: &[u8]| gabion_vault::hostile::header(bytes, &CODERS));
