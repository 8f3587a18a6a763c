//! Whether the recorded ranges of a file are all that was written to it by mounts of several hosts.
//!
//! Mounts of several hosts write in turns. So the ranges of a file are recorded with
//! [windows](crate::change::Window): each says that its mount saw one version, wrote, and saw another one. If windows
//! cover the time from the version that is protected to the present one, then nobody but mounts wrote in between:
//! another program would have made a version that no window begins with. The first eight bytes of a name are the time
//! of its version, by the clock of the file system: windows of mounts that write at once overlap, and need not have a
//! version in common.
//!
//! What the mounts themselves wrote has to be recorded by all of them, not only by those whose windows are known:
//!
//! 1. A worker that has claimed a file reads its windows ([`Windows::written`]). Versions at their ends exist now.
//! 2. It asks for a new [`Tick`], a *fence* ([`Windows::fence`]).
//! 3. Each mount hears of the tick, waits for the writes that are under way, records everything, and says so
//!    ([`Windows::cover`]).
//! 4. When all have ([`Windows::is_covered`]), the worker reads ranges and windows again. The ranges count for the
//!    versions of the first step, if windows lead there.
//!
//! A mount that is killed, suspended or cut off does not answer the fence. If its mark is given up, or any gap is
//! recorded because changes may be lost, then windows that began before do not count: the server keeps the tick of the
//! last such *doubt*, and each window the last tick that its mount had heard before it began. No clocks are compared.

use crate::change::VersionName;
use crate::entry::Claim;
use crate::error::Result;
use crate::monitors::Monitor;
use crate::ranges::Ranges;

/// A moment in the life of a server: later ones are larger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

/// Ranges and windows of a file that is pending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The bytes that changed.
    pub ranges: Ranges,
    /// Versions before and after writes.
    pub windows: Vec<(VersionName, VersionName)>,
}

impl Written {
    /// True if a window ends with this version.
    pub fn ends_with(&self, version: &VersionName) -> bool {
        self.windows.iter().any(|(_, to)| to == version)
    }

    /// True if windows cover the time from one version to another one, which is the last of all.
    pub fn leads(&self, from: &VersionName, to: &VersionName) -> bool {
        let is_last = |version: &VersionName| version == to || time_of(version) < time_of(to);
        if !self.windows.iter().all(|(begin, end)| is_last(begin) && is_last(end)) {
            return false;
        }
        let mut left: Vec<(VersionName, VersionName)> = self.windows.clone();
        // The protected version is a window without time.
        let mut reached = vec![(*from, *from)];
        while let Some(window) = reached.pop() {
            if window.1 == *to {
                return true;
            }
            let joins = |next: &(VersionName, VersionName)| {
                next.0 == window.1 || is_within(&next.0, &window) || is_within(&window.1, next)
            };
            let (next, others) = left.into_iter().partition(joins);
            left = others;
            reached.extend::<Vec<_>>(next);
        }
        false
    }
}

fn time_of(version: &VersionName) -> &[u8] {
    &version[..8]
}

/// True for a version between those of a window. Versions of one time are in no order.
fn is_within(version: &VersionName, window: &(VersionName, VersionName)) -> bool {
    time_of(&window.0) < time_of(version) && time_of(version) < time_of(&window.1)
}

/// The windows of a deployment; see the [module](self).
pub trait Windows: Send + Sync {
    /// Says that a mount has recorded everything that was written through it before it heard of a tick, if it has. The
    /// answer is the present tick.
    ///
    /// # Errors
    /// The engine's.
    fn cover(&self, monitor: &Monitor, covered: Option<Tick>) -> Result<Tick>;

    /// Says that a mount may change files without recording it: until it ends, or is dead for certain, no windows
    /// count.
    ///
    /// # Errors
    /// The engine's.
    fn distrust(&self, monitor: &Monitor) -> Result<()>;

    /// A new tick.
    ///
    /// # Errors
    /// The engine's.
    fn fence(&self) -> Result<Tick>;

    /// True if all mounts are there and have covered a tick.
    ///
    /// # Errors
    /// The engine's.
    fn is_covered(&self, tick: Tick) -> Result<bool>;

    /// What is pending at the path of a claim. No windows if the claim is lost, or if they do not count.
    ///
    /// # Errors
    /// The engine's.
    fn written(&self, claim: &Claim) -> Result<Written>;
}

#[cfg(test)]
mod tests {
    use super::Written;
    use crate::ranges::Ranges;

    fn written(windows: &[(u8, u8)]) -> Written {
        let windows = windows.iter().map(|&(from, to)| ([from; 16], [to; 16])).collect();
        Written { ranges: Ranges::new(), windows }
    }

    #[test]
    fn windows_lead_in_any_order_and_where_they_overlap() {
        let leads = |windows: &[(u8, u8)]| written(windows).leads(&[1; 16], &[9; 16]);
        assert!(leads(&[(1, 9)]) && leads(&[(5, 9), (1, 5)]));
        assert!(leads(&[(1, 3), (2, 4), (1, 2), (4, 9), (5, 9)]));
        // Two mounts that write at once, without a version in common.
        assert!(leads(&[(1, 3), (2, 5), (4, 9)]));
        // The version was protected while a window was open.
        assert!(leads(&[(0, 9)]) && leads(&[(0, 3), (3, 9)]));
        assert!(!leads(&[]) && !leads(&[(9, 1)]) && !leads(&[(1, 2), (0, 2), (3, 9)]));
        assert!(!leads(&[(1, 3), (3, 8)]), "it is not at a window's end");
        assert!(!leads(&[(1, 9), (9, 10)]) && !leads(&[(1, 10)]), "there is a later version");
        // Of one time.
        let [mut one, mut other] = [[5; 16], [5; 16]];
        (one[15], other[15]) = (1, 2);
        let windows = vec![([1; 16], one), (other, [9; 16])];
        assert!(!Written { ranges: Ranges::new(), windows }.leads(&[1; 16], &[9; 16]));
        assert!(written(&[(0, 1)]).ends_with(&[1; 16]) && !written(&[(0, 1)]).ends_with(&[0; 16]));
    }
}
