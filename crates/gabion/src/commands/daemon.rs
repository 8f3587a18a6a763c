//! `gabion daemon`.

pub(super) mod report;
mod run;
mod settings;
mod status;

pub(super) use status::print as print_source;

use crate::output::print_json;
use anyhow::Context;
use gabion::daemon::client::{Client, ClientError, Request};
use gabion::exit::Outcome;
use gabion_vault::world::Stopwatch;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion daemon run /etc/gabion/daemon.toml --check    check the configuration
  gabion daemon run /etc/gabion/daemon.toml            run in the foreground, as a service
  gabion daemon status                                 state of all sources: failures, held changes, questions
  gabion daemon scrub photos                           scrub now, and wait for the result
  gabion daemon pause photos                           suspend work on its files
  gabion daemon rebuild tank --agree 1c0f22aa9d3e      confirm the loss of targets
  gabion daemon stop

See docs/reference/daemon.toml for a commented configuration, and docs/operating/daemon.md. Only the user who runs the daemon \
and root can use it.
Exit codes: 0 success, 1 needs attention, 2 error, 3 data lost.";

/// Arguments of `gabion daemon`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Protect the sources of a configuration, until a signal or `gabion daemon stop`
    Run(Box<run::Args>),
    /// Show the state of all sources
    Status(status::Args),
    /// Suspend work: no scans, encoding, scrubs or rebuilds until `resume`; changes are still recorded
    Pause(Which),
    /// Continue after `pause`
    Resume(Which),
    /// Scrub a source now
    Scrub(Scrub),
    /// Repair damaged files of a source
    Repair(Repair),
    /// Protect changed files of a source now, without waiting for their quiet period
    Protect(Protect),
    /// Reconstruct the content of lost targets of a pool, or confirm their loss
    Rebuild(Rebuild),
    /// Approve a held change-set
    Approve(Approve),
    /// Reload the configuration; changed sources are restarted
    Reload(Alone),
    /// Stop the daemon: finish running jobs, and unmount
    Stop(Alone),
    /// Print the description of the daemon's HTTP API (OpenAPI 3.1)
    Openapi,
}

/// Choice of the daemon's socket.
#[derive(clap::Args)]
struct Place {
    /// The daemon's socket; default /run/gabion/daemon.sock for root, gabion/daemon.sock in the runtime directory for
    /// other users
    #[arg(long, value_name = "PATH", env = "GABION_SOCKET")]
    socket: Option<PathBuf>,
    #[arg(long, env = "XDG_RUNTIME_DIR", hide = true)]
    runtime: Option<PathBuf>,
}

impl Place {
    /// The given or default path.
    fn path(&self) -> Option<PathBuf> {
        let usual = match rustix::process::geteuid().is_root() {
            true => Some(PathBuf::from("/run")),
            false => self.runtime.clone().filter(|directory| directory.is_absolute()),
        };
        self.socket.clone().or_else(|| usual.map(|directory| directory.join("gabion/daemon.sock")))
    }

    fn connect(&self) -> anyhow::Result<Client> {
        let path = self.path().context("no path for the daemon's socket: use --socket")?;
        Ok(Client::connect(&path)?)
    }
}

