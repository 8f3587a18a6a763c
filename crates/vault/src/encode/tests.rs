//! Tests of adoption, updates in place and removal of obsolete redundancy.

use super::{EncodeError, EncodeOptions, Encoded, Encoder, SMALL_PART};
use crate::coder::{Coder, Coders};
use crate::format::Version;
use crate::redundancy::{REDUNDANCY, STAGING};
use crate::storage::Storage;
use crate::storage::plain::Plain;
use crate::storage::pool::{NewTarget, Options, Pool};
use crate::tree::Tree;
use crate::world::Clock;
use crate::world::Timestamp;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Fixture {
    directory: tempfile::TempDir,
    pub(super) storage: Box<dyn Storage>,
    pub(super) coders: Coders,
    pub(super) clock: Clock,
}

pub(super) const OPTIONS: EncodeOptions<'static> = EncodeOptions {
    threads: 2,
    moved: false,
    known_elsewhere: false,
    known: None,
    recorded: None,
    flushed: None,
    progress: &|_| {},
    team: None,
    elsewhere: &|_| {},
    stopped: &|| false,
};

impl Fixture {
    pub(super) fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            Tree::open(&directory.path().join(name)).unwrap()
        };
        let (root, repository) = (open("tree"), open("repository"));
        for top in [REDUNDANCY, STAGING] {
            repository.make_directories(top, 0o700).unwrap();
        }
        let storage = Box::new(Plain::new(root, repository));
        Fixture {
            directory,
            storage,
            coders: Coders::new().unwrap(),
            clock: Clock::manual(Timestamp::from_nanoseconds(1)),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn encode(
        &self,
        path: &str,
        code: &str,
        options: EncodeOptions<'_>,
    ) -> Result<Encoded, EncodeError> {
        self.encode_with(path, &self.coders.get(code).unwrap(), options)
    }

    fn encode_with(
        &self,
        path: &str,
        coder: &Arc<Coder>,
        options: EncodeOptions<'_>,
    ) -> Result<Encoded, EncodeError> {
        let encoder = Encoder { storage: &*self.storage, coders: &self.coders, clock: &self.clock };
        let mut encoded = encoder.encode(path.as_bytes(), coder, 4096, options)?;
        encoded.sync().and_then(|()| encoded.publish()).unwrap();
        Ok(encoded)
    }

    pub(super) fn inode(&self, name: &str) -> u64 {
        std::fs::metadata(self.path("repository/redundancy").join(name)).unwrap().ino()
    }
}

/// Redundancy of earlier programs names a code with as many columns as are in use. It stays until more columns are
/// wanted than it has room for.
#[test]
fn redundancy_without_room_for_columns_stays_while_it_suffices() {
    for size in [50_000, 8_000_000] {
        let fixture = Fixture::new();
        fixture.clock.set(crate::world::Clock::System.now() + Duration::from_nanos(1_000_000_000_000_000));
        std::fs::write(fixture.path("tree/file"), vec![3; size]).unwrap();
        let exact = fixture.coders.of_code(&"4+2".parse().unwrap(), false, Version::NEWEST).unwrap();
        fixture.encode_with("file", &exact, OPTIONS).unwrap();
        let redundancy = || std::fs::read(fixture.path("repository/redundancy/file")).unwrap();
        let named = || String::from_utf8_lossy(&redundancy()[160..175]).into_owned();
        let written = redundancy();
        assert_eq!(named(), "subspace:4+2:w8");
        assert!(fixture.encode("file", "4+2", OPTIONS).unwrap().adopted);
        assert!(redundancy() == written, "byte for byte");
        // (code, named code, whether the data is read, whether all is encoded again)
        for (code, name, read, again) in [
            ("4+1", "subspace:4+2:w8", false, false),
            ("4+2", "subspace:4+2:w8", true, false),
            ("4+3", "subspace:4+4:w8", true, true),
            ("4+2", "subspace:4+4:w8", false, false),
            ("4+4", "subspace:4+4:w8", true, false),
            ("4+1", "subspace:4+4:w8", false, false),
        ] {
            let encoded = fixture.encode("file", code, OPTIONS).unwrap();
            let told = format!("{size} bytes, {code}");
            assert_eq!((encoded.read_bytes > 0, encoded.encoded > 0), (read, again), "{told}");
            assert_eq!((named(), encoded.code), (name.to_owned(), format!("subspace:{code}:w8")), "{told}");
            assert!(fixture.encode("file", code, OPTIONS).unwrap().adopted, "{told}");
        }
    }
}

