//! The policy of a pool is on all of its targets; the repository, on one of them, has the copy that is worked with.
//!
//! A note beside that copy says which revision it was: so a copy that someone edited is told from one that is outdated.

use super::settings::replace;
use super::{POLICY, VaultError, at};
use crate::storage::pool::{Kept, Pool, PoolError};
use std::io;
use std::path::Path;

/// The note: revision and BLAKE3 of the text.
const NOTE: &str = "policy.revision";

fn read(path: &Path) -> Result<Option<String>, VaultError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// Writes the copy of the repository.
pub(super) fn take_over(repository: &Path, kept: &Kept) -> Result<(), VaultError> {
    let note = format!("{} {}\n", kept.revision, blake3::hash(kept.text.as_bytes()).to_hex());
    // A crash in between leaves a copy that counts as edited, and gets a revision of its own.
    replace(repository, POLICY, kept.text.as_bytes())?;
    replace(repository, NOTE, note.as_bytes())
}

/// Brings the copy of the repository and those of the pool together.
pub(super) fn reconcile(repository: &Path, pool: &Pool) -> Result<(), VaultError> {
    let own = read(&repository.join(POLICY))?;
    let note = read(&repository.join(NOTE))?;
    let known = note.as_deref().and_then(|note| note.trim_end().split_once(' '));
    let revision = known.and_then(|(revision, _)| revision.parse::<u64>().ok());
    let newest = pool.policy();
    let Some(own) = own else {
        return newest.map_or(Ok(()), |kept| {
            take_over(repository, &kept)?;
            Ok(pool.spread_policy()?)
        });
    };
    let edited = known.is_none_or(|(_, hash)| blake3::hash(own.as_bytes()).to_hex().as_str() != hash);
    match newest {
        Some(kept) if kept.text == own => {
            if Some(kept.revision) != revision || edited {
                take_over(repository, &kept)?;
            }
        }
        Some(kept) if !edited && revision.is_some_and(|known| known < kept.revision) => {
            take_over(repository, &kept)?;
        }
        // Edited here, or the pool has lost it.
        _ => match pool.set_policy(&own) {
            Ok(kept) => return take_over(repository, &kept),
            // With so few targets nothing of the pool may be changed. The copy is in force, and spread when they are back.
            Err(PoolError::Quorum { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
    }
    Ok(pool.spread_policy()?)
}
