//! What a mount shows of changes through a mount on another host: a file that is opened after the other host has closed
//! it has the new content, as with NFS.

use crate::network::Network;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Rounds; in each one, both hosts have pages and attributes of the file in their caches.
const ROUNDS: usize = 60;

/// Bytes that say which round wrote them.
fn content(round: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at / 512) * 31 + round * 7 + at % 5) as u8).collect()
}

/// All that one finds out about a file: by its name, and by its content.
fn assert_shown(path: &Path, expected: &[u8], what: &str) {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    let size = file.metadata().unwrap().len();
    let mut found = Vec::new();
    file.read_to_end(&mut found).unwrap();
    assert_eq!((found.len(), size), (expected.len(), expected.len() as u64), "{what}");
    assert!(found == expected, "{what}: another content");
}

fn overwrite(path: &Path, content: &[u8], truncate: bool) {
    // Both ways of writing: past the pages of the mount, and through them.
    let mut file = File::options().write(true).read(!truncate).truncate(truncate).open(path).unwrap();
    file.write_all(content).unwrap();
}

fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(&new, path).unwrap();
}

fn append(path: &Path, content: &[u8]) {
    File::options().append(true).open(path).unwrap().write_all(content).unwrap();
}

fn mounts(test: &str) -> Option<(Network, Vec<crate::worker::Follower>, [PathBuf; 2])> {
    let network = Network::new(test, 2)?;
    let (first, one) = network.mount(1, &["--workers", "0"]);
    let (second, two) = network.mount(2, &["--workers", "0"]);
    Some((network, vec![first, second], [one, two]))
}

fn end(network: &Network, mounts: Vec<crate::worker::Follower>) {
    mounts.into_iter().for_each(|mut mount| mount.end());
    network.expect(0, 0, &["protect", "tree"]);
    network.assert_clean();
}

#[test]
fn a_file_that_is_opened_after_another_host_closed_it_has_the_new_content() {
    let test = "a_file_that_is_opened_after_another_host_closed_it_has_the_new_content";
    let Some((network, running, at)) = mounts(test) else { return };
    let files = at.map(|at| at.join("file"));
    let mut expected = content(0, 50_000);
    fs::write(&files[0], &expected).unwrap();
    files.iter().for_each(|file| assert_shown(file, &expected, "at first"));
    for round in 1..ROUNDS {
        let (writer, reader) = (&files[round % 2], &files[(round + 1) % 2]);
        // Fresh attributes, and all pages.
        assert_shown(reader, &expected, "before");
        let what = match round % 5 {
            0 => {
                expected = content(round, expected.len());
                overwrite(writer, &expected, false);
                "the same size"
            }
            1 => {
                expected = content(round, 90_000 + round);
                overwrite(writer, &expected, true);
                "longer"
            }
            2 => {
                expected = content(round, 10_000 + round);
                overwrite(writer, &expected, true);
                "shorter"
            }
            3 => {
                expected = content(round, 30_000 + round);
                replace(writer, &expected);
                "another file of this name"
            }
            _ => {
                let more = content(round, 5_000);
                append(writer, &more);
                expected.extend(more);
                "appended"
            }
        };
        assert_shown(reader, &expected, &format!("round {round}: {what}"));
        assert_shown(writer, &expected, &format!("round {round}: {what}, on the host that wrote"));
    }
    end(&network, running);
}

/// Hosts take turns at appending: each one opens the file after the other one has closed it.
#[test]
fn hosts_that_append_in_turn_overwrite_nothing() {
    let Some((network, running, at)) = mounts("hosts_that_append_in_turn_overwrite_nothing") else { return };
    let files = at.map(|at| at.join("log"));
    fs::write(&files[0], b"").unwrap();
    let mut expected = String::new();
    for line in 0..ROUNDS {
        let text = format!("line {line}\n");
        // The other host has just seen the old size.
        assert!(fs::metadata(&files[(line + 1) % 2]).unwrap().len() <= expected.len() as u64);
        append(&files[line % 2], text.as_bytes());
        expected += &text;
    }
    assert_eq!(fs::read_to_string(network.tree().join("log")).unwrap(), expected);
    end(&network, running);
}

/// A host that wrote a part of a file does not take what others wrote meanwhile for its own pages.
#[test]
fn parts_that_several_hosts_wrote_are_seen_by_all() {
    let Some((network, running, at)) = mounts("parts_that_several_hosts_wrote_are_seen_by_all") else {
        return;
    };
    let files = at.map(|at| at.join("file"));
    let mut expected = content(0, 64 << 10);
    fs::write(&files[0], &expected).unwrap();
    for round in 1..ROUNDS {
        let mut open = files.each_ref().map(|file| {
            let mut open = File::options().read(true).write(true).open(file).unwrap();
            open.read_to_end(&mut Vec::new()).unwrap();
            open
        });
        for (host, file) in open.iter_mut().enumerate() {
            let (start, part) = (host * (32 << 10) + round * 100, content(round + 1000 * host, 3_000));
            file.seek(SeekFrom::Start(start as u64)).unwrap();
            file.write_all(&part).unwrap();
            expected[start..start + part.len()].copy_from_slice(&part);
        }
        drop(open);
        files.iter().for_each(|file| assert_shown(file, &expected, &format!("round {round}")));
    }
    end(&network, running);
}

/// A program that has the old file open sees that one, and who opens the name anew sees the new one.
#[test]
fn a_replaced_file_that_is_open_is_not_opened_again() {
    let Some((network, running, [one, two])) = mounts("a_replaced_file_that_is_open_is_not_opened_again")
    else {
        return;
    };
    fs::write(one.join("file"), b"old").unwrap();
    let mut old = File::open(two.join("file")).unwrap();
    replace(&one.join("file"), b"another");
    assert_shown(&two.join("file"), b"another", "replaced");
    fs::remove_file(one.join("file")).unwrap();
    assert_eq!(File::open(two.join("file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    drop(old);
    end(&network, running);
}
