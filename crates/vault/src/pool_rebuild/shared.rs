//! Files of a rebuild, shared by all workers of a deployment: each portion is a list of files.
//!
//! The worker that began the rebuild plans, records and reports. Another one rebuilds files of a portion only if it
//! sees the targets in the same states: otherwise it would place columns where they do not belong. Files at which it
//! fails are left to the first one, which then has the reason. If two workers rebuild one file, because the first was
//! given up and goes on, its stub decides: the second one to finish finds it changed.

use super::file::{FileError, FileResult, Rebuilder};
use super::planning::PlannedFile;
use super::report::RebuildReport;
use super::survey::TargetStates;
use super::{is_busy, rebuild_file, record_result};
use crate::catalogue::CatalogueError;
use crate::changelog::WorkerId;
use crate::changelog::tasks::{Portion, TaskKind};
use crate::format::FileId;
use crate::host_limits::throttled;
use crate::run::{Counted, Progress, RunContext};
use crate::storage::pool::Pool;
use crate::team::{Divisible, Help, Team, Terms, put_paths, result_of, share};
use crate::throttle::Throttle;
use crate::vault::Vault;
use crate::worker;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Portions of rebuilds.
pub(crate) const REBUILD: TaskKind = TaskKind(b'b');

/// Before planned work of others, since files are exposed.
const PRIORITY: u8 = 1;

/// Bytes to write for a portion, at least; a larger file is a portion of its own. Some times as many are read.
const PORTION_BYTES: u64 = 16 << 20;

/// Most files of a portion.
const MAX_FILES: usize = 256;

/// Retries, and the pause between them, for files that are being written: most are soon at rest.
const BUSY_RETRIES: usize = 5;
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(200);

type Done = Result<FileResult, FileError>;

/// What a worker has to know of a file.
struct Item {
    path: Vec<u8>,
    /// The same for all names of a file.
    id: FileId,
    /// Code to encode it with, if it has no redundancy and its data is complete.
    code: Option<String>,
}

impl From<&PlannedFile> for Item {
    fn from(file: &PlannedFile) -> Item {
        Item { path: file.path.clone(), id: file.id, code: file.code.clone() }
    }
}

/// Items as the content of a portion.
fn put_items<'a>(files: impl Iterator<Item = &'a PlannedFile>) -> Vec<u8> {
    let fields =
        |file: &'a PlannedFile| [&file.path[..], &file.id.0, file.code.as_deref().unwrap_or("").as_bytes()];
    put_paths(files.flat_map(fields))
}

/// The items of a content; none if it is not one.
fn items_of(content: &[u8]) -> Option<Vec<Item>> {
    let fields = crate::team::paths_of(content)?;
    let (items, []) = fields.as_chunks::<3>() else { return None };
    let item = |[path, id, code]: &[Vec<u8>; 3]| {
        let code = (!code.is_empty()).then(|| String::from_utf8(code.clone())).transpose().ok()?;
        Some(Item { path: path.clone(), id: FileId(id[..].try_into().ok()?), code })
    };
    items.iter().map(item).collect()
}

/// What a worker sees of a pool, to be compared with what another one sees.
fn sight(pool: &Pool, states: &TargetStates) -> Vec<u8> {
    let mut lines = format!("epoch {}\n", pool.config().epoch);
    states.each(|name, state| lines += &format!("{} {}\n", name.as_str(), state.word()));
    lines.into_bytes()
}

