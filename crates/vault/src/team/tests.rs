//! Tests of sharing, with other workers in this process.

use super::{AHEAD, Divisible, Help, LEASE, Team, Terms, help, paths_of, put_paths, share};
use crate::changelog::tasks::{
    Amounts, Collected, Held, KnownTask, NewTask, Portion, TaskId, TaskKind, Tasks, Wanted,
};
use crate::changelog::{Error, Result, WorkerId};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Tasks of which others do the portions with odd numbers, when the owner looks for their results.
pub(crate) struct OthersDoOdd<'a> {
    /// How they do it.
    pub(crate) other: &'a (dyn Fn(&Portion) -> Vec<u8> + Sync),
    /// Number of portions of workers that were given up.
    pub(crate) overtaken: u64,
    /// Number of calls after which the server is away.
    pub(crate) calls: usize,
    called: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    about: Vec<u8>,
    contents: BTreeMap<u64, Vec<u8>>,
    next: u64,
    finished: u64,
}

impl<'a> OthersDoOdd<'a> {
    pub(crate) fn new(other: &'a (dyn Fn(&Portion) -> Vec<u8> + Sync)) -> OthersDoOdd<'a> {
        OthersDoOdd {
            other,
            overtaken: 0,
            calls: usize::MAX,
            called: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    fn call(&self) -> Result<MutexGuard<'_, State>> {
        if self.called.fetch_add(1, Ordering::Relaxed) >= self.calls {
            let reason = Arc::new(io::ErrorKind::ConnectionReset.into());
            return Err(Error::System { doing: "ask", reason });
        }
        Ok(self.state.lock().unwrap())
    }
}

fn portion(task: TaskId, number: u64, state: &State) -> Portion {
    let content = state.contents.get(&number).cloned().unwrap_or_default();
    Portion { task, kind: KIND, number, token: number, about: state.about.clone(), content }
}

impl Tasks for OthersDoOdd<'_> {
    fn open_task(&self, task: &NewTask<'_>, lease: Duration) -> Result<()> {
        assert_eq!(lease, LEASE);
        self.call()?.about = task.about.to_vec();
        Ok(())
    }

    fn add_portions(&self, _: TaskId, count: u64, contents: &[Vec<u8>]) -> Result<bool> {
        let content = contents.first().cloned().unwrap_or_default();
        assert!(self.call()?.contents.insert(count - 1, content).is_none());
        Ok(true)
    }

    fn take(&self, _: &WorkerId, wanted: Wanted<'_>, _: Duration) -> Result<Option<Portion>> {
        let mut state = self.call()?;
        let Wanted::Of(task) = wanted else { return Ok(None) };
        let Some((&number, _)) = state.contents.range(state.next..).find(|(number, _)| *number % 2 == 0)
        else {
            return Ok(None);
        };
        state.next = number + 1;
        Ok(Some(portion(task, number, &state)))
    }

    fn keep(&self, held: &[Held], _: Duration) -> Result<Vec<bool>> {
        Ok(vec![true; held.len()])
    }

    fn finish(&self, portion: &Portion, result: &[u8]) -> Result<bool> {
        assert_eq!((portion.number % 2, result), (0, &[][..]));
        self.call()?.finished += 1;
        Ok(true)
    }

    fn put_back(&self, _: &Portion) -> Result<()> {
        Ok(())
    }

    fn collect(&self, task: TaskId, numbers: &[u64]) -> Result<Option<Collected>> {
        let state = self.call()?;
        let odd = numbers.iter().rev().filter(|number| *number % 2 == 1);
        let results =
            odd.map(|&number| (number, (self.other)(&portion(task, number, &state)))).collect::<Vec<_>>();
        let finished = state.finished + results.len() as u64;
        Ok(Some(Collected { finished, overtaken: self.overtaken, results }))
    }

    fn forget_results(&self, _: TaskId, _: &[u64]) -> Result<()> {
        self.call().map(drop)
    }

    fn close_task(&self, _: TaskId) -> Result<()> {
        self.call().map(drop)
    }

    fn known_tasks(&self) -> Result<Vec<KnownTask>> {
        Ok(Vec::new())
    }
}

const KIND: TaskKind = TaskKind(b't');
const PORTIONS: u64 = 300;

/// Notes who did which portion.
#[derive(Default)]
struct Notes {
    here: Vec<u64>,
    elsewhere: Vec<u64>,
    /// Portions that others had done before the first one was done here.
    at_first: Option<usize>,
    fails_at: Option<u64>,
}

impl Divisible for Notes {
    type Portion = u64;
    type Error = String;

