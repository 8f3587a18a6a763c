//! Harness for hostile input: random and crafted bytes as headers, redundancy files, stubs and pool settings. Used by
//! fuzzers and by tests with seeded bytes.
//!
//! Requirements: no panic; accepted input is written back unchanged; only the repaired file is written. Checksums stop
//! random bytes but not an attacker, so each function also tries the input with a valid checksum.

use crate::coder::Coders;
use crate::examine::{self, ProtectedFile, examine};
use crate::format::frame::{SIGNATURE_BYTES, check_of, table_bytes, toggle};
use crate::format::header::END_BYTES;
use crate::format::{FileId, FrameKey, Header, HeaderError, Records};
use crate::redundancy::REDUNDANCY;
use crate::repair::{Repaired, repair};
use crate::run::RunContext;
use crate::storage::pool::config::Config;
use crate::storage::pool::stub::Stub;
use crate::tree::join;
use crate::vault::{Location, Vault, VaultError};
use crate::world::Clock;
use crate::world::Timestamp;
use std::io;
use std::path::{Path, PathBuf};

/// Any bytes as a header: unchanged, and with valid lengths and checksum.
///
/// # Panics
/// If a header is accepted and not written back byte for byte.
pub fn header(bytes: &[u8], coders: &Coders) {
    let decode = |bytes: &[u8]| -> Result<Header, HeaderError> {
        let found = crate::redundancy::decode(bytes, coders);
        if let Ok((header, length)) = &found {
            let again = header.encode(*length);
            assert_eq!(again.as_deref(), Ok(bytes), "an accepted header is written otherwise");
            // Accepted sizes must not overflow.
            let records = crate::format::Records::new(header, *length);
            assert!(records.trailer() <= records.file());
        }
        found.map(|(header, _)| header)
    };
    let _ = decode(bytes);
    let mut sealed = bytes.to_vec();
    seal_header(&mut sealed);
    let _ = decode(&sealed);
}

/// Sets the lengths and the checksum of a header.
pub fn seal_header(bytes: &mut [u8]) {
    let length = bytes.len();
    if length < 16 + END_BYTES {
        return;
    }
    bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[length - END_BYTES..][..4].copy_from_slice(&(length as u32).to_le_bytes());
    let checksum = blake3::hash(&bytes[..length - 32]);
    bytes[length - 32..].copy_from_slice(checksum.as_bytes());
}

/// Any bytes as a stub: unchanged, and with a valid check appended.
///
/// # Panics
/// If a stub is accepted and has another meaning after it is written and read again.
pub fn stub(bytes: &[u8]) {
    let checked = |text: &[u8]| {
        let Ok(stub) = Stub::decode(text) else { return };
        assert_eq!(Stub::decode(stub.encode().as_bytes()).as_ref(), Ok(&stub));
        let all = (0..stub.targets.len()).map(|column| stub.object_bytes(column, stub.size));
        assert!(!stub.is_file() || all.sum::<u64>() == stub.size, "columns are not the whole");
        let end = stub.size.saturating_sub(5)..stub.size;
        assert_eq!(stub.pieces(end.clone()).map(|piece| piece.bytes).sum::<u64>(), end.end - end.start);
    };
    checked(bytes);
    checked(&[bytes, format!("check = {}\n", blake3::hash(bytes).to_hex()).as_bytes()].concat());
}

/// Any bytes as a `pool.toml`: unchanged, and with a valid check appended.
///
/// # Panics
/// If settings are accepted and have another meaning after they are written and read again.
pub fn pool(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let checked = |text: &str| {
        let Ok(config) = Config::decode(text) else { return };
        let again = config.encode().map(|text| Config::decode(&text));
        assert_eq!(again, Ok(Ok(config.clone())));
        assert!(config.quorum() >= 1 && config.required_mirrors() <= config.target.len());
    };
    checked(text);
    checked(&format!("{text}# check {}\n", blake3::hash(bytes).to_hex()));
}

/// The file whose redundancy is replaced.
const FILE: &str = "file";

/// Id of the body that the file may share.
const BODY: FileId = FileId([0xb0; 16]);

/// Content of another file, which must not change.
const BYSTANDER: &[u8] = b"nobody has anything to do with this";

/// A tree with one protected file.
pub struct Stage {
    vault: Vault,
    directory: PathBuf,
    content: Vec<u8>,
    redundancy: Vec<u8>,
}

impl Stage {
    /// Creates the tree in an empty directory and protects `content` with `code`.
    ///
    /// # Errors
    /// The vault fails.
    ///
    /// # Panics
    /// If the file cannot be protected.
    pub fn new(directory: &Path, code: &str, content: &[u8]) -> Result<Stage, VaultError> {
        let root = directory.join("tree");
        let at = |source: io::Error| VaultError::Io { path: root.clone(), source };
        std::fs::create_dir(&root).map_err(at)?;
        for path in [directory.join("outside"), root.join("bystander")] {
            std::fs::write(path, BYSTANDER).map_err(at)?;
        }
        std::fs::write(root.join(FILE), content).map_err(at)?;
        let mut vault = Vault::create(&Location::of(&root, None), None, Clock::manual(Timestamp::EPOCH))?;
        vault.set_policy(&format!("[default]\ncode = \"{code}\"\nblock = \"256\"\n"))?;
        let report = crate::protect::protect(&vault, QUIET);
        assert!(report.is_ok_and(|report| report.done.encoded == 2), "nothing is protected");
        let redundancy = std::fs::read(place(&root)).map_err(at)?;
        Ok(Stage { vault, directory: directory.to_owned(), content: content.to_vec(), redundancy })
    }

