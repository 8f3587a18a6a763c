//! Tests of files that several workers encode, with a team in this process.

use super::super::tests::{Fixture, OPTIONS};
use super::{Description, EncodeError, EncodeOptions, Encoder, PORTION_BYTES};
use crate::changelog::WorkerId;
use crate::changelog::tasks::Portion;
use crate::encode::Encoded;
use crate::redundancy::STAGING;
use crate::team::Team;
use crate::team::tests::OthersDoOdd;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Data of some portions, the last one of which is smaller.
fn content() -> Vec<u8> {
    let size = 6 * PORTION_BYTES + 12_345;
    (0..size).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Another worker of the team does the odd portions. `meanwhile` is called before each of them.
fn encode(
    fixture: &Fixture,
    overtaken: bool,
    meanwhile: &(dyn Fn(&Portion) + Sync),
) -> Result<Encoded, EncodeError> {
    let (storage, coders, clock) = (&*fixture.storage, &fixture.coders, &fixture.clock);
    let other = Encoder { storage, coders, clock };
    let done_elsewhere = AtomicU64::new(0);
    let work = |portion: &Portion| {
        meanwhile(portion);
        let progress = |bytes| {
            done_elsewhere.fetch_add(bytes, Ordering::Relaxed);
        };
        let options = EncodeOptions { progress: &progress, ..OPTIONS };
        other.encode_portion(&portion.about, portion.number, options).unwrap_or_default()
    };
    let mut tasks = OthersDoOdd::new(&work);
    tasks.overtaken = overtaken.into();
    let team = Team { tasks: &tasks, worker: &WorkerId("owner".to_owned()) };
    let told = Mutex::new(0);
    let elsewhere = |bytes| *told.lock().unwrap() += bytes;
    let encoded =
        fixture.encode("file", "4+2", EncodeOptions { team: Some(team), elsewhere: &elsewhere, ..OPTIONS });
    if encoded.is_ok() {
        let (told, done) = (told.into_inner().unwrap(), done_elsewhere.into_inner());
        assert_eq!(told, done);
        assert!((PORTION_BYTES..content().len() as u64).contains(&told), "{told}");
    }
    encoded
}

fn redundancy(fixture: &Fixture) -> Vec<u8> {
    std::fs::read(fixture.path("repository/redundancy/file")).unwrap()
}

/// A fixture with the file, and the same redundancy each time: one identity, at one time.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("tree/file"), content()).unwrap();
    fixture
}

/// Frames without what is random in headers.
fn frames(bytes: &[u8]) -> Vec<u8> {
    bytes[bytes.len() / 10..].to_vec()
}

#[test]
fn shared_redundancy_is_that_of_one_worker() {
    let fixture = fixture();
    for overtaken in [false, true] {
        let _ = std::fs::remove_file(fixture.path("repository/redundancy/file"));
        let encoded = encode(&fixture, overtaken, &|_| {}).unwrap();
        assert_eq!((encoded.read_bytes, encoded.kept), (content().len() as u64, 0));
        assert!(encoded.encoded > 6);
        // Every frame, the root and both headers are right: the data agrees, nothing has to be encoded.
        std::fs::File::options()
            .append(true)
            .open(fixture.path("tree/file"))
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        let again = fixture.encode("file", "4+2", OPTIONS).unwrap();
        assert_eq!((again.encoded, again.kept, again.adopted), (0, encoded.encoded, false), "{overtaken}");
        assert_eq!(std::fs::read_dir(fixture.path("repository").join("staging")).unwrap().count(), 0);
    }
}

/// A worker that was given up may write as long as it likes.
#[test]
fn late_writers_do_not_reach_published_redundancy() {
    let fixture = fixture();
    let late = Mutex::new(Vec::<File>::new());
    let open_drafts = |_: &Portion| {
        for draft in std::fs::read_dir(fixture.path("repository/staging")).unwrap() {
            late.lock().unwrap().push(File::options().write(true).open(draft.unwrap().path()).unwrap());
        }
    };
    for (overtaken, same) in [(true, false), (false, true)] {
        let _ = std::fs::remove_file(fixture.path("repository/redundancy/file"));
        encode(&fixture, overtaken, &open_drafts).unwrap();
        let drafts = std::mem::take(&mut *late.lock().unwrap());
        assert!(!drafts.is_empty());
        let published = redundancy(&fixture);
        let is_same = drafts.iter().any(|it| it.metadata().unwrap().ino() == fixture.inode("file"));
        assert_eq!(is_same, same, "the draft itself is published if nobody else may have it open");
        if !same {
            drafts.iter().for_each(|draft| draft.write_all_at(&[9; 5000], 70_000).unwrap());
            assert!(frames(&redundancy(&fixture)) == frames(&published));
        }
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_not_protected_so() {
    let fixture = fixture();
    let meanwhile = |_: &Portion| {
        File::options().append(true).open(fixture.path("tree/file")).unwrap().write_all(b"x").unwrap();
    };
    let failed = encode(&fixture, false, &meanwhile);
    assert!(matches!(failed, Err(EncodeError::Changed)), "{failed:?}");
    assert!(!fixture.path("repository/redundancy/file").exists());
    assert_eq!(std::fs::read_dir(fixture.path("repository").join("staging")).unwrap().count(), 0);
}

/// Descriptions come from a server: nothing but a draft is written, whatever they say.
#[test]
fn wrong_descriptions_are_refused() {
    let fixture = fixture();
    let heard = Mutex::new((Vec::new(), 0));
    encode(&fixture, false, &|portion| *heard.lock().unwrap() = (portion.about.clone(), portion.number))
        .unwrap();
    let (about, last) = heard.into_inner().unwrap();
    let encoder = Encoder { storage: &*fixture.storage, coders: &fixture.coders, clock: &fixture.clock };
    let victim = fixture.path("repository").join("victim");
    std::fs::write(&victim, b"content").unwrap();
    let refused = |about: &[u8], portion| encoder.encode_portion(about, portion, OPTIONS).unwrap_err();
    for end in 0..about.len() {
        refused(&about[..end], 0);
    }
    for at in 0..about.len() {
        let mut wrong = about.clone();
        wrong[at] ^= 1 << (at % 8);
        refused(&wrong, 0);
    }
    // The draft is gone with its worker.
    assert!(matches!(refused(&about, 0), EncodeError::Write { .. }));
    // Names that lead elsewhere.
    let names = ["../victim", "../redundancy/file", "victim", "", "/etc/passwd", ".draft"];
    for name in names {
        let mut described = Description::decode(&about).unwrap();
        described.files[0].0 = name.into();
        assert!(matches!(refused(&described.encode(), 0), EncodeError::Write { .. }), "{name}");
    }
    let name = Description::decode(&about).unwrap().files[0].0.clone();
    let draft = fixture.path("repository").join(std::str::from_utf8(STAGING).unwrap());
    let draft = draft.join(std::str::from_utf8(&name).unwrap());
    File::create(&draft).unwrap();
    for portion in [last + 1_000, u64::MAX / 2, u64::MAX] {
        refused(&about, portion);
    }
    assert_eq!(std::fs::metadata(&draft).unwrap().len(), 0);
    encoder.encode_portion(&about, last, OPTIONS).unwrap();
    assert!(std::fs::metadata(&draft).unwrap().len() > 0);
    assert_eq!(std::fs::read(&victim).unwrap(), b"content");
}
