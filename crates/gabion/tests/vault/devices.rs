//! Vaults with `--device`: named, missing and automatic devices; redundancy is the same whatever computes it.

use crate::fixture::Fixture;
use gabion::machine::Machine;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Skips the test if this machine has no OpenCL device.
fn has_opencl(test: &str) -> bool {
    let machine = Machine::look().unwrap();
    let found = machine.devices.iter().any(|library| library.api == "opencl" && !library.found.is_empty());
    if !found {
        gabion_testkit::skip!("{test}: no OpenCL device");
    }
    found
}

/// Changes bytes as a disk does: size and mtime stay.
fn damage(fixture: &Fixture, name: &str, at: u64, bytes: &[u8]) {
    let file = File::options().read(true).write(true).open(fixture.path(name)).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn an_opencl_device_protects_and_repairs() {
    if !has_opencl("an_opencl_device_protects_and_repairs") {
        return;
    }
    let fixture = Fixture::new();
    let before = fixture.content();
    let cache = fixture.dir().join("cache");
    let on_device = ["--device", "opencl:0", "--device-cache", cache.to_str().unwrap()];
    let with = |arguments: &[&'static str]| fixture.json(0, &[arguments, &on_device[..]].concat());
    let protected = with(&["protect", "tree", "--code", "4+2"]);
    assert_eq!(
        (&protected["device"]["asked"], &protected["device"]["used"]),
        (&"opencl:0".into(), &"opencl0".into()),
        "{protected}"
    );
    assert_eq!(protected["device"]["taken_over"], 0);
    // The CPU finds every signature and every redundancy block right.
    assert_eq!(fixture.json(0, &["scrub", "tree"])["worst"], "protected");
    damage(&fixture, "a", 1_000_000, &[0x5a; 3000]);
    damage(&fixture, "sub/b", 0, &[0x5a; 500]);
    let found = fixture.json(1, &[&["scrub", "tree"], &on_device[..]].concat());
    assert_eq!(found["damage"].as_array().unwrap().len(), 2, "{found}");
    let repaired = with(&["repair", "tree", "--yes"]);
    assert_eq!(repaired["device"]["used"], "opencl0", "{repaired}");
    assert!(fixture.content() == before, "the device brought back other bytes");
    assert_eq!(fixture.json(0, &["scrub", "tree"])["worst"], "protected");
    // What the CPU protects, the device finds right.
    fixture.write("sub/new", &[7; 400_000]);
    fixture.expect(0, &["protect", "tree"]);
    assert_eq!(with(&["scrub", "tree"])["worst"], "protected");
}

#[test]
fn a_missing_device_is_an_error_for_every_command() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.dir().join("mnt")).unwrap();
    fixture.expect(0, &["protect", "tree"]);
    for device in ["cuda:77", "opencl:77"] {
        for command in [
            &["protect", "tree"][..],
            &["scrub", "tree"],
            &["repair", "tree", "--yes"],
            &["work", "tree"],
            &["watch", "tree"],
            &["mount", "tree", "mnt"],
        ] {
            let output = fixture.run(&[command, &["--device", device]].concat());
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
            assert!(error.contains(&format!("--device {device}: ")), "{command:?}: {error}");
        }
    }
}

#[test]
fn auto_says_what_it_chose_and_why() {
    let fixture = Fixture::new();
    let text = fixture.expect(0, &["protect", "tree", "--device", "auto"]);
    assert!(text.contains("less than 64 MiB, no device was looked at"), "{text}");
    // Nothing is computed, so nothing is chosen.
    let again = fixture.json(0, &["protect", "tree", "--device", "auto"]);
    assert!(again["device"].is_null(), "{again}");
    let plain = fixture.json(0, &["protect", "tree"]);
    assert_eq!(plain["device"]["asked"], "cpu");
}

/// Beyond 64 MiB devices are looked for and, if there are any, measured. PoCL is this very CPU, so it is not one of
/// them.
#[test]
fn auto_looks_for_devices_where_there_is_work() {
    let fixture = Fixture::new();
    fixture.write("large", &vec![1; 70 << 20]);
    let cache = fixture.dir().join("cache");
    let cache = cache.to_str().unwrap();
    let report =
        fixture.json(0, &["protect", "tree", "--code", "4+1", "--device", "auto", "--device-cache", cache]);
    let device = &report["device"];
    if device["measured"].as_array().unwrap().is_empty() {
        assert!(device["why"].as_str().unwrap().starts_with("there is no GPU: "), "{device}");
    } else {
        assert!(device["measured"].as_array().unwrap().len() >= 2, "{device}");
    }
    assert_eq!(fixture.json(0, &["scrub", "tree"])["worst"], "protected");
}
