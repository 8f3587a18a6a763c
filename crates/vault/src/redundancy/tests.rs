//! Crash safety of redundancy files.

use super::{Draft, PartPath, REDUNDANCY, STAGING, redo};
use crate::coder::Coders;
use crate::format::{FileId, Header, Metadata, Records, Version};
use crate::geometry::{Geometry, Tail};
use crate::tree::{Generation, Tree, join};
use crate::world::Timestamp;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

struct Fixture {
    directory: tempfile::TempDir,
    tree: Tree,
    coders: Coders,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::open(directory.path()).unwrap();
        for top in [REDUNDANCY, STAGING] {
            tree.make_directories(top, 0o700).unwrap();
        }
        Fixture { directory, tree, coders: Coders::new().unwrap() }
    }

    fn place(&self, path: &[u8]) -> PartPath {
        PartPath { tree: self.tree.clone(), path: join(REDUNDANCY, path) }
    }

    fn staged(&self) -> usize {
        std::fs::read_dir(self.directory.path().join("staging")).unwrap().count()
    }

    fn header(&self, revision: u64) -> Header {
        let code = self.coders.get("4+2").unwrap().code().clone();
        Header {
            version: Version::Two,
            id: FileId([7; 16]),
            revision,
            generation: Generation {
                size: 1000,
                mtime: Timestamp::from_nanoseconds(1),
                ctime: Timestamp::from_nanoseconds(2),
                inode: 3,
            },
            protected_at: Timestamp::from_nanoseconds(4),
            geometry: Geometry::new(4, 256, 16, Tail::Balanced, code.granule() as u64).unwrap(),
            code,
            strong: false,
            first: 0,
            columns: 2,
            root: [0; 16],
            metadata: Metadata::default(),
            targets: Vec::new(),
            binding: None,
            extensions: Vec::new(),
        }
    }

    fn publish(&self, path: &[u8], revision: u64) {
        let header = self.header(revision);
        let draft = Draft::new(self.place(path)).unwrap();
        draft.write_headers(&header, header.encode(0).unwrap().len()).unwrap();
        draft.sync().unwrap();
        draft.publish().unwrap();
    }
}

