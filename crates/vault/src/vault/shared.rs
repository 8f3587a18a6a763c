//! Documents that all targets of a pool hold: the repository lies on one target and could be lost with it.
//!
//! The repository has the copy in use. A note next to it holds the revision, which distinguishes an edited copy from an
//! outdated one.

use super::settings::replace;
use super::{POLICY, VaultError, at};
use crate::private;
use crate::storage::pool::{Document, Pool, PoolError, StoredDocument};
use std::path::Path;

/// Name of the note. It holds the revision and the BLAKE3 hash of the text.
fn note(document: Document) -> &'static str {
    match document {
        Document::Policy => "policy.revision",
        Document::Vault => "vault.revision",
    }
}

fn read(repository: &Path, name: &str) -> Result<Option<String>, VaultError> {
    private::read(repository, name).map_err(at(&repository.join(name)))
}

/// Revision of a document that the repository last used; none if unknown.
pub(super) fn known_revision(repository: &Path, document: Document) -> Option<u64> {
    let note = read(repository, note(document)).ok()??;
    note.trim_end().split_once(' ')?.0.parse().ok()
}

/// True if another vault of the pool was created since this one was in use: each new vault writes the description
/// again.
pub(super) fn is_outdated(repository: &Path, pool: &Pool) -> bool {
    let kept = pool.document(Document::Vault).map(|kept| kept.revision);
    known_revision(repository, Document::Vault).is_some_and(|known| kept.is_some_and(|kept| known < kept))
}

/// Marks the vaults on other targets as outdated before a new one is created. With too few targets for a change of the
/// pool they remain as they are.
pub(super) fn outdate_others(pool: &Pool) -> Result<(), VaultError> {
    let Some(kept) = pool.document(Document::Vault) else { return Ok(()) };
    match pool.set_document(Document::Vault, &kept.text) {
        Ok(_) | Err(PoolError::Quorum { .. } | PoolError::Mirrors { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the repository's copy. After a crash before the note is written, the copy counts as edited and gets a
/// revision of its own.
fn take_over(
    repository: &Path,
    document: Document,
    kept: &StoredDocument,
    write: &mut dyn FnMut(&str) -> Result<(), VaultError>,
) -> Result<(), VaultError> {
    write(&kept.text)?;
    let line = format!("{} {}\n", kept.revision, blake3::hash(kept.text.as_bytes()).to_hex());
    replace(repository, note(document), line.as_bytes())
}

/// Sets the policy on all targets and in the repository.
pub(super) fn set_policy(repository: &Path, pool: &Pool, text: &str) -> Result<(), VaultError> {
    let kept = pool.set_document(Document::Policy, text)?;
    take_over(repository, Document::Policy, &kept, &mut |text| write_policy(repository, text))
}

fn write_policy(repository: &Path, text: &str) -> Result<(), VaultError> {
    replace(repository, POLICY, text.as_bytes())
}

/// Reconciles the repository's policy with the pool's.
pub(super) fn reconcile_policy(repository: &Path, pool: &Pool) -> Result<(), VaultError> {
    let own = read(repository, POLICY)?;
    reconcile(repository, pool, Document::Policy, own, &mut |text| write_policy(repository, text))
}

/// Reconciles the repository's copy `own` with the pool's copies. `write` replaces the repository's copy.
pub(super) fn reconcile(
    repository: &Path,
    pool: &Pool,
    document: Document,
    own: Option<String>,
    write: &mut dyn FnMut(&str) -> Result<(), VaultError>,
) -> Result<(), VaultError> {
    let note = read(repository, note(document))?;
    let known = note.as_deref().and_then(|note| note.trim_end().split_once(' '));
    let revision = known.and_then(|(revision, _)| revision.parse::<u64>().ok());
    let newest = pool.document(document);
    let Some(own) = own else {
        return newest.map_or(Ok(()), |kept| {
            take_over(repository, document, &kept, write)?;
            Ok(pool.replicate_document(document)?)
        });
    };
    let edited = known.is_none_or(|(_, hash)| blake3::hash(own.as_bytes()).to_hex().as_str() != hash);
    match newest {
        Some(kept) if kept.text == own => {
            if Some(kept.revision) != revision || edited {
                take_over(repository, document, &kept, write)?;
            }
        }
        Some(kept) if !edited && revision.is_some_and(|known| known < kept.revision) => {
            take_over(repository, document, &kept, write)?;
        }
        // Edited here, or lost from the pool.
        _ => match pool.set_document(document, &own) {
            Ok(kept) => return take_over(repository, document, &kept, write),
            // With too few targets the pool cannot be changed. The copy is in force and is distributed when they
            // return.
            Err(PoolError::Quorum { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(pool.replicate_document(document)?)
}
