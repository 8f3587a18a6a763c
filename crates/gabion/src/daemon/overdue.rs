//! Counts the files of a source whose scrub is overdue by their policy, and the bytes of all files by state. Runs in a
//! thread of its own, because reading a large catalogue takes long.

use super::source::Source;
use gabion_vault::scrub;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Shortest pause between counts.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Counting takes at most 1/100 of the time.
const SHARE: u32 = 100;

/// State of the counting thread.
#[derive(Debug, Default)]
pub(super) struct Counting {
    thread: Option<JoinHandle<()>>,
    began: Option<Stopwatch>,
    pause: Duration,
}

impl Counting {
    /// Starts a count if it is due.
    pub(super) fn turn(&mut self, source: &Arc<Source>, location: &Location) {
        if self.thread.take_if(|thread| thread.is_finished()).is_some() {
            let took = self.began.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
            self.pause = POLL_INTERVAL.max(took.saturating_mul(SHARE));
        }
        if self.thread.is_some() || self.began.as_ref().is_some_and(|since| since.elapsed() < self.pause) {
            return;
        }
        (self.began, self.pause) = (Some(Stopwatch::start()), POLL_INTERVAL);
        let (source, location) = (Arc::clone(source), location.clone());
        let work = move || {
            // An error here also stops the source, which reports it.
            let Ok((vault, _)) = Vault::open_to_examine(&location, Clock::System) else { return };
            if let Ok(Some(counted)) = scrub::overdue(&vault, &|| source.is_stopping()) {
                source.state().overdue = Some(counted);
            }
            if let Ok(sizes) = vault.catalogue.totals() {
                source.state().sizes = Some(sizes);
            }
        };
        // Not joined: it ends soon after its source stops.
        self.thread = std::thread::Builder::new().name("overdue".to_owned()).spawn(work).ok();
    }
}
