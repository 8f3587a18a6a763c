//! The process of a mounted pool died during a write, and the command that protects the file is killed too.

use crate::fixture::{Fixture, PROGRAM, assert_same, bytes};
use crate::mounted::can_mount;
use crate::pool::{TARGETS, Tank};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Appends to a file through a mount, whose process is killed before anything is synced.
fn append_and_die(tank: &mut Tank, name: &str, more: &[u8]) {
    let mount = tank.fixture.path("mount");
    fs::create_dir_all(&mount).unwrap();
    let args = ["mount", "tank", "mount", "--pools", "names"];
    let mut command = tank.fixture.with(Command::new(PROGRAM), &args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let written = File::options().append(true).open(mount.join(name)).map(|mut file| {
        let written = file.write_all(more);
        // Closing it would publish its length.
        let _ = child.kill();
        written
    });
    let _ = child.kill();
    child.wait().unwrap();
    let gone = Command::new("umount").arg("-l").arg(&mount).status().unwrap();
    assert!(line.starts_with("mounted ") && gone.success(), "{line}");
    written.unwrap().unwrap();
    tank.files.get_mut(name).unwrap().extend_from_slice(more);
}

/// Reads a file with each target gone. Whether all of that came to an end; wrong bytes never do.
fn is_read_without_any(tank: &Tank, fixture: &Fixture, told: &str, name: &str) -> bool {
    let mut all = true;
    for number in 1..=TARGETS {
        tank.lose(number);
        let got = fixture.run(&["pool", "get", "tank", name, "out", "--force", "--pools", "names"]);
        tank.bring_back(number);
        match got.status.success() {
            true => {
                let found = fs::read(fixture.path("out")).unwrap();
                assert!(found == tank.files[name], "{told}: without d{number}: {} bytes", found.len());
            }
            false => all = false,
        }
    }
    all
}

/// For programs that append to a file of a mounted pool: what they wrote stays whole, or cannot be read until its
/// length is known, wherever the first `protect` is killed that finds the file as its writer left it.
#[test]
fn protect_of_a_file_whose_writer_died_may_be_killed() {
    let test = "protect_of_a_file_whose_writer_died_may_be_killed";
    if !can_mount(test) {
        return;
    }
    let mut tank = Tank::of(&["log", "other"]);
    let fixture = tank.fixture.clone();
    fixture.kill_everywhere(
        test,
        6,
        &["protect", "tank", "--pools", "names"],
        &mut tank,
        |tank, round| append_and_die(tank, "log", &bytes(5000 + round as usize % 3 * 4096, round + 100)),
        |tank, _, told| {
            assert_same(told, &tank.seen(told), &tank.files);
            is_read_without_any(tank, &tank.fixture, told, "log");
            tank.converge(told);
            assert!(is_read_without_any(tank, &tank.fixture, told, "log"), "{told}: it is protected");
            assert_same(told, &tank.seen(told), &tank.files);
        },
    );
}