#[test]
fn redundancy_of_the_very_version_is_taken_over() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("tree/file"), vec![3; 50_000]).unwrap();
    let first = fixture.encode("file", "4+2", OPTIONS).unwrap();
    assert_eq!((first.adopted, first.read_bytes, first.columns, first.wanted), (false, 50_000, 2, 2));
    fixture.clock.set(Timestamp::from_nanoseconds(2));
    let again = fixture.encode("file", "4+2", OPTIONS).unwrap();
    assert_eq!((again.adopted, again.read_bytes, again.encoded, again.id), (true, 0, 0, first.id));
    assert_eq!(
        (again.redundancy_bytes, again.protected_at),
        (first.redundancy_bytes, Timestamp::from_nanoseconds(1))
    );
    // A different ctime is a different version, unless the file was only moved.
    let mode = std::fs::metadata(fixture.path("tree/file")).unwrap().permissions();
    std::fs::set_permissions(fixture.path("tree/file"), mode).unwrap();
    let moved = EncodeOptions { moved: true, ..OPTIONS };
    assert!(fixture.encode("file", "4+2", moved).unwrap().adopted);
    // A moved file with changed permissions has to be restored with these.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(fixture.path("tree/file"), mode).unwrap();
    let touched = fixture.encode("file", "4+2", moved).unwrap();
    assert_eq!((touched.adopted, touched.encoded), (false, 0));
    assert!(
        touched.kept > 0 && touched.id == first.id && touched.protected_at == Timestamp::from_nanoseconds(2)
    );
    // Another code needs other redundancy, even for the same version.
    assert!(!fixture.encode("file", "4+3", moved).unwrap().adopted);
    // A damaged header prevents adoption.
    let redundancy = fixture.path("repository/redundancy/file");
    let mut bytes = std::fs::read(&redundancy).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&redundancy, bytes).unwrap();
    assert!(!fixture.encode("file", "4+3", OPTIONS).unwrap().adopted);
    assert!(fixture.encode("file", "4+3", OPTIONS).unwrap().adopted);
}

/// Sizes around the limit for updates in place. Both ways produce the same bytes except for revision and root.
#[test]
fn large_redundancy_is_updated_in_place_and_small_made_anew() {
    // A row has 4 blocks of data, and 2 frames of 4096 + 96 bytes.
    let rows = (SMALL_PART - 512) / (2 * (4096 + 96));
    for (rows, in_place) in [(rows, false), (rows + 1, true)] {
        let fixture = Fixture::new();
        let mut content: Vec<u8> = (0..rows * 16_384).map(|at| (at >> 7) as u8).collect();
        std::fs::write(fixture.path("tree/file"), &content).unwrap();
        let first = fixture.encode("file", "4+2", OPTIONS).unwrap();
        assert_eq!(first.redundancy_bytes > SMALL_PART, in_place);
        let inode = fixture.inode("file");
        content[70_000] ^= 1;
        std::fs::write(fixture.path("tree/file"), &content).unwrap();
        let second = fixture.encode("file", "4+2", OPTIONS).unwrap();
        assert_eq!((second.encoded, second.kept), (1, rows - 1));
        assert_eq!(fixture.inode("file") == inode, in_place);
        assert_eq!(std::fs::read_dir(fixture.path("repository/staging")).unwrap().count(), 0);
        // A newly made file is equal except for the identity and the fields bound to it.
        let updated = std::fs::read(fixture.path("repository/redundancy/file")).unwrap();
        std::fs::remove_file(fixture.path("repository/redundancy/file")).unwrap();
        fixture.encode("file", "4+2", OPTIONS).unwrap();
        let made = std::fs::read(fixture.path("repository/redundancy/file")).unwrap();
        assert_eq!(made.len(), updated.len());
        let frames = |bytes: &[u8]| -> Vec<Vec<u8>> {
            // Without the check, which depends on the identity.
            bytes[256..bytes.len() - 256].chunks(4096 + 96).map(|frame| frame[..4096 + 80].to_vec()).collect()
        };
        assert!(frames(&made) == frames(&updated));
    }
}

