use super::{MAPPED_BYTES, RowSource};
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

struct Fixture {
    directory: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Fixture {
    fn new(size: u64) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + (at >> 9)) as u8).collect();
        std::fs::write(directory.path().join("file"), &bytes).unwrap();
        Fixture { directory, bytes }
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

fn blocks_of(run: &Run, row: u64, source: &RowSource) -> Vec<Vec<u8>> {
    let blocks = source.blocks(run.first + row, K, run.block as usize);
    blocks.into_iter().map(<[u8]>::to_vec).collect()
}

/// Includes a tail with unaligned columns, and the end of the file, where blocks are padded.
#[test]
fn mapped_rows_equal_read_rows() {
    let fixture = Fixture::new(3 * 3 * 48 * 8192 - 40_000);
    let content = fixture.content();
    let (mut shown, mut read, mut shows) = (RowSource::default(), RowSource::default(), Vec::new());
    for run in fixture.cut().runs(48) {
        shown.begin(&*content, &run, K);
        shows.push(shown.mapped.is_some());
        for row in 0..run.count {
            shown.load(&*content, &run, row, K).unwrap();
            read.load(&*content, &run, row, K).unwrap();
            assert!(blocks_of(&run, row, &shown) == blocks_of(&run, row, &read), "{run:?}, row {row}");
            let cell = run.cell(row, K - 1);
            assert!(
                blocks_of(&run, row, &shown)[K - 1]
                    .starts_with(&fixture.bytes[cell.start as usize..cell.end as usize])
            );
        }
        shown.end(&*content, K).unwrap();
    }
    assert!(shows[0] && shows[1], "what was just written lies in memory: {shows:?}");
    assert_eq!(shows.last(), Some(&false), "what has to be filled up is read");
}

#[test]
fn small_pieces_are_read() {
    let fixture = Fixture::new(K as u64 * (MAPPED_BYTES.start - 8192));
    let run = fixture.cut().run(0, 48);
    let mut source = RowSource::default();
    source.begin(&*fixture.content(), &run, K);
    assert!(run.bytes() > 0 && source.mapped.is_none() && source.window.is_none());
}

/// The pages behind the new end were mapped when they were removed.
#[test]
fn a_file_that_is_cut_short_while_it_is_encoded_has_changed() {
    let fixture = Fixture::new(K as u64 * 48 * 8192);
    let (content, run) = (fixture.content(), fixture.cut().run(0, 48));
    let mut source = RowSource::default();
    source.begin(&*content, &run, K);
    assert!(source.mapped.is_some());
    fixture.file().set_len(48 * 8192).unwrap();
    source.load(&*content, &run, 47, K).unwrap();
    let blocks = blocks_of(&run, 47, &source);
    assert!(blocks[0] == fixture.bytes[47 * 8192..48 * 8192]);
    assert!(blocks[1..].iter().flatten().all(|&byte| byte == 0));
    assert!(matches!(source.end(&*content, K), Err(EncodeError::Changed)));
    // The next run is mapped again.
    fixture.file().set_len(0).unwrap();
    std::fs::write(fixture.directory.path().join("file"), &fixture.bytes).unwrap();
    source.begin(&*content, &run, K);
    assert!(blocks_of(&run, 47, &source)[1] == fixture.bytes[95 * 8192..96 * 8192]);
    source.end(&*content, K).unwrap();
}

/// A medium with read errors, as seen through a window: its pages cannot be mapped.
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
fn a_read_error_is_reported() {
    let fixture = Fixture::new(K as u64 * 48 * 8192);
    let run = fixture.cut().run(0, 48);
    let content = Failing(fixture.content(), tempfile::tempfile().unwrap());
    let mut source = RowSource::default();
    source.begin(&content, &run, K);
    assert!(blocks_of(&run, 5, &source).iter().flatten().all(|&byte| byte == 0));
    assert!(matches!(source.end(&content, K), Err(EncodeError::Read(Fault::Io(_)))));
}

/// One page fault per page is too many; one per sixteen pages or per huge page is not.
#[test]
fn costly_mappings_are_replaced_by_reads() {
    let fixture = Fixture::new(3 * 48 * 8192);
    let content = fixture.content();
    let run = fixture.cut().runs(48).next().unwrap();
    let (bytes, page) = (16 << 20, page_bytes() as u64);
    for (touched, is_shown) in [(bytes / page, false), (bytes / page / 16, true), (8, true)] {
        let mut source = RowSource::default();
        source.begin(&*content, &run, K);
        assert!(source.mapped.is_some());
        source.end(&*content, K).unwrap();
        source.decide_mapping(touched, bytes);
        source.begin(&*content, &run, K);
        assert_eq!(source.mapped.is_some(), is_shown, "{touched} touches");
        source.load(&*content, &run, 1, K).unwrap();
        assert!(blocks_of(&run, 1, &source)[0] == fixture.bytes[8192..2 * 8192]);
        source.end(&*content, K).unwrap();
    }
}
