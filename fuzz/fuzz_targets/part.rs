//! Any bytes as a redundancy file: examined, and the file repaired from it.

#![no_main]

use gabion_vault::hostile::{Stage, part};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static STAGE: (tempfile::TempDir, Stage) = {
        let directory = tempfile::tempdir().expect("a directory");
        let content: Vec<u8> = (0..3000u32).map(|at| (at * at >> 3) as u8).collect();
        let stage = Stage::new(directory.path(), "4+2", &content).expect("a vault");
        (directory, stage)
    };
}

fuzz_target!(|bytes: &[u8]| STAGE.with(|(_, stage)| part(bytes, stage)));
