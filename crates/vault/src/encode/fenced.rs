//! Ranges that mounts of several hosts wrote ([`crate::changelog::windows`]).

use crate::changelog::windows::Written;
use crate::changelog::{Entry, VersionName};
use crate::tree::Generation;
use crate::version::name_on_all_hosts;
use std::ops::Range;

/// What the changelog knows of a file.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    /// Its entry.
    pub entry: &'a Entry,
    /// Ranges that mounts of several hosts wrote.
    pub fenced: Option<&'a Fenced>,
}

/// What was recorded of a file when it was claimed, and when all mounts had recorded what they wrote before.
#[derive(Debug)]
pub struct Fenced {
    ends: Vec<VersionName>,
    written: Option<Written>,
}

impl Fenced {
    /// From what was recorded when the file was claimed.
    pub fn claimed(written: &Written) -> Fenced {
        Fenced { ends: written.windows.iter().map(|(_, to)| *to).collect(), written: None }
    }

    /// Adds what is recorded now that all mounts have recorded what they wrote before.
    pub fn pass(&mut self, written: Written) {
        self.written = Some(written);
    }

    /// What was written between two versions, if all of it is known.
    pub(super) fn between(&self, was: &Generation, now: &Generation) -> Option<Vec<Range<u64>>> {
        let [was, now] = [was, now].map(name_on_all_hosts);
        let written = self.written.as_ref().filter(|_| was != now && self.ends.contains(&now))?;
        written.leads(&was, &now).then(|| written.ranges.as_slice().to_vec())
    }
}
