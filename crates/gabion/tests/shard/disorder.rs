//! Directories as people leave them: renamed, mixed, duplicated, with other things in between.

use super::playground::{Playground, bytes};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn renamed_and_linked_shards_are_found() {
    let place = Playground::split(5000, "4+2", "100");
    for index in 0..6 {
        fs::rename(place.shard(index), place.path(format!("shards/copy {} of 6.bin", 6 - index))).unwrap();
    }
    fs::create_dir(place.path("shards/sub")).unwrap();
    fs::rename(place.path("shards/copy 1 of 6.bin"), place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), place.path("shards/link")).unwrap();
    fs::write(place.path("shards/notes.txt"), "no shard").unwrap();
    fs::write(place.path("shards/empty"), "").unwrap();
    let ran = place.joins();
    assert_eq!(ran.err, "");
    place.run(&["verify", "shards"]).expect(0);
}

#[test]
fn shards_of_another_file_are_named_and_ignored() {
    let place = Playground::split(5000, "4+2", "100");
    fs::write(place.path("other"), bytes(3000, 2)).unwrap();
    place.run(&["split", "other", "--code", "3+1", "--out", "shards"]).expect(0);
    // Two whole sets: which?
    let ran = place.run(&["join", "shards", "-o", "joined"]).expect(2).says("--set");
    assert!(ran.err.contains(" file: 5000 bytes") && ran.err.contains(" other: 3000 bytes"), "{}", ran.err);
    let line = ran.err.lines().find(|line| line.contains(" other: ")).unwrap().trim();
    place.run(&["join", "shards", "-o", "joined", "--set", &line[..8]]).expect(0);
    assert!(fs::read(place.path("joined")).unwrap() == bytes(3000, 2));
    fs::remove_file(place.path("joined")).unwrap();
    place.run(&["join", "shards", "-o", "joined", "--set", "zz"]).expect(2).says("--set zz");
    place.run(&["verify", "shards"]).expect(0);
    // Remains of the other set only.
    (0..2).for_each(|i| fs::remove_file(place.path(format!("shards/other.00{i}.gabion"))).unwrap());
    place.joins().says("other.002.gabion: foreign");
    place.run(&["verify", "shards"]).expect(0).says("foreign");
}

#[test]
fn two_files_with_one_index() {
    let place = Playground::split(5000, "4+2", "100");
    fs::copy(place.shard(0), place.path("shards/copy")).unwrap();
    place.joins().says("copy: duplicate of shard 0");
    // A shard copied over another leaves the other missing, and its place taken.
    fs::remove_file(place.path("shards/copy")).unwrap();
    let good = place.contents();
    fs::copy(place.shard(0), place.shard(1)).unwrap();
    place.joins().says("duplicate of shard 0");
    let before = place.contents();
    place.run(&["repair", "shards"]).expect(2).says("file.001.gabion is in the way: duplicate of shard 0");
    assert!(place.contents() == before);
    place.run(&["repair", "shards", "--force"]).expect(0);
    assert!(place.contents() == good);
}

#[test]
fn something_else_in_the_place_of_a_shard_is_not_overwritten() {
    let place = Playground::split(5000, "4+2", "100");
    let good = place.contents();
    fs::write(place.shard(3), "dear diary, this is no shard").unwrap();
    place.run(&["verify", "shards"]).expect(1).says("file.003.gabion: header damaged");
    place.run(&["repair", "shards"]).expect(2).says("file.003.gabion is in the way");
    assert_eq!(fs::read(place.shard(3)).unwrap(), b"dear diary, this is no shard");
    place.run(&["repair", "shards", "--force"]).expect(0);
    assert!(place.contents() == good);
}

#[test]
fn directories_without_shards() {
    let place = Playground::new();
    fs::create_dir(place.path("shards")).unwrap();
    fs::write(place.path("shards/x"), "y").unwrap();
    for command in ["verify", "repair"] {
        place.run(&[command, "shards"]).expect(2).says("no shards in shards");
    }
    place.run(&["join", "shards", "-o", "joined"]).expect(2).says("no shards in shards");
    place.run(&["verify", "nowhere"]).expect(2).says("nowhere: no such file or directory");
}

