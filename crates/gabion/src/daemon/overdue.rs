//! Files of a source whose scrub is overdue by their policy, counted by a thread of its own: a large catalogue takes a while to read.

use super::source::Source;
use gabion_vault::scrub::{self, Overdue};
use gabion_vault::shown::Shown;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often they are counted at most.
const LOOK: Duration = Duration::from_secs(60);

/// Counting takes at most one part in so many of the time.
const SHARE: u32 = 100;

/// When they were counted, and when they will be.
#[derive(Debug, Default)]
pub(super) struct Counting {
    thread: Option<JoinHandle<()>>,
    began: Option<Stopwatch>,
    pause: Duration,
}

impl Counting {
    /// Begins to count if it is time to.
    pub(super) fn turn(&mut self, source: &Arc<Source>, location: &Location) {
        if self.thread.take_if(|thread| thread.is_finished()).is_some() {
            let took = self.began.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
            self.pause = LOOK.max(took.saturating_mul(SHARE));
        }
        if self.thread.is_some() || self.began.as_ref().is_some_and(|since| since.elapsed() < self.pause) {
            return;
        }
        (self.began, self.pause) = (Some(Stopwatch::start()), LOOK);
        let (source, location) = (Arc::clone(source), location.clone());
        let work = move || {
            // What keeps it from being counted keeps the source from running, which says so.
            let Ok((vault, _)) = Vault::open_to_examine(&location, Clock::System) else { return };
            if let Ok(Some(counted)) = scrub::overdue(&vault, &|| source.is_stopping()) {
                source.state().overdue = Some(counted);
            }
        };
        // Nobody waits for its end: it stops with its source.
        self.thread = std::thread::Builder::new().name("overdue".to_owned()).spawn(work).ok();
    }
}

/// For programs.
pub fn as_json(overdue: &Overdue) -> Value {
    let oldest = overdue.oldest.as_ref();
    json!({ "files": overdue.files,
            "oldest": oldest.map(|(path, at)| json!({ "path": Shown::bytes(path).to_string(), "verified": at })) })
}
