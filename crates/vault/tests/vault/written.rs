//! Files of which every write is known, as those of a mount: only the stripes that were written are read and encoded.

use super::playground::{Playground, Seed, flip};
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

/// What was written to the only file, from the version that it had then.
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

struct Ground {
    play: Playground,
    written: Arc<Written>,
    /// Seconds of the file's next mtime.
    time: u64,
}

impl Ground {
    fn new(size: usize) -> Ground {
        let mut play = Playground::new("4+2");
        let written = Arc::new(Written::default());
        let plain = Plain::new(Tree::open(&play.root()).unwrap(), play.vault.repository.clone());
        let writer: Arc<dyn DirectoryWriter> = written.clone();
        plain.set_writer(Arc::downgrade(&writer));
        play.vault.storage = Box::new(plain);
        play.write(NAME, &Seed(1).bytes(size));
        let mut ground = Ground { play, written, time: 1_700_000_000 };
        ground.touch();
        ground.play.protect_all();
        ground
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.play.path(NAME)).unwrap()
    }

    fn touch(&mut self) {
        self.time += 1;
        self.file().set_modified(UNIX_EPOCH + Duration::from_secs(self.time)).unwrap();
    }

    /// Changes the file, and says that these ranges were written. Protects it; gives the bytes that were read.
    fn edit(&mut self, ranges: &[Range<u64>], edit: impl FnOnce(&File)) -> u64 {
        let before = self.play.vault.storage.find(NAME.as_bytes()).unwrap().unwrap().generation();
        edit(&self.file());
        self.touch();
        *self.written.0.lock().unwrap() = Some((before, ranges.to_vec()));
        let report = self.play.protect_all();
        *self.written.0.lock().unwrap() = None;
        report.done.encoded_bytes
    }

    fn overwrite(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let range = at..at + bytes.len() as u64;
        self.edit(&[range], |file| file.write_all_at(bytes, at).unwrap())
    }
}

fn some_bytes(random: &mut Seed, most: u64) -> Vec<u8> {
    let count = 1 + random.below(most);
    random.bytes(count as usize)
}

/// A write of 4 KiB made the worker read the whole file.
#[test]
fn a_small_write_reads_two_stripes_at_most() {
    let mut ground = Ground::new(8 << 20);
    let mut random = Seed(2);
    for round in 0..20 {
        let at = random.below((8 << 20) - BLOCK);
        let read = ground.overwrite(at, &random.bytes(BLOCK as usize));
        assert!(read > 0 && read <= 2 * STRIPE, "round {round}: {read} bytes were read");
    }
    ground.play.assert_clean();
}

/// Writes, appends and cuts of any length, with the redundancy that a scrub expects after each.
#[test]
fn redundancy_is_right_after_any_writes() {
    let mut random = Seed(3);
    for round in 0..gabion_testkit::rounds(12) {
        let size = 1 + random.below(7 << 20);
        let mut ground = Ground::new(size as usize);
        for step in 0..6 {
            let size = ground.file().metadata().unwrap().size();
            match random.below(4) {
                0 => {
                    let more = some_bytes(&mut random, 100_000);
                    let range = size..size + more.len() as u64;
                    ground.edit(std::slice::from_ref(&range), |file| file.write_all_at(&more, size).unwrap());
                }
                1 => {
                    let end = random.below(size + 1);
                    ground.edit(std::slice::from_ref(&(end..u64::MAX)), |file| file.set_len(end).unwrap());
                }
                _ => {
                    let pieces: Vec<(u64, Vec<u8>)> = (0..1 + random.below(5))
                        .map(|_| (random.below(size + 1), some_bytes(&mut random, 60_000)))
                        .collect();
                    let ranges: Vec<Range<u64>> =
                        pieces.iter().map(|(at, bytes)| *at..at + bytes.len() as u64).collect();
                    ground.edit(&ranges, |file| {
                        pieces.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
                    });
                }
            }
            let report = ground.play.scrub();
            assert!(
                report.trouble.is_empty() && report.failed.is_empty(),
                "round {round}, step {step}: {report:?}"
            );
        }
    }
}

/// Corruption elsewhere in the file keeps the signatures that it contradicts: scrub finds it, and repair brings the protected content back.
#[test]
fn corruption_beside_a_write_is_not_accepted() {
    let mut ground = Ground::new(8 << 20);
    let before = ground.play.read(NAME);
    flip(&ground.play.path(NAME), 5 << 20);
    let read = ground.overwrite(100_000, b"written");
    assert!(read <= 2 * STRIPE, "{read}");
    assert_eq!(ground.play.state(NAME), State::Damaged);
    ground.play.repair(NAME);
    ground.play.assert_clean();
    let mut expected = before;
    expected[100_000..100_007].copy_from_slice(b"written");
    assert!(ground.play.read(NAME) == expected);
}

/// The check of a frame that is replaced is taken out of the root of its redundancy file. Where it is damaged, nobody knows it, and the whole file is read.
#[test]
fn damaged_redundancy_of_a_written_stripe_is_made_again() {
    let mut ground = Ground::new(8 << 20);
    let path = ground.play.redundancy(NAME);
    let length = path.metadata().unwrap().len();
    let mut random = Seed(4);
    for _ in 0..8 {
        let at = 10_000 + random.below(length - 20_000);
        flip(&path, at);
        // Some of these stripes are those of the damaged frame.
        let data = (at * 2).min((8 << 20) - 70_000);
        ground.overwrite(data, &random.bytes(60_000));
    }
    ground.play.scrub();
    if ground.play.state(NAME) != State::Protected {
        ground.play.repair(NAME);
    }
    ground.play.assert_clean();
}
