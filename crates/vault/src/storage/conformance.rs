//! Conformance suite that every storage adapter must pass.
//!
//! ```text
//! conformance::check(&|| fixture_of_my_storage());
//! ```
//!
//! Each check gets a fresh [`Fixture`]. A violated rule panics with its description.

mod protection;
mod reading;

use super::Storage;
use crate::geometry::{Geometry, Run};
use gabion_engine::Code;
use std::any::Any;
use std::fmt;

/// Acts on a path of the storage.
pub type Act = Box<dyn Fn(&[u8])>;

/// Acts on a path with some bytes.
pub type ActWith = Box<dyn Fn(&[u8], &[u8])>;

/// Acts on a path with a size.
pub type Resize = Box<dyn Fn(&[u8], u64)>;

/// Returns a number for a path.
pub type Measure = Box<dyn Fn(&[u8]) -> u64>;

/// Storage under test, with ways around it that only a test has.
pub struct Fixture {
    /// The storage; its namespace is empty.
    pub storage: Box<dyn Storage>,
    /// Data columns of the codes that the test uses.
    pub k: usize,
    /// Block size that the test uses.
    pub block: u64,
    /// Writes a file with this content, replacing an existing one, and creates the directories above it.
    pub put: ActWith,
    /// Creates a symbolic link to this target.
    pub link: ActWith,
    /// Removes a file.
    pub remove: Act,
    /// Truncates a file behind the back of the storage.
    pub cut: Resize,
    /// Makes an existing file impossible to open.
    pub spoil: Act,
    /// Bytes that the content of a file occupies on the disks.
    pub allocated: Measure,
    /// Values that must live as long as the storage.
    pub keep: Box<dyn Any>,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixture of {:?} with {} columns of {} bytes", self.storage, self.k, self.block)
    }
}

impl Fixture {
    fn code(&self, m: usize) -> Code {
        let parsed = format!("{}+{m}", self.k).parse();
        parsed.unwrap_or_else(|error| panic!("no code {}+{m}: {error}", self.k))
    }

    fn geometry(&self, path: &[u8]) -> Geometry {
        match self.storage.layout(path, &self.code(2), self.block) {
            Ok(layout) => layout.geometry,
            Err(error) => panic!("no layout for {path:?}: {error}"),
        }
    }

    /// The content of a file, assembled from all its cells. Checks the invariants of every read.
    fn content(&self, path: &[u8]) -> Vec<u8> {
        let content = self.storage.open(path).unwrap_or_else(|error| panic!("cannot open {path:?}: {error}"));
        let size = content.stat().unwrap_or_else(|error| panic!("no stat of {path:?}: {error}")).size;
        let mut whole = vec![0xaa; size as usize];
        for (run, row, column) in cells(&self.geometry(path), size, self.k) {
            let cell = run.cell(row, column);
            let mut buffer = vec![0x55; run.block as usize];
            if row == 0 && column == 0 {
                content.prefetch(&run);
            }
            let got = content.read(&run, row, column, &mut buffer);
            let got = got.unwrap_or_else(|fault| panic!("{path:?} row {row} column {column}: {fault}"));
            assert_eq!(got as u64, cell.end - cell.start, "{path:?} {cell:?}: bytes that are there");
            assert!(buffer[got..].iter().all(|&byte| byte == 0), "{path:?} {cell:?}: filled up with zeros");
            whole[cell.start as usize..cell.end as usize].copy_from_slice(&buffer[..got]);
        }
        whole
    }
}

/// All cells of a file.
fn cells(geometry: &Geometry, size: u64, k: usize) -> impl Iterator<Item = (Run, u64, usize)> + use<> {
    // An odd number of stripes per run, so that runs do not end where segments do.
    geometry
        .cut(size)
        .runs(7)
        .flat_map(move |run| (0..run.count).flat_map(move |row| (0..k).map(move |column| (run, row, column))))
}

/// Bytes that differ from position to position, so that exchanged blocks are detected.
fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut made = Vec::with_capacity(bytes as usize + 8);
    while (made.len() as u64) < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        made.extend_from_slice(&state.to_le_bytes());
    }
    made.truncate(bytes as usize);
    made
}

/// Checks the whole contract.
///
/// # Panics
/// The adapter violates the contract.
pub fn check(make: &dyn Fn() -> Fixture) {
    reading::listings_are_sorted_and_complete(&make());
    reading::a_write_changes_the_generation(&make());
    reading::cells_are_the_content(&make());
    reading::bytes_that_are_gone_are_not_counted(&make());
    reading::absent_paths_are_reported(&make());
    reading::nothing_leads_out(&make());
    reading::unreadable_files_are_errors(&make());
    protection::layouts_fit_their_codes(&make());
    protection::placements_are_in_separate_domains(&make());
    protection::repositories_take_drafts(&make());
    protection::repair_restores_everything(&make());
    protection::repair_recreates_files(&make());
    protection::repair_lengthens_and_shortens(&make());
}
