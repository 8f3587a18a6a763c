//! Guard: holds changes that look like an accident until a person approves exactly this change-set.
//!
//! A change-set is identified by a digest over the path, size and times of every file that was deleted or changed. An
//! approval names the digest, so a later change gives another change-set, which is held again. That includes content
//! that was overwritten and got its old mtime back, because the ctime cannot be set.
//!
//! A file that is written continuously, such as a log or a database, would give another change-set at every scan, and
//! no approval could release it. So a file that changes from one scan to the next before an approval is from then on
//! identified by its path only. The number of such files is limited to what may change without an approval; above it
//! all files are identified by their versions.
//!
//! Changes that were carried out within the policy's window count as well, so that slow changes of one file after the
//! other are held too. An approval covers all of them, and counting restarts.

use crate::catalogue::{Catalogue, CatalogueError, Change, Class, Recent};
use crate::policy::Guard;
use crate::tree::{Tree, absent_is_none, join};
use crate::world::Timestamp;
use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// Directory of approvals, below the repository.
const APPROVED: &[u8] = b"approved";

/// The change-set that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Digest that an approval must name.
    pub digest: Digest,
    /// Deleted files.
    pub removed: u64,
    /// Changed files.
    pub changed: u64,
    /// Files that were protected before.
    pub known: u64,
    /// Files that were deleted or changed earlier within the policy's window.
    pub before: Recent,
}

/// What the guard says of a change-set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// There is nothing to approve: an approval, if there is one, is of another change-set.
    Passed,
    /// It would be held, and exactly this change-set was approved.
    Approved(Digest),
    /// It waits for an approval.
    Held(Held),
}

impl Judgement {
    /// The change-set, if it is held.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Judgement::Held(held) => Some(held),
            Judgement::Passed | Judgement::Approved(_) => None,
        }
    }

    /// The change-set, if it was approved.
    pub fn approved(&self) -> Option<&Digest> {
        match self {
            Judgement::Approved(digest) => Some(digest),
            Judgement::Passed | Judgement::Held(_) => None,
        }
    }
}

/// Identity of a change-set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(String);

/// Error for text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the digest of a change-set, which has 32 hexadecimal digits")]
pub struct NoDigest(String);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Digest, NoDigest> {
        let fits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if fits { Ok(Digest(text.to_owned())) } else { Err(NoDigest(text.to_owned())) }
    }
}

/// Checks whether the change-set of the last scan must be held. An empty tree (`is_empty`) is always held, since an
/// unmounted file system looks like that.
///
/// # Errors
/// The catalogue or the lookup of an approval fails.
pub fn check(
    catalogue: &Catalogue,
    guard: &Guard,
    known: u64,
    is_empty: bool,
    repository: &Tree,
    now: Timestamp,
) -> Result<Judgement, GuardError> {
    let counts = catalogue.count_changes()?;
    let (removed, changed) = (counts.of(Class::Removed).0, counts.of(Class::Changed).0);
    let before = recent(catalogue, guard, now)?;
    let exceeded = is_exceeded(guard, known, (removed, changed), before) || (is_empty && removed > 0);
    let known = known + before.removed;
    // Without deletions and changes there is nothing to approve.
    if !exceeded || removed + changed == 0 {
        return Ok(Judgement::Passed);
    }
    let restless = catalogue.count_restless()?;
    let excused = restless > 0 && !is_exceeded(guard, known, (0, restless), Recent::default());
    let digest = digest(catalogue, excused)?;
    if is_approved(repository, &digest)? {
        return Ok(Judgement::Approved(digest));
    }
    Ok(Judgement::Held(Held { digest, removed, changed, known, before }))
}

