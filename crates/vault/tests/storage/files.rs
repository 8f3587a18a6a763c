//! Files are put, read, moved and removed.

use super::fixture::{BLOCK, PoolFixture, all_names, bytes, metadata};
use gabion_vault::format::Metadata;
use gabion_vault::tree::Kind;
use gabion_vault::world::Timestamp;
use std::io::{self, ErrorKind, Read};

#[test]
fn files_round_trip() {
    let place = PoolFixture::new(5, 3, 2);
    let block = BLOCK as usize;
    let mut revision = 0;
    for size in
        [0, 1, 63, 64, block - 1, block, block + 1, 3 * block - 1, 3 * block, 3 * block + 1, 50 * block + 7]
    {
        let content = bytes(size, size as u64);
        place.put("dir/file", &content);
        assert!(place.get("dir/file").unwrap() == content, "{size} bytes");
        let stub = place.pool.stub(b"dir/file").unwrap();
        assert_eq!(
            (stub.size, stub.mtime, &stub.metadata),
            (size as u64, Timestamp::from_nanoseconds(5), &metadata())
        );
        // Only this version has objects, with the lengths that the format defines.
        let objects: u64 = place.objects().values().sum();
        assert_eq!((place.objects().len(), objects), (size.div_ceil(block).min(3), size as u64));
        assert!(stub.revision > revision, "every put is a revision");
        revision = stub.revision;
    }
}

#[test]
fn metadata_travels() {
    let place = PoolFixture::new(3, 2, 1);
    let attributes = vec![(b"user.a".to_vec(), b"\0\xff".to_vec())];
    let metadata = Metadata { mode: 0o4711, uid: 7, gid: 8, attributes, attributes_left_out: false };
    place.pool.put(b"file", &mut &b"x"[..], &metadata, Timestamp::from_nanoseconds(-9)).unwrap();
    let stub = place.pool.stub(b"file").unwrap();
    assert_eq!((&stub.metadata, stub.mtime), (&metadata, Timestamp::from_nanoseconds(-9)));
    place.pool.put_link(b"link", b"\xff/..", &metadata, Timestamp::from_nanoseconds(1)).unwrap();
    assert_eq!(place.pool.stub(b"link").unwrap().link.as_deref(), Some(&b"\xff/.."[..]));
    place.pool.make_directory(b"closed", 0o750, 0, 0).unwrap();
    let listed = place.pool.list(b"").unwrap();
    let closed = listed.iter().find(|(name, _)| name == b"closed").unwrap().1.as_ref().unwrap();
    assert_eq!((closed.stat.kind, closed.stat.mode), (Kind::Directory, 0o750));
}

struct Breaks(usize);

impl Read for Breaks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the source broke"));
        }
        let bytes = buffer.len().min(self.0);
        self.0 -= bytes;
        Ok(bytes)
    }
}

#[test]
fn a_put_that_fails_leaves_what_was_there() {
    let place = PoolFixture::new(4, 2, 1);
    place.put("file", b"old");
    let before = place.objects();
    let error = place
        .pool
        .put(b"file", &mut Breaks(20_000), &metadata(), Timestamp::from_nanoseconds(5))
        .unwrap_err();
    assert!(error.to_string().contains("the source broke"), "{error}");
    assert_eq!(place.get("file").unwrap(), b"old");
    assert_eq!(place.objects(), before, "nothing is left behind");
    // A directory is not replaced by a file, nor a file used as a directory.
    place.put("dir/inner", b"x");
    assert_eq!(
        place
            .pool
            .put(b"dir", &mut &b"y"[..], &metadata(), Timestamp::from_nanoseconds(5))
            .unwrap_err()
            .kind(),
        ErrorKind::IsADirectory
    );
    assert!(
        place.pool.put(b"file/below", &mut &b"y"[..], &metadata(), Timestamp::from_nanoseconds(5)).is_err()
    );
    assert_eq!(place.pool.status().warnings, [], "nobody was blamed for that");
    assert_eq!(place.objects().len(), before.len() + 1);
}

