//! What is taken over, what is updated in place, and what goes.

use super::{EncodeError, EncodeOptions, Encoded, Encoder, SMALL_PART};
use crate::coder::Coders;
use crate::redundancy::{REDUNDANCY, STAGING};
use crate::storage::Storage;
use crate::storage::plain::Plain;
use crate::storage::pool::{NewTarget, Options, Pool};
use crate::tree::Tree;
use crate::world::Clock;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

struct Ground {
    directory: tempfile::TempDir,
    storage: Box<dyn Storage>,
    coders: Coders,
    clock: Clock,
}

const MANNER: EncodeOptions<'static> = EncodeOptions {
    threads: 2,
    moved: false,
    elsewhere: false,
    flushed: None,
    progress: &|_| {},
    stopped: &|| false,
};

impl Ground {
    fn new() -> Ground {
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
        Ground { directory, storage, coders: Coders::new().unwrap(), clock: Clock::manual(1) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn encode(&self, path: &str, code: &str, options: EncodeOptions<'_>) -> Result<Encoded, EncodeError> {
        let encoder = Encoder { storage: &*self.storage, coders: &self.coders, clock: &self.clock };
        let mut encoded = encoder.encode(path.as_bytes(), &self.coders.get(code).unwrap(), 4096, options)?;
        encoded.sync().and_then(|()| encoded.publish()).unwrap();
        Ok(encoded)
    }

    fn inode(&self, name: &str) -> u64 {
        std::fs::metadata(self.path("repository/redundancy").join(name)).unwrap().ino()
    }
}

#[test]
fn redundancy_of_the_very_version_is_taken_over() {
    let ground = Ground::new();
    std::fs::write(ground.path("tree/file"), vec![3; 50_000]).unwrap();
    let first = ground.encode("file", "4+2", MANNER).unwrap();
    assert_eq!((first.adopted, first.read_bytes, first.columns, first.wanted), (false, 50_000, 2, 2));
    ground.clock.set(2);
    let again = ground.encode("file", "4+2", MANNER).unwrap();
    assert_eq!((again.adopted, again.read_bytes, again.encoded, again.id), (true, 0, 0, first.id));
    assert_eq!((again.redundancy_bytes, again.protected_at), (first.redundancy_bytes, 1));
    // Another time of change is another version, unless the file was only moved.
    let mode = std::fs::metadata(ground.path("tree/file")).unwrap().permissions();
    std::fs::set_permissions(ground.path("tree/file"), mode).unwrap();
    let moved = EncodeOptions { moved: true, ..MANNER };
    assert!(ground.encode("file", "4+2", moved).unwrap().adopted);
    // What was moved and got other permissions has to be restored with these.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(ground.path("tree/file"), mode).unwrap();
    let touched = ground.encode("file", "4+2", moved).unwrap();
    assert_eq!((touched.adopted, touched.encoded), (false, 0));
    assert!(touched.kept > 0 && touched.id == first.id && touched.protected_at == 2);
    // Another code is another redundancy, whatever the version.
    assert!(!ground.encode("file", "4+3", moved).unwrap().adopted);
    // A damaged header is none to take over.
    let redundancy = ground.path("repository/redundancy/file");
    let mut bytes = std::fs::read(&redundancy).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&redundancy, bytes).unwrap();
    assert!(!ground.encode("file", "4+3", MANNER).unwrap().adopted);
    assert!(ground.encode("file", "4+3", MANNER).unwrap().adopted);
}

/// Around the size from which redundancy is updated in place; both ways give the same bytes but for revision and root.
#[test]
fn large_redundancy_is_updated_in_place_and_small_made_anew() {
    // A row has 4 blocks of data, and 2 frames of 4096 + 96 bytes.
    let rows = (SMALL_PART - 512) / (2 * (4096 + 96));
    for (rows, in_place) in [(rows, false), (rows + 1, true)] {
        let ground = Ground::new();
        let mut content: Vec<u8> = (0..rows * 16_384).map(|at| (at >> 7) as u8).collect();
        std::fs::write(ground.path("tree/file"), &content).unwrap();
        let first = ground.encode("file", "4+2", MANNER).unwrap();
        assert_eq!(first.redundancy_bytes > SMALL_PART, in_place);
        let inode = ground.inode("file");
        content[70_000] ^= 1;
        std::fs::write(ground.path("tree/file"), &content).unwrap();
        let second = ground.encode("file", "4+2", MANNER).unwrap();
        assert_eq!((second.encoded, second.kept), (1, rows - 1));
        assert_eq!(ground.inode("file") == inode, in_place);
        assert_eq!(std::fs::read_dir(ground.path("repository/staging")).unwrap().count(), 0);
        // Made from nothing it is the same, but for the identity and what is bound to it.
        let updated = std::fs::read(ground.path("repository/redundancy/file")).unwrap();
        std::fs::remove_file(ground.path("repository/redundancy/file")).unwrap();
        ground.encode("file", "4+2", MANNER).unwrap();
        let made = std::fs::read(ground.path("repository/redundancy/file")).unwrap();
        assert_eq!(made.len(), updated.len());
        let frames = |bytes: &[u8]| -> Vec<Vec<u8>> {
            // Without the check, which has the identity in it.
            bytes[256..bytes.len() - 256].chunks(4096 + 96).map(|frame| frame[..4096 + 80].to_vec()).collect()
        };
        assert!(frames(&made) == frames(&updated));
    }
}

#[test]
fn a_failure_leaves_what_was_there() {
    let ground = Ground::new();
    std::fs::write(ground.path("tree/file"), vec![1; 10_000]).unwrap();
    ground.encode("file", "4+2", MANNER).unwrap();
    let before = std::fs::read(ground.path("repository/redundancy/file")).unwrap();
    std::fs::write(ground.path("tree/file"), vec![2; 10_000]).unwrap();
    let stopped = EncodeOptions { stopped: &|| true, ..MANNER };
    assert!(matches!(ground.encode("file", "4+2", stopped), Err(EncodeError::Stopped)));
    let path = ground.path("tree/file");
    let changing = |_: u64| std::fs::write(&path, b"changed").unwrap();
    let changes = EncodeOptions { progress: &changing, ..MANNER };
    assert!(matches!(ground.encode("file", "4+2", changes), Err(EncodeError::Changed)));
    let vanishing = |_: u64| std::fs::remove_file(&path).unwrap();
    let vanishes = EncodeOptions { progress: &vanishing, ..MANNER };
    assert!(matches!(ground.encode("file", "4+2", vanishes), Err(EncodeError::Gone)));
    assert!(matches!(ground.encode("file", "4+2", MANNER), Err(EncodeError::Gone)));
    assert!(std::fs::read(ground.path("repository/redundancy/file")).unwrap() == before);
    assert_eq!(std::fs::read_dir(ground.path("repository/staging")).unwrap().count(), 0);
}

/// A column found another home: what was in the old one goes, also where nothing has to be read for that.
#[test]
fn redundancy_in_the_wrong_place_is_removed() {
    let mut ground = Ground::new();
    let target = |number: usize| NewTarget { path: ground.path(&format!("d{number}")), domain: None };
    let targets: Vec<NewTarget> = (1..=6).map(target).collect();
    let pool = Pool::create("tank", &targets, 2, 4096, 2, Options::default()).unwrap();
    let put = |content: &[u8]| {
        pool.put(b"file", &mut &content[..], &crate::format::Metadata::default(), 5).unwrap();
    };
    ground.storage = Box::new(pool.clone());
    put(&[1; 20_000]);
    let id = pool.stub(b"file").unwrap().id.to_string();
    let parity = format!("parity/{}/{id}", &id[..2]);
    let all = || (1..=6).map(|number| ground.path(&format!("d{number}/{parity}")));
    let holders = || -> Vec<PathBuf> { all().filter(|path| path.exists()).collect() };
    let copy_to = |path: &PathBuf| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(&holders()[0], path).unwrap();
    };
    assert_eq!(ground.encode("file", "2+2", MANNER).unwrap().columns, 2);
    let first = holders();
    assert_eq!(first.len(), 2);
    // A copy of one of them on a third target: nobody's.
    let stub = pool.stub(b"file").unwrap();
    let free = |path: &PathBuf| {
        !first.contains(path) && !stub.targets.iter().any(|target| path.starts_with(ground.path(target)))
    };
    copy_to(&all().find(free).unwrap());
    let encoded = ground.encode("file", "2+2", MANNER).unwrap();
    assert!(encoded.adopted);
    assert_eq!(holders().len(), 2, "the copy is still there");
    // On targets of the data: the new version must not share them.
    for target in &stub.targets {
        copy_to(&ground.path(target).join(&parity));
    }
    assert_eq!(ground.encode("file", "2+2", MANNER).unwrap().columns, 2);
    let shared = |path: &PathBuf| stub.targets.iter().any(|target| path.starts_with(ground.path(target)));
    assert_eq!(holders().len(), 2);
    assert!(!holders().iter().any(shared));
}
