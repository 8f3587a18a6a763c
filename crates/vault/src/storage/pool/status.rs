//! How a pool is.

use super::config::{Member, Mirror};
use super::disk::{Absence, Disk};
use super::objects::{OBJECTS, parse_name};
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

/// How a pool is.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub pool: String,
    /// Counts changes of its targets.
    pub epoch: u64,
    /// Targets that new files are striped over.
    pub stripe: usize,
    /// Bytes of a block of new files.
    pub block: u64,
    /// Redundancy columns that are wanted.
    pub redundancy: usize,
    /// Targets that shall have the namespace.
    pub wanted_mirrors: usize,
    /// All targets.
    pub targets: Vec<TargetStatus>,
    /// What someone should look after.
    pub warnings: Vec<Warning>,
}

/// Where the namespace is: names are lost when all targets with the current one are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mirrors {
    /// Targets that have it as it is now and answer.
    pub current: usize,
    /// How many shall have it.
    pub wanted: usize,
    /// Targets that answer and missed changes of it.
    pub behind: Vec<String>,
}

impl Mirrors {
    /// True if as many targets have the namespace as shall, and none has an old one.
    pub fn are_whole(&self) -> bool {
        self.current >= self.wanted && self.behind.is_empty()
    }
}

/// How a target is.
#[derive(Debug, Clone, Serialize)]
pub struct TargetStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What it fails together with.
    pub domain: String,
    /// Whether it answers.
    pub state: TargetState,
    /// Why it does not.
    pub reason: Option<String>,
    /// What it knows of the namespace.
    pub mirror: Mirror,
    /// Free bytes of its file system.
    pub free: Option<u64>,
    /// All bytes of its file system.
    pub total: Option<u64>,
    /// Objects on it.
    pub objects: Option<u64>,
    /// Bytes that objects take.
    pub used: Option<u64>,
}

/// What someone should look after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "warning", rename_all = "kebab-case")]
pub enum Warning {
    /// A target does not answer.
    Offline {
        /// Which.
        target: String,
        /// Why.
        reason: String,
    },
    /// A target can be read and takes no writes.
    Unwritable {
        /// Which.
        target: String,
        /// Why.
        reason: String,
    },
    /// A target answers again after it was given up.
    Returned {
        /// Which.
        target: String,
    },
    /// Redundancy has no place.
    FewDomains {
        /// Domains with a target that takes new things and answers.
        domains: usize,
        /// Columns of a stripe, redundancy included.
        wanted: usize,
        /// Redundancy columns that cannot be placed.
        missing: usize,
    },
    /// New files have no place.
    NoRoom {
        /// Domains with a target that takes new things and answers.
        domains: usize,
        /// Data columns.
        stripe: usize,
    },
    /// A mirror missed changes of the namespace.
    StaleMirror {
        /// The target.
        target: String,
    },
    /// Too few targets have the namespace.
    FewMirrors {
        /// How many have it and answer.
        mirrors: usize,
        /// How many shall.
        wanted: usize,
    },
    /// So many targets are gone that nothing is changed.
    ReadOnly {
        /// Targets that answer.
        online: usize,
        /// How many it takes.
        need: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Offline { target, reason } => write!(f, "target {target} is offline: {reason}"),
            Warning::Unwritable { target, reason } => write!(
                f,
                "target {target} is only read, {reason}: check its file system, or retire the target and rebuild the pool"
            ),
            Warning::Returned { target } => {
                write!(
                    f,
                    "target {target} came back, and nothing on it counts before it is verified: rebuild the pool"
                )
            }
            Warning::FewDomains { domains, wanted, missing } => write!(
                f,
                "{domains} domains can be used, fewer than the {wanted} columns of a stripe: {missing} redundancy \
                 columns cannot be placed"
            ),
            Warning::NoRoom { domains, stripe } => write!(
                f,
                "{domains} domains can be used, fewer than the {stripe} data columns: no file can be put"
            ),
            Warning::StaleMirror { target } => {
                write!(f, "target {target} missed changes of the namespace: heal the pool")
            }
            Warning::FewMirrors { mirrors, wanted } => {
                write!(f, "the namespace is on {mirrors} targets, {wanted} are wanted: heal the pool")
            }
            Warning::ReadOnly { online, need } => {
                write!(
                    f,
                    "{online} targets answer, {need} are needed: nothing is changed, and names may be old"
                )
            }
        }
    }
}

impl Pool {
    /// Where the namespace is.
    pub fn mirrors(&self) -> Mirrors {
        mirrors(&self.shared.view())
    }

    /// How the pool is. Counting objects reads all their directories.
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
            if let Err(Absence::Unwritable(reason)) = disk.ask_to_write() {
                unwritable.insert(member.name.clone());
                let reason = Absence::Unwritable(reason).to_string();
                warnings.push(Warning::Unwritable { target: member.name.clone(), reason });
            }
            if state == TargetState::Returned {
                warnings.push(Warning::Returned { target: member.name.clone() });
            }
            if member.mirror == Mirror::Stale {
                warnings.push(Warning::StaleMirror { target: member.name.clone() });
            }
            let tree = disk.ask().ok().map(|answer| answer.tree);
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
            warnings.push(Warning::FewDomains { domains, wanted: stripe + redundancy, missing });
        }
        let Mirrors { current: mirrors, wanted, .. } = mirrors(&view);
        if mirrors < wanted {
            warnings.push(Warning::FewMirrors { mirrors, wanted });
        }
        let (online, need) = (view.present(), config.quorum());
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
            wanted_mirrors: wanted,
            targets,
            warnings,
        }
    }
}

impl Pool {
    /// Targets that answer and have the current namespace, but for `gone`. Without any, no file can be found.
    pub fn mirrors_without(&self, gone: &[Vec<u8>]) -> usize {
        let view = self.shared.view();
        let has_names =
            |(member, disk): &(&Member, &Arc<Disk>)| member.mirror == Mirror::Current && disk.ask().is_ok();
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
        wanted: view.config.wanted_mirrors(),
        behind: online(Mirror::Stale).map(|(member, _)| member.name.clone()).collect(),
    }
}

/// Objects of a target and the bytes they take.
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
