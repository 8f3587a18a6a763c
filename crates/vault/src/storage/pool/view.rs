//! View of a pool at one epoch: its targets and their states.

use super::config::{Config, Member, MemberState, Mirror, TargetName};
use super::disk::{Disk, OnlineTarget};
use super::error::PoolError;
use crate::storage::TargetState;
use crate::tree::Tree;
use std::sync::Arc;

/// `config.target` and `disks` have the same order.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) config: Config,
    pub(crate) disks: Vec<Arc<Disk>>,
}

/// A target with a current copy of the namespace.
#[derive(Debug, Clone)]
pub(crate) struct MirrorCopy {
    pub(crate) index: usize,
    pub(crate) name: TargetName,
    pub(crate) tree: Tree,
    /// The epoch that it has recorded.
    pub(crate) epoch: u64,
}

impl View {
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Member, &Arc<Disk>)> {
        self.config.target.iter().zip(&self.disks)
    }

    pub(crate) fn disk(&self, name: &[u8]) -> Option<(&Member, &Arc<Disk>)> {
        self.members().find(|(member, _)| member.name.as_bytes() == name)
    }

    /// Failure domain of a target; an unknown target has a domain of its own.
    pub(crate) fn domain<'a>(&'a self, name: &'a str) -> &'a str {
        self.disk(name.as_bytes()).map_or(name, |(member, _)| &member.domain)
    }

    /// State of a target.
    pub(crate) fn state(member: &Member, disk: &Disk) -> TargetState {
        match (disk.online().is_ok(), member.state) {
            (false, _) => TargetState::Offline,
            (true, MemberState::Online) => TargetState::Online,
            (true, MemberState::Retired) => TargetState::Retired,
            (true, MemberState::Away) => TargetState::Returned,
        }
    }

    /// Refuses targets that were retired or given up after they were chosen: nothing new may appear on a target that
    /// was reported empty.
    pub(crate) fn require_in_service(&self, targets: &[TargetName]) -> Result<(), PoolError> {
        let serves = |name: &TargetName| {
            self.disk(name.as_bytes()).is_some_and(|(member, _)| member.state == MemberState::Online)
        };
        match targets.iter().find(|name| !serves(name)) {
            Some(target) => Err(PoolError::Left { target: target.clone() }),
            None => Ok(()),
        }
    }

    /// Names of unreachable targets.
    pub(crate) fn offline(&self) -> Vec<TargetName> {
        let silent = self.members().filter(|(_, disk)| disk.online().is_err());
        silent.map(|(member, _)| member.name.clone()).collect()
    }

    /// All reachable targets.
    pub(crate) fn online_targets(&self) -> Vec<(usize, OnlineTarget)> {
        let asked = self.disks.iter().enumerate();
        asked.filter_map(|(index, disk)| Some((index, disk.online().ok()?))).collect()
    }

    /// Number of reachable targets in service: only these have all changes.
    pub(crate) fn online_count(&self) -> usize {
        let serving = self.members().filter(|(member, _)| member.state == MemberState::Online);
        serving.filter(|(_, disk)| disk.online().is_ok()).count()
    }

    /// The reachable targets with the current namespace; at least one.
    pub(crate) fn copies(&self) -> Result<Vec<MirrorCopy>, PoolError> {
        let current =
            || self.members().enumerate().filter(|(_, (member, _))| member.mirror == Mirror::Current);
        let copies: Vec<MirrorCopy> = current()
            .filter_map(|(index, (member, disk))| {
                let OnlineTarget { tree, config } = disk.online().ok()?;
                Some(MirrorCopy { index, name: member.name.clone(), tree, epoch: config.epoch })
            })
            .collect();
        match copies.is_empty() {
            true => {
                let mirrors = current().map(|(_, (member, _))| member.name.clone()).collect();
                Err(PoolError::Mirrors { mirrors })
            }
            false => Ok(copies),
        }
    }

    /// True if a target has a later epoch.
    pub(crate) fn is_outdated(&self) -> bool {
        let mirrors = self.members().filter(|(member, _)| member.mirror != Mirror::None);
        mirrors
            .map(|(_, disk)| disk)
            .any(|disk| disk.online().is_ok_and(|online| online.config.epoch > self.config.epoch))
    }
}
