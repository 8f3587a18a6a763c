//! Durability: system calls that sync data and changelog, and their order, traced with strace.

use crate::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use gabion_testkit::kill::can_kill;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Runs the program under strace and gives its calls with the paths of their files, in order.
fn traced(fixture: &Fixture, calls: &str, args: &[&str]) -> Vec<String> {
    let trace = fixture.path().join("trace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-qqq", "-s", "0", "-e", &format!("trace={calls}"), "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_gabion"))
        .args(args)
        .current_dir(fixture.path())
        .env_remove("GABION_REPOSITORY")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::read_to_string(trace).unwrap().lines().map(str::to_owned).collect()
}

/// A power cut in the middle of a repair: blocks were overwritten, and the bytes from before, which somebody may need
/// after all, were not on the disk yet.
#[test]
fn replaced_content_is_durable_before_it_is_overwritten() {
    if !can_kill("replaced_content_is_durable_before_it_is_overwritten") {
        return;
    }
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.source("sub")).unwrap();
    std::fs::write(fixture.source("sub/file"), TestRng(1).bytes(300_000)).unwrap();
    fixture.expect(0, &["protect", "source", "--policy", "policy.toml"]);
    let file = std::fs::File::options().read(true).write(true).open(fixture.source("sub/file")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    for at in [10_000, 200_000] {
        file.write_all_at(b"rotten", at).unwrap();
    }
    file.set_modified(modified).unwrap();
    drop(file);
    let calls = traced(
        &fixture,
        "fsync,fdatasync,write,pwrite64,pwritev2,ftruncate,fallocate",
        &["repair", "source", "--yes"],
    );
    let source = fixture.source("sub/file");
    let overwritten = format!("{}>", source.display());
    let first = calls.iter().position(|call| call.contains("write") && call.contains(&overwritten));
    let first = first.unwrap_or_else(|| panic!("nothing was written: {calls:#?}"));
    let synced = |what: &dyn Fn(&str) -> bool| {
        calls[..first].iter().any(|call| call.contains("sync(") && call.contains("/replaced") && what(call))
    };
    assert!(synced(&|call| call.contains("/sub/file>")), "the bytes from before are not durable: {calls:#?}");
    assert!(synced(&|call| call.contains("/sub>")), "their name is not durable: {calls:#?}");
    assert!(synced(&|call| call.contains("/replaced>")), "their directory is not durable: {calls:#?}");
    let kept = |call: &String| call.contains("write") && call.contains("/replaced/");
    assert!(!calls[first..].iter().any(kept), "something is kept after the first block was overwritten");
}

/// The server of a FUSE file system never hears of `syncfs`, so redundancy of two files or more was not synced there
/// at all: a power cut could take it although the changes were done with. Files and directories are synced one by
/// one.
#[test]
fn redundancy_on_a_fuse_file_system_is_synced() {
    let name = "redundancy_on_a_fuse_file_system_is_synced";
    if !can_mount(name) || !can_kill(name) {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.mount(&[]);
    std::fs::create_dir_all(fixture.path().join("tree/sub")).unwrap();
    for file in ["one", "two", "sub/three"] {
        std::fs::write(fixture.path().join("tree").join(file), TestRng(2).bytes(20_000)).unwrap();
    }
    let args = ["protect", "tree", "--policy", "policy.toml", "--repository", "mount/repository"];
    let calls = traced(&fixture, "fsync,fdatasync,syncfs,rename,renameat,renameat2", &args);
    let is_sync = |call: &&String| call.contains("sync(") && !call.contains("syncfs");
    let drafts = calls.iter().filter(is_sync).filter(|call| call.contains("/staging/")).count();
    assert_eq!(drafts, 3, "{calls:#?}");
    let published = |call: &String| call.contains("rename") && call.contains("/staging>");
    let last = calls.iter().rposition(published).unwrap_or_else(|| panic!("{calls:#?}"));
    for directory in ["/redundancy>", "/redundancy/sub>"] {
        let synced = calls[last..].iter().filter(is_sync).any(|call| call.contains(directory));
        assert!(synced, "{directory} is not durable: {calls:#?}");
    }
    fixture.unmount();
}

/// Programs that sync a directory make the names in it durable. In a pool whose targets are FUSE file systems,
/// directories and stubs of files were left to `syncfs`, which servers never hear of.
#[test]
fn names_of_a_pool_on_fuse_file_systems_are_synced() {
    let name = "names_of_a_pool_on_fuse_file_systems_are_synced";
    if !can_mount(name) || !can_kill(name) {
        return;
    }
    let (mut targets, mut fixture) = (Fixture::new(), Fixture::new());
    targets.mount(&[]);
    let mut create = vec!["pool", "create", "tank", "--pools", "pools", "--stripe", "2", "--redundancy", "1"];
    let paths = ["d1", "d2", "d3"].map(|name| targets.at(name));
    paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
    create.push("--targets");
    create.extend(paths.iter().map(|path| path.to_str().unwrap()));
    fixture.expect(0, &create);
    std::fs::write(fixture.path().join("policy.toml"), "[default]\ncode = \"2+1\"\n").unwrap();
    let trace = fixture.path().join("trace");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-qqq", "-s", "0", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_gabion"))
        .arg("mount")
        .arg(&paths[0])
        .args(["mount", "--policy", "policy.toml"])
        .current_dir(fixture.path())
        .env_remove("GABION_REPOSITORY");
    fixture.mount_by(command);
    std::fs::create_dir_all(fixture.at("above/sub")).unwrap();
    std::fs::write(fixture.at("above/sub/file"), TestRng(3).bytes(20_000)).unwrap();
    let calls = || std::fs::read_to_string(&trace).unwrap();
    let before = calls().len();
    std::fs::File::open(fixture.at("above/sub")).unwrap().sync_all().unwrap();
    let calls = calls()[before..].to_owned();
    for path in &paths {
        let synced = |what: &str| {
            let ends = format!("{what}>");
            calls.lines().any(|call| call.contains(&format!("<{}/", path.display())) && call.contains(&ends))
        };
        for what in ["/above", "/above/sub"] {
            assert!(synced(what), "{what} on {} is not durable: {calls}", path.display());
        }
        // The stub's size may be recorded meanwhile: then a new stub is synced and gets the name.
        assert!(synced("/above/sub/file") || synced(".stub"), "{} has no stub: {calls}", path.display());
    }
    fixture.unmount();
    targets.unmount();
}