    fn content(&self, portion: &u64) -> Vec<u8> {
        portion.to_string().into_bytes()
    }

    fn work(&mut self, number: u64, portion: u64) -> std::result::Result<(), String> {
        assert_eq!(number, portion);
        if self.fails_at == Some(number) {
            return Err(format!("at {number}"));
        }
        self.here.push(number);
        self.at_first.get_or_insert(self.elsewhere.len());
        Ok(())
    }

    fn collect(&mut self, number: u64, portion: &u64, result: &[u8]) -> std::result::Result<bool, String> {
        assert_eq!(number, *portion);
        let is_right = result == format!("done {number}").as_bytes();
        if is_right {
            self.elsewhere.push(number);
        }
        Ok(is_right)
    }
}

fn share_with(
    tasks: Option<&dyn Tasks>,
    notes: &mut Notes,
    stopped: &(dyn Fn() -> bool + Sync),
) -> std::result::Result<bool, String> {
    let worker = WorkerId("owner".to_owned());
    let team = tasks.map(|tasks| Team { tasks, worker: &worker });
    let terms = Terms { kind: KIND, priority: 0, about: b"about", amounts: &Amounts::default, stopped };
    share(team, &terms, notes, |sharing| (0..PORTIONS).try_for_each(|number| sharing.add(number)))
}

impl Notes {
    /// Expects that each portion was done once.
    fn assert_whole(&self, why: &str) {
        let mut all = [&self.here[..], &self.elsewhere].concat();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..PORTIONS), "{why}: {all:?}");
    }
}

fn done(portion: &Portion) -> Vec<u8> {
    assert_eq!(
        (&portion.about[..], &portion.content[..]),
        (&b"about"[..], portion.number.to_string().as_bytes())
    );
    format!("done {}", portion.number).into_bytes()
}

#[test]
fn each_portion_is_done_by_one_worker() {
    let mut notes = Notes::default();
    assert_eq!(share_with(None, &mut notes, &|| false), Ok(false));
    notes.assert_whole("alone");
    let tasks = OthersDoOdd::new(&done);
    let mut notes = Notes::default();
    assert_eq!(share_with(Some(&tasks), &mut notes, &|| false), Ok(false));
    notes.assert_whole("two workers");
    assert_eq!(notes.elsewhere.len() as u64, PORTIONS / 2);
    let tasks = OthersDoOdd { overtaken: 1, ..OthersDoOdd::new(&done) };
    assert_eq!(share_with(Some(&tasks), &mut Notes::default(), &|| false), Ok(true));
}

/// Regression: the owner did its own portions while results of others waited, which counted as unfinished, so that the
/// others got nothing new.
#[test]
fn others_get_new_portions_before_the_owner_does_its_own() {
    let tasks = OthersDoOdd::new(&done);
    let mut notes = Notes::default();
    assert_eq!(share_with(Some(&tasks), &mut notes, &|| false), Ok(false));
    assert_eq!(notes.at_first, Some(AHEAD / 2 + AHEAD / 4 + AHEAD / 8 + AHEAD / 16 + AHEAD / 32 + 1));
}

#[test]
fn portions_at_which_others_fail_are_done_by_the_owner() {
    let other = |portion: &Portion| match portion.number % 3 {
        0 => Vec::new(),
        1 => b"nonsense".to_vec(),
        _ => done(portion),
    };
    let tasks = OthersDoOdd::new(&other);
    let mut notes = Notes::default();
    assert_eq!(share_with(Some(&tasks), &mut notes, &|| false), Ok(false));
    notes.assert_whole("failing workers");
    assert_eq!(notes.elsewhere.len() as u64, PORTIONS / 6);
}

