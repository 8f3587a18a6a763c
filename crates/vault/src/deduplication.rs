//! Deduplication of redundancy: files with equal redundancy share it.
//!
//! Frames of equal files differ in their checks only, which bind them to a file. So frames of one of them become a
//! *body* ([`crate::redundancy::SHARED`]), bound to an id of its own, and the redundancy files of all of them become
//! *references*: headers that name the body. What is compared is redundancy, byte by byte through BLAKE3: signatures
//! and redundancy blocks. Data is neither read nor trusted, so a file has the same redundancy before and after,
//! whatever happened to its data. A file that changes is encoded as if it had no redundancy to keep, and gets a
//! redundancy file of its own.
//!
//! References are counted by hard links: `shared/HH/ID-LINK` is another name of a reference. Its link count says
//! whether the reference is still in use, so no step of a change, a rename or a removal of a file has to count.
//! `protect` compares, counts and removes, under the lock of the vault.

mod candidates;
mod comparison;
mod references;

use crate::catalogue::CatalogueError;
use crate::host_limits::throttled;
use crate::policy::Policy;
use crate::run::{Progress, RunContext};
use crate::tree::Tree;
use crate::vault::Vault;
use crate::world::Timestamp;
use candidates::Comparing;
use references::Swept;
use std::io;
use std::time::Duration;

/// Least size of frames that are shared. A reference takes a block of the file system, and so does its count.
pub const LEAST_BYTES: u64 = 64 << 10;

/// Largest header of a reference. Files with more attributes keep their redundancy.
const LARGEST_HEADER: usize = 4096;

/// Catalogue note: the time of the last comparison and the policy then.
const NOTE: &str = "redundancy compared";

/// A file may be protected this long before the catalogue knows it: it was large, or its host was away.
const MARGIN: Duration = Duration::from_secs(24 * 3600);

/// Results of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Files that share their redundancy from now on.
    pub files: u64,
    /// Bytes of redundancy that are not kept twice any more.
    pub saved: u64,
    /// Bytes of shared redundancy that no file refers to any more, and that was removed.
    pub removed: u64,
    /// Failures, as text. The next run tries again.
    pub failed: Vec<String>,
}

/// Shared redundancy of a vault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedAmount {
    /// Files that share their redundancy.
    pub files: u64,
    /// Redundancies that are shared, each by one file or more.
    pub bodies: u64,
    /// Bytes of redundancy that would be kept in addition if each file had its own.
    pub saved: u64,
}

/// Shares equal redundancy as far as the policy says, and removes shared redundancy that is not in use. The caller
/// holds the vault's lock.
///
/// # Errors
/// The catalogue fails. Other failures are in the result.
pub fn share(vault: &Vault, context: RunContext<'_>) -> Result<Sharing, CatalogueError> {
    run(vault, context, Purpose::Share)
}

/// What [`share`] would do with the files that are protected now.
///
/// # Errors
/// The catalogue fails.
pub fn survey(vault: &Vault, context: RunContext<'_>) -> Result<Sharing, CatalogueError> {
    run(vault, context, Purpose::Survey)
}

/// Counts what is shared now.
///
/// # Errors
/// I/O errors.
pub fn amount(vault: &Vault) -> io::Result<SharedAmount> {
    repository_of(vault).map_or(Ok(SharedAmount::default()), references::amount)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Share,
    Survey,
}

/// Where redundancy can be shared; none in a pool, where columns of equal files lie in different domains.
fn repository_of(vault: &Vault) -> Option<&Tree> {
    vault.pool.is_none().then_some(&vault.repository)
}

fn run(vault: &Vault, context: RunContext<'_>, purpose: Purpose) -> Result<Sharing, CatalogueError> {
    let mut sharing = Sharing::default();
    let Some(repository) = repository_of(vault) else { return Ok(sharing) };
    if purpose == Purpose::Share {
        match references::sweep(vault, repository)? {
            Ok(Swept { removed, missing }) => {
                sharing.removed = removed;
                sharing.failed.extend(missing);
            }
            Err(error) => sharing.failed.push(format!("shared redundancy could not be counted: {error}")),
        }
    }
    if !vault.policy.shares_duplicates() {
        return Ok(sharing);
    }
    (context.progress)(Progress::Step("comparing redundancy", None));
    let began = vault.clock.now();
    let policy = policy_name(&vault.policy, vault);
    let since = match (purpose, vault.catalogue.note(NOTE)?) {
        (Purpose::Share, Some(note)) => since(&note, &policy),
        _ => Timestamp::MIN,
    };
    let is_complete = throttled(vault, context, None, |throttle| {
        let mut comparing = Comparing::new(vault, repository, purpose, throttle, &mut sharing);
        vault.catalogue.each_equal_size(LEAST_BYTES, since, |paths| -> Result<(), CatalogueError> {
            if !(context.stopped)() {
                comparing.compare(paths, context.stopped);
            }
            Ok(())
        })?;
        Ok::<_, CatalogueError>(comparing.finish() && !(context.stopped)())
    })?;
    if is_complete && purpose == Purpose::Share {
        vault.catalogue.set_note(NOTE, Some(&format!("{} {policy}", (began - MARGIN).nanoseconds())))?;
    }
    Ok(sharing)
}

/// The time in a note of a comparison by this policy; files that were protected before are compared.
fn since(note: &str, policy: &str) -> Timestamp {
    let time = note.split_once(' ').filter(|(_, of)| *of == policy).and_then(|(time, _)| time.parse().ok());
    time.map_or(Timestamp::MIN, Timestamp::from_nanoseconds)
}

/// Name of the policy: another one may let other files share.
fn policy_name(policy: &Policy, vault: &Vault) -> String {
    let text = crate::private::read(vault.repository.path(), crate::vault::POLICY).ok().flatten();
    let text = text.unwrap_or_else(|| policy.default.to_string());
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