#[test]
fn a_draft_takes_the_place_of_what_is_there_or_is_gone() {
    let fixture = Fixture::new();
    fixture.publish(b"a/b/file", 1);
    let path = fixture.directory.path().join("redundancy/a/b/file");
    let inode = std::fs::metadata(&path).unwrap().ino();
    let draft = Draft::new(fixture.place(b"a/b/file")).unwrap();
    draft.write_whole(b"half").unwrap();
    assert_eq!(fixture.staged(), 1);
    drop(draft);
    assert_eq!((fixture.staged(), std::fs::metadata(&path).unwrap().ino()), (0, inode));
    fixture.publish(b"a/b/file", 2);
    assert_ne!(std::fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(fixture.place(b"a/b/file").open(&fixture.coders).unwrap().unwrap().header.revision, 2);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

/// Of two drafts that began with the same file, or with none, the later one is refused: its redundancy may be older.
#[test]
fn a_draft_replaces_only_what_was_there_when_it_was_begun() {
    let fixture = Fixture::new();
    let begun = |path: &[u8], revision| {
        let header = fixture.header(revision);
        let draft = Draft::new(fixture.place(path)).unwrap();
        draft.write_headers(&header, header.encode(0).unwrap().len()).unwrap();
        draft
    };
    let revision = |path: &[u8]| fixture.place(path).open(&fixture.coders).unwrap().unwrap().header.revision;
    fixture.publish(b"there", 1);
    for path in [&b"there"[..], b"new/one"] {
        let (slow, fast) = (begun(path, 2), begun(path, 3));
        fast.publish().unwrap();
        let refused = slow.publish().unwrap_err();
        assert!(super::fence::is_superseded(&refused), "{refused}");
        assert_eq!((revision(path), fixture.staged()), (3, 0));
    }
    // After a removal the path is free.
    let draft = begun(b"there", 4);
    fixture.tree.remove(b"redundancy/there").unwrap();
    draft.publish().unwrap();
    assert_eq!(revision(b"there"), 4);
}

#[test]
fn a_draft_is_placed_durably_wherever_its_directories_are() {
    let fixture = Fixture::new();
    for (path, revision) in [(&b"deep/er/file"[..], 1), (b"deep/er/file", 2), (b"file", 1)] {
        let header = fixture.header(revision);
        let draft = Draft::new(fixture.place(path)).unwrap();
        draft.write_headers(&header, header.encode(0).unwrap().len()).unwrap();
        draft.sync().unwrap();
        draft.publish_durably().unwrap();
        assert_eq!(fixture.place(path).open(&fixture.coders).unwrap().unwrap().header.revision, revision);
        assert_eq!(fixture.staged(), 0);
    }
}

#[test]
fn a_draft_that_has_no_place_is_gone_too() {
    let fixture = Fixture::new();
    fixture.publish(b"file", 1);
    // A file in place of a directory, and a directory in place of a file.
    for (path, made) in [(&b"file/inner"[..], b""), (b"directory", b"")] {
        fixture.tree.make_directories(b"redundancy/directory/inner", 0o700).unwrap();
        let draft = Draft::new(fixture.place(path)).unwrap();
        draft.write_whole(made).unwrap();
        draft.publish().unwrap_err();
        assert_eq!(fixture.staged(), 0);
    }
    assert_eq!(fixture.place(b"file").open(&fixture.coders).unwrap().unwrap().header.revision, 1);
}

#[test]
fn a_header_that_grew_does_not_overwrite_records() {
    let fixture = Fixture::new();
    let mut header = fixture.header(1);
    let bytes = header.encode(0).unwrap().len();
    header.metadata.attributes = vec![(b"user.long".to_vec(), vec![1; 500])];
    let error = Draft::new(fixture.place(b"file")).unwrap().write_headers(&header, bytes).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

/// The bytes of an update, by the format document.
fn update(id: u8, revision: u64, path: &[u8], writes: &[(u64, &[u8])]) -> Vec<u8> {
    let mut bytes = b"\x89GABRO\r\n".to_vec();
    bytes.extend([id; 16]);
    bytes.extend(revision.to_le_bytes());
    bytes.extend((path.len() as u32).to_le_bytes());
    bytes.extend(path);
    bytes.extend((writes.len() as u64).to_le_bytes());
    for (offset, content) in writes {
        bytes.extend(offset.to_le_bytes());
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend(*content);
    }
    sealed(bytes)
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = blake3::hash(&bytes);
    bytes.extend(checksum.as_bytes());
    bytes
}

#[test]
fn updates_of_others_and_of_the_past_are_not_made() {
    let fixture = Fixture::new();
    fixture.publish(b"file", 5);
    let path = fixture.directory.path().join("redundancy/file");
    let before = std::fs::read(&path).unwrap();
    let at = Records::new(&fixture.header(5), fixture.header(5).encode(0).unwrap().len()).frame_offset(0, 0);
    for (id, revision, made) in [(7, 4, false), (8, 9, false), (7, 5, true)] {
        let bytes = update(id, revision, b"redundancy/file", &[(at, b"new")]);
        std::fs::write(fixture.directory.path().join("staging/x.redo"), bytes).unwrap();
        assert_eq!(redo::recover(&fixture.tree).unwrap(), (1, 0));
        assert_eq!(fixture.staged(), 0);
        assert_eq!(std::fs::read(&path).unwrap() != before, made, "{id}, {revision}");
    }
}

#[test]
fn an_update_leads_nowhere_else() {
    let fixture = Fixture::new();
    let outside = fixture.directory.path().parent().unwrap().join("gabion-redo-outside");
    for path in [&b"../gabion-redo-outside"[..], b"/etc/hostname", b"redundancy/../../x", b"", b".", b"no\0"]
    {
        std::fs::write(fixture.directory.path().join("staging/x.redo"), update(7, 9, path, &[(0, b"!")]))
            .unwrap();
        // Refused or without effect, but never applied.
        let _ = redo::recover(&fixture.tree);
        assert!(!outside.exists());
    }
}

#[test]
fn hostile_updates_are_no_updates() {
    let fixture = Fixture::new();
    fixture.publish(b"file", 5);
    let path = fixture.directory.path().join("redundancy/file");
    let before = std::fs::read(&path).unwrap();
    let good = update(7, 9, b"redundancy/file", &[(400, b"some"), (500, b"bytes")]);
    let body = &good[..good.len() - 32];
    let number = |at: usize, value: u64| {
        let mut bytes = body.to_vec();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        sealed(bytes)
    };
    let count_at = 8 + 16 + 8 + 4 + b"redundancy/file".len();
    let mut hostile = vec![Vec::new(), vec![0; 31], vec![0; 32], sealed(Vec::new()), body.to_vec()];
    // Numbers that lead beyond the end, or wrap around.
    for value in [u64::MAX, u64::MAX - 7, 1 << 63, 3, 1 << 32] {
        hostile.push(number(count_at, value));
        hostile.push(number(count_at + 16, value));
    }
    hostile.extend((0..body.len()).map(|length| sealed(body[..length].to_vec())));
    hostile.extend((0..good.len()).step_by(7).map(|at| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    }));
    for bytes in hostile {
        std::fs::write(fixture.directory.path().join("staging/x.redo"), &bytes).unwrap();
        redo::recover(&fixture.tree).unwrap();
        fixture.place(b"file").open(&fixture.coders).unwrap();
        let parsed = std::fs::read(&path).unwrap() != before;
        assert!(!parsed, "an update of {} bytes was made", bytes.len());
    }
    // The valid one is applied.
    std::fs::write(fixture.directory.path().join("staging/x.redo"), &good).unwrap();
    redo::recover(&fixture.tree).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[400..404], *b"some");
}

#[test]
fn drafts_of_the_living_are_left_alone() {
    let fixture = Fixture::new();
    let alive = Draft::new(fixture.place(b"file")).unwrap();
    std::fs::write(fixture.directory.path().join("staging/dead.draft"), b"half").unwrap();
    std::fs::write(fixture.directory.path().join("staging/dead.redo-draft"), b"half").unwrap();
    std::fs::write(fixture.directory.path().join("staging/not ours"), b"whatever").unwrap();
    assert_eq!(redo::recover(&fixture.tree).unwrap(), (0, 2));
    assert_eq!(fixture.staged(), 2);
    alive.write_whole(b"still").unwrap();
    alive.publish().unwrap();
}

/// Regression: a cleanup that looked at a draft between its creation and its lock removed it, and the redundancy could
/// not be put in place. The commands of a daemon clean up while its workers protect files.
#[test]
fn drafts_that_are_just_being_made_are_left_alone() {
    let fixture = Fixture::new();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cleaning = scope.spawn(|| {
            let mut removed = 0;
            while !is_done.load(Ordering::Relaxed) {
                removed += redo::recover(&fixture.tree).unwrap().1;
            }
            removed
        });
        let published = (0..3000).filter(|number| {
            let place = fixture.place(format!("{}", number % 10).as_bytes());
            Draft::new(place).unwrap().publish().is_ok()
        });
        let published = published.count();
        is_done.store(true, Ordering::Relaxed);
        println!("{} drafts were removed", cleaning.join().unwrap());
        assert_eq!(published, 3000);
    });
}

