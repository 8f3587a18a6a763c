//! Targets that refuse the process which has the pool mounted.

use super::fixture::{Fixture, Stopping, can_mount};
use crate::test_rng::TestRng;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A command that `chmod` binds, though its user is root: only root can mount here, and root is bound by nothing else.
fn bound() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]);
    command
}

fn is_bound(dir: &Path) -> bool {
    let closed = dir.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("file"), "x").unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    bound().arg("cat").arg(closed.join("file")).output().is_ok_and(|output| !output.status.success())
}

/// Two targets are closed one after the other with `chmod 000`, and one is opened again, while files are read and
/// written.
#[test]
fn mounted_pool_lives_with_targets_that_refuse_it() {
    if !can_mount("rights") {
        return;
    }
    let mut fixture = Fixture::new();
    if !is_bound(fixture.path()) {
        return gabion_testkit::skip!("rights: no setpriv that takes rights away");
    }
    let targets: Vec<String> = (1..=8).map(|number| format!("t{number}")).collect();
    let create =
        ["pool", "create", "tank", "--pools", "pools", "--stripe", "4", "--block", "4KiB", "--targets"];
    let create: Vec<&str> = create.into_iter().chain(targets.iter().map(String::as_str)).collect();
    fixture.expect(0, &create);
    fs::write(fixture.path().join("policy.toml"), "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n").unwrap();
    let mut mount = bound();
    mount.arg(env!("CARGO_BIN_EXE_gabion")).current_dir(fixture.path());
    mount.args(["mount", "t1", "mount", "--policy", "policy.toml"]);
    fixture.mount_by(mount);
    let (files, stop) = (RwLock::new(BTreeMap::new()), AtomicBool::new(false));
    let mut chance = TestRng(61);
    let mut write = |stage: usize| {
        for number in 0..8 {
            let (name, content) = (format!("file {stage} {number}"), chance.bytes(number * 9001));
            // Who finds that a target is closed may be told; the next one finds another target.
            let written =
                fs::write(fixture.at(&name), &content).or_else(|_| fs::write(fixture.at(&name), &content));
            written.unwrap_or_else(|error| panic!("{name}: {error}"));
            files.write().unwrap().insert(name, content);
        }
        // What is written from now on may miss a target more.
        fixture.wait_until("t1");
    };
    write(0);
    let read = || {
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        for (name, content) in files.read().unwrap().iter() {
            let found = fs::read(fixture.at(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found == *content, "{name}");
        }
    };
    let permit = |target: &str, mode: u32| {
        fs::set_permissions(fixture.path().join(target), Permissions::from_mode(mode)).unwrap();
    };
    std::thread::scope(|scope| {
        let stopping = Stopping(&stop);
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                read();
            }
        });
        for (stage, (target, mode)) in [("t4", 0o000), ("t7", 0o000), ("t4", 0o755)].into_iter().enumerate() {
            permit(target, mode);
            write(stage + 1);
        }
        drop(stopping);
        reader.join().unwrap();
    });
    read();
    let content = files.into_inner().unwrap();
    fixture.unmount();
    fs::set_permissions(fixture.path().join("t7"), Permissions::from_mode(0o755)).unwrap();
    fixture.mount_source("t1", &[]);
    for (name, content) in &content {
        assert!(fs::read(fixture.at(name)).unwrap() == *content, "{name}, all targets are open again");
    }
    fixture.unmount();
}
