//! `gabion` on real parallel file systems: MooseFS and GlusterFS, each on this machine.

mod doctor;
mod rebuild;
mod whatif;

use gabion_testkit::{GlusterFs, MooseFs};
use std::io::Write;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gabion");

/// Starts MooseFS; none, after a recorded skip, if that is not possible here.
fn moosefs(test: &str, directory: &tempfile::TempDir, servers: usize) -> Option<MooseFs> {
    MooseFs::start(directory.path(), servers).map_err(|why| gabion_testkit::skip(test, why)).ok()
}

/// Starts GlusterFS; none, after a recorded skip, if that is not possible here.
fn glusterfs(test: &str, directory: &tempfile::TempDir, bricks: usize) -> Option<GlusterFs> {
    GlusterFs::start(directory.path(), bricks).map_err(|why| gabion_testkit::skip(test, why)).ok()
}

/// Runs a command and returns its exit code and the JSON object that it printed.
fn json(command: &mut Command) -> (i32, serde_json::Value) {
    let output = command.output().unwrap();
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| panic!("{command:?}: {error}: {output:?}"));
    (output.status.code().unwrap_or(-1), value)
}

/// Writes a file and waits until it is on its targets.
fn write(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}