/// An unreadable file does not count as absent: only an obstacle or a damaged file may be replaced.
#[test]
fn errors_of_the_system_are_told_from_damage() {
    use super::PartError;
    use crate::format::HeaderError;
    use rustix::io::Errno;
    let error = |errno: Errno| PartError::Io(std::io::Error::from_raw_os_error(errno.raw_os_error()));
    for errno in
        [Errno::IO, Errno::ACCESS, Errno::PERM, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::STALE]
    {
        assert!(error(errno).is_unreadable() && !error(errno).is_later(), "{errno:?}");
    }
    for errno in [Errno::ISDIR, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG, Errno::INVAL] {
        assert!(!error(errno).is_unreadable(), "{errno:?}");
    }
    let headers = |head, trailer| PartError::Headers { head, trailer };
    assert!(headers(HeaderError::Version(3), HeaderError::Checksum).is_later());
    assert!(headers(HeaderError::Magic, HeaderError::Flags(64)).is_later());
    let damaged = headers(HeaderError::Checksum, HeaderError::Short);
    assert!(!damaged.is_later() && !damaged.is_unreadable());
}

/// A file of a later version is never replaced.
#[test]
fn a_draft_does_not_replace_a_later_version() {
    let fixture = Fixture::new();
    fixture.publish(b"file", 1);
    let path = fixture.directory.path().join("redundancy/file");
    let mut bytes = std::fs::read(&path).unwrap();
    let length = fixture.header(1).encode(0).unwrap().len();
    bytes[8] = 3;
    crate::hostile::seal_header(&mut bytes[..length]);
    std::fs::write(&path, &bytes).unwrap();
    let header = fixture.header(2);
    let draft = Draft::new(fixture.place(b"file")).unwrap();
    draft.write_headers(&header, length).unwrap();
    let refused = draft.publish().unwrap_err();
    assert!(refused.to_string().contains("never overwritten"), "{refused}");
    assert!(std::fs::read(&path).unwrap() == bytes);
    assert_eq!(fixture.staged(), 0);
}
