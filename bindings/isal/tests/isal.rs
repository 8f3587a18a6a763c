//! The shared library, as C programs use it: ISA-L's own tests, all functions against ISA-L's portable sources, threads
//! and forks. ISA-L's sources come with the crate `isal-sys`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libgabion_isal.so")
}

/// A directory with the library under the names that linker and loader look for.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["libisal.so", "libisal.so.2"] {
        std::os::unix::fs::symlink(library(), directory.path().join(name)).unwrap();
    }
    directory
}

/// ISA-L's sources; `None`, with a skip, without them or without a compiler.
fn sources(test: &str) -> Option<PathBuf> {
    if Command::new("gcc").arg("--version").output().is_err() {
        gabion_testkit::skip(test, "gcc is missing");
        return None;
    }
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", env!("GABION_TARGET")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap_or_default();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let found = packages
        .filter(|package| package["name"] == "isal-sys")
        .find_map(|package| Some(Path::new(package["manifest_path"].as_str()?).parent()?.join("isa-l")));
    let found = found.filter(|path| path.join("erasure_code/ec_base.c").is_file());
    if found.is_none() {
        gabion_testkit::skip(test, "the sources of the crate isal-sys are missing: cargo fetch");
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

fn gcc() -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-w"]);
    gcc
}

/// ISA-L's tests of the functions that this library has, and the macros that make those short that take longest.
/// Without any they have their own numbers of cases.
const TESTS_OF_ISAL: &[(&str, &[&str])] = &[
    ("erasure_code/erasure_code_test.c", &["-DRANDOMS=3"]),
    ("erasure_code/erasure_code_update_test.c", &["-DRANDOMS=2"]),
    ("erasure_code/gf_inverse_test.c", &[]),
    ("erasure_code/gf_vect_dot_prod_base_test.c", &["-DTEST_SOURCES=30", "-DRANDOMS=8"]),
    ("erasure_code/gf_vect_mul_base_test.c", &[]),
    ("erasure_code/gf_vect_mul_test.c", &[]),
    ("raid/pq_check_test.c", &[]),
    ("raid/pq_gen_test.c", &[]),
    ("raid/xor_check_test.c", &[]),
    ("raid/xor_gen_test.c", &[]),
];

/// Those that take minutes: their reference is the byte-wise code.
const LONG_TESTS_OF_ISAL: &[&str] = &[
    "erasure_code/erasure_code_base_test.c",
    "erasure_code/gf_vect_dot_prod_test.c",
    "erasure_code/gf_vect_mad_test.c",
];

/// `GABION_ROUNDS=all` runs all tests with their own numbers of cases.
#[test]
fn tests_of_isal_pass() {
    let Some(isal) = sources("tests_of_isal_pass") else { return };
    let directory = directory();
    let path = directory.path();
    let all = gabion_testkit::rounds(2) == 2;
    let long = LONG_TESTS_OF_ISAL.iter().filter(|_| all).map(|test| (*test, &[][..]));
    for (test, macros) in TESTS_OF_ISAL.iter().copied().chain(long) {
        let program = path.join("program");
        let mut compile = gcc();
        compile.args(macros.iter().filter(|_| !all)).arg("-I").arg(isal.join("include")).arg(isal.join(test));
        run(compile.arg("-o").arg(&program).arg("-L").arg(path).arg("-lisal"));
        let said = run(Command::new(&program).env("LD_LIBRARY_PATH", path));
        assert!(said.contains("Pass"), "{test}: {said}");
    }
}

#[test]
fn every_function_gives_the_bytes_of_isal() {
    let Some(isal) = sources("every_function_gives_the_bytes_of_isal") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (program, reference) = (directory.path().join("compare"), directory.path().join("reference.so"));
    let of_isal = ["erasure_code/ec_base.c", "raid/raid_base.c"].map(|file| isal.join(file));
    run(gcc()
        .args(["-shared", "-fPIC", "-I"])
        .arg(isal.join("include"))
        .args(of_isal)
        .arg("-o")
        .arg(&reference));
    run(gcc().args(["tests/c/compare.c", "-ldl", "-o"]).arg(&program));
    let rounds = gabion_testkit::rounds(160).to_string();
    let said = run(Command::new(&program).arg(library()).arg(&reference).arg(rounds));
    assert_eq!(said, "same\n");
}

#[test]
fn hosts_use_threads_and_forks_and_close_the_library() {
    if sources("hosts_use_threads_and_forks_and_close_the_library").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("host");
    run(gcc().args(["tests/c/host.c", "-ldl", "-lpthread", "-o"]).arg(&program));
    let said = run(Command::new(&program).arg(library()).arg(gabion_testkit::rounds(80).to_string()));
    assert_eq!(said, "good\n");
}

/// The name under which the loader finds it, and a library that stays when it is closed.
#[test]
fn the_library_is_libisal_so_2() {
    if Command::new("readelf").arg("--version").output().is_err() {
        return gabion_testkit::skip("the_library_is_libisal_so_2", "readelf is missing");
    }
    let said = run(Command::new("readelf").arg("--dynamic").arg(library()));
    assert!(said.contains("Library soname: [libisal.so.2]"), "{said}");
    assert!(said.contains("NODELETE"), "{said}");
}
