//! Report of `gabion report`.

use super::PathName;
use gabion_vault::accounting::{Group, Sums};
use serde::Serialize;
use std::path::Path;

/// `gabion report`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "report")]
pub struct AccountReport<'a> {
    root: PathName,
    groups: Vec<GroupReport<'a>>,
    total: SumsReport,
}

/// Name of a group: a directory, an owner or an extension.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum GroupName {
    /// A directory of the tree; empty for its root.
    Directory {
        /// Its path.
        directory: PathName,
    },
    /// An owner.
    Owner {
        /// User id; none if the files cannot be found.
        uid: Option<u32>,
        /// Name of the user, if this host knows it.
        name: Option<String>,
    },
    /// An extension, in lower case, without its dot; empty for names without one.
    Extension {
        /// The extension.
        extension: PathName,
    },
}

impl GroupName {
    /// Of a group; `name` knows users.
    pub fn new(group: &Group, name: impl Fn(u32) -> Option<String>) -> GroupName {
        match group {
            Group::Directory(path) => GroupName::Directory { directory: PathName::new(path) },
            Group::Owner(uid) => GroupName::Owner { uid: *uid, name: uid.and_then(name) },
            Group::Extension(name) => GroupName::Extension { extension: PathName::new(name) },
        }
    }
}

/// For people.
impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GroupName::Directory { directory } if directory.path.is_empty() => f.write_str("."),
            GroupName::Directory { directory } => directory.fmt(f),
            GroupName::Owner { name: Some(name), .. } => f.write_str(name),
            GroupName::Owner { uid: Some(uid), .. } => uid.fmt(f),
            GroupName::Owner { .. } => f.write_str("unknown"),
            GroupName::Extension { extension } if extension.path.is_empty() => f.write_str("none"),
            GroupName::Extension { extension } => write!(f, ".{extension}"),
        }
    }
}

#[derive(Debug, Serialize)]
struct GroupReport<'a> {
    #[serde(flatten)]
    name: &'a GroupName,
    #[serde(flatten)]
    sums: SumsReport,
}

/// Sums of files.
#[derive(Debug, Serialize)]
struct SumsReport {
    files: u64,
    bytes: u64,
    redundancy_bytes: u64,
    exposed_files: u64,
    exposed_bytes: u64,
    lost_files: u64,
    never_scrubbed: u64,
}

impl SumsReport {
    fn new(sums: &Sums) -> SumsReport {
        SumsReport {
            files: sums.files,
            bytes: sums.bytes,
            redundancy_bytes: sums.redundancy,
            exposed_files: sums.exposed_files,
            exposed_bytes: sums.exposed_bytes,
            lost_files: sums.lost_files,
            never_scrubbed: sums.never_scrubbed,
        }
    }
}

impl<'a> AccountReport<'a> {
    /// Of groups and their sum.
    pub fn new(root: &Path, groups: &'a [(GroupName, Sums)], total: &Sums) -> AccountReport<'a> {
        let group = |(name, sums): &'a (GroupName, Sums)| GroupReport { name, sums: SumsReport::new(sums) };
        AccountReport {
            root: PathName::system(root),
            groups: groups.iter().map(group).collect(),
            total: SumsReport::new(total),
        }
    }
}