    /// The original redundancy file.
    pub fn redundancy(&self) -> &[u8] {
        &self.redundancy
    }

    /// The redundancy as it would be if the file shared it: a reference, and the body that it names.
    ///
    /// # Panics
    /// If the original is damaged.
    pub fn shared(&self) -> (Vec<u8>, Vec<u8>) {
        let decoded = crate::redundancy::decode(&self.redundancy[..self.header_bytes()], &self.vault.coders);
        let Ok((header, length)) = decoded else { panic!("the original is damaged") };
        let (own, shared) = (Records::new(&header, length), Records::of_body(&header));
        let key = FrameKey { id: BODY, ..header.frame_key() };
        let (mut body, mut root) = (vec![0; shared.file() as usize], [0; SIGNATURE_BYTES]);
        let table = table_bytes(header.code.k(), header.strong);
        for column in 0..header.columns {
            for stripe in 0..own.cut().stripes() {
                let range = |records: &Records| {
                    let start = records.frame_offset(column, stripe) as usize;
                    start..start + records.frame_bytes(stripe) as usize
                };
                let frame = &mut body[range(&shared)];
                frame.copy_from_slice(&self.redundancy[range(&own)]);
                let end = frame.len() - SIGNATURE_BYTES;
                let check = check_of(key, column, stripe, &frame[frame.len() - table..end]);
                frame[end..].copy_from_slice(&check);
                toggle(&mut root, &check);
            }
        }
        let reference = header.sharing(BODY, root).encode(0);
        let Ok(reference) = reference else { panic!("the header is too large") };
        ([&reference[..], &reference].concat(), body)
    }

    /// As [`play`](Stage::play), for a reference and the body that [`shared`](Stage::shared) names.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn play_shared(&self, reference: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let path = crate::redundancy::body::path_of(BODY);
        let place =
            self.directory.join("tree").join(crate::vault::OWN).join(std::ffi::OsStr::from_bytes(&path));
        place.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(&place, body)?;
        self.play(reference)
    }

    /// Replaces the redundancy by `bytes`, examines and repairs the file, and checks the tree. Returns the content of
    /// the file afterwards.
    ///
    /// # Errors
    /// The operating system fails.
    ///
    /// # Panics
    /// If anything else was written, or a file that is reported as intact is not.
    pub fn play(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let root = self.directory.join("tree");
        std::fs::write(root.join(FILE), &self.content)?;
        std::fs::write(place(&root), bytes)?;
        let (storage, coders) = (&*self.vault.storage, &self.vault.coders);
        if let Ok(protected) = ProtectedFile::open(storage, coders, FILE.as_bytes()) {
            let look = examine::ExamineOptions {
                threads: 1,
                from_medium: false,
                progress: &|_| {},
                stopped: &|| false,
            };
            let findings = examine(&protected, look);
            findings.iter().for_each(|findings| drop(findings.problems(&protected)));
        }
        let done = repair(&self.vault, FILE.as_bytes(), QUIET);
        if let Ok(Repaired { state: crate::catalogue::State::Protected, .. }) = &done {
            let again = repair(&self.vault, FILE.as_bytes(), QUIET);
            assert!(
                again.as_ref().is_ok_and(|again| again.data_blocks == 0 && again.redundancy_blocks == 0),
                "what is right was repaired again: {done:?}, {again:?}"
            );
        }
        for path in [self.directory.join("outside"), root.join("bystander")] {
            assert_eq!(std::fs::read(path)?, BYSTANDER, "a bystander was written to");
        }
        assert_eq!(std::fs::read_dir(&self.directory)?.count(), 2, "something came up outside");
        assert_eq!(std::fs::read_dir(&root)?.count(), 3, "something came up beside the file");
        std::fs::read(root.join(FILE))
    }

    /// As [`play`](Stage::play), with valid checksums in both headers, as an attacker would make them. The header has
    /// the length of the original.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn play_sealed(&self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (mut bytes, length) = (bytes.to_vec(), self.header_bytes());
        if bytes.len() >= 2 * length {
            seal_header(&mut bytes[..length]);
            let end = bytes.len() - length;
            bytes.copy_within(..length, end);
        }
        self.play(&bytes)
    }

    /// Header size of the original redundancy.
    pub fn header_bytes(&self) -> usize {
        Header::length(&self.redundancy).unwrap_or(0)
    }
}

/// Any bytes as a redundancy file.
///
/// # Panics
/// See [`Stage::play`].
pub fn part(bytes: &[u8], stage: &Stage) {
    // A disk error is not a finding.
    let _ = stage.play(bytes);
    // The first bytes are edits of the original.
    let mut changed = stage.redundancy().to_vec();
    for change in bytes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len();
        changed[at] = change[2];
    }
    let _ = stage.play_sealed(&changed);
}

fn place(root: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let path = join(REDUNDANCY, FILE.as_bytes());
    root.join(crate::vault::OWN).join(std::ffi::OsStr::from_bytes(&path))
}

const QUIET: RunContext<'static> =
    RunContext { threads: 1, rate: None, progress: &|_| {}, stopped: &|| false };

#[cfg(test)]
mod tests;
