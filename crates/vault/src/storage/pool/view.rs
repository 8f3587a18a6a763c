//! A pool at one epoch: its targets, and who of them has what.

use super::config::{Config, Member, Mirror, Standing};
use super::disk::{Answer, Disk};
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

/// A target whose copy of the namespace is current.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) tree: Tree,
    /// The epoch it knows of.
    pub(crate) epoch: u64,
}

impl View {
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Member, &Arc<Disk>)> {
        self.config.target.iter().zip(&self.disks)
    }

    pub(crate) fn disk(&self, name: &[u8]) -> Option<(&Member, &Arc<Disk>)> {
        self.members().find(|(member, _)| member.name.as_bytes() == name)
    }

    /// The domain of a target; one that is not known is alone in its own.
    pub(crate) fn domain<'a>(&'a self, name: &'a str) -> &'a str {
        self.disk(name.as_bytes()).map_or(name, |(member, _)| &member.domain)
    }

    /// Whether a target can be used.
    pub(crate) fn state(member: &Member, disk: &Disk) -> TargetState {
        match (disk.ask().is_ok(), member.state) {
            (false, _) => TargetState::Offline,
            (true, Standing::Online) => TargetState::Online,
            (true, Standing::Retired) => TargetState::Retired,
            (true, Standing::Away) => TargetState::Returned,
        }
    }

    /// Something new must not appear on targets that were retired or given up since they were chosen: whoever emptied them was told that
    /// nothing is left there.
    pub(crate) fn refuse_leaving(&self, targets: &[String]) -> Result<(), PoolError> {
        let serves = |name: &String| {
            self.disk(name.as_bytes()).is_some_and(|(member, _)| member.state == Standing::Online)
        };
        match targets.iter().find(|name| !serves(name)) {
            Some(target) => Err(PoolError::Left { target: target.clone() }),
            None => Ok(()),
        }
    }

    /// Names of targets that do not answer.
    pub(crate) fn offline(&self) -> Vec<String> {
        let silent = self.members().filter(|(_, disk)| disk.ask().is_err());
        silent.map(|(member, _)| member.name.clone()).collect()
    }

    /// All that answer.
    pub(crate) fn answers(&self) -> Vec<(usize, Answer)> {
        let asked = self.disks.iter().enumerate();
        asked.filter_map(|(index, disk)| Some((index, disk.ask().ok()?))).collect()
    }

    /// How many of those in service answer: only they know of all changes.
    pub(crate) fn present(&self) -> usize {
        let serving = self.members().filter(|(member, _)| member.state == Standing::Online);
        serving.filter(|(_, disk)| disk.ask().is_ok()).count()
    }

    /// The targets with the current namespace that answer; at least one.
    pub(crate) fn copies(&self) -> Result<Vec<Copy>, PoolError> {
        let current =
            || self.members().enumerate().filter(|(_, (member, _))| member.mirror == Mirror::Current);
        let copies: Vec<Copy> = current()
            .filter_map(|(index, (member, disk))| {
                let Answer { tree, config } = disk.ask().ok()?;
                Some(Copy { index, name: member.name.clone(), tree, epoch: config.epoch })
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

    /// Whether a target knows of a later epoch.
    pub(crate) fn is_outdated(&self) -> bool {
        let mirrors = self.members().filter(|(member, _)| member.mirror != Mirror::None);
        mirrors
            .map(|(_, disk)| disk)
            .any(|disk| disk.ask().is_ok_and(|answer| answer.config.epoch > self.config.epoch))
    }
}
