//! Status of a pool and its targets.

use super::config::{Member, Mirror, TargetName};
use super::disk::{Disk, Unavailable};
use super::objects::{OBJECTS, PARITY, parse_name};
use super::view::View;
use super::{Pool, reason};
use crate::storage::TargetState;
use crate::tree::{Tree, join};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Status of a pool.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Name.
    pub name: String,
    /// Identity.
    pub pool: String,
    /// Counts changes of the targets.
    pub epoch: u64,
    /// Targets that new files are striped over.
    pub stripe: usize,
    /// Block size of new files.
    pub block: u64,
    /// Redundancy columns of new files.
    pub redundancy: usize,
    /// Number of targets that should have the namespace.
    pub required_mirrors: usize,
    /// All targets.
    pub targets: Vec<TargetStatus>,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// Mirrors of the namespace: names are lost with the last current mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mirrors {
    /// Reachable current mirrors.
    pub current: usize,
    /// Number of mirrors that there should be.
    pub required: usize,
    /// Reachable targets with an outdated copy.
    pub outdated: Vec<TargetName>,
}

impl Mirrors {
    /// True if there are enough current mirrors and none is outdated.
    pub fn are_complete(&self) -> bool {
        self.current >= self.required && self.outdated.is_empty()
    }
}

/// Status of a target.
#[derive(Debug, Clone, Serialize)]
pub struct TargetStatus {
    /// Name.
    pub name: TargetName,
    /// Path.
    pub path: PathBuf,
    /// Failure domain.
    pub domain: String,
    /// State.
    pub state: TargetState,
    /// Why it is unreachable.
    pub reason: Option<String>,
    /// State of its copy of the namespace.
    pub mirror: Mirror,
    /// Free bytes of its file system.
    pub free: Option<u64>,
    /// Total bytes of its file system.
    pub total: Option<u64>,
    /// Number of objects.
    pub objects: Option<u64>,
    /// Bytes that objects occupy.
    pub used: Option<u64>,
}

/// A condition that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "warning", rename_all = "kebab-case")]
pub enum Warning {
    /// A target is unreachable.
    Offline {
        /// Target.
        target: TargetName,
        /// Reason.
        reason: String,
    },
    /// A target is read-only.
    Unwritable {
        /// Target.
        target: TargetName,
        /// Reason.
        reason: String,
    },
    /// A target is reachable again after it was given up.
    Returned {
        /// Target.
        target: TargetName,
    },
    /// Redundancy cannot be placed completely.
    FewDomains {
        /// Domains with a target that can receive new data.
        domains: usize,
        /// Columns of a stripe, redundancy included.
        required: usize,
        /// Redundancy columns that cannot be placed.
        missing: usize,
    },
    /// New files cannot be placed.
    NoRoom {
        /// Domains with a target that can receive new data.
        domains: usize,
        /// Data columns.
        stripe: usize,
    },
    /// A mirror missed changes of the namespace.
    StaleMirror {
        /// Target.
        target: TargetName,
    },
    /// Too few targets have the namespace.
    FewMirrors {
        /// Reachable current mirrors.
        mirrors: usize,
        /// Required number.
        required: usize,
    },
    /// Too few targets are reachable, so nothing is changed.
    ReadOnly {
        /// Reachable targets.
        online: usize,
        /// Required number.
        need: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Offline { target, reason } => write!(f, "target {target} is offline: {reason}"),
            Warning::Unwritable { target, reason } => write!(
                f,
                "target {target} is read-only ({reason}): check its file system, or retire the target and rebuild the pool"
            ),
            Warning::Returned { target } => {
                write!(f, "target {target} is reachable again and has to be verified: rebuild the pool")
            }
            Warning::FewDomains { domains, required, missing } => write!(
                f,
                "{domains} domains are usable, fewer than the {required} columns of a stripe: {missing} redundancy \
                 columns cannot be placed"
            ),
            Warning::NoRoom { domains, stripe } => write!(
                f,
                "{domains} domains are usable, fewer than the {stripe} data columns: no file can be added"
            ),
            Warning::StaleMirror { target } => {
                write!(f, "target {target} missed changes of the namespace: heal its mirror")
            }
            Warning::FewMirrors { mirrors, required } => {
                write!(f, "the namespace is on {mirrors} targets, {required} are required: heal the mirrors")
            }
            Warning::ReadOnly { online, need } => {
                write!(
                    f,
                    "{online} targets are reachable, {need} are needed: the pool is read-only, and names may be outdated"
                )
            }
        }
    }
}

impl Pool {
    /// Mirrors of the namespace.
    pub fn mirrors(&self) -> Mirrors {
        mirrors(&self.shared.view())
    }

