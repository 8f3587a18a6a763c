//! Which version of a file its redundancy is of: names, rights and times that change must neither hide that nor feign
//! it.

use super::fixture::{Fixture, TestRng, can_mount};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// A program wrote to a file in place and gave it back the time that it had, as programs do that hide when a
/// container was used. By size and time it was the protected version then: readers got the bytes from before, and
/// repair would have brought them back.
#[test]
fn written_content_stays_if_its_mtime_is_reset() {
    if !can_mount("written_content_stays_if_its_mtime_is_reset") {
        return;
    }
    let fixture = Fixture::new(6, 3, 2, 4096);
    let mut mount = fixture.mount();
    let mut content = TestRng(31).bytes(100_000);
    fs::write(mount.path("file"), &content).unwrap();
    mount.unmount();
    fixture.assert_converges();
    // Whether the process that heard of the writing still knows of it, or another one has to find out.
    for (round, remounts) in [false, true, false].into_iter().enumerate() {
        mount = fixture.mount();
        let (path, before) = (mount.path("file"), modified(&mount.path("file")));
        let new = TestRng(32 + round as u64).bytes(700);
        write_at(&path, 5000, &new);
        content[5000..5700].copy_from_slice(&new);
        if remounts {
            mount.unmount();
            mount = fixture.mount();
        }
        set_modified(&path, before);
        let off = modified(&path).duration_since(before).unwrap();
        assert!(off.as_nanos() <= 3, "{off:?}");
        mount.unmount();
        mount = fixture.mount();
        assert!(fs::read(&path).unwrap() == content, "round {round}");
        mount.unmount();
        fixture.assert_converges();
    }
}

#[test]
fn a_time_that_comes_back_without_a_write_is_exact() {
    if !can_mount("a_time_that_comes_back_without_a_write_is_exact") {
        return;
    }
    let fixture = Fixture::new(6, 3, 2, 4096);
    let mount = fixture.mount();
    let path = mount.path("file");
    fs::write(&path, TestRng(35).bytes(10_000)).unwrap();
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    let before = modified(&path);
    set_modified(&path, before + std::time::Duration::from_secs(7));
    set_modified(&path, before);
    assert_eq!(modified(&path), before);
    mount.unmount();
    fixture.assert_converges();
}

/// A target goes whose columns nothing else is on that a test needs: gives files whose first column it has, of many.
fn lose_a_target(fixture: &Fixture, names: &[String]) -> Vec<String> {
    let vault = fixture.vault().repository.path().to_owned();
    let first = |name: &String| {
        let stub = fixture.pool().stub(name.as_bytes()).unwrap();
        stub.targets[0][1..].parse::<usize>().unwrap()
    };
    let number = names.iter().map(first).find(|&number| !vault.starts_with(fixture.target(number))).unwrap();
    let hit = names.iter().filter(|name| first(name) == number).cloned().collect();
    fixture.lose(number);
    hit
}

/// Redundancy follows a file that was only renamed without being written anew. The next mount took it for that of
/// another version then: a target went, and writing to the file failed, after which it was lost.
#[test]
fn a_file_that_was_renamed_is_made_whole_before_it_is_written_by_the_next_mount() {
    if !can_mount("a_file_that_was_renamed_is_made_whole_before_it_is_written_by_the_next_mount") {
        return;
    }
    let fixture = Fixture::new(8, 3, 2, 4096);
    let mount = fixture.mount();
    fs::create_dir(mount.path("old")).unwrap();
    let content = |number: u64| TestRng(40 + number).bytes(20_000);
    for number in 0..8 {
        fs::write(mount.path(&format!("old/{number}")), content(number)).unwrap();
    }
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    fs::rename(mount.path("old"), mount.path("new")).unwrap();
    for number in 0..8 {
        fs::rename(mount.path(&format!("new/{number}")), mount.path(&format!("new/{number}-"))).unwrap();
    }
    mount.unmount();
    fixture.assert_converges();
    let names: Vec<String> = (0..8).map(|number| format!("new/{number}-")).collect();
    let hit = lose_a_target(&fixture, &names);
    let mount = fixture.mount();
    for name in hit {
        let number = name.trim_matches(|it: char| !it.is_ascii_digit()).parse().unwrap();
        write_at(&mount.path(&name), 30_000, b"behind a hole");
        let whole = [&content(number)[..], &[0; 10_000], b"behind a hole"].concat();
        assert!(fs::read(mount.path(&name)).unwrap() == whole, "{name}");
    }
    mount.unmount();
}

/// A file took the name of another one that was protected later, and got other rights. Targets that have no
/// redundancy of it still had that of the other, which was taken for its own, because it is younger: a target went,
/// and writing to the file failed.
#[test]
fn redundancy_of_the_file_that_had_the_name_before_is_not_in_the_way() {
    if !can_mount("redundancy_of_the_file_that_had_the_name_before_is_not_in_the_way") {
        return;
    }
    let fixture = Fixture::new(8, 3, 2, 4096);
    let content = |number: u64| TestRng(50 + number).bytes(20_000);
    let names: Vec<String> = (0..12).map(|number| format!("file {number}")).collect();
    let mount = fixture.mount();
    for (number, name) in (0..).zip(&names) {
        fs::write(mount.path(&format!("new {name}")), content(number)).unwrap();
    }
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    for (number, name) in (100..).zip(&names) {
        fs::write(mount.path(name), content(number)).unwrap();
    }
    mount.unmount();
    fixture.assert_converges();
    let mount = fixture.mount();
    for name in &names {
        fs::rename(mount.path(&format!("new {name}")), mount.path(name)).unwrap();
        fs::set_permissions(mount.path(name), Permissions::from_mode(0o600)).unwrap();
    }
    mount.unmount();
    let hit = lose_a_target(&fixture, &names);
    let mount = fixture.mount();
    for name in &hit {
        let number = name.trim_matches(|it: char| !it.is_ascii_digit()).parse().unwrap();
        let mut whole = content(number);
        write_at(&mount.path(name), 9000, b"written");
        whole[9000..9007].copy_from_slice(b"written");
        assert!(fs::read(mount.path(name)).unwrap() == whole, "{name}");
    }
    mount.unmount();
}