#[test]
fn existing_files_are_safe_without_force() {
    let place = Playground::split(5000, "4+2", "100");
    let before = place.contents();
    fs::write(place.path("file"), bytes(5000, 9)).unwrap();
    let split = ["split", "file", "--code", "4+2", "--out", "shards"];
    place.run(&split).expect(2).says("shards/file.000.gabion exists");
    assert!(place.contents() == before);
    fs::write(place.path("there"), "precious").unwrap();
    place.run(&["join", "shards", "-o", "there"]).expect(2).says("there exists");
    assert_eq!(fs::read(place.path("there")).unwrap(), b"precious");
    place.run(&["join", "shards", "-o", "shards/file.000.gabion", "--force"]).expect(2).says("being read");
    assert!(place.contents() == before);
    place.run(&["join", "shards", "-o", "there", "--force"]).expect(0);
    assert!(fs::read(place.path("there")).unwrap() == bytes(5000, 1));
    place.run(&[&split[..], &["--force"]].concat()).expect(0);
    place.joins();
}

/// Shard 2 lies under the name of shard 3, which is gone: `repair --force` wrote the new shard 3 over it, and one
/// more loss was beyond repair. Without `--force` the repair was refused. The new shard gets another name now, and
/// every good shard stays.
#[test]
fn a_good_shard_under_the_name_of_a_missing_one_stays() {
    for force in [&[][..], &["--force"]] {
        let place = Playground::split(5000, "4+2", "100");
        let second = fs::read(place.shard(2)).unwrap();
        let third = fs::read(place.shard(3)).unwrap();
        fs::rename(place.shard(2), place.shard(3)).unwrap();
        place.run(&[&["repair", "shards"], force].concat()).expect(0);
        assert!(fs::read(place.shard(3)).unwrap() == second, "shard 2 under the name of shard 3");
        assert!(fs::read(place.path("shards/file.003-1.gabion")).unwrap() == third);
        place.run(&["verify", "shards"]).expect(0);
        place.joins();
    }
}

/// Nor is a shard of another set written over, which may be all that is left of it.
#[test]
fn a_shard_of_another_set_is_not_written_over() {
    let place = Playground::split(5000, "4+2", "100");
    let other = Playground::split(700, "2+1", "100");
    fs::copy(other.shard(1), place.shard(3)).unwrap();
    let foreign = fs::read(place.shard(3)).unwrap();
    place.run(&["repair", "shards", "--force"]).expect(0);
    assert!(fs::read(place.shard(3)).unwrap() == foreign);
    place.joins();
}

/// The one copy of shard 0 that has all its blocks lies under the name of shard 1: it is no spare copy.
#[test]
fn a_copy_that_is_better_than_the_shard_in_its_place_stays() {
    let place = Playground::split(5000, "4+2", "100");
    let whole = fs::read(place.shard(0)).unwrap();
    fs::copy(place.shard(0), place.shard(1)).unwrap();
    place.flip(0, 128 + 3);
    place.run(&["repair", "shards", "--force"]).expect(0);
    assert!(fs::read(place.shard(1)).unwrap() == whole);
    place.run(&["verify", "shards"]).expect(0);
}

/// A shard that has lost its first bytes and its end was taken for a stranger's file "in the way". The rest of its
/// header, or the seals of its blocks, say what it is: it is replaced. A file that has neither still stays.
#[test]
fn a_shard_without_its_first_bytes_is_known_by_the_rest() {
    for damaged in [8, 60, 200] {
        let place = Playground::split(5000, "4+2", "100");
        let good = place.contents();
        let mut bytes = fs::read(place.shard(2)).unwrap();
        bytes[..damaged].fill(b'x');
        bytes.truncate(bytes.len() - 50);
        fs::write(place.shard(2), &bytes).unwrap();
        place.run(&["repair", "shards"]).expect(0);
        assert!(place.contents() == good, "{damaged} bytes");
        fs::write(place.shard(2), vec![b'x'; bytes.len()]).unwrap();
        place.run(&["repair", "shards"]).expect(2).says("file.002.gabion is in the way");
    }
}
