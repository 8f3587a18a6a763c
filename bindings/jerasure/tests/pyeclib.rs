//! PyECLib's own tests on Debian's liberasurecode, with Debian's Jerasure and with this one: the same results.
//! The library path alone decides which of them liberasurecode loads.

use std::path::Path;
use std::process::Command;

/// Tests of PyECLib that code.
const TESTS: [&str; 3] = [
    "test.test_pyeclib_c",
    "test.test_pyeclib_api.TestPyECLibDriver.test_rs",
    "test.test_pyeclib_api.TestBackendsEnabled",
];

/// One line per test, and the libraries that were loaded.
struct Results {
    tests: Vec<String>,
    loaded: Vec<String>,
}

fn results(python: &Path, libraries: Option<&Path>) -> Results {
    let sources = python.join("sources/pyeclib-1.8.0");
    let mut command = Command::new(python.join("bin/python"));
    command
        .arg("../isal/tests/python/results.py")
        .arg(sources)
        .args(["jerasure_rs_vand", "jerasure"])
        .arg("")
        .args(TESTS);
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
fn tests_of_pyeclib_end_as_with_jerasure() {
    let Some(python) = gabion_testkit::python("tests_of_pyeclib_end_as_with_jerasure") else {
        return;
    };
    let library = std::env::current_exe().unwrap().with_file_name("libgabion_jerasure.so");
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&library, directory.path().join("libJerasure.so.2")).unwrap();
    let theirs = results(&python, None);
    let ours = results(&python, Some(directory.path()));

    // Otherwise a result says nothing.
    assert!(theirs.loaded.iter().any(|path| path.contains("/libJerasure.so")), "{:?}", theirs.loaded);
    assert_eq!(ours.loaded, [library.to_str().unwrap()]);
    let passed = |results: &Results| results.tests.iter().filter(|line| line.contains("\tpassed")).count();
    assert!(passed(&theirs) > 10, "{:#?}", theirs.tests);
    for name in
        ["test_rs", "test_codes", "test_jerasure_rs_vand_available", "test_jerasure_rs_cauchy_available"]
    {
        let end = format!(".{name}\tpassed\t");
        assert!(ours.tests.iter().any(|line| line.ends_with(&end)), "{name}: {:#?}", ours.tests);
    }
    assert_eq!(ours.tests, theirs.tests);
}
