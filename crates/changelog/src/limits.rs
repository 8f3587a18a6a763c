//! Limits that an administrator sets for the workers of a host, or of all hosts.
//!
//! The changelog stores them, so they hold for every worker of the deployment and outlive workers and server. The
//! limits of a host replace those of all hosts as a whole. Both are limits of the host, not of each worker:
//!
//! - A *rate* is divided equally among the workers of the host that are at work, which means that they hold claims or
//!   portions. Each worker asks for its [`Allowance`] every second and keeps to it.
//! - A number of workers *at once* is kept by the engine: a worker that holds nothing gets nothing while as many others
//!   of its host are at work ([`Share::is_limited`](crate::Share)).

use crate::entry::WorkerId;
use std::collections::BTreeMap;

/// Stands for all hosts that have no limits of their own.
pub const ALL_HOSTS: &str = "*";

/// What the workers of a host may do together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes to read per second.
    pub rate: Option<u64>,
    /// Most workers that hold claims or portions at once.
    pub at_once: Option<u32>,
}

impl Limits {
    /// As engines store them: two decimal numbers, or `-` for what is not limited.
    pub(crate) fn to_text(self) -> String {
        let text = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        format!("{} {}", text(self.rate), text(self.at_once.map(u64::from)))
    }

    /// None if the text is none that [`to_text`](Limits::to_text) writes.
    pub(crate) fn from_text(text: &str) -> Option<Limits> {
        let (rate, at_once) = text.split_once(' ')?;
        let rate = if rate == "-" { None } else { Some(rate.parse().ok()?) };
        let at_once = if at_once == "-" { None } else { Some(at_once.parse().ok()?) };
        Some(Limits { rate, at_once })
    }

    /// The limits of a worker's host.
    pub(crate) fn of(all: &BTreeMap<String, Limits>, worker: &WorkerId) -> Limits {
        all.get(worker.host()).or_else(|| all.get(ALL_HOSTS)).copied().unwrap_or_default()
    }
}

/// What one worker may do now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The limits of its host.
    pub limits: Limits,
    /// Number of other workers of its host that are at work.
    pub others: u64,
}

impl Allowance {
    /// The worker's part of the rate, at least one byte per second.
    pub fn rate(self) -> Option<u64> {
        self.limits.rate.map(|rate| (rate / self.others.saturating_add(1)).max(1))
    }
}

/// The other workers among those that hold something, of the same host, each once; and whether the worker is among
/// them itself.
pub(crate) fn at_work<'a>(worker: &WorkerId, holders: impl Iterator<Item = &'a str>) -> (u64, bool) {
    let of_host: std::collections::BTreeSet<&str> =
        holders.filter(|holder| holder.split('/').next() == Some(worker.host())).collect();
    let is_at_work = of_host.contains(worker.0.as_str());
    (of_host.len() as u64 - u64::from(is_at_work), is_at_work)
}

/// True if a worker has to wait until another one of its host ends.
pub(crate) fn is_full(limits: Limits, (others, is_at_work): (u64, bool)) -> bool {
    !is_at_work && limits.at_once.is_some_and(|at_once| others >= u64::from(at_once))
}

#[cfg(test)]
mod tests {
    use super::{Allowance, Limits, at_work};
    use crate::entry::WorkerId;

    #[test]
    fn limits_are_stored_as_text() {
        for (rate, at_once, text) in
            [(None, None, "- -"), (Some(u64::MAX), None, "18446744073709551615 -"), (Some(1), Some(7), "1 7")]
        {
            let limits = Limits { rate, at_once };
            assert_eq!((limits.to_text().as_str(), Limits::from_text(text)), (text, Some(limits)));
        }
        for text in ["", "1", "1 ", " 1", "1 2 3", "-1 2", "1 4294967296", "x -"] {
            assert_eq!(Limits::from_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_rate_is_divided_among_those_at_work() {
        let limits = Limits { rate: Some(100), at_once: None };
        let rate = |others| Allowance { limits, others }.rate();
        assert_eq!([0, 1, 2, 1000, u64::MAX].map(rate), [100, 50, 33, 1, 1].map(Some));
        let holders = ["a/1/x", "a/2/x", "a/2/x", "ab/1/x", "b/1/x"];
        assert_eq!(at_work(&WorkerId("a/1/x".to_owned()), holders.into_iter()), (1, true));
        assert_eq!(at_work(&WorkerId("b/9/x".to_owned()), holders.into_iter()), (1, false));
    }
}