/// Rebuilds files: in parallel while there is one for each thread, the rest with all threads per file. Names of one
/// file, which follow each other, are handled in order by one thread: the first one restores the data for all.
fn rebuild_items(
    rebuilder: &Rebuilder<'_>,
    items: &[Item],
    context: RunContext<'_>,
    mut note: impl FnMut(usize, Done),
) {
    // Half of the threads wait for a disk while the others compute.
    let threads = 2 * context.threads.max(1);
    let mut first = 0;
    let with_first = |unit: &'_ [Item]| {
        let from = first;
        first += unit.len();
        from..first
    };
    let units: Vec<Range<usize>> = items.chunk_by(|one, other| one.id == other.id).map(with_first).collect();
    let apart = units.len() - units.len() % threads;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (send, results) = channel();
        for _ in 0..threads {
            let (send, next, units) = (send.clone(), &next, &units);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(names) = units.get(at).filter(|_| !(context.stopped)()) else { break };
                    // The last files are shared by all threads, which would be idle otherwise.
                    let sharing = if at < apart { 1 } else { threads };
                    for at in names.clone() {
                        let item = &items[at];
                        let done = rebuild_file(rebuilder, &item.path, item.code.as_deref(), sharing);
                        (context.progress)(Progress::Done(1, 0));
                        // The receiver lives as long as this thread.
                        let _ = send.send((at, done));
                    }
                }
            });
        }
        drop(send);
        results.into_iter().for_each(|(at, done)| note(at, done));
    });
}

/// The rebuild of the worker that began it.
struct Rebuilding<'a> {
    vault: &'a Vault,
    rebuilder: &'a Rebuilder<'a>,
    files: &'a [PlannedFile],
    context: RunContext<'a>,
    report: &'a mut RebuildReport,
    /// Files that were being written.
    busy: Vec<(usize, Done)>,
}

impl Rebuilding<'_> {
    fn note(&mut self, at: usize, done: Done) -> Result<(), CatalogueError> {
        if is_busy(&done) {
            self.busy.push((at, done));
            return Ok(());
        }
        record_result(self.vault, self.rebuilder, &self.files[at], done, self.report)
    }

    fn rebuild(&mut self, at: usize, threads: usize) -> Done {
        let file = &self.files[at];
        rebuild_file(self.rebuilder, &file.path, file.code.as_deref(), threads)
    }

    /// Tries again what was being written.
    fn retry_busy(&mut self) -> Result<(), CatalogueError> {
        for _ in 0..BUSY_RETRIES {
            if self.busy.is_empty() || (self.context.stopped)() {
                break;
            }
            std::thread::sleep(BUSY_RETRY_DELAY);
            for (at, _) in std::mem::take(&mut self.busy) {
                let done = self.rebuild(at, self.context.threads);
                self.note(at, done)?;
            }
        }
        let mut busy = std::mem::take(&mut self.busy).into_iter();
        busy.try_for_each(|(at, done)| {
            record_result(self.vault, self.rebuilder, &self.files[at], done, self.report)
        })
    }

    /// Ranges of files, in their order; names of one file stay together.
    fn portions(&self) -> Vec<Range<usize>> {
        let (mut portions, mut first, mut bytes) = (Vec::<Range<usize>>::new(), 0, 0u64);
        for unit in self.files.chunk_by(|one, other| one.id == other.id) {
            let size: u64 = unit.iter().map(|file| file.bytes).sum();
            let next = first..first + unit.len();
            match portions.last_mut() {
                Some(last) if next.end - last.start <= MAX_FILES && bytes + size <= PORTION_BYTES => {
                    last.end = next.end;
                    bytes += size;
                }
                _ => {
                    portions.push(next.clone());
                    bytes = size;
                }
            }
            first = next.end;
        }
        portions
    }
}

impl Divisible for Rebuilding<'_> {
    type Portion = Range<usize>;
    type Error = CatalogueError;

    fn content(&self, files: &Range<usize>) -> Vec<u8> {
        put_items(self.files[files.clone()].iter())
    }

    fn work(&mut self, _: u64, files: Range<usize>) -> Result<(), CatalogueError> {
        let items: Vec<Item> = self.files[files.clone()].iter().map(Item::from).collect();
        let (rebuilder, context, mut outcome) = (self.rebuilder, self.context, Ok(()));
        rebuild_items(rebuilder, &items, context, |at, done| {
            let noted = self.note(files.start + at, done);
            if outcome.is_ok() {
                outcome = noted;
            }
        });
        outcome
    }

    fn collect(&mut self, _: u64, files: &Range<usize>, result: &[u8]) -> Result<bool, CatalogueError> {
        let Ok(results) = serde_json::from_slice::<Vec<Option<FileResult>>>(result) else { return Ok(false) };
        if results.len() != files.len() {
            return Ok(false);
        }
        for (at, result) in files.clone().zip(results) {
            let done = match result {
                Some(done) => {
                    (self.context.progress)(Progress::Elsewhere(1, self.files[at].bytes));
                    Ok(done)
                }
                None => {
                    let done = self.rebuild(at, self.context.threads);
                    (self.context.progress)(Progress::Done(1, 0));
                    done
                }
            };
            self.note(at, done)?;
        }
        Ok(true)
    }
}

