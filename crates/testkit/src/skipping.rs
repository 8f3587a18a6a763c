//! Skips of tests that cannot run on this machine.

use std::fmt::Display;
use std::io::Write;

/// Environment variable that turns every skip into a failure.
pub const REQUIRE_ALL: &str = "GABION_REQUIRE_ALL";

/// Environment variable with the path of a file to which every skip is appended, one line `test<TAB>reason` each. The
/// test harness hides what a test prints that passes, so `cargo xtask test` reads skips from here.
pub const SKIP_LOG: &str = "GABION_SKIP_LOG";

/// Records that `test`, or a part of it, is skipped because this machine lacks something. The caller returns
/// afterwards.
///
/// # Panics
/// `GABION_REQUIRE_ALL` is set, or the log cannot be written.
pub fn skip(test: &str, reason: impl Display) {
    let reason = reason.to_string().replace(['\n', '\t'], " ");
    if std::env::var_os(REQUIRE_ALL).is_some_and(|value| !value.is_empty() && value != "0") {
        panic!("{REQUIRE_ALL} is set, and {test} cannot run here: {reason}");
    }
    record(test, &reason);
}

/// As [`skip`], for a file system that the running kernel does not support. No package provides it, so
/// `GABION_REQUIRE_ALL` does not make it a failure; it is listed with the other skips. Returns false if the kernel
/// supports the file system.
///
/// # Panics
/// The log cannot be written.
pub fn skip_without_file_system(test: &str, file_system: &str) -> bool {
    // The module may not be loaded yet; without modprobe the list of file systems decides.
    let _ = std::process::Command::new("modprobe").arg("--quiet").arg(file_system).output();
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let missing = !known.lines().any(|line| line.split_whitespace().next_back() == Some(file_system));
    if missing {
        record(test, &format!("this kernel has no {file_system}"));
    }
    missing
}

/// As [`skip_without_file_system`], for another part of the kernel that the caller has found missing.
///
/// # Panics
/// The log cannot be written.
pub fn skip_for_kernel(test: &str, missing: &str) {
    record(test, &format!("this kernel has no {missing}"));
}

fn record(test: &str, reason: &str) {
    println!("SKIP {test}: {reason}");
    if let Some(path) = std::env::var_os(SKIP_LOG) {
        let log = std::fs::File::options().create(true).append(true).open(&path);
        // One system call per line: several processes append to the same file.
        let written = log.and_then(|mut log| log.write_all(format!("{test}\t{reason}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{SKIP_LOG}={}: {error}", path.display()));
    }
}

/// As [`skip`], from a line `test: reason`.
///
/// # Panics
/// As [`skip`].
pub fn skip_line(line: &str) {
    let (test, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
    skip(test, reason);
}
