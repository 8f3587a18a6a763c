//! Protects in the background what was recorded, as long as a mount is alive.

use gabion_vault::changelog::Kind;
use gabion_vault::protect::{Manner, protect, work};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to look whether something is due.
const POLL: Duration = Duration::from_millis(500);

/// The thread that does it.
#[derive(Debug)]
pub struct Keeper {
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts protecting with so many threads; with none, nothing is started. `say` is told what people should know.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        location: Location,
        threads: usize,
        stop: Arc<AtomicBool>,
        say: impl Fn(String) + Send + 'static,
    ) -> std::io::Result<Keeper> {
        if threads == 0 {
            return Ok(Keeper { thread: None });
        }
        let keep = move || {
            if let Err(error) = keep(&location, threads, &stop, &say) {
                say(format!("protection has stopped: {error:#}"));
            }
        };
        Ok(Keeper { thread: Some(std::thread::Builder::new().name("keeper".to_owned()).spawn(keep)?) })
    }

    /// Waits for its end; it was told to stop.
    pub fn join(self) {
        if let Some(Err(panic)) = self.thread.map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

fn keep(location: &Location, threads: usize, stop: &AtomicBool, say: &dyn Fn(String)) -> anyhow::Result<()> {
    let vault = Vault::open(location, Clock::System)?;
    let stopped = || stop.load(Ordering::Relaxed);
    let manner = Manner { threads, rate: None, progress: &|_| {}, stopped: &stopped };
    // What happened while nobody looked.
    let mut reconcile = true;
    while !stopped() {
        reconcile |= vault.changelog.pending()?.of(Kind::Gap) > 0;
        // Someone else who has the vault looks at everything as well.
        match reconcile.then(|| vault.lock("mount")) {
            Some(Ok(_lock)) => {
                let report = protect(&vault, manner)?;
                if let Some(held) = report.held {
                    let (removed, changed, digest) = (held.removed, held.changed, held.digest);
                    say(format!(
                        "{removed} files vanished and {changed} changed at once; their redundancy stays as it is. If that is \
                         meant: gabion approve {digest}"
                    ));
                }
                reconcile = false;
            }
            _ => {
                work(&vault, manner)?;
            }
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