#[test]
fn zeros_become_holes() {
    let place = PoolFixture::new(3, 2, 1);
    place
        .pool
        .put(b"sparse", &mut io::repeat(0).take(10 << 20), &metadata(), Timestamp::from_nanoseconds(5))
        .unwrap();
    let used: u64 = place.pool.status().targets.iter().filter_map(|target| target.used).sum();
    assert!(used < 100_000, "{used}");
    assert!(place.get("sparse").unwrap() == vec![0; 10 << 20]);
}

#[test]
fn removing_leaves_no_objects() {
    let place = PoolFixture::new(4, 2, 1);
    place.put("dir/a", &bytes(30_000, 1));
    place.put("dir/b", &bytes(30_000, 2));
    assert_eq!(place.pool.remove(b"dir").unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(place.pool.remove(b"none").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(place.pool.remove(b"").is_err());
    place.pool.remove(b"dir/a").unwrap();
    place.pool.remove(b"dir/b").unwrap();
    place.pool.remove(b"dir").unwrap();
    assert!(place.objects().is_empty() && all_names(&place.pool, b"").is_empty());
    assert!(place.pool.sweep(false).unwrap().orphans.is_empty());
}

#[test]
fn renames_move_files_and_directories() {
    let place = PoolFixture::new(4, 2, 1);
    place.put("a/one", &bytes(30_000, 1));
    place.put("a/sub/two", b"two");
    place.put("b", &bytes(20_000, 2));
    let revision = place.pool.stub(b"a/one").unwrap();
    place.pool.rename(b"a/one", b"b").unwrap();
    assert!(place.get("b").unwrap() == bytes(30_000, 1), "over what was there");
    assert_eq!(place.pool.stub(b"b").unwrap(), revision, "its version is the same, so its redundancy fits");
    assert_eq!(place.objects().len(), 3, "the objects of what was there are gone");
    place.pool.rename(b"a", b"c").unwrap();
    assert_eq!(all_names(&place.pool, b""), ["b", "c/", "c/sub/", "c/sub/two"]);
    assert_eq!(place.get("c/sub/two").unwrap(), b"two");
    let refused = |from: &[u8], to: &[u8], kind: ErrorKind| {
        assert_eq!(place.pool.rename(from, to).unwrap_err().kind(), kind, "{from:?} to {to:?}");
    };
    refused(b"none", b"x", ErrorKind::NotFound);
    refused(b"b", b"c", ErrorKind::IsADirectory);
    refused(b"c", b"b", ErrorKind::NotADirectory);
    refused(b"c", b"c/sub/deeper", ErrorKind::InvalidInput);
    refused(b"b", b"none/b", ErrorKind::NotFound);
    refused(b"b", b"../b", ErrorKind::InvalidInput);
    place.put("d/full", b"x");
    refused(b"c", b"d", ErrorKind::DirectoryNotEmpty);
    place.pool.make_directory(b"empty", 0o755, 0, 0).unwrap();
    place.pool.rename(b"c", b"empty").unwrap();
    assert_eq!(all_names(&place.pool, b""), ["b", "d/", "d/full", "empty/", "empty/sub/", "empty/sub/two"]);
}

/// With `..` a path would stay beneath the target but leave the namespace: pool.toml could be removed by name.
#[test]
fn names_do_not_lead_to_other_files_of_a_target() {
    let place = PoolFixture::new(3, 2, 1);
    place.put("file", b"x");
    for path in [&b"../pool.toml"[..], b"..", b"a/../../pool.toml", b"/etc/passwd", b"a//b", b"./a", b"a\0"] {
        assert_eq!(place.pool.remove(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        assert!(
            place.pool.put(path, &mut &b"x"[..], &metadata(), Timestamp::from_nanoseconds(5)).is_err(),
            "{path:?}"
        );
        assert!(place.pool.rename(b"file", path).is_err() && place.pool.list(path).is_err(), "{path:?}");
        assert!(place.pool.make_directory(path, 0o700, 0, 0).is_err(), "{path:?}");
    }
    assert_eq!(place.get("file").unwrap(), b"x");
}