/// Rebuilds the files of a plan.
///
/// # Errors
/// The catalogue fails; errors of files are in the report.
pub(super) fn rebuild_files(
    vault: &Vault,
    pool: &Pool,
    report: &mut RebuildReport,
    context: RunContext<'_>,
) -> Result<(), CatalogueError> {
    // Without a name this worker is alone.
    let name = worker::unique_name().ok();
    let name = name.as_ref();
    throttled(vault, context, name, |throttle| {
        rebuild_at_rate((vault, pool), report, context, (name, throttle))
    })
}

fn rebuild_at_rate(
    (vault, pool): (&Vault, &Pool),
    report: &mut RebuildReport,
    context: RunContext<'_>,
    (name, throttle): (Option<&WorkerId>, &Throttle<'_>),
) -> Result<(), CatalogueError> {
    let files = std::mem::take(&mut report.plan.files);
    let total = (files.len() as u64, files.iter().map(|item| item.bytes).sum());
    (context.progress)(Progress::Step("rebuilding", Some(total)));
    let counted = Counted::default();
    let tell = |step: Progress| {
        counted.add(step);
        (context.progress)(step);
    };
    let progress = |read: u64, done: u64| {
        throttle.take(read);
        tell(Progress::Done(0, done));
    };
    let context = RunContext { progress: &tell, ..context };
    let states = TargetStates::of(pool);
    let about = &sight(pool, &states);
    let rebuilder = Rebuilder {
        pool,
        coders: &vault.coders,
        clock: &vault.clock,
        target_states: states,
        excluded: BTreeSet::new(),
        progress: &progress,
        stopped: context.stopped,
    };
    let mut rebuilding =
        Rebuilding { vault, rebuilder: &rebuilder, files: &files, context, report, busy: Vec::new() };
    let team = name.and_then(|worker| Some(Team { tasks: vault.changelog.tasks()?, worker }));
    let amounts = || counted.of(total);
    let stopped = context.stopped;
    let terms = Terms { kind: REBUILD, priority: PRIORITY, about, amounts: &amounts, stopped };
    let portions = rebuilding.portions();
    let shared = share(team, &terms, &mut rebuilding, |sharing| match sharing.is_alone() {
        true => sharing.add(0..files.len()),
        false => portions.into_iter().try_for_each(|portion| sharing.add(portion)),
    });
    let outcome = shared.and_then(|_| rebuilding.retry_busy());
    report.plan.files = files;
    outcome
}

/// Does a portion of the rebuild of another worker.
pub(crate) fn help(vault: &Vault, portion: &Portion, context: RunContext<'_>) -> Help {
    let (Some(pool), Some(items)) = (&vault.pool, items_of(&portion.content)) else { return Help::Failed };
    pool.probe();
    let states = TargetStates::of(pool);
    if sight(pool, &states) != portion.about {
        return Help::Failed;
    }
    // The caller limits the rate.
    let progress = |read: u64, _: u64| (context.progress)(Progress::Done(0, read));
    let rebuilder = Rebuilder {
        pool,
        coders: &vault.coders,
        clock: &vault.clock,
        target_states: states,
        excluded: BTreeSet::new(),
        progress: &progress,
        stopped: context.stopped,
    };
    let mut results: Vec<Option<FileResult>> = vec![None; items.len()];
    rebuild_items(&rebuilder, &items, context, |at, done| results[at] = done.ok());
    result_of(Some(&results), context.stopped)
}
