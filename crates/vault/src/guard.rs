//! Holds changes that look like an accident until someone approves exactly these.
//!
//! A digest stands for the change-set: every path that vanished or changed, with its size and times. An approval names the
//! digest, so whatever changes afterwards is another change-set and is held again: what is written over and given its old time, too,
//! since nobody sets the time at which anything about a file changed.
//!
//! A file that is written without a pause, a log or a database, would make another change-set at every look, and no approval could ever
//! release it. So a file that was another one from one look to the next, before any approval, is known by its path alone from then on. These are
//! no more than may change without any approval; if they are, all are known by their versions.
//!
//! What was carried out within the policy's window counts as well: who changes one file after the other, slowly, changes as
//! many in the end. An approval is for all of that, and the count begins anew.

use crate::catalogue::{Catalogue, CatalogueError, Change, Class, Recent};
use crate::policy::Guard;
use crate::tree::{Tree, join};
use crate::world::Nanos;
use std::fmt;
use std::io;

/// Where approvals lie, beneath the repository.
const APPROVED: &[u8] = b"approved";

/// The change-set that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What an approval must name.
    pub digest: Digest,
    /// Files that vanished.
    pub removed: u64,
    /// Files whose content changed.
    pub changed: u64,
    /// Files that were protected before.
    pub known: u64,
    /// Files that vanished or changed before these, within the policy's window.
    pub before: Recent,
}

/// What a change-set is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

/// Text that is no digest.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no digest of a change-set: it has 32 hexadecimal digits")]
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

/// Whether the change-set of the last scan must wait. Where nothing at all is left (`is_empty`), it does, however few files there
/// were: a file system that is not mounted looks like that.
///
/// # Errors
/// The catalogue fails, an approval cannot be looked up.
pub fn check(
    catalogue: &Catalogue,
    guard: &Guard,
    known: u64,
    is_empty: bool,
    repository: &Tree,
    now: Nanos,
) -> Result<Option<Held>, GuardError> {
    let counts = catalogue.count_changes()?;
    let (removed, changed) = (counts.of(Class::Removed).0, counts.of(Class::Changed).0);
    let before = recent(catalogue, guard, now)?;
    let exceeded = is_exceeded(guard, known, (removed, changed), before) || (is_empty && removed > 0);
    let known = known + before.removed;
    // With nothing to hold, there is nothing to approve.
    if !exceeded || removed + changed == 0 {
        return Ok(None);
    }
    let restless = catalogue.count_restless()?;
    let excused = restless > 0 && !is_exceeded(guard, known, (0, restless), Recent::default());
    let digest = digest(catalogue, excused)?;
    if is_approved(repository, &digest)? {
        return Ok(None);
    }
    Ok(Some(Held { digest, removed, changed, known, before }))
}

/// What stands for the change-set of the last scan. Where restless files are `excused`, their versions do not matter.
fn digest(catalogue: &Catalogue, excused: bool) -> Result<Digest, CatalogueError> {
    let mut hasher = blake3::Hasher::new();
    for class in [Class::Removed, Class::Changed] {
        catalogue.each_change(class, |changes| -> Result<(), CatalogueError> {
            for Change { path, size, times: (mtime, ctime), .. } in changes {
                let restless = excused && class == Class::Changed && catalogue.is_restless(path)?;
                let word = if restless { "restless" } else { class.word() };
                hasher.update(word.as_bytes()).update(&(path.len() as u64).to_le_bytes()).update(path);
                if !restless {
                    for part in [size.to_le_bytes(), mtime.to_le_bytes(), ctime.to_le_bytes()] {
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

/// Whether the change-set of the last scan would have to wait if all files that look restored were changed: then somebody has to look
/// whether they are.
///
/// # Errors
/// The catalogue fails.
pub fn depends_on_restored(
    catalogue: &Catalogue,
    guard: &Guard,
    known: u64,
    now: Nanos,
) -> Result<bool, CatalogueError> {
    let counts = catalogue.count_changes()?;
    let [removed, changed, restored] =
        [Class::Removed, Class::Changed, Class::Restored].map(|class| counts.of(class).0);
    let before = recent(catalogue, guard, now)?;
    Ok(restored > 0 && is_exceeded(guard, known, (removed, changed + restored), before))
}

/// What was carried out within the window of a policy.
///
/// # Errors
/// The catalogue fails.
pub fn recent(catalogue: &Catalogue, guard: &Guard, now: Nanos) -> Result<Recent, CatalogueError> {
    match guard.window {
        0 => Ok(Recent::default()),
        window => catalogue.recent(now.saturating_sub(window)),
    }
}

/// Approves a change-set.
///
/// # Errors
/// What the operating system says.
pub fn approve(repository: &Tree, digest: &Digest) -> io::Result<()> {
    repository.make_directories(APPROVED, 0o700)?;
    match repository.create(&join(APPROVED, digest.0.as_bytes()), 0o600) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made?.sync_all().and_then(|()| repository.sync_directory(APPROVED)),
    }
}

/// Whether this change-set is approved and was not carried out yet.
///
/// # Errors
/// What the operating system says.
pub fn is_approved(repository: &Tree, digest: &Digest) -> io::Result<bool> {
    Ok(repository.find(&join(APPROVED, digest.0.as_bytes()))?.is_some())
}

/// Whether any change-set is approved and was not carried out yet.
pub fn is_any_approved(repository: &Tree) -> bool {
    let names = repository.directory(APPROVED).and_then(|directory| directory.names());
    names.is_ok_and(|names| names.iter().len() > 0)
}

/// Forgets approvals: they were for one change-set, and that has been carried out. What led to it counts no longer; nor does
/// what is older than the window.
///
/// # Errors
/// The catalogue or the operating system fails.
pub fn clear(repository: &Tree, catalogue: &Catalogue, guard: &Guard, now: Nanos) -> Result<(), GuardError> {
    let mut before = now.saturating_sub(guard.window);
    if let Some(directory) = crate::tree::absent_is_none(repository.directory(APPROVED))? {
        for (name, _) in directory.names()?.iter() {
            before = Nanos::MAX;
            repository.remove(&join(APPROVED, name))?;
        }
    }
    catalogue.forget_held()?;
    Ok(catalogue.forget_recent(before)?)
}

/// Why the guard cannot say.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The repository cannot be read.
    #[error("the repository: {0}")]
    Io(#[from] io::Error),
}