#[test]
fn a_failure_leaves_what_was_there() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("tree/file"), vec![1; 10_000]).unwrap();
    fixture.encode("file", "4+2", OPTIONS).unwrap();
    let before = std::fs::read(fixture.path("repository/redundancy/file")).unwrap();
    std::fs::write(fixture.path("tree/file"), vec![2; 10_000]).unwrap();
    let stopped = EncodeOptions { stopped: &|| true, ..OPTIONS };
    assert!(matches!(fixture.encode("file", "4+2", stopped), Err(EncodeError::Stopped)));
    let path = fixture.path("tree/file");
    let changing = |_: u64| std::fs::write(&path, b"changed").unwrap();
    let changes = EncodeOptions { progress: &changing, ..OPTIONS };
    assert!(matches!(fixture.encode("file", "4+2", changes), Err(EncodeError::Changed)));
    let vanishing = |_: u64| std::fs::remove_file(&path).unwrap();
    let vanishes = EncodeOptions { progress: &vanishing, ..OPTIONS };
    assert!(matches!(fixture.encode("file", "4+2", vanishes), Err(EncodeError::Gone)));
    assert!(matches!(fixture.encode("file", "4+2", OPTIONS), Err(EncodeError::Gone)));
    assert!(std::fs::read(fixture.path("repository/redundancy/file")).unwrap() == before);
    assert_eq!(std::fs::read_dir(fixture.path("repository/staging")).unwrap().count(), 0);
}

/// A column has moved to another target: its old file is removed even if nothing has to be read.
#[test]
fn redundancy_in_the_wrong_place_is_removed() {
    let mut fixture = Fixture::new();
    let target = |number: usize| NewTarget { path: fixture.path(&format!("d{number}")), domain: None };
    let targets: Vec<NewTarget> = (1..=6).map(target).collect();
    let pool = Pool::create("tank", &targets, 2, 4096, 2, Options::default()).unwrap();
    let put = |content: &[u8]| {
        pool.put(
            b"file",
            &mut &content[..],
            &crate::format::Metadata::default(),
            Timestamp::from_nanoseconds(5),
        )
        .unwrap();
    };
    fixture.storage = Box::new(pool.clone());
    put(&[1; 20_000]);
    let id = pool.stub(b"file").unwrap().id.to_string();
    let parity = format!("parity/{}/{id}", &id[..2]);
    let all = || (1..=6).map(|number| fixture.path(&format!("d{number}/{parity}")));
    let holders = || -> Vec<PathBuf> { all().filter(|path| path.exists()).collect() };
    let copy_to = |path: &PathBuf| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(&holders()[0], path).unwrap();
    };
    assert_eq!(fixture.encode("file", "2+2", OPTIONS).unwrap().columns, 2);
    let first = holders();
    assert_eq!(first.len(), 2);
    // A copy of one column on a third target belongs to no file.
    let stub = pool.stub(b"file").unwrap();
    let free = |path: &PathBuf| {
        !first.contains(path) && !stub.targets.iter().any(|target| path.starts_with(fixture.path(target)))
    };
    copy_to(&all().find(free).unwrap());
    let encoded = fixture.encode("file", "2+2", OPTIONS).unwrap();
    assert!(encoded.adopted);
    assert_eq!(holders().len(), 2, "the copy is still there");
    // On data targets of the file: the new version must not share them.
    for target in &stub.targets {
        copy_to(&fixture.path(target).join(&parity));
    }
    assert_eq!(fixture.encode("file", "2+2", OPTIONS).unwrap().columns, 2);
    let shared = |path: &PathBuf| stub.targets.iter().any(|target| path.starts_with(fixture.path(target)));
    assert_eq!(holders().len(), 2);
    assert!(!holders().iter().any(shared));
}