/// Digest of the last scan's change-set. With `excused`, the versions of continuously written files are ignored.
fn digest(catalogue: &Catalogue, excused: bool) -> Result<Digest, CatalogueError> {
    let mut hasher = blake3::Hasher::new();
    for class in [Class::Removed, Class::Changed] {
        catalogue.each_change(class, |changes| -> Result<(), CatalogueError> {
            for Change { path, size, times: (mtime, ctime), .. } in changes {
                let restless = excused && class == Class::Changed && catalogue.is_restless(path)?;
                let word = if restless { "restless" } else { class.word() };
                hasher.update(word.as_bytes()).update(&(path.len() as u64).to_le_bytes()).update(path);
                if !restless {
                    let [mtime, ctime] = [mtime, ctime].map(|time| time.nanoseconds().to_le_bytes());
                    for part in [size.to_le_bytes(), mtime, ctime] {
                        hasher.update(&part);
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(Digest(hasher.finalize().to_hex()[..32].to_owned()))
}

fn is_exceeded(guard: &Guard, known: u64, (removed, changed): (u64, u64), before: Recent) -> bool {
    guard.is_exceeded(removed + before.removed, changed + before.changed, known + before.removed)
}

/// True if the change-set would be held in case all files that look restored had changed content. Their content then
/// has to be compared.
///
/// # Errors
/// The catalogue fails.
pub fn depends_on_restored(
    catalogue: &Catalogue,
    guard: &Guard,
    known: u64,
    now: Timestamp,
) -> Result<bool, CatalogueError> {
    let counts = catalogue.count_changes()?;
    let [removed, changed, restored] =
        [Class::Removed, Class::Changed, Class::Restored].map(|class| counts.of(class).0);
    let before = recent(catalogue, guard, now)?;
    Ok(restored > 0 && is_exceeded(guard, known, (removed, changed + restored), before))
}

/// Changes that were carried out within the policy's window.
///
/// # Errors
/// The catalogue fails.
pub fn recent(catalogue: &Catalogue, guard: &Guard, now: Timestamp) -> Result<Recent, CatalogueError> {
    match guard.window.is_zero() {
        true => Ok(Recent::default()),
        false => catalogue.recent(now - guard.window),
    }
}

/// Approves a change-set.
///
/// # Errors
/// The operating system fails.
pub fn approve(repository: &Tree, digest: &Digest) -> io::Result<()> {
    repository.make_directories(APPROVED, 0o700)?;
    match repository.create(&join(APPROVED, digest.0.as_bytes()), 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made?.sync_all().and_then(|()| repository.sync_directory(APPROVED)),
    }
}

/// True if this change-set is approved and not carried out yet.
///
/// # Errors
/// The operating system fails.
pub fn is_approved(repository: &Tree, digest: &Digest) -> io::Result<bool> {
    Ok(repository.find(&join(APPROVED, digest.0.as_bytes()))?.is_some())
}

/// All change-sets that are approved and not carried out yet.
///
/// # Errors
/// The operating system fails.
pub fn approvals(repository: &Tree) -> io::Result<BTreeSet<Digest>> {
    let Some(directory) = absent_is_none(repository.directory(APPROVED))? else { return Ok(BTreeSet::new()) };
    let names = directory.names()?;
    let digest = |name: &[u8]| std::str::from_utf8(name).ok()?.parse().ok();
    Ok(names.iter().filter_map(|(name, _)| digest(name)).collect())
}

/// Concludes a change-set that is not held and was carried out. If it was `approved`, the changes that it contained no
/// longer count, nor do those older than the window. Removes the approval, and those that were `known` before the tree
/// was scanned: they were for change-sets of before, and must never release a later one.
///
/// # Errors
/// The catalogue or the operating system fails.
pub fn clear(
    repository: &Tree,
    catalogue: &Catalogue,
    guard: &Guard,
    now: Timestamp,
    approved: Option<&Digest>,
    known: &BTreeSet<Digest>,
) -> Result<(), GuardError> {
    forget_approvals(repository, approved.into_iter().chain(known))?;
    catalogue.forget_held()?;
    let before = if approved.is_some() { Timestamp::MAX } else { now - guard.window };
    Ok(catalogue.forget_recent(before)?)
}

/// Removes approvals.
///
/// # Errors
/// The operating system fails.
pub fn forget_approvals<'a>(
    repository: &Tree,
    digests: impl IntoIterator<Item = &'a Digest>,
) -> io::Result<()> {
    digests
        .into_iter()
        .try_for_each(|digest| repository.remove(&join(APPROVED, digest.0.as_bytes())).map(drop))
}

/// Error of the guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The repository cannot be read.
    #[error("the repository: {0}")]
    Io(#[from] io::Error),
}
