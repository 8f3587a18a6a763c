//! The policy of a pool, a copy of it on every target: whichever disks are lost, what files shall get is not.
//!
//! A copy is the text of the policy between a line with its revision and a line with the check of all that. Of copies that are
//! whole, the one with the highest revision counts.

use super::namespace::write_whole;
use super::{Pool, PoolError};
use crate::tree::{Tree, absent_is_none};
use std::io::{self, Read};

/// The file on every target.
pub(super) const POLICY: &[u8] = b"policy.toml";

const HEAD: &str = "# gabion pool policy 1: a copy of what --policy set; revision ";
const CHECK: &str = "# check ";

/// Most bytes of a copy.
const MAX_BYTES: u64 = 1 << 22;

/// A policy, as it was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Counts how often another one was set.
    pub revision: u64,
    /// The text.
    pub text: String,
}

impl Kept {
    fn encode(&self) -> String {
        let body = format!("{HEAD}{}\n{}\n", self.revision, self.text);
        let check = blake3::hash(body.as_bytes()).to_hex();
        format!("{body}{CHECK}{check}\n")
    }

    /// Nothing for what is no copy, or damaged.
    fn decode(copy: &str) -> Option<Kept> {
        let (body, check) = copy.strip_suffix('\n')?.rsplit_once(CHECK)?;
        if blake3::hash(body.as_bytes()).to_hex().as_str() != check {
            return None;
        }
        let (revision, text) = body.strip_prefix(HEAD)?.split_once('\n')?;
        Some(Kept { revision: revision.parse().ok()?, text: text.strip_suffix('\n')?.to_owned() })
    }

    fn read(tree: &Tree) -> io::Result<Option<Kept>> {
        let Some(file) = absent_is_none(tree.read(POLICY))? else { return Ok(None) };
        let mut copy = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut copy)?;
        Ok(std::str::from_utf8(&copy).ok().and_then(Kept::decode))
    }
}

impl Pool {
    /// The policy that was set last, as far as targets that answer know; nothing if none ever was.
    pub fn policy(&self) -> Option<Kept> {
        // A copy that cannot be read is like one on a disk that is gone: the others count.
        let copies = self.policies().into_iter().filter_map(|(_, kept)| kept);
        copies.max_by_key(|kept| kept.revision)
    }

    /// What each target that answers has.
    fn policies(&self) -> Vec<(Tree, Option<Kept>)> {
        let answers = self.shared.view().answers().into_iter();
        let read = |tree: Tree| {
            let kept = Kept::read(&tree).ok().flatten();
            (tree, kept)
        };
        answers.map(|(_, answer)| read(answer.tree)).collect()
    }

    /// Sets another policy, on all targets that answer.
    ///
    /// # Errors
    /// Too few targets answer, or take it, for a later reader to be sure to find it. See [`PoolError`].
    pub fn set_policy(&self, text: &str) -> Result<Kept, PoolError> {
        let change = self.shared.change()?;
        let newest = self.policy();
        let kept = Kept { revision: newest.map_or(0, |kept| kept.revision) + 1, text: text.to_owned() };
        let (mut written, mut failed) = (0, None);
        for (index, answer) in change.view.answers() {
            match write(&answer.tree, &kept) {
                Ok(()) => written += 1,
                Err(error) => failed = Some((index, error)),
            }
        }
        match failed {
            Some((index, error)) if written < change.view.config.quorum() => {
                let name = &change.view.config.target[index].name;
                Err(PoolError::target(name, "writing the policy")(error))
            }
            _ => Ok(kept),
        }
    }

    /// Gives targets that answer the policy that was set last, if they do not have it: they were away, or are new.
    ///
    /// # Errors
    /// Nobody can have the right to change the pool. See [`PoolError`].
    pub fn spread_policy(&self) -> Result<(), PoolError> {
        let Some(newest) = self.policy() else { return Ok(()) };
        let lacks = |(_, kept): &(Tree, Option<Kept>)| kept.as_ref() != Some(&newest);
        if !self.policies().iter().any(lacks) {
            return Ok(());
        }
        // Nobody sets another one meanwhile.
        let _change = self.shared.turn()?;
        let newest = self.policy().unwrap_or(newest);
        for (tree, kept) in self.policies() {
            if kept.as_ref() != Some(&newest) {
                // A disk that is full or does not take it has no copy, as before; it is asked again whenever a vault is opened.
                let _ = write(&tree, &newest);
            }
        }
        Ok(())
    }
}

fn write(tree: &Tree, kept: &Kept) -> io::Result<()> {
    write_whole(tree, POLICY, kept.encode().as_bytes(), b".policy")?;
    tree.sync_directory(b"")
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn a_copy_is_whole_or_none() {
        for text in ["", "[default]\ncode = \"4+2\"", "# check me\n[default]\n", "\n\n# check \n"] {
            let kept = Kept { revision: 7, text: text.to_owned() };
            let copy = kept.encode();
            assert_eq!(Kept::decode(&copy), Some(kept));
            for at in 0..copy.len() {
                let mut damaged = copy.clone().into_bytes();
                damaged[at] ^= 1;
                assert_eq!(String::from_utf8(damaged).ok().and_then(|copy| Kept::decode(&copy)), None);
                assert_eq!(Kept::decode(&copy[..at]), None);
            }
        }
    }
}
