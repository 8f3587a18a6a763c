//! Files whose writes are all known, as those of a mount: only written stripes are read and encoded.

use super::fixture::{Fixture, TestRng, flip};
use gabion_vault::catalogue::State;
use gabion_vault::storage::plain::{DirectoryWriter, Plain};
use gabion_vault::tree::{Generation, Tree};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

const NAME: &str = "file";
const BLOCK: u64 = 4096;
const STRIPE: u64 = 4 * BLOCK;

/// Ranges written since the given version of the only file.
#[derive(Debug, Default)]
struct Written(Mutex<Option<(Generation, Vec<Range<u64>>)>>);

impl DirectoryWriter for Written {
    fn written_since(&self, version: &Generation, _: &Generation) -> Option<Vec<Range<u64>>> {
        let written = self.0.lock().unwrap();
        let (_, ranges) = written.as_ref().filter(|(since, _)| since.is_unwritten_since(version))?;
        Some(gabion_vault::geometry::merge(ranges.clone()))
    }

    fn note_encoding_start(&self, _: Option<&Generation>, _: &Generation) {}

    fn with_writes_paused(&self, _: &Generation, _: &mut dyn FnMut() -> Option<Generation>) -> bool {
        false
    }
}

struct WriterFixture {
    base: Fixture,
    written: Arc<Written>,
    /// Seconds of the file's next mtime.
    time: u64,
}

impl WriterFixture {
    fn new(size: usize) -> WriterFixture {
        let mut base = Fixture::new("4+2");
        let written = Arc::new(Written::default());
        let plain = Plain::new(Tree::open(&base.root()).unwrap(), base.vault.repository.clone());
        let writer: Arc<dyn DirectoryWriter> = written.clone();
        plain.set_writer(Arc::downgrade(&writer));
        base.vault.storage = Box::new(plain);
        base.write(NAME, &TestRng(1).bytes(size));
        let mut fixture = WriterFixture { base, written, time: 1_700_000_000 };
        fixture.touch();
        fixture.base.protect_all();
        fixture
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.base.path(NAME)).unwrap()
    }

    fn touch(&mut self) {
        self.time += 1;
        self.file().set_modified(UNIX_EPOCH + Duration::from_secs(self.time)).unwrap();
    }

    /// Changes the file, reports the ranges as written, and protects. Returns the number of bytes read.
    fn edit(&mut self, ranges: &[Range<u64>], edit: impl FnOnce(&File)) -> u64 {
        let before = self.base.vault.storage.find(NAME.as_bytes()).unwrap().unwrap().generation();
        edit(&self.file());
        self.touch();
        *self.written.0.lock().unwrap() = Some((before, ranges.to_vec()));
        let report = self.base.protect_all();
        *self.written.0.lock().unwrap() = None;
        report.done.encoded_bytes
    }

    fn overwrite(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let range = at..at + bytes.len() as u64;
        self.edit(&[range], |file| file.write_all_at(bytes, at).unwrap())
    }
}

fn some_bytes(random: &mut TestRng, most: u64) -> Vec<u8> {
    let count = 1 + random.below(most);
    random.bytes(count as usize)
}

/// Regression: a write of 4 KiB made the worker read the whole file.
#[test]
fn a_small_write_reads_two_stripes_at_most() {
    let mut fixture = WriterFixture::new(8 << 20);
    let mut random = TestRng(2);
    for round in 0..20 {
        let at = random.below((8 << 20) - BLOCK);
        let read = fixture.overwrite(at, &random.bytes(BLOCK as usize));
        assert!(read > 0 && read <= 2 * STRIPE, "round {round}: {read} bytes were read");
    }
    fixture.base.assert_clean();
}

/// Random writes, appends and truncations, with a scrub after each.
#[test]
fn redundancy_is_right_after_any_writes() {
    let mut random = TestRng(3);
    for round in 0..gabion_testkit::rounds(12) {
        let size = 1 + random.below(7 << 20);
        let mut fixture = WriterFixture::new(size as usize);
        for step in 0..6 {
            let size = fixture.file().metadata().unwrap().size();
            match random.below(4) {
                0 => {
                    let more = some_bytes(&mut random, 100_000);
                    let range = size..size + more.len() as u64;
                    fixture
                        .edit(std::slice::from_ref(&range), |file| file.write_all_at(&more, size).unwrap());
                }
                1 => {
                    let end = random.below(size + 1);
                    fixture.edit(std::slice::from_ref(&(end..u64::MAX)), |file| file.set_len(end).unwrap());
                }
                _ => {
                    let pieces: Vec<(u64, Vec<u8>)> = (0..1 + random.below(5))
                        .map(|_| (random.below(size + 1), some_bytes(&mut random, 60_000)))
                        .collect();
                    let ranges: Vec<Range<u64>> =
                        pieces.iter().map(|(at, bytes)| *at..at + bytes.len() as u64).collect();
                    fixture.edit(&ranges, |file| {
                        pieces.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
                    });
                }
            }
            let report = fixture.base.scrub();
            assert!(
                report.damage.is_empty() && report.failed.is_empty(),
                "round {round}, step {step}: {report:?}"
            );
        }
    }
}

/// Corruption elsewhere in the file keeps its contradicting signatures: a scrub finds it, and repair restores the
/// protected content.
#[test]
fn corruption_beside_a_write_is_not_accepted() {
    let mut fixture = WriterFixture::new(8 << 20);
    let before = fixture.base.read(NAME);
    flip(&fixture.base.path(NAME), 5 << 20);
    let read = fixture.overwrite(100_000, b"written");
    assert!(read <= 2 * STRIPE, "{read}");
    assert_eq!(fixture.base.state(NAME), State::Damaged);
    fixture.base.repair(NAME);
    fixture.base.assert_clean();
    let mut expected = before;
    expected[100_000..100_007].copy_from_slice(b"written");
    assert!(fixture.base.read(NAME) == expected);
}

/// The check of a replaced frame is removed from the root. If the frame is damaged its check is unknown, and the whole
/// file is read.
#[test]
fn damaged_redundancy_of_a_written_stripe_is_made_again() {
    let mut fixture = WriterFixture::new(8 << 20);
    let path = fixture.base.redundancy(NAME);
    let length = path.metadata().unwrap().len();
    let mut random = TestRng(4);
    for _ in 0..8 {
        let at = 10_000 + random.below(length - 20_000);
        flip(&path, at);
        // Some of these stripes are those of the damaged frame.
        let data = (at * 2).min((8 << 20) - 70_000);
        fixture.overwrite(data, &random.bytes(60_000));
    }
    fixture.base.scrub();
    if fixture.base.state(NAME) != State::Protected {
        fixture.base.repair(NAME);
    }
    fixture.base.assert_clean();
}
