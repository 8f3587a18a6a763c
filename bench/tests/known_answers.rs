//! The committed known answers are exactly what the other libraries give today.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}

fn json_files(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("directory entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| name.ends_with(".json"))
        .collect()
}

#[test]
fn regenerating_changes_nothing() {
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).expect("leftovers of an earlier run go away");
    }
    let status = Command::new(env!("CARGO_BIN_EXE_gabion-bench"))
        .arg("vectors")
        .arg(&fresh)
        .status()
        .expect("gabion-bench starts");
    assert!(status.success(), "gabion-bench vectors: {status}");

    let names = json_files(&fresh);
    assert_eq!(names.len(), 8, "{names:?}");
    assert_eq!(json_files(&committed()), names, "a file without its maker, or the reverse");
    for name in names {
        let (old, new) = (committed().join(&name), fresh.join(&name));
        let old = fs::read_to_string(&old).expect("committed file");
        let new = fs::read_to_string(&new).expect("fresh file");
        for (number, (old, new)) in old.lines().zip(new.lines()).enumerate() {
            assert!(old == new, "{name} differs first in line {}", number + 1);
        }
        assert!(old == new, "{name}: one file is longer");
        assert!(new.len() < 200 * 1024, "{name} is too large to keep in the repository");
    }
}
