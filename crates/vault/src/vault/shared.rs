//! What the repository of a pool must not be the only one to know: it lies on one target, and copies of this are on all of them.
//!
//! The repository has the copy that is worked with. A note beside it says which revision that was: so a copy that someone edited is told from
//! one that is outdated.

use super::settings::replace;
use super::{POLICY, VaultError, at};
use crate::private;
use crate::storage::pool::{Document, Pool, PoolError, StoredDocument};
use std::path::Path;

/// The name of the note: it has the revision and the BLAKE3 of the text.
fn note(document: Document) -> &'static str {
    match document {
        Document::Policy => "policy.revision",
        Document::Vault => "vault.revision",
    }
}

fn read(repository: &Path, name: &str) -> Result<Option<String>, VaultError> {
    private::read(repository, name).map_err(at(&repository.join(name)))
}

/// The revision of a document that the repository worked with last; nothing where that is not known.
pub(super) fn known_revision(repository: &Path, document: Document) -> Option<u64> {
    let note = read(repository, note(document)).ok()??;
    note.trim_end().split_once(' ')?.0.parse().ok()
}

/// Whether another vault of the pool was begun since this one was worked with: each that is begun sets the description anew.
pub(super) fn is_outdated(repository: &Path, pool: &Pool) -> bool {
    let kept = pool.document(Document::Vault).map(|kept| kept.revision);
    known_revision(repository, Document::Vault).is_some_and(|known| kept.is_some_and(|kept| known < kept))
}

/// Makes the vaults that other targets have outdated: one is about to be begun. With so few targets that nothing of the pool may be
/// changed they stay as they are.
pub(super) fn outdate_others(pool: &Pool) -> Result<(), VaultError> {
    let Some(kept) = pool.document(Document::Vault) else { return Ok(()) };
    match pool.set_document(Document::Vault, &kept.text) {
        Ok(_) | Err(PoolError::Quorum { .. } | PoolError::Mirrors { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the copy of the repository. A crash before the note leaves a copy that counts as edited, and gets a revision of its own.
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

/// Sets the policy, on all targets and here.
pub(super) fn set_policy(repository: &Path, pool: &Pool, text: &str) -> Result<(), VaultError> {
    let kept = pool.set_document(Document::Policy, text)?;
    take_over(repository, Document::Policy, &kept, &mut |text| write_policy(repository, text))
}

fn write_policy(repository: &Path, text: &str) -> Result<(), VaultError> {
    replace(repository, POLICY, text.as_bytes())
}

/// Brings the policy of the repository and those of the pool together.
pub(super) fn reconcile_policy(repository: &Path, pool: &Pool) -> Result<(), VaultError> {
    let own = read(repository, POLICY)?;
    reconcile(repository, pool, Document::Policy, own, &mut |text| write_policy(repository, text))
}

/// Brings the copy of the repository, which is `own`, and those of the pool together. `write` replaces the former.
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
        // Edited here, or the pool has lost it.
        _ => match pool.set_document(document, &own) {
            Ok(kept) => return take_over(repository, document, &kept, write),
            // With so few targets nothing of the pool may be changed. The copy is in force, and spread when they are back.
            Err(PoolError::Quorum { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(pool.replicate_document(document)?)
}
