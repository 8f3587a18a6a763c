//! Documents that every target has a copy of: policy and vault identity survive the loss of any disks.
//!
//! A copy is the text between a line with its revision and a line with a checksum. Of the valid copies, the one with
//! the highest revision counts.

use super::namespace::write_whole;
use super::{Pool, PoolError};
use crate::tree::{Tree, absent_is_none};
use std::io::{self, Read};

/// A document that every target has a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// The policy.
    Policy,
    /// The vault of the pool: its identity and its changelog.
    Vault,
}

const CHECK: &str = "# check ";

/// Maximum size of a copy.
const MAX_BYTES: u64 = 1 << 22;

/// Revisions from here on are invalid, so that there is always a next one: one revision per second takes ages to get
/// here.
const MAX_REVISION: u64 = 1 << 53;

/// A document as it was stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredDocument {
    /// Counts how often the document was replaced.
    pub revision: u64,
    /// The text.
    pub text: String,
}

impl Document {
    /// File name on every target.
    fn file(self) -> &'static [u8] {
        match self {
            Document::Policy => b"policy.toml",
            Document::Vault => b"vault.toml",
        }
    }

    fn head(self) -> &'static str {
        match self {
            Document::Policy => "# gabion pool policy 1: a copy of what --policy set; revision ",
            Document::Vault => "# gabion pool vault 1: a copy of what the vault of this pool is; revision ",
        }
    }

    fn encode(self, kept: &StoredDocument) -> String {
        let body = format!("{}{}\n{}\n", self.head(), kept.revision, kept.text);
        let check = blake3::hash(body.as_bytes()).to_hex();
        format!("{body}{CHECK}{check}\n")
    }

    /// None for an invalid or damaged copy.
    fn decode(self, copy: &str) -> Option<StoredDocument> {
        let (body, check) = copy.strip_suffix('\n')?.rsplit_once(CHECK)?;
        if blake3::hash(body.as_bytes()).to_hex().as_str() != check {
            return None;
        }
        let (revision, text) = body.strip_prefix(self.head())?.split_once('\n')?;
        let revision = revision.parse().ok().filter(|revision| *revision < MAX_REVISION)?;
        Some(StoredDocument { revision, text: text.strip_suffix('\n')?.to_owned() })
    }

    fn read(self, tree: &Tree) -> io::Result<Option<StoredDocument>> {
        let Some(file) = absent_is_none(tree.read(self.file()))? else { return Ok(None) };
        let mut copy = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut copy)?;
        Ok(std::str::from_utf8(&copy).ok().and_then(|copy| self.decode(copy)))
    }

    fn write(self, tree: &Tree, kept: &StoredDocument) -> io::Result<()> {
        write_whole(tree, self.file(), self.encode(kept).as_bytes(), b".note")?;
        tree.sync_directory(b"")
    }
}

impl Pool {
    /// The newest copy on the reachable targets; none if the document was never stored.
    pub fn document(&self, document: Document) -> Option<StoredDocument> {
        // An unreadable copy counts as missing.
        self.document_copies(document).into_iter().filter_map(|(_, kept)| kept).max()
    }

    /// The copies of all reachable targets.
    fn document_copies(&self, document: Document) -> Vec<(Tree, Option<StoredDocument>)> {
        let answers = self.shared.view().online_targets().into_iter();
        let read = |tree: Tree| {
            let kept = document.read(&tree).ok().flatten();
            (tree, kept)
        };
        answers.map(|(_, online)| read(online.tree)).collect()
    }

    /// Replaces a document on all reachable targets.
    ///
    /// # Errors
    /// Too few targets are reachable, or writable, for any later reader to find the document. See [`PoolError`].
    pub fn set_document(&self, document: Document, text: &str) -> Result<StoredDocument, PoolError> {
        let change = self.shared.change()?;
        let newest = self.document(document);
        let kept =
            StoredDocument { revision: newest.map_or(0, |kept| kept.revision) + 1, text: text.to_owned() };
        let (mut written, mut failed) = (0, None);
        for (index, online) in change.view.online_targets() {
            match document.write(&online.tree, &kept) {
                Ok(()) => written += 1,
                Err(error) => failed = Some((index, error)),
            }
        }
        match failed {
            Some((index, error)) if written < change.view.config.quorum() => {
                let name = &change.view.config.target[index].name;
                Err(PoolError::target(name, "writing a copy of the settings")(error))
            }
            _ => Ok(kept),
        }
    }

    /// Copies the newest document to the reachable targets that lack it: they were offline, or are new.
    ///
    /// # Errors
    /// The pool cannot be locked. See [`PoolError`].
    pub fn replicate_document(&self, document: Document) -> Result<(), PoolError> {
        let Some(newest) = self.document(document) else { return Ok(()) };
        let lacks = |(_, kept): &(Tree, Option<StoredDocument>)| kept.as_ref() != Some(&newest);
        if !self.document_copies(document).iter().any(lacks) {
            return Ok(());
        }
        // The lock keeps others from replacing the document meanwhile.
        let _change = self.shared.lock_namespace()?;
        let newest = self.document(document).unwrap_or(newest);
        for (tree, kept) in self.document_copies(document) {
            if kept.as_ref() != Some(&newest) {
                // A disk that is full or read-only stays without a copy; the next vault to open the pool tries again.
                let _ = document.write(&tree, &newest);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, MAX_REVISION, StoredDocument};

    #[test]
    fn damaged_copies_are_refused() {
        for text in ["", "[default]\ncode = \"4+2\"", "# check me\n[default]\n", "\n\n# check \n"] {
            let kept = StoredDocument { revision: 7, text: text.to_owned() };
            let copy = Document::Policy.encode(&kept);
            assert_eq!(Document::Policy.decode(&copy), Some(kept));
            assert_eq!(Document::Vault.decode(&copy), None);
            for at in 0..copy.len() {
                let mut damaged = copy.clone().into_bytes();
                damaged[at] ^= 1;
                let damaged = String::from_utf8(damaged).ok();
                assert_eq!(damaged.and_then(|copy| Document::Policy.decode(&copy)), None);
                assert_eq!(Document::Policy.decode(&copy[..at]), None);
            }
        }
    }

    /// A copy whose revision leaves no room for a next one could never be replaced.
    #[test]
    fn revisions_without_a_next_one_are_refused() {
        for (revision, counts) in [(MAX_REVISION - 1, true), (MAX_REVISION, false), (u64::MAX, false)] {
            let copy = Document::Vault.encode(&StoredDocument { revision, text: String::new() });
            assert_eq!(Document::Vault.decode(&copy).is_some(), counts, "{revision}");
        }
    }
}