    /// Status of the pool. Counting objects reads all their directories.
    pub fn status(&self) -> Status {
        let view = self.shared.view();
        let config = &view.config;
        let mut warnings = Vec::new();
        let (mut targets, mut unwritable) = (Vec::new(), BTreeSet::new());
        for (member, disk) in view.members() {
            let (state, reason) = (View::state(member, disk), reason(disk));
            if let Some(reason) = reason.clone() {
                warnings.push(Warning::Offline { target: member.name.clone(), reason });
            }
            if let Err(Unavailable::Unwritable(reason)) = disk.online_writable() {
                unwritable.insert(member.name.clone());
                let reason = Unavailable::Unwritable(reason).to_string();
                warnings.push(Warning::Unwritable { target: member.name.clone(), reason });
            }
            if state == TargetState::Returned {
                warnings.push(Warning::Returned { target: member.name.clone() });
            }
            if member.mirror == Mirror::Stale {
                warnings.push(Warning::StaleMirror { target: member.name.clone() });
            }
            let tree = disk.online().ok().map(|online| online.tree);
            let space = tree.as_ref().and_then(|tree| tree.space().ok());
            let counted = tree.as_ref().and_then(|tree| count(tree).ok());
            targets.push(TargetStatus {
                name: member.name.clone(),
                path: disk.path.clone(),
                domain: member.domain.clone(),
                state,
                reason,
                mirror: member.mirror,
                free: space.map(|space| space.0),
                total: space.map(|space| space.1),
                objects: counted.map(|counted| counted.0),
                used: counted.map(|counted| counted.1),
            });
        }
        let takes_new = |target: &&TargetStatus| {
            target.state == TargetState::Online && !unwritable.contains(&target.name)
        };
        let usable = targets.iter().filter(takes_new);
        let domains = usable.map(|target| &target.domain).collect::<BTreeSet<_>>().len();
        let (stripe, redundancy) = (config.stripe, config.redundancy);
        if domains < stripe {
            warnings.push(Warning::NoRoom { domains, stripe });
        } else if domains < stripe + redundancy {
            let missing = stripe + redundancy - domains;
            warnings.push(Warning::FewDomains { domains, required: stripe + redundancy, missing });
        }
        let Mirrors { current: mirrors, required, .. } = mirrors(&view);
        if mirrors < required {
            warnings.push(Warning::FewMirrors { mirrors, required });
        }
        let (online, need) = (view.online_count(), config.quorum());
        if online < need {
            warnings.push(Warning::ReadOnly { online, need });
        }
        Status {
            name: config.name.clone(),
            pool: config.pool.clone(),
            epoch: config.epoch,
            stripe,
            block: config.block,
            redundancy,
            required_mirrors: required,
            targets,
            warnings,
        }
    }
}

impl Pool {
    /// Number of reachable current mirrors that are not in `gone`. Without any, no file can be found.
    pub fn mirrors_without(&self, gone: &[Vec<u8>]) -> usize {
        let view = self.shared.view();
        let has_names = |(member, disk): &(&Member, &Arc<Disk>)| {
            member.mirror == Mirror::Current && disk.online().is_ok()
        };
        let left = view.members().filter(has_names);
        left.filter(|(member, _)| !gone.iter().any(|name| *name == member.name.as_bytes())).count()
    }
}

fn mirrors(view: &View) -> Mirrors {
    let online = |mirror: Mirror| {
        view.members().filter(move |(member, disk)| {
            member.mirror == mirror && View::state(member, disk) == TargetState::Online
        })
    };
    Mirrors {
        current: online(Mirror::Current).count(),
        required: view.config.required_mirrors(),
        outdated: online(Mirror::Stale).map(|(member, _)| member.name.clone()).collect(),
    }
}

/// Bytes that objects and redundancy files occupy on a target.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn occupied(tree: &Tree) -> io::Result<u64> {
    let mut bytes = count(tree)?.1;
    for (shelf, _) in tree.directory(PARITY)?.names()?.iter() {
        let shelf = tree.directory(&join(PARITY, shelf))?;
        for (name, _) in shelf.names()?.iter() {
            bytes += shelf.stat(name).map_or(0, |stat| stat.allocated);
        }
    }
    Ok(bytes)
}

/// Number of objects of a target, and the bytes they occupy.
fn count(tree: &Tree) -> io::Result<(u64, u64)> {
    let (mut objects, mut bytes) = (0, 0);
    for (shelf, _) in tree.directory(OBJECTS)?.names()?.iter() {
        let shelf = tree.directory(&join(OBJECTS, shelf))?;
        for (name, _) in shelf.names()?.iter().filter(|(name, _)| parse_name(name).is_some()) {
            objects += 1;
            bytes += shelf.stat(name).map_or(0, |stat| stat.allocated);
        }
    }
    Ok((objects, bytes))
}
