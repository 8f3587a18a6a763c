//! `--progress`: steps of a command as lines of JSON, before its document.

use gabion::report::{ProgressReport, document};
use gabion_platform::sync;
use gabion_vault::run::Progress;
use gabion_vault::world::Stopwatch;
use std::sync::Mutex;
use std::time::Duration;

/// Shortest time between two lines of one step.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints lines.
pub(crate) struct ProgressLines {
    /// None if none are printed.
    step: Option<Mutex<Option<Step>>>,
}

/// The step at hand.
struct Step {
    report: ProgressReport,
    /// Since its last line.
    printed: Stopwatch,
}

impl ProgressLines {
    pub(crate) fn new(is_wanted: bool) -> ProgressLines {
        ProgressLines { step: is_wanted.then(Mutex::default) }
    }

    /// Prints a line when a step begins, and at most one per second while it lasts.
    pub(crate) fn note(&self, progress: Progress) {
        let Some(step) = &self.step else { return };
        let mut step = sync::lock(step);
        match progress {
            Progress::Step(name, total) => {
                let report = ProgressReport::new(name, total);
                outln!("{}", document(&report));
                *step = Some(Step { report, printed: Stopwatch::start() });
            }
            Progress::Done(files, bytes) | Progress::Elsewhere(files, bytes) => {
                let Some(step) = step.as_mut() else { return };
                step.report.add(files, bytes);
                if step.printed.elapsed() >= PAUSE {
                    outln!("{}", document(&step.report));
                    step.printed = Stopwatch::start();
                }
            }
        }
    }
}
