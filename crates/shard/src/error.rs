//! Errors of shards, with file, reason and numbers.

use gabion_platform::display_path::DisplayPath;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Errors of operations on shards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {doing} {}: {}", DisplayPath::path(.path), plain(.reason))]
    Io {
        /// The operation.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Its answer. Not called `source`: the message has it already.
        reason: io::Error,
    },
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// Sizes that the format does not allow.
    #[error(transparent)]
    Geometry(#[from] crate::geometry::GeometryError),
    /// A name that no shard may carry.
    #[error(transparent)]
    Name(#[from] crate::format::NameError),
    /// Only regular files can be split.
    #[error("cannot split {}: it is a {kind}; pipe its content in with `-` as FILE", DisplayPath::path(.path))]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: &'static str,
    },
    /// The source was written to while it was read.
    #[error("{} changed while it was read; split it again when it rests", DisplayPath::path(.path))]
    SourceChanged {
        /// The file.
        path: PathBuf,
    },
    /// Something is where the output should go.
    #[error("{} exists; --force replaces it", DisplayPath::path(.path))]
    Exists {
        /// The file in the way.
        path: PathBuf,
    },
    /// The output would replace what is being read.
    #[error("{} is being read and cannot be the output as well", DisplayPath::path(.path))]
    OutputIsSource {
        /// The file.
        path: PathBuf,
    },
    /// A signal asked to stop.
    #[error("interrupted; nothing was changed")]
    Interrupted,
    /// The redundancy just computed contradicts the data: memory or processor cannot be trusted.
    #[error(
        "stripe {stripe}: computed blocks contradict the law of their signatures; this machine is not sound"
    )]
    Unsound {
        /// The stripe.
        stripe: u64,
    },
    /// A worker thread panicked.
    #[error("internal error in stripe {stripe}")]
    Panicked {
        /// The stripe it worked on.
        stripe: u64,
    },
    /// No shard in the directory.
    #[error("no shards in {}", DisplayPath::path(.dir))]
    NoShards {
        /// The directory.
        dir: PathBuf,
    },
    /// Files that were shards, but none with a readable header.
    #[error("no readable shard in {}: {} with damaged headers", DisplayPath::path(.dir), files(*.damaged))]
    OnlyDamaged {
        /// The directory.
        dir: PathBuf,
        /// How many files have a damaged header.
        damaged: usize,
    },
    /// `--set` fits none or several sets.
    #[error("--set {prefix} fits {} of the sets in {}:{list}", .count, DisplayPath::path(.dir))]
    NoSuchSet {
        /// The prefix given.
        prefix: String,
        /// How many sets it fits.
        count: usize,
        /// The directory.
        dir: PathBuf,
        /// The sets there.
        list: SetList,
    },
    /// More than one set could be meant.
    #[error("{} sets in {}, choose one with --set:{list}", .list.0.len(), DisplayPath::path(.dir))]
    SeveralSets {
        /// The directory.
        dir: PathBuf,
        /// The sets there.
        list: SetList,
    },
    /// Fewer than k shards.
    #[error("{name}: need {need} shards, have {have}: missing {}", numbers(.missing))]
    TooFewShards {
        /// Name of the file, made printable.
        name: String,
        /// k.
        need: usize,
        /// Shards with a readable header.
        have: usize,
        /// The numbers of those that are not there.
        missing: Vec<u32>,
    },
    /// A stripe with fewer than k good blocks.
    #[error("stripe {stripe}: need {need} blocks, have {have}: {}", .bad.join(", "))]
    StripeLost {
        /// The stripe.
        stripe: u64,
        /// k.
        need: usize,
        /// Good blocks.
        have: usize,
        /// The others, each with its reason.
        bad: Vec<String>,
    },
    /// All blocks passed their own check, and yet this is not the file that was split.
    #[error(
        "the blocks do not make up set {set}: the content would differ from what was split; `gabion shard verify` shows where"
    )]
    WrongContent {
        /// The set identity in the headers.
        set: String,
    },
    /// Stripes that cannot be repaired.
    #[error("cannot repair: {reason}; nothing was changed")]
    BeyondRepair {
        /// The stripes, or another reason.
        reason: String,
    },
    /// A file that is no damaged shard of this set lies where a shard is to be recreated.
    #[error("{} is in the way: {what}; move it, or --force replaces it", DisplayPath::path(.path))]
    InTheWay {
        /// The file.
        path: PathBuf,
        /// Its kind.
        what: String,
    },
    /// A shard that was read back differs from what was written.
    #[error("{} reads back differently from what was written to it", DisplayPath::path(.path))]
    ReadBack {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    /// Whether this means that data is gone, rather than that a command could not run.
    pub fn is_data_loss(&self) -> bool {
        matches!(
            self,
            Error::OnlyDamaged { .. }
                | Error::TooFewShards { .. }
                | Error::StripeLost { .. }
                | Error::WrongContent { .. }
                | Error::BeyondRepair { .. }
        )
    }

    /// For `map_err`: an operation on a file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |reason| Error::Io { doing, path, reason }
    }
}

/// Sets to choose from, one line each.
#[derive(Debug)]
pub struct SetList(pub Vec<String>);

impl fmt::Display for SetList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// An error of the system without its number: `permission denied`.
pub(crate) fn plain(reason: &io::Error) -> String {
    let text = reason.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

pub(crate) fn numbers(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_plain_and_names_harmless() {
        let error = Error::io("read", Path::new("/x/\x1b[31my"))(io::Error::from_raw_os_error(13));
        assert_eq!(error.to_string(), "cannot read /x/\\u{1b}[31my: permission denied");
    }
}