/// After any number of answers.
#[test]
fn the_owner_goes_on_alone_when_the_server_goes_away() {
    let whole = OthersDoOdd::new(&done);
    share_with(Some(&whole), &mut Notes::default(), &|| false).unwrap();
    let all_calls = whole.called.into_inner();
    assert!(all_calls > 2 * PORTIONS as usize);
    for calls in 0..all_calls {
        let tasks = OthersDoOdd { calls, ..OthersDoOdd::new(&done) };
        let mut notes = Notes::default();
        let overtaken = share_with(Some(&tasks), &mut notes, &|| false);
        notes.assert_whole(&format!("{calls} calls"));
        // Only a task that could not be opened, and one that could not be closed, were seen by no other worker.
        assert_eq!(overtaken, Ok(calls > 0 && calls < all_calls - 1), "{calls}");
    }
}

#[test]
fn work_ends_when_it_is_stopped_or_fails() {
    let tasks = OthersDoOdd::new(&done);
    let mut notes = Notes { fails_at: Some(100), ..Notes::default() };
    assert_eq!(share_with(Some(&tasks), &mut notes, &|| false), Err("at 100".to_owned()));
    let polls = AtomicUsize::new(0);
    let mut notes = Notes::default();
    let tasks = OthersDoOdd::new(&done);
    share_with(Some(&tasks), &mut notes, &|| polls.fetch_add(1, Ordering::Relaxed) > 50).unwrap();
    assert!(notes.here.len() < 100, "{:?}", notes.here);
}

/// What another worker says of a portion that it took.
struct OnePortion {
    finished: Mutex<Vec<Vec<u8>>>,
    was_put_back: AtomicBool,
}

impl Tasks for OnePortion {
    fn open_task(&self, _: &NewTask<'_>, _: Duration) -> Result<()> {
        Ok(())
    }

    fn add_portions(&self, _: TaskId, _: u64, _: &[Vec<u8>]) -> Result<bool> {
        Ok(true)
    }

    fn take(&self, _: &WorkerId, wanted: Wanted<'_>, _: Duration) -> Result<Option<Portion>> {
        let Wanted::Any { kinds, except, priority } = wanted else { return Ok(None) };
        assert_eq!((kinds, priority), (&[KIND][..], 1));
        let task = TaskId([1; 16]);
        Ok((!except.contains(&task)).then(|| portion(task, 7, &State::default())))
    }

    fn keep(&self, held: &[Held], _: Duration) -> Result<Vec<bool>> {
        Ok(vec![true; held.len()])
    }

    fn finish(&self, _: &Portion, result: &[u8]) -> Result<bool> {
        self.finished.lock().unwrap().push(result.to_vec());
        Ok(true)
    }

    fn put_back(&self, _: &Portion) -> Result<()> {
        self.was_put_back.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn collect(&self, _: TaskId, _: &[u64]) -> Result<Option<Collected>> {
        Ok(None)
    }

    fn forget_results(&self, _: TaskId, _: &[u64]) -> Result<()> {
        Ok(())
    }

    fn close_task(&self, _: TaskId) -> Result<()> {
        Ok(())
    }

    fn known_tasks(&self) -> Result<Vec<KnownTask>> {
        Ok(Vec::new())
    }
}

#[test]
fn a_worker_that_fails_leaves_the_task_to_others() {
    let tasks = OnePortion { finished: Mutex::default(), was_put_back: AtomicBool::new(false) };
    let worker = WorkerId("other".to_owned());
    let team = Team { tasks: &tasks, worker: &worker };
    let mut failed = Vec::new();
    let mut once = |what: Help| help(team, (&[KIND], 1), &mut failed, |_, _| what).unwrap();
    assert_eq!(once(Help::Done(vec![1])), Some(true));
    assert_eq!(once(Help::Stopped), Some(false));
    assert_eq!(once(Help::Failed), Some(false));
    assert_eq!(once(Help::Done(vec![2])), None);
    assert_eq!(*tasks.finished.lock().unwrap(), [vec![1], vec![]]);
    assert!(tasks.was_put_back.into_inner());
}

#[test]
fn paths_are_read_as_they_were_put() {
    let paths: [&[u8]; 4] = [b"a/b", b"", b"\xff\n\0", &[b'x'; 4096]];
    let content = put_paths(paths.into_iter());
    assert_eq!(paths_of(&content).unwrap(), paths);
    assert_eq!(paths_of(b""), Some(Vec::new()));
    let ends = [0, 7, 11, 18, content.len()];
    for end in 0..content.len() {
        assert_eq!(paths_of(&content[..end]).is_some(), ends.contains(&end), "{end}");
    }
    assert_eq!(paths_of(&[255; 64]), None);
}
