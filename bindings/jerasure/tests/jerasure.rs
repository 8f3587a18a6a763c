//! The shared library beside Debian's Jerasure: all functions with the same random arguments.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libgabion_jerasure.so")
}

/// Debian's library, wherever the loader finds it.
fn of_debian() -> Option<PathBuf> {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output().ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed.lines().find(|line| line.trim_start().starts_with("libJerasure.so.2 "))?;
    Some(PathBuf::from(line.rsplit_once("=> ")?.1))
}

#[test]
fn every_function_gives_the_bytes_of_jerasure() {
    const NAME: &str = "every_function_gives_the_bytes_of_jerasure";
    let Some(theirs) = of_debian() else { return gabion_testkit::skip(NAME, "libJerasure.so.2 is missing") };
    let rounds = gabion_testkit::rounds(1200).to_string();
    let output = Command::new("python3")
        .args([Path::new("tests/python/compare.py"), &theirs, &library()])
        .arg(rounds)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert_eq!(text, "same\n");
}

/// The name under which the loader finds it, and a library that stays when it is closed.
#[test]
fn the_library_is_lib_jerasure_so_2() {
    if Command::new("readelf").arg("--version").output().is_err() {
        return gabion_testkit::skip("the_library_is_lib_jerasure_so_2", "readelf is missing");
    }
    let said = Command::new("readelf").arg("--dynamic").arg(library()).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("Library soname: [libJerasure.so.2]") && said.contains("NODELETE"), "{said}");
}
