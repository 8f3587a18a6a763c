//! Sections of a policy that are about the whole vault: guard, replaced content, limits.

use super::units::{DurationText, Percent, Rate};
use super::{Guard, Replaced};
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct GuardText {
    removed: Option<Percent>,
    changed: Option<Percent>,
    at_least: Option<u64>,
    window: Option<DurationText>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsText {
    pub(super) read: Option<Rate>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacedText {
    keep: Option<DurationText>,
    room: Option<Percent>,
}

impl ReplacedText {
    pub(super) fn build(self) -> Replaced {
        Replaced {
            keep: self.keep.map_or(Duration::from_secs(30 * 86400), |keep| keep.0),
            room: self.room.unwrap_or(Percent(10)),
        }
    }
}

impl GuardText {
    pub(super) fn build(self) -> Guard {
        Guard {
            removed: self.removed.unwrap_or(Percent(25)),
            changed: self.changed.unwrap_or(Percent(50)),
            at_least: self.at_least.unwrap_or(100),
            window: self.window.map_or(Duration::from_secs(86400), |window| window.0),
        }
    }
}
