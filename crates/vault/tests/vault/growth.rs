//! A file that grew has parts that nobody had to write: what changed there is reported.
//!
//! One bit of a log rotted, ten bytes were appended, and `protect` made redundancy of all of it: from then on the corruption was what is protected, and
//! nobody was told.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::status::status;
use std::io::Write;
use std::os::unix::fs::FileExt;

fn append(ground: &Playground, name: &str) {
    let mut file = std::fs::File::options().append(true).open(ground.path(name)).unwrap();
    file.write_all(b"ten bytes.").unwrap();
}

/// What `status` lists.
fn listed(ground: &Playground) -> Vec<Vec<u8>> {
    let status = status(&ground.vault, b"", false, 10, QUIET).unwrap();
    status.changed_in_growth.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn corruption_in_the_old_part_of_a_file_that_grew_is_reported() {
    // Small files are cut otherwise when they grow, larger ones at their end alone.
    for (code, size) in [("4+2", 3000), ("4+2", 100_000), ("4+2", 5_000_000), ("1+1", 20_000_000)] {
        let ground = Playground::new(code);
        for name in ["log/rotten", "fine"] {
            ground.write(name, &Seed(size).bytes(size as usize));
        }
        ground.protect_all();
        flip(&ground.path("log/rotten"), size / 3);
        append(&ground, "log/rotten");
        append(&ground, "fine");
        let report = ground.protect_all();
        let [(path, ranges)] = &report.done.changed[..] else { panic!("{size}: {:?}", report.done) };
        assert_eq!(path, b"log/rotten");
        assert!(ranges.len() == 1 && ranges[0].contains(&(size / 3)), "{size}: {ranges:?}");
        assert_eq!(listed(&ground), [b"log/rotten"]);
        // A scrub compares with what is protected now, and cannot know.
        ground.assert_clean();
        assert_eq!(listed(&ground), [b"log/rotten"]);
        append(&ground, "log/rotten");
        assert_eq!(ground.protect_all().done.changed, []);
        assert_eq!(listed(&ground), [] as [Vec<u8>; 0]);
    }
}

/// People edit files: whoever is warned of that no longer reads warnings.
#[test]
fn edits_are_not_reported() {
    let ground = Playground::new("4+2");
    let content = Seed(5).bytes(300_000);
    for name in ["inserted", "rewritten", "replaced", "in place", "cut"] {
        ground.write(name, &content);
    }
    ground.protect_all();
    let mut longer = content.clone();
    longer.splice(100_000..100_000, *b"a line more");
    let write = |name: &str, bytes: &[u8], size: u64| {
        let file = std::fs::File::options().write(true).open(ground.path(name)).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.set_len(size).unwrap();
    };
    write("inserted", &longer, longer.len() as u64);
    write("rewritten", &Seed(6).bytes(400_000), 400_000);
    write("cut", b"x", 200_000);
    longer[0] ^= 1;
    ground.write("new", &longer);
    std::fs::rename(ground.path("new"), ground.path("replaced")).unwrap();
    flip(&ground.path("in place"), 1000);
    let file = std::fs::File::options().write(true).open(ground.path("in place")).unwrap();
    let time = file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    file.set_modified(time).unwrap();
    let report = ground.protect_all();
    assert_eq!((report.done.encoded, &report.done.changed[..]), (5, &[][..]), "{report:?}");
    ground.assert_clean();
}
