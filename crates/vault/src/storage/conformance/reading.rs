//! Names, sizes and bytes.

use super::{Fixture, cells, pattern};
use crate::storage::{Content, Fault};
use crate::tree::{Kind, join};
use gabion_platform::window::Window;
use std::thread::sleep;
use std::time::Duration;

pub(super) fn listings_are_sorted_and_complete(fixture: &Fixture) {
    let long = [b'n'; 255];
    let mut names: Vec<&[u8]> = vec![
        b"plain",
        b"with space",
        b"new\nline",
        b"\xff\xfe not text",
        b"-dash",
        b".hidden",
        b"tree",
        b"pool.toml",
        b"a.draft",
        b"\\",
        &long,
    ];
    for (number, name) in names.iter().enumerate() {
        (fixture.put)(&join(b"odd", name), &pattern(number as u64, 1));
    }
    (fixture.put)(b"odd/sub/deep/file", b"deep");
    names.push(b"sub");
    names.sort();
    let folder = fixture.storage.folder(b"odd").unwrap_or_else(|error| panic!("no folder: {error}"));
    let listed: Vec<&[u8]> = folder.names().iter().map(|(name, _)| name).collect();
    assert_eq!(listed, names, "names of a directory, sorted by their bytes");
    for (name, listed_kind) in folder.names().iter() {
        let stat = folder.stat(name).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        let wanted = if name == b"sub" { Kind::Directory } else { Kind::File };
        assert_eq!(stat.kind, wanted, "{name:?}");
        assert!(
            listed_kind.is_none_or(|listed_kind| listed_kind == wanted),
            "{name:?}: the directory may say nothing, but not this"
        );
        let found = fixture.storage.find(&join(b"odd", name));
        assert_eq!(found.ok().flatten(), Some(stat), "{name:?}: both ways to ask give one answer");
    }
    let top = fixture.storage.folder(b"").unwrap_or_else(|error| panic!("no top: {error}"));
    assert!(top.names().iter().any(|(name, _)| name == b"odd"), "the top is a directory like any other");
    assert_eq!(fixture.content(b"odd/sub/deep/file"), b"deep");
    assert!(!fixture.storage.shown(b"odd").as_os_str().is_empty());
}

pub(super) fn a_write_changes_the_generation(fixture: &Fixture) {
    let ask = || match fixture.storage.find(b"file") {
        Ok(Some(stat)) => stat.generation(),
        other => panic!("no file: {other:?}"),
    };
    (fixture.put)(b"file", &pattern(1000, 1));
    let before = ask();
    let content = fixture.storage.open(b"file").unwrap_or_else(|error| panic!("cannot open: {error}"));
    assert_eq!(
        content.stat().map(|stat| stat.generation()).ok(),
        Some(before),
        "an open file is what was found"
    );
    assert_eq!(ask(), before, "nothing changes by itself");
    // Longer than the finest step of a file system's clock.
    sleep(Duration::from_millis(20));
    (fixture.put)(b"file", &pattern(1000, 2));
    let after = ask();
    assert_ne!(after, before, "same size, other bytes");
    let now = content.stat().map(|stat| stat.generation());
    assert!(now.ok() != Some(before), "whoever reads meanwhile must notice");
    sleep(Duration::from_millis(20));
    (fixture.put)(b"file", &pattern(1000, 2));
    assert_ne!(ask(), after, "same bytes, but written");
}

pub(super) fn cells_are_the_content(fixture: &Fixture) {
    let (k, block) = (fixture.k as u64, fixture.block);
    (fixture.put)(b"first", b"1");
    let segment = k * block * fixture.geometry(b"first").rows();
    let mut sizes = vec![0, 1, 63, 64, 65, block - 1, block, block + 1];
    sizes.extend([k * block - 1, k * block, k * block + 1, 5 * k * block + block / 2, segment + block + 1]);
    for size in sizes {
        let content = pattern(size, size);
        (fixture.put)(b"dir/file", &content);
        assert!(
            fixture.content(b"dir/file") == content,
            "{size} bytes in blocks of {block} over {k} columns"
        );
        let file = fixture.storage.open(b"dir/file").unwrap_or_else(|error| panic!("cannot open: {error}"));
        mapped_columns_are_the_content(fixture, &*file, &content);
        file.drop_cache();
        assert!(fixture.content(b"dir/file") == content, "{size} bytes from the medium");
    }
}

