//! `gabion check`.

use super::lists::{name_inside, read_list};
use super::{Effort, Elsewhere, lock};
use crate::output::{OutputArgs, bytes, count, files, print_json, stopped_by_signal};
use anyhow::Context;
use gabion::exit::{Outcome, error_message};
use gabion::report::{CheckReport, FileFailure, PathName};
use gabion_vault::check::{Checked, Options, Verdict, check};
use gabion_vault::policy::DurationText as Span;
use gabion_vault::run::RunContext;
use gabion_vault::storage::pool::Pool;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion check /scratch/project/input.h5
  gabion check --files-from inputs.txt --repair --deadline 60s
  find run42/inputs -type f -print0 | gabion check --files-from - --from0 --json

Files whose size, mtime and inode are those of the protected version are not read (scrubs find bit rot in them); --read \
reads all. Other files, and those in which a scrub found damage, are compared with the signatures of their redundancy. \
With --repair, damaged and missing files are restored, but none that was written since it was protected. At the \
deadline the command ends, whatever still hangs, and lists what was not checked.
Exit codes: 0 all files have their protected content, 1 they can be read, but some are changed since they were \
protected, unprotected, degraded, or damaged and not repaired, 2 some are missing, failed or were not checked in time, \
3 data lost.";

/// How often the command looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `gabion check`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files, and directories with all files below them
    #[arg(value_name = "PATH", required_unless_present = "files_from")]
    paths: Vec<PathBuf>,
    /// Also check the files that LIST names, one per line; - is standard input
    #[arg(long, value_name = "LIST")]
    files_from: Option<PathBuf>,
    /// Names in LIST end with a zero byte, as `find -print0` writes them
    #[arg(long, requires = "files_from")]
    from0: bool,
    /// Restore files that are damaged or missing
    #[arg(long)]
    repair: bool,
    /// Read files, too, that look unchanged
    #[arg(long)]
    read: bool,
    /// End after this time, such as 60s or 5m
    #[arg(long, value_name = "TIME")]
    deadline: Option<Span>,
    #[command(flatten)]
    elsewhere: Elsewhere,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    output: OutputArgs,
}

/// What the thread that checks tells the one that waits.
enum Message {
    /// Path, as it was named or in full, and the result.
    Checked(Vec<u8>, Checked),
    /// All of these named paths have been checked.
    Done(Vec<PathBuf>),
    /// A vault cannot be opened or read.
    Failed(PathBuf, anyhow::Error),
    /// Nothing is left.
    End,
}

