//! Repair of all files of a plan, by all workers of a deployment.

use super::{Plan, Planned, RepairError, Repaired, repair_version};
use crate::changelog::tasks::{Amounts, Portion, TaskKind};
use crate::retry::{Failure, Retry};
use crate::run::{Progress, RunContext};
use crate::team::{Divisible, Help, Team, Terms, result_of, share};
use crate::vault::Vault;
use crate::worker;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Portions of repairs.
pub(crate) const REPAIR: TaskKind = TaskKind(b'r');

/// Before work that is not urgent.
const PRIORITY: u8 = 1;

/// A file that another worker is to repair.
type Asked = (Vec<u8>, Planned);

/// Most files of a portion.
const MAX_FILES: usize = 8;

/// What became of a file; none if the repair was stopped before.
pub type RepairedOrNot = Option<Result<Repaired, Failure>>;

/// Repairs the files of a plan. Returns what became of each, in the order of the plan.
pub fn repair_all(vault: &Vault, plan: &Plan, context: RunContext<'_>) -> Vec<RepairedOrNot> {
    let count = plan.files.len();
    (context.progress)(Progress::Step("repairing", Some((count as u64, 0))));
    let done = AtomicU64::new(0);
    let results = plan.files.iter().map(|_| None).collect();
    let mut repairs = Repairs { vault, plan, context, results, done: &done };
    // Without a name this worker is alone.
    let name = worker::unique_name().ok();
    let team = name.as_ref().and_then(|worker| Some(Team { tasks: vault.changelog.tasks()?, worker }));
    let amounts =
        || Amounts { files: done.load(Ordering::Relaxed), all_files: count as u64, ..Amounts::default() };
    let (about, stopped) = (&[], context.stopped);
    let terms = Terms { kind: REPAIR, priority: PRIORITY, about, amounts: &amounts, stopped };
    let _infallible: Result<bool, Infallible> = share(team, &terms, &mut repairs, |sharing| {
        (0..count).step_by(MAX_FILES).try_for_each(|first| sharing.add(first..(first + MAX_FILES).min(count)))
    });
    repairs.again();
    repairs.results
}

/// Does a portion of the repair of another worker.
pub(crate) fn help(vault: &Vault, portion: &Portion, context: RunContext<'_>) -> Help {
    let Ok(files) = serde_json::from_slice::<Vec<Asked>>(&portion.content) else { return Help::Failed };
    let mut results = Vec::new();
    for (path, planned) in files.iter().take_while(|_| !(context.stopped)()) {
        results.push(repair_version(vault, path, Some(*planned), context).map_err(Failure::from));
        (context.progress)(Progress::Done(1, 0));
    }
    result_of(Some(&results), context.stopped)
}

/// Repairs of one worker.
struct Repairs<'a> {
    vault: &'a Vault,
    plan: &'a Plan,
    context: RunContext<'a>,
    results: Vec<RepairedOrNot>,
    /// Number of files that are done.
    done: &'a AtomicU64,
}

impl Repairs<'_> {
    /// Tries files again that another process was in the way of, such as a worker that repaired them under another
    /// name.
    fn again(&mut self) {
        for at in 0..self.results.len() {
            let was_busy =
                |result: &Result<_, Failure>| result.as_ref().is_err_and(|why| why.retry() == Retry::Now);
            if self.results[at].as_ref().is_some_and(was_busy) && !(self.context.stopped)() {
                self.results[at] = Some(self.repair(at).map_err(Failure::from));
            }
        }
    }

    fn repair(&self, at: usize) -> Result<Repaired, RepairError> {
        let damage = &self.plan.files[at];
        repair_version(self.vault, &damage.path, Some(damage.into()), self.context)
    }

    fn note(&mut self, at: usize, result: Result<Repaired, Failure>) {
        self.results[at] = Some(result);
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Divisible for Repairs<'_> {
    type Portion = Range<usize>;
    type Error = Infallible;

    fn content(&self, files: &Range<usize>) -> Vec<u8> {
        let asked = self.plan.files[files.clone()].iter().map(|damage| (&damage.path, Planned::from(damage)));
        serde_json::to_vec(&asked.collect::<Vec<_>>()).unwrap_or_default()
    }

    fn work(&mut self, _: u64, files: Range<usize>) -> Result<(), Infallible> {
        for at in files.take_while(|_| !(self.context.stopped)()) {
            let result = self.repair(at);
            (self.context.progress)(Progress::Done(1, 0));
            self.note(at, result.map_err(Failure::from));
        }
        Ok(())
    }

    fn collect(&mut self, _: u64, files: &Range<usize>, result: &[u8]) -> Result<bool, Infallible> {
        let Ok(results) = serde_json::from_slice::<Vec<Result<Repaired, Failure>>>(result) else {
            return Ok(false);
        };
        let is_asked = |(at, result): (usize, &Result<Repaired, Failure>)| {
            result.as_ref().map_or(true, |repaired| repaired.path == self.plan.files[at].path)
        };
        if results.len() != files.len() || !files.clone().zip(&results).all(is_asked) {
            return Ok(false);
        }
        (self.context.progress)(Progress::Elsewhere(files.len() as u64, 0));
        files.clone().zip(results).for_each(|(at, result)| self.note(at, result));
        Ok(true)
    }
}