fn mapped_columns_are_the_content(fixture: &Fixture, file: &dyn Content, content: &[u8]) {
    let mut window = Window::new().unwrap_or_else(|error| panic!("no window: {error}"));
    for run in fixture.geometry(b"dir/file").cut(content.len() as u64).runs(16) {
        if file.map_columns(&run, fixture.k, &mut window) {
            for column in 0..fixture.k {
                let piece = run.piece(column);
                assert_eq!(piece.end - piece.start, run.bytes(), "only pieces that are all there are shown");
                let there = &content[piece.start as usize..piece.end as usize];
                assert!(window.piece(column) == there, "{piece:?} is shown as it is read");
            }
            assert!(window.is_whole(), "what is shown is there");
        }
    }
}

pub(super) fn bytes_that_are_gone_are_not_counted(fixture: &Fixture) {
    let size = 3 * fixture.k as u64 * fixture.block;
    let content = pattern(size, 3);
    (fixture.put)(b"file", &content);
    let geometry = fixture.geometry(b"file");
    let left = size - fixture.block / 2;
    (fixture.cut)(b"file", left);
    let file = fixture.storage.open(b"file").unwrap_or_else(|error| panic!("cannot open: {error}"));
    let mut missing = 0;
    for (run, row, column) in cells(&geometry, size, fixture.k) {
        let cell = run.cell(row, column);
        let mut buffer = vec![0x55; run.block as usize];
        let got = match file.read(&run, row, column, &mut buffer) {
            Ok(got) => got,
            Err(fault) => panic!("{cell:?}: {fault}; a short file is no fault"),
        };
        let there = &content[cell.start as usize..cell.end as usize];
        assert_eq!(buffer[..got], there[..got], "{cell:?}: what is there is right");
        assert!(buffer[got..].iter().all(|&byte| byte == 0), "{cell:?}: the rest is zeros");
        missing += cell.end - cell.start - got as u64;
    }
    assert_eq!(missing, fixture.block / 2, "bytes that were cut off are counted as missing");
}

pub(super) fn absent_paths_are_reported(fixture: &Fixture) {
    (fixture.put)(b"dir/file", b"x");
    for path in [&b"none"[..], b"dir/none", b"none/none", b"dir/file/none"] {
        assert!(matches!(fixture.storage.find(path), Ok(None)), "{path:?} is not there");
        assert!(fixture.storage.open(path).is_err(), "{path:?} cannot be opened");
        assert!(fixture.storage.folder(path).is_err(), "{path:?} is no directory");
    }
    assert!(fixture.storage.folder(b"dir/file").is_err(), "a file is no directory");
    assert!(fixture.storage.open(b"dir").is_err(), "a directory is no file");
    (fixture.remove)(b"dir/file");
    assert!(matches!(fixture.storage.find(b"dir/file"), Ok(None)), "what was removed is gone");
}

pub(super) fn nothing_leads_out(fixture: &Fixture) {
    (fixture.put)(b"dir/file", b"inside");
    (fixture.link)(b"up", b"..");
    (fixture.link)(b"passwd", b"/etc/passwd");
    let paths: [&[u8]; 7] =
        [b"..", b"../x", b"/etc/passwd", b"dir/../../x", b"up/x", b"up/..", b"dir/file\0"];
    for path in paths {
        assert!(!matches!(fixture.storage.find(path), Ok(Some(_))), "{path:?} is not found");
        assert!(fixture.storage.open(path).is_err(), "{path:?} is not opened");
        assert!(fixture.storage.folder(path).is_err(), "{path:?} is not listed");
        assert!(fixture.storage.open_for_repair(path, None).is_err(), "{path:?} is not made");
    }
    for link in [&b"up"[..], b"passwd"] {
        let stat = fixture.storage.find(link);
        assert_eq!(
            stat.ok().flatten().map(|stat| stat.kind),
            Some(Kind::Link),
            "links are seen, not followed"
        );
        assert!(fixture.storage.open(link).is_err(), "a link is not followed");
        assert!(fixture.storage.open_for_repair(link, None).is_err(), "a link is not written through");
    }
}

pub(super) fn unreadable_files_are_errors(fixture: &Fixture) {
    (fixture.put)(b"dir/bad", &pattern(1000, 1));
    (fixture.put)(b"dir/good", &pattern(1000, 2));
    (fixture.spoil)(b"dir/bad");
    if let Ok(content) = fixture.storage.open(b"dir/bad") {
        let run = fixture.geometry(b"dir/good").cut(1000).run(0, 1);
        let read = content.read(&run, 0, 0, &mut vec![0; run.block as usize]);
        assert!(matches!(read, Err(Fault::Io(_) | Fault::Lost(_) | Fault::Timeout(_))), "{read:?}");
    }
    let folder = fixture.storage.folder(b"dir").unwrap_or_else(|error| panic!("no folder: {error}"));
    assert_eq!(folder.names().iter().count(), 2, "its name is still there");
    assert!(fixture.content(b"dir/good") == pattern(1000, 2), "others are not concerned");
}