/// Where a path belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Pool(PathBuf),
    Tree(PathBuf),
    None,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let mut paths = self.paths.clone();
        if let Some(list) = &self.files_from {
            paths.extend(read_list(list, self.from0)?);
        }
        let (start, stop) = (Stopwatch::start(), stopped_by_signal()?);
        let deadline = self.deadline.map(|span| span.0);
        let mut unchecked: BTreeSet<PathBuf> = paths.iter().cloned().collect();
        let (mut report, mut is_lost, mut failed) = (CheckReport::default(), false, Vec::new());
        let (send, messages) = mpsc::channel();
        // A thread of its own: a read that never returns ends with the process.
        let this = Arc::new(self);
        let (args, stopped) = (Arc::clone(&this), Arc::clone(&stop));
        std::thread::spawn(move || args.check_all(paths, &stopped, &send));
        loop {
            let passed = Duration::from_secs_f64(start.seconds());
            let left = deadline.map_or(LOOK, |deadline| deadline.saturating_sub(passed).min(LOOK));
            match messages.recv_timeout(left) {
                Ok(Message::Checked(path, checked)) => {
                    is_lost |= checked.verdict == Verdict::Lost;
                    unchecked.remove(Path::new(std::ffi::OsStr::from_bytes(&path)));
                    report.add(&path, checked);
                }
                Ok(Message::Done(paths)) => {
                    for path in paths {
                        unchecked.remove(&path);
                    }
                }
                Ok(Message::Failed(root, why)) => failed.push((root, error_message(&why))),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_late = deadline.is_some_and(|deadline| start.seconds() >= deadline.as_secs_f64());
            if is_late || stop.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        report.seconds = start.seconds();
        report.files.sort_by(|one, other| one.path.cmp(&other.path));
        report.unchecked = unchecked.iter().map(|path| PathName::system(path)).collect();
        report.failed = failed.iter().map(|(root, why)| FileFailure::of_system(root, why)).collect();
        this.print(&report);
        let has = |verdicts: &[&str]| verdicts.iter().any(|verdict| report.count(verdict) > 0);
        let is_incomplete = !report.unchecked.is_empty() || !report.failed.is_empty();
        Ok(match () {
            () if is_lost => Outcome::Unrecoverable,
            () if is_incomplete || has(&["missing", "failed"]) => Outcome::Failed,
            () if has(&["degraded", "changed", "unprotected", "damaged"]) => Outcome::Found,
            () => Outcome::Fine,
        })
    }

    fn print(&self, report: &CheckReport) {
        if self.output.json {
            return print_json(report);
        }
        for file in &report.files {
            outln!("{:<11} {}", file.verdict, file.path);
            file.notes.iter().for_each(|note| outln!("            {note}"));
        }
        for failure in &report.failed {
            errln!("gabion: {failure}");
        }
        for path in &report.unchecked {
            outln!("{:<11} {path}", "unchecked");
        }
        let verdicts: Vec<String> =
            report.verdicts.iter().map(|(word, number)| format!("{} {word}", count(*number))).collect();
        let verdicts = if verdicts.is_empty() { String::new() } else { format!(": {}", verdicts.join(", ")) };
        self.output.print_line(format!(
            "checked {}{verdicts}; read {} in {:.1} s",
            files(report.checked()),
            bytes(report.bytes),
            report.seconds
        ));
    }

    /// Checks all paths, vault by vault.
    fn check_all(&self, paths: Vec<PathBuf>, stop: &AtomicBool, send: &Sender<Message>) {
        let mut groups: BTreeMap<Place, Vec<PathBuf>> = BTreeMap::new();
        let mut known: HashMap<PathBuf, Place> = HashMap::new();
        for path in paths {
            match self.place(&path, &mut known) {
                Ok(place) => groups.entry(place).or_default().push(path),
                Err(error) => tell(send, Message::Failed(path, error)),
            }
        }
        for (place, paths) in groups {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match self.check_group(&place, &paths, stop, send) {
                Ok(true) => tell(send, Message::Done(paths)),
                Ok(false) => return,
                Err(error) => {
                    let first = paths.into_iter().next().unwrap_or_default();
                    let (Place::Tree(root) | Place::Pool(root)) = place else {
                        tell(send, Message::Failed(first, error));
                        continue;
                    };
                    tell(send, Message::Failed(root, error));
                }
            }
        }
        tell(send, Message::End);
    }

    /// The vault that a path belongs to. Most paths of a list share their directories.
    fn place(&self, path: &Path, known: &mut HashMap<PathBuf, Place>) -> anyhow::Result<Place> {
        if self.elsewhere.repository.is_some() {
            return Ok(Place::Tree(PathBuf::new()));
        }
        let is_directory = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        let directory = match path.parent() {
            _ if is_directory => path,
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => path,
        };
        if let Some(place) = known.get(directory) {
            return Ok(place.clone());
        }
        let place = match self.elsewhere.pool(path)? {
            Some(_) => {
                let name = path.components().next().map(|name| PathBuf::from(name.as_os_str()));
                return Ok(Place::Pool(name.unwrap_or_default()));
            }
            None => match Location::find(path, None) {
                Ok(found) => Place::Tree(std::fs::canonicalize(&found.root).unwrap_or(found.root)),
                Err(gabion_vault::vault::VaultError::Unprotected { .. }) => Place::None,
                Err(error) => return Err(error.into()),
            },
        };
        known.insert(directory.to_owned(), place.clone());
        Ok(place)
    }

    /// Checks paths of one vault. False if it was stopped.
    fn check_group(
        &self,
        place: &Place,
        paths: &[PathBuf],
        stop: &AtomicBool,
        send: &Sender<Message>,
    ) -> anyhow::Result<bool> {
        let first = paths.first().context("no path")?;
        let mut names: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let vault = match place {
            Place::None => {
                paths.iter().for_each(|path| unprotected(path, send));
                return Ok(true);
            }
            Place::Pool(_) => {
                let mut opened: Option<Pool> = None;
                for path in paths {
                    let (pool, inside) = self.elsewhere.pool(path)?.context("no such pool")?;
                    names.insert(inside, path.as_os_str().as_bytes().to_vec());
                    opened.get_or_insert(pool);
                }
                Vault::of_pool_to_examine(&opened.context("no path")?, Clock::System)?.0
            }
            Place::Tree(_) => {
                let location = Location::find(first, self.elsewhere.repository.as_deref())?;
                let vault = Vault::open_to_examine(&location, Clock::System)?.0;
                let root = std::fs::canonicalize(&vault.root).unwrap_or_else(|_| vault.root.clone());
                for path in paths {
                    match vault.inside(path).or_else(|| name_inside(&root, path)) {
                        Some(inside) => drop(names.insert(inside, path.as_os_str().as_bytes().to_vec())),
                        None => unprotected(path, send),
                    }
                }
                vault
            }
        };
        if let (true, Some(why)) = (self.repair, &vault.read_only) {
            anyhow::bail!("repair stores replaced content and its progress in the repository: {why}");
        }
        let _lock = self.repair.then(|| lock(&vault, "check", true, &self.output)).transpose()?;
        let named: Vec<Vec<u8>> = names.keys().cloned().collect();
        let stopped = || stop.load(Ordering::Relaxed);
        let rate = self.effort.limit.map(|rate| rate.0);
        let context =
            RunContext { threads: self.effort.threads(), rate, progress: &|_| {}, stopped: &stopped };
        let options = Options { read_all: self.read, repair: self.repair };
        check(&vault, named, options, context, |checked| {
            let shown = || vault.storage.shown(&checked.path).into_os_string().into_vec();
            let path = names.get(&checked.path).cloned().unwrap_or_else(shown);
            tell(send, Message::Checked(path, checked));
        })?;
        Ok(!stopped())
    }
}

/// Reports a path that belongs to no vault.
fn unprotected(path: &Path, send: &Sender<Message>) {
    let verdict = match std::fs::symlink_metadata(path) {
        Ok(_) => Verdict::Unprotected,
        Err(_) => Verdict::Missing,
    };
    let path = path.as_os_str().as_bytes().to_vec();
    let checked = Checked { path: path.clone(), verdict, notes: Vec::new(), bytes: 0 };
    tell(send, Message::Checked(path, checked));
}

/// Sends a message to the main thread, which may have ended at the deadline: then nobody needs it.
fn tell(send: &Sender<Message>, message: Message) {
    let _ = send.send(message);
}
