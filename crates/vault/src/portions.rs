//! Portions of scrubs and repairs that other workers share.

use crate::changelog::tasks::{Portion, TaskKind};
use crate::encode::ENCODE;
use crate::pool_rebuild::{self, REBUILD};
use crate::repair::{self, PLAN, REPAIR};
use crate::run::RunContext;
use crate::scrub::{self, SCRUB};
use crate::team::Help;
use crate::vault::Vault;
use crate::worker::OtherWork;

/// What a kind of task is called.
pub fn work_name(kind: TaskKind) -> &'static str {
    match kind {
        ENCODE => "encoding of a file",
        SCRUB => "scrub",
        PLAN => "examination before a repair",
        REPAIR => "repair",
        REBUILD => "rebuild",
        _ => "work of another version",
    }
}

/// Does portions of tasks on a vault.
pub(crate) struct OfVault<'a> {
    pub(crate) vault: &'a Vault,
}

impl OtherWork for OfVault<'_> {
    fn kinds(&self) -> &[TaskKind] {
        &[SCRUB, PLAN, REPAIR, REBUILD]
    }

    fn work(&self, portion: &Portion, run: RunContext<'_>) -> Help {
        match portion.kind {
            SCRUB => scrub::help(self.vault, portion, run),
            PLAN => repair::help_plan(self.vault, portion, run),
            REPAIR => repair::help(self.vault, portion, run),
            REBUILD => pool_rebuild::help(self.vault, portion, run),
            _ => Help::Failed,
        }
    }
}
