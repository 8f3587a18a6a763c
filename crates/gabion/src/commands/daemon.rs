//! `gabion daemon`.

pub(super) mod report;
mod run;
mod status;

pub(super) use status::print as print_source;

use anyhow::Context;
use gabion::daemon::client::{Client, ClientError};
use gabion::daemon::protocol::Request;
use gabion::exit::Outcome;
use gabion_vault::world::Stopwatch;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion daemon run /etc/gabion/daemon.toml --check    say what it would do
  gabion daemon run /etc/gabion/daemon.toml            run in the foreground, as service managers want it
  gabion daemon status                                 how all sources are: what failed, what is held, what is asked
  gabion daemon scrub photos                           now, and wait for the result
  gabion daemon pause photos                           leave its files alone for a while
  gabion daemon rebuild tank --agree 1c0f22aa9d3e      agree that just these targets are lost
  gabion daemon stop

docs/reference/daemon.toml is a commented configuration, docs/operating/daemon.md tells the rest. Only who runs the daemon, and root, can speak to it.
Exit codes: 0 fine, 1 something to look after, 2 error, 3 data lost.";

/// Arguments of `gabion daemon`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Keep everything protected that a configuration names, until a signal or `gabion daemon stop`
    Run(run::Args),
    /// Show how all sources are
    Status(status::Args),
    /// Leave files alone: nothing is scanned, encoded, scrubbed or rebuilt until `resume`; changes are recorded
    Pause(Which),
    /// Go on after `pause`
    Resume(Which),
    /// Scrub a source now
    Scrub(Scrub),
    /// Repair what is damaged in a source
    Repair(Repair),
    /// Protect now what changed in a source, whether it has rested or not
    Protect(Protect),
    /// Bring what was on lost targets of a pool onto others, or agree that they are lost
    Rebuild(Rebuild),
    /// Release a change-set that is held
    Approve(Approve),
    /// Read the configuration again: what changed in it ends and begins anew, the rest goes on
    Reload(Alone),
    /// End the daemon: what is in hand is finished, mounts are unmounted
    Stop(Alone),
}

/// Where the daemon is spoken to.
#[derive(clap::Args)]
struct Place {
    /// The daemon's socket; /run/gabion/daemon.sock for root, gabion/daemon.sock in the runtime directory for others, if not said
    #[arg(long, value_name = "PATH", env = "GABION_SOCKET")]
    socket: Option<PathBuf>,
    #[arg(long, env = "XDG_RUNTIME_DIR", hide = true)]
    runtime: Option<PathBuf>,
}

impl Place {
    /// The place, if there is a usual one.
    fn path(&self) -> Option<PathBuf> {
        let usual = match rustix::process::geteuid().is_root() {
            true => Some(PathBuf::from("/run")),
            false => self.runtime.clone().filter(|directory| directory.is_absolute()),
        };
        self.socket.clone().or_else(|| usual.map(|directory| directory.join("gabion/daemon.sock")))
    }

    fn connect(&self) -> anyhow::Result<Client> {
        let path = self.path().context("where is the daemon? Name its socket with --socket")?;
        Ok(Client::connect(&path)?)
    }
}

/// How to speak to a daemon.
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
    /// The source; all if not said
    source: Option<String>,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Scrub {
    /// The source
    source: String,
    /// Only this share of all files, those first whose last scrub is the oldest
    #[arg(long, value_name = "SHARE", value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: Option<u8>,
    /// Only files whose last complete verification is older than their policy's interval
    #[arg(long, conflicts_with = "percent")]
    due: bool,
    /// Bring back at once what is damaged; files that someone wrote to since are left alone
    #[arg(long)]
    repair: bool,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Repair {
    /// The source
    source: String,
    /// Only look at files that scrub found damaged
    #[arg(long)]
    known: bool,
    /// Also take files back that were written since they were protected; what they held is kept in the repository
    #[arg(long)]
    changed: bool,
    /// Bring files back that are gone, where redundancy suffices
    #[arg(long)]
    missing: bool,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Protect {
    /// The source
    source: String,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    how: Alone,
}

#[derive(clap::Args)]
struct Rebuild {
    /// The source, a pool
    source: String,
    /// Only what is or was on these targets
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// Agree that just the targets are lost that `gabion daemon status` names
    #[arg(long, value_name = "DIGEST")]
    agree: Option<String>,
    /// Do not wait for the end
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
    /// Whether it goes on until it is stopped.
    /// True if all that the command does is to print.
    pub(super) fn only_reads(&self) -> bool {
        matches!(self.command, Command::Status(_))
    }

    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Run(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Pause(Which { source, how }) => how.tell(&Request::Pause { source }),
            Command::Resume(Which { source, how }) => how.tell(&Request::Resume { source }),
            Command::Reload(how) => how.tell(&Request::Reload {}),
            Command::Stop(how) => how.stop(),
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

/// How long to wait for a daemon that ends, and how often to look.
const ENDING: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(100);

impl Alone {
    fn ask(&self, request: &Request) -> anyhow::Result<Value> {
        Ok(self.place.connect()?.ask(request, &mut |_| {})?)
    }

    /// For what is done at once.
    fn tell(&self, request: &Request) -> anyhow::Result<Outcome> {
        let done = self.ask(request)?;
        match self.json {
            true => outln!("{done}"),
            false => report::print_words(&done),
        }
        Ok(Outcome::Fine)
    }

    /// For what takes a while.
    fn work(&self, word: &str, request: &Request) -> anyhow::Result<Outcome> {
        let done = self.ask(request)?;
        Ok(report::print(word, &done, self.json, false))
    }

    fn stop(&self) -> anyhow::Result<Outcome> {
        let ending = self.ask(&Request::Stop {})?;
        let since = Stopwatch::start();
        loop {
            match self.place.connect() {
                Err(error) if matches!(error.downcast_ref(), Some(ClientError::Nobody { .. })) => break,
                _ => anyhow::ensure!(
                    since.elapsed() < ENDING,
                    "the daemon still stops, process {}",
                    ending["process"]
                ),
            }
            std::thread::sleep(LOOK);
        }
        match self.json {
            true => outln!("{}", json!({ "stopped": true, "process": ending["process"] })),
            false => outln!("stopped"),
        }
        Ok(Outcome::Fine)
    }
}
