//! Short texts that every target has a copy of: whichever disks are lost, what files shall get is not, nor which vault knows them.
//!
//! A copy is the text between a line with its revision and a line with the check of all that. Of copies that are
//! whole, the one with the highest revision counts.

use super::namespace::write_whole;
use super::{Pool, PoolError};
use crate::tree::{Tree, absent_is_none};
use std::io::{self, Read};

/// A text that is on every target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// What files get.
    Policy,
    /// Which vault the pool has: its identity and its changelog.
    Vault,
}

const CHECK: &str = "# check ";

/// Most bytes of a copy.
const MAX_BYTES: u64 = 1 << 22;

/// Higher revisions are no one's: with one a second it takes longer than there were disks. So there is always a next one.
const MAX_REVISION: u64 = 1 << 53;

/// A text, as it was set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// Counts how often another one was set.
    pub revision: u64,
    /// The text.
    pub text: String,
}

impl Document {
    /// The file on every target.
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

    fn encode(self, kept: &Kept) -> String {
        let body = format!("{}{}\n{}\n", self.head(), kept.revision, kept.text);
        let check = blake3::hash(body.as_bytes()).to_hex();
        format!("{body}{CHECK}{check}\n")
    }

    /// Nothing for what is no copy, or damaged.
    fn decode(self, copy: &str) -> Option<Kept> {
        let (body, check) = copy.strip_suffix('\n')?.rsplit_once(CHECK)?;
        if blake3::hash(body.as_bytes()).to_hex().as_str() != check {
            return None;
        }
        let (revision, text) = body.strip_prefix(self.head())?.split_once('\n')?;
        let revision = revision.parse().ok().filter(|revision| *revision < MAX_REVISION)?;
        Some(Kept { revision, text: text.strip_suffix('\n')?.to_owned() })
    }

    fn read(self, tree: &Tree) -> io::Result<Option<Kept>> {
        let Some(file) = absent_is_none(tree.read(self.file()))? else { return Ok(None) };
        let mut copy = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut copy)?;
        Ok(std::str::from_utf8(&copy).ok().and_then(|copy| self.decode(copy)))
    }

    fn write(self, tree: &Tree, kept: &Kept) -> io::Result<()> {
        write_whole(tree, self.file(), self.encode(kept).as_bytes(), b".note")?;
        tree.sync_directory(b"")
    }
}

impl Pool {
    /// The text that was set last, as far as targets that answer know; nothing if none ever was.
    pub fn kept(&self, document: Document) -> Option<Kept> {
        // A copy that cannot be read is like one on a disk that is gone: the others count.
        self.copies_of(document).into_iter().filter_map(|(_, kept)| kept).max()
    }

    /// What each target that answers has.
    fn copies_of(&self, document: Document) -> Vec<(Tree, Option<Kept>)> {
        let answers = self.shared.view().answers().into_iter();
        let read = |tree: Tree| {
            let kept = document.read(&tree).ok().flatten();
            (tree, kept)
        };
        answers.map(|(_, answer)| read(answer.tree)).collect()
    }

    /// Sets another text, on all targets that answer.
    ///
    /// # Errors
    /// Too few targets answer, or take it, for a later reader to be sure to find it. See [`PoolError`].
    pub fn keep(&self, document: Document, text: &str) -> Result<Kept, PoolError> {
        let change = self.shared.change()?;
        let newest = self.kept(document);
        let kept = Kept { revision: newest.map_or(0, |kept| kept.revision) + 1, text: text.to_owned() };
        let (mut written, mut failed) = (0, None);
        for (index, answer) in change.view.answers() {
            match document.write(&answer.tree, &kept) {
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

    /// Gives targets that answer the text that was set last, if they do not have it: they were away, or are new.
    ///
    /// # Errors
    /// Nobody can have the right to change the pool. See [`PoolError`].
    pub fn spread(&self, document: Document) -> Result<(), PoolError> {
        let Some(newest) = self.kept(document) else { return Ok(()) };
        let lacks = |(_, kept): &(Tree, Option<Kept>)| kept.as_ref() != Some(&newest);
        if !self.copies_of(document).iter().any(lacks) {
            return Ok(());
        }
        // Nobody sets another one meanwhile.
        let _change = self.shared.turn()?;
        let newest = self.kept(document).unwrap_or(newest);
        for (tree, kept) in self.copies_of(document) {
            if kept.as_ref() != Some(&newest) {
                // A disk that is full or does not take it has no copy, as before; it is asked again whenever a vault is opened.
                let _ = document.write(&tree, &newest);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, Kept, MAX_REVISION};

    #[test]
    fn a_copy_is_whole_or_none() {
        for text in ["", "[default]\ncode = \"4+2\"", "# check me\n[default]\n", "\n\n# check \n"] {
            let kept = Kept { revision: 7, text: text.to_owned() };
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

    /// A copy whose revision leaves no room for a next one would be in force for good.
    #[test]
    fn revisions_without_a_next_one_are_refused() {
        for (revision, counts) in [(MAX_REVISION - 1, true), (MAX_REVISION, false), (u64::MAX, false)] {
            let copy = Document::Vault.encode(&Kept { revision, text: String::new() });
            assert_eq!(Document::Vault.decode(&copy).is_some(), counts, "{revision}");
        }
    }
}
