//! PyECLib's own tests on Debian's liberasurecode, with Intel's library and with this one: the same results.
//! The library path alone decides which of them liberasurecode loads.

use std::path::Path;
use std::process::Command;

/// Modules of PyECLib's tests.
const MODULES: [&str; 3] = ["test.test_pyeclib_api", "test.test_pyeclib_c", "test.test_pyeclib_cli"];

/// Tests that take most of the time: memory after many calls about metadata, and all combinations of losses.
const LONG: &str = "test_get_metadata_memory_usage,test_get_metadata_formatted,\
                    test_greedy_decode_reconstruct_combination";

/// One line per test, and the libraries that were loaded.
struct Results {
    tests: Vec<String>,
    loaded: Vec<String>,
}

fn results(python: &Path, libraries: Option<&Path>) -> Results {
    let sources = python.join("sources/pyeclib-1.8.0");
    let all = gabion_testkit::rounds(2) == 2;
    let mut command = Command::new(python.join("bin/python"));
    command
        .arg("tests/python/results.py")
        .arg(sources)
        .args(["isa_l_rs_vand", "isal"])
        .arg(if all { "" } else { LONG })
        .args(MODULES);
    command.env_remove("LD_LIBRARY_PATH");
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    let of =
        |kind: &str| text.lines().filter_map(|line| line.strip_prefix(kind)).map(str::to_owned).collect();
    Results { tests: of("test\t"), loaded: of("loaded\t") }
}

#[test]
fn tests_of_pyeclib_end_as_with_the_library_of_intel() {
    let Some(python) = gabion_testkit::python("tests_of_pyeclib_end_as_with_the_library_of_intel") else {
        return;
    };
    let library = std::env::current_exe().unwrap().with_file_name("libgabion_isal.so");
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&library, directory.path().join("libisal.so.2")).unwrap();
    let intel = results(&python, None);
    let ours = results(&python, Some(directory.path()));

    // Otherwise a result says nothing.
    assert!(intel.loaded.iter().any(|path| path.contains("/libisal.so")), "{:?}", intel.loaded);
    assert_eq!(ours.loaded, [library.to_str().unwrap()]);
    let passed = |results: &Results| results.tests.iter().filter(|line| line.contains("\tpassed")).count();
    assert!(passed(&intel) > 40, "{:#?}", intel.tests);
    for name in ["test_rs", "test_codes", "test_isa_l_rs_vand_available", "test_isa_l_rs_cauchy_available"] {
        let end = format!(".{name}\tpassed\t");
        assert!(ours.tests.iter().any(|line| line.ends_with(&end)), "{name}: {:#?}", ours.tests);
    }
    assert_eq!(ours.tests, intel.tests);
}
