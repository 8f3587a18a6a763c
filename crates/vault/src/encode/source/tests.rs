use super::{SHOWN_BYTES, Source};
use crate::encode::EncodeError;
use crate::format::Metadata;
use crate::geometry::{Cut, Geometry, Run, Tail};
use crate::storage::plain::Plain;
use crate::storage::{Content, Fault, Storage};
use crate::tree::{Stat, Tree};
use gabion_platform::mapping::page_bytes;
use gabion_platform::window::Window;
use std::fs::File;
use std::io;

const K: usize = 3;

struct Ground {
    directory: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Ground {
    fn new(size: u64) -> Ground {
        let directory = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + (at >> 9)) as u8).collect();
        std::fs::write(directory.path().join("file"), &bytes).unwrap();
        Ground { directory, bytes }
    }

    fn content(&self) -> Box<dyn Content> {
        let tree = Tree::open(self.directory.path()).unwrap();
        Plain::new(tree.clone(), tree).open(b"file").unwrap()
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.directory.path().join("file")).unwrap()
    }

    fn cut(&self) -> Cut {
        Geometry::new(K as u64, 8192, 48, Tail::Balanced, 1).unwrap().cut(self.bytes.len() as u64)
    }
}

fn blocks_of(run: &Run, row: u64, source: &Source) -> Vec<Vec<u8>> {
    let blocks = source.blocks(run.first + row, K, run.block as usize);
    blocks.into_iter().map(<[u8]>::to_vec).collect()
}

/// In a tail whose columns begin anywhere in a page too, and at the end of the file, where blocks are filled up.
#[test]
fn what_is_shown_is_what_is_read() {
    let ground = Ground::new(3 * 3 * 48 * 8192 - 40_000);
    let content = ground.content();
    let (mut shown, mut read, mut shows) = (Source::default(), Source::default(), Vec::new());
    for run in ground.cut().runs(48) {
        shown.begin(&*content, &run, K);
        shows.push(shown.shown.is_some());
        for row in 0..run.count {
            shown.load(&*content, &run, row, K).unwrap();
            read.load(&*content, &run, row, K).unwrap();
            assert!(blocks_of(&run, row, &shown) == blocks_of(&run, row, &read), "{run:?}, row {row}");
            let cell = run.cell(row, K - 1);
            assert!(
                blocks_of(&run, row, &shown)[K - 1]
                    .starts_with(&ground.bytes[cell.start as usize..cell.end as usize])
            );
        }
        shown.end(&*content, K).unwrap();
    }
    assert!(shows[0] && shows[1], "what was just written lies in memory: {shows:?}");
    assert_eq!(shows.last(), Some(&false), "what has to be filled up is read");
}

#[test]
fn small_pieces_are_read() {
    let ground = Ground::new(K as u64 * (SHOWN_BYTES.start - 8192));
    let run = ground.cut().run(0, 48);
    let mut source = Source::default();
    source.begin(&*ground.content(), &run, K);
    assert!(run.bytes() > 0 && source.shown.is_none() && source.window.is_none());
}

/// The pages behind the new end were in use when they went.
#[test]
fn a_file_that_is_cut_short_while_it_is_encoded_has_changed() {
    let ground = Ground::new(K as u64 * 48 * 8192);
    let (content, run) = (ground.content(), ground.cut().run(0, 48));
    let mut source = Source::default();
    source.begin(&*content, &run, K);
    assert!(source.shown.is_some());
    ground.file().set_len(48 * 8192).unwrap();
    source.load(&*content, &run, 47, K).unwrap();
    let blocks = blocks_of(&run, 47, &source);
    assert!(blocks[0] == ground.bytes[47 * 8192..48 * 8192]);
    assert!(blocks[1..].iter().flatten().all(|&byte| byte == 0));
    assert!(matches!(source.end(&*content, K), Err(EncodeError::Changed)));
    // And not for good: the next run is as any other.
    ground.file().set_len(0).unwrap();
    std::fs::write(ground.directory.path().join("file"), &ground.bytes).unwrap();
    source.begin(&*content, &run, K);
    assert!(blocks_of(&run, 47, &source)[1] == ground.bytes[95 * 8192..96 * 8192]);
    source.end(&*content, K).unwrap();
}

/// A medium that gives errors, as far as one can see through a window: pages are not to be had.
#[derive(Debug)]
struct Failing(Box<dyn Content>, File);

impl Content for Failing {
    fn stat(&self) -> io::Result<Stat> {
        self.0.stat()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    fn read(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<usize, Fault> {
        match (row, column) {
            (5, 1) => Err(Fault::Io(io::Error::other("the medium"))),
            _ => self.0.read(run, row, column, buffer),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.0.read_at(offset, buffer)
    }

    fn map_columns(&self, run: &Run, columns: usize, window: &mut Window) -> bool {
        let pieces: Vec<_> = (0..columns).map(|column| run.piece(column)).collect();
        window.show(&self.1, &pieces).is_ok()
    }

    fn prefetch(&self, run: &Run) {
        self.0.prefetch(run);
    }

    fn drop_cache(&self) {
        self.0.drop_cache();
    }
}

#[test]
fn an_error_of_the_medium_is_told_as_such() {
    let ground = Ground::new(K as u64 * 48 * 8192);
    let run = ground.cut().run(0, 48);
    let content = Failing(ground.content(), tempfile::tempfile().unwrap());
    let mut source = Source::default();
    source.begin(&content, &run, K);
    assert!(blocks_of(&run, 5, &source).iter().flatten().all(|&byte| byte == 0));
    assert!(matches!(source.end(&content, K), Err(EncodeError::Read(Fault::Io(_)))));
}

/// One touch for every page is too many, one for sixteen or for a large page is not.
#[test]
fn what_is_shown_page_by_page_is_read_instead() {
    let ground = Ground::new(3 * 48 * 8192);
    let content = ground.content();
    let run = ground.cut().runs(48).next().unwrap();
    let (bytes, page) = (16 << 20, page_bytes() as u64);
    for (touched, is_shown) in [(bytes / page, false), (bytes / page / 16, true), (8, true)] {
        let mut source = Source::default();
        source.begin(&*content, &run, K);
        assert!(source.shown.is_some());
        source.end(&*content, K).unwrap();
        source.weigh(touched, bytes);
        source.begin(&*content, &run, K);
        assert_eq!(source.shown.is_some(), is_shown, "{touched} touches");
        source.load(&*content, &run, 1, K).unwrap();
        assert!(blocks_of(&run, 1, &source)[0] == ground.bytes[8192..2 * 8192]);
        source.end(&*content, K).unwrap();
    }
}
