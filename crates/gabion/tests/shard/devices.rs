//! Which device computes: forced, missing, automatic; the shards are the same.

use super::playground::{Playground, bytes};
use gabion::machine::Machine;
use serde_json::Value;
use std::fs;

/// The devices of a library that this machine has, named if there are none.
fn has(test: &str, api: &str) -> bool {
    let machine = Machine::look().unwrap();
    let library = machine.devices.iter().find(|library| library.api == api);
    match library.map(|library| (library.found.len(), library.missing.clone())) {
        Some((count, _)) if count > 0 => true,
        other => {
            let reason = other.and_then(|(_, missing)| missing);
            gabion_testkit::skip!("{test}: {}", reason.unwrap_or("built without GPUs".to_owned()));
            false
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn an_opencl_device_makes_and_repairs_the_same_shards() {
    if !has("an_opencl_device_makes_and_repairs_the_same_shards", "opencl") {
        return;
    }
    let place = Playground::split(700_001, "4+2", "64KiB");
    let all = place.contents();
    let cache = place.path("cache");
    let on_device = ["--device", "opencl:0", "--device-cache", cache.to_str().unwrap()];
    let with = |arguments: &[&str]| place.run(&[arguments, &on_device[..]].concat());
    let again =
        ["split", "file", "--code", "4+2", "--block", "64KiB", "--out", "shards", "--force", "--json"];
    let split = parse(&with(&again).expect(0).out);
    assert_eq!(
        (&split["device"]["asked"], &split["device"]["used"]),
        (&"opencl:0".into(), &"opencl0".into())
    );
    assert_eq!(
        (&split["device"]["why"], &split["device"]["taken_over"]),
        (&"it was asked for".into(), &0.into())
    );
    assert!(place.contents() == all, "another device, other shards");
    fs::remove_file(place.shard(1)).unwrap();
    fs::remove_file(place.shard(4)).unwrap();
    with(&["join", "shards", "-o", "joined"]).expect(0).says("device opencl0: it was asked for");
    assert!(fs::read(place.path("joined")).unwrap() == bytes(700_001, 1));
    with(&["repair", "shards"]).expect(0).says("device opencl0");
    assert!(place.contents() == all);
    with(&["verify", "shards"]).expect(0).says("all good");
    assert!(cache.join("kernels").read_dir().unwrap().count() > 0, "compiled kernels are kept");
}

/// Whoever names a device that is not there gets no other one.
#[test]
fn a_missing_device_is_an_error_for_every_command() {
    let place = Playground::split(5000, "4+2", "100");
    let before = place.contents();
    for device in ["cuda:77", "opencl:77"] {
        for command in [
            &["split", "file", "--code", "4+2", "--out", "new"][..],
            &["join", "shards", "-o", "joined"],
            &["verify", "shards"],
            &["repair", "shards"],
        ] {
            place
                .run(&[command, &["--device", device]].concat())
                .expect(2)
                .says(&format!("--device {device}: "));
        }
    }
    assert!(place.contents() == before && !place.path("new").exists() && !place.path("joined").exists());
    place.run(&["verify", "shards", "--device", "gpu"]).expect(2).says("use cpu, cuda, cuda:N");
}

#[test]
fn auto_says_what_it_chose_and_why() {
    let place = Playground::split(5000, "4+2", "100");
    let split = ["split", "file", "--code", "4+2", "--block", "100", "--out", "shards", "--force"];
    let auto = ["--device", "auto"];
    place.run(&[&split[..], &auto].concat()).expect(0).says("less than 64 MiB, no device was looked at");
    let chosen = parse(&place.run(&[&split[..], &auto, &["--json"]].concat()).expect(0).out);
    assert_eq!(chosen["device"]["asked"], "auto");
    assert!(chosen["device"]["why"].as_str().unwrap().contains("64 MiB"));
    // Nothing was lost, so nothing is computed and nothing chosen.
    let verified = parse(&place.run(&["verify", "shards", "--device", "auto", "--json"]).expect(0).out);
    assert_eq!(verified["device"], Value::Null);
    let plain = parse(&place.run(&[&split[..], &["--json"]].concat()).expect(0).out);
    assert_eq!(plain["device"]["asked"], "cpu");
}

/// From 64 MiB on devices are looked for. PoCL is this very CPU, so it is not one of them.
#[test]
fn auto_looks_for_devices_where_there_is_work() {
    let place = Playground::new();
    let file = fs::File::create(place.path("file")).unwrap();
    file.set_len(65 << 20).unwrap();
    drop(file);
    let cache = place.path("cache");
    let cache = cache.to_str().unwrap();
    let split = ["split", "file", "--code", "4+1", "--block", "1MiB", "--out", "shards", "--force", "--json"];
    let arguments = [&split[..], &["--device", "auto", "--device-cache", cache]].concat();
    let device = parse(&place.run(&arguments).expect(0).out)["device"].clone();
    let measured = device["measured"].as_array().unwrap();
    if measured.is_empty() {
        assert!(device["why"].as_str().unwrap().starts_with("there is no GPU: "), "{device}");
        return;
    }
    // With a GPU both were measured, and the next run measures nothing.
    assert!(measured.len() >= 2, "{device}");
    let again = parse(&place.run(&arguments).expect(0).out)["device"].clone();
    assert!(again["measured"].as_array().unwrap().iter().all(|rate| rate["from_cache"] == true), "{again}");
}