/// Socket and output format.
#[derive(clap::Args)]
struct Alone {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Which {
    /// The source; default all
    source: Option<String>,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Scrub {
    /// The source
    source: String,
    /// Only this percentage of all files, the longest unscrubbed first
    #[arg(long, value_name = "SHARE", value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: Option<u8>,
    /// Only files whose last complete verification is older than their policy's interval
    #[arg(long, conflicts_with = "percent")]
    due: bool,
    /// Repair damaged files at once, except those written since they were protected
    #[arg(long)]
    repair: bool,
    /// Do not wait for the result
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Repair {
    /// The source
    source: String,
    /// Only files that a scrub found damaged
    #[arg(long)]
    known: bool,
    /// Also revert files that were written since they were protected; their content is kept in the repository
    #[arg(long)]
    changed: bool,
    /// Also restore missing files, if redundancy suffices
    #[arg(long)]
    missing: bool,
    /// Do not wait for the result
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Protect {
    /// The source
    source: String,
    /// Do not wait for the result
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Rebuild {
    /// The source, a pool
    source: String,
    /// Only columns of these targets
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// Confirm the loss of the targets that `gabion daemon status` names
    #[arg(long, value_name = "DIGEST")]
    agree: Option<String>,
    /// Do not wait for the result
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Approve {
    /// The source
    source: String,
    /// The digest that `gabion daemon status` shows
    digest: String,
    #[command(flatten)]
    how: Alone,
}

impl Args {
    /// True if the command only prints.
    pub(super) fn only_reads(&self) -> bool {
        matches!(self.command, Command::Status(_) | Command::Openapi)
    }

    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Run(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Pause(Which { source, how }) => how.tell(&Request::Pause { source }),
            Command::Resume(Which { source, how }) => how.tell(&Request::Resume { source }),
            Command::Reload(how) => how.tell(&Request::Reload {}),
            Command::Stop(how) => how.stop(),
            Command::Openapi => {
                outln!("{}", gabion::daemon::api::openapi_document()?);
                Ok(Outcome::Fine)
            }
            Command::Approve(Approve { source, digest, how }) => {
                how.tell(&Request::Approve { source, digest })
            }
            Command::Scrub(Scrub { source, percent, due, repair, no_wait, how }) => {
                let (older_than, restart, wait) = (None, false, !no_wait);
                how.work("scrub", &Request::Scrub { source, percent, older_than, due, restart, repair, wait })
            }
            Command::Repair(Repair { source, known, changed, missing, no_wait, how }) => {
                let (keep_changed, wait) = (!changed, !no_wait);
                how.work("repair", &Request::Repair { source, known, keep_changed, missing, wait })
            }
            Command::Protect(Protect { source, no_wait, how }) => {
                how.work("protect", &Request::Protect { source, wait: !no_wait })
            }
            Command::Rebuild(Rebuild { source, targets, agree, no_wait, how }) => {
                how.work("rebuild", &Request::Rebuild { source, targets, agree, wait: !no_wait })
            }
        }
    }
}

/// The daemon has stopped.
#[derive(Serialize)]
struct Stopped<'a> {
    stopped: bool,
    process: &'a Value,
}

/// Longest wait for a daemon to stop, and the poll interval.
const ENDING: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(100);

impl Alone {
    fn ask(&self, request: &Request) -> anyhow::Result<Value> {
        Ok(self.place.connect()?.ask(request)?)
    }

    /// Sends a request that is carried out at once.
    fn tell(&self, request: &Request) -> anyhow::Result<Outcome> {
        let done = self.ask(request)?;
        match self.json {
            true => outln!("{done}"),
            false => report::print_words(&done),
        }
        Ok(Outcome::Fine)
    }

    /// Sends a request that starts a job.
    fn work(&self, word: &str, request: &Request) -> anyhow::Result<Outcome> {
        let done = self.ask(request)?;
        Ok(report::print(word, request, &done, self.json, false))
    }

    fn stop(&self) -> anyhow::Result<Outcome> {
        let ending = self.ask(&Request::Stop {})?;
        let since = Stopwatch::start();
        loop {
            match self.place.connect() {
                Err(error) if matches!(error.downcast_ref(), Some(ClientError::NotRunning { .. })) => break,
                _ => anyhow::ensure!(
                    since.elapsed() < ENDING,
                    "the daemon has not stopped yet, process {}",
                    ending["process"]
                ),
            }
            std::thread::sleep(LOOK);
        }
        match self.json {
            true => print_json(&Stopped { stopped: true, process: &ending["process"] }),
            false => outln!("stopped"),
        }
        Ok(Outcome::Fine)
    }
}
