//! Files of all sizes come back, whole and through losses.

use super::playground::{Playground, bytes, choices, gabion};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Stdio;

#[test]
fn sizes_around_every_boundary() {
    // Blocks of 64 bytes, stripes of 192.
    let edges = [0usize, 64, 128, 192, 256, 384, 576];
    let sizes = edges.iter().flat_map(|&edge| [edge.saturating_sub(1), edge, edge + 1]);
    for size in sizes.chain([2, 7, 1000]) {
        let place = Playground::split(size, "3+2", "64");
        place.joins();
        fs::remove_file(place.shard(0)).unwrap();
        fs::remove_file(place.shard(3)).unwrap();
        place.joins();
    }
}

#[test]
fn every_pattern_of_losses_of_4_2_and_5_3() {
    for (code, n, m) in [("4+2", 6, 2), ("5+3", 8, 3)] {
        let place = Playground::split(5000, code, "128");
        let all = place.contents();
        for lost in choices(n, m) {
            lost.iter().for_each(|&index| fs::remove_file(place.shard(index)).unwrap());
            place.joins();
            lost.iter().for_each(|&index| fs::write(place.shard(index), &all[index].1).unwrap());
        }
        // One more is too much, and is named.
        (0..=m).for_each(|index| fs::remove_file(place.shard(index)).unwrap());
        let missing = (0..=m).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
        let (need, have) = (n - m, n - m - 1);
        place.is_lost().says(&format!("need {need} shards, have {have}: missing {missing}"));
    }
}

#[test]
fn repair_brings_back_the_same_bytes() {
    let place = Playground::split(5000, "4+2", "128");
    let all = place.contents();
    for lost in choices(6, 2) {
        lost.iter().for_each(|&index| fs::remove_file(place.shard(index)).unwrap());
        let ran = place.run(&["repair", "shards"]).expect(0);
        lost.iter().for_each(|index| assert!(ran.out.contains(&format!("rebuilt shard {index}:"))));
        assert!(place.contents() == all);
    }
    place.run(&["repair", "shards"]).expect(0).says("nothing to repair");
}

#[test]
fn pipes_in_and_out() {
    let place = Playground::new();
    let data = bytes(100_000, 3);
    let mut child = gabion()
        .args(["split", "-", "--name", "file", "--code", "4+2", "--block", "4KiB", "--out", "shards"])
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // In pieces that fit no block.
    data.chunks(777).for_each(|piece| input.write_all(piece).unwrap());
    drop(input);
    assert!(child.wait().unwrap().success());
    let joined = gabion().args(["join", "-o", "-", "shards"]).current_dir(place.path("")).output().unwrap();
    assert!(joined.status.success() && joined.stdout == data);
    // A stream and a file of the same name make the same set.
    let from_pipe = place.contents();
    fs::write(place.path("file"), &data).unwrap();
    place.run(&["split", "file", "--code", "4+2", "--block", "4KiB", "--out", "shards", "--force"]).expect(0);
    assert!(from_pipe == place.contents());
}

#[test]
fn holes_stay_holes() {
    let place = Playground::new();
    let file = File::create(place.path("file")).unwrap();
    file.set_len(8 << 20).unwrap();
    file.write_all_at(&bytes(10_000, 4), 3 << 20).unwrap();
    file.write_all_at(b"end", (8 << 20) - 3).unwrap();
    file.sync_all().unwrap();
    let used = file.metadata().unwrap().blocks();
    if used * 512 >= 8 << 20 {
        gabion_testkit::skip!("holes_stay_holes: this file system has no holes");
        return;
    }
    place.run(&["split", "file", "--code", "4+2", "--block", "64KiB", "--out", "shards"]).expect(0);
    let shard = fs::metadata(place.shard(1)).unwrap();
    assert!(shard.blocks() * 512 < shard.len() / 2, "{} blocks of {} bytes", shard.blocks(), shard.len());
    fs::remove_file(place.shard(1)).unwrap();
    place.run(&["join", "shards", "-o", "joined"]).expect(0);
    assert!(fs::read(place.path("joined")).unwrap() == fs::read(place.path("file")).unwrap());
    let again = fs::metadata(place.path("joined")).unwrap().blocks();
    assert!(again <= used + 16, "{used} blocks became {again}");
    place.run(&["repair", "shards"]).expect(0);
    let rebuilt = fs::metadata(place.shard(1)).unwrap();
    assert!(rebuilt.blocks() * 512 < rebuilt.len() / 2);
    place.run(&["verify", "shards"]).expect(0);
}

#[test]
fn permissions_are_never_wider() {
    let place = Playground::new();
    fs::write(place.path("file"), bytes(100, 1)).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for bits in [0o600, 0o640, 0o644] {
        fs::set_permissions(place.path("file"), fs::Permissions::from_mode(bits)).unwrap();
        place.run(&["split", "file", "--code", "2+1", "--out", "shards", "--force"]).expect(0);
        assert!((0..3).all(|index| mode(place.shard(index)) == bits));
        fs::remove_file(place.shard(2)).unwrap();
        place.run(&["repair", "shards"]).expect(0);
        assert_eq!(mode(place.shard(2)), bits);
        place.run(&["join", "shards", "-o", "joined", "--force"]).expect(0);
        assert_eq!(mode(place.path("joined")), bits);
    }
}
