//! `gabion notify`.

use crate::output::print_json;
use gabion::daemon::config::Config;
use gabion::daemon::notifications::test;
use gabion::exit::Outcome;
use gabion::report::notifications::TestReport;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion notify test                                   a test message to each receiver in /etc/gabion/daemon.toml
  gabion notify test daemon.toml --name mail

No daemon is needed. Secrets are read as the daemon reads them, so run it as the daemon's user. A heartbeat gets the \
signal that all is well. See docs/operating/notifications.md.
Exit codes: 0 all were delivered, 1 one was not, or there is no receiver, 2 error.";

/// Arguments of `gabion notify`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Send a test message to each receiver, and print what happened
    Test(Test),
}

#[derive(clap::Args)]
struct Test {
    /// The daemon's configuration
    #[arg(default_value = "/etc/gabion/daemon.toml")]
    config: PathBuf,
    /// Only the receiver with this name
    #[arg(long)]
    name: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Command::Test(args) = self.command;
        let config = Config::load(&args.config)?;
        if let Some(name) = &args.name {
            let known: Vec<&str> = config.receivers.iter().map(|it| it.name.as_str()).collect();
            anyhow::ensure!(
                known.contains(&name.as_str()),
                "there is no receiver {name:?}; there are: {}",
                known.join(", ")
            );
        }
        let report = TestReport { receivers: test(&config, args.name.as_deref()) };
        if args.json {
            print_json(&report);
        } else if report.receivers.is_empty() {
            outln!("there is no [[notify]] in the configuration");
        }
        for receiver in report.receivers.iter().filter(|_| !args.json) {
            let (name, kind, seconds) = (&receiver.name, receiver.kind, receiver.seconds);
            match &receiver.error {
                None => outln!("{name}: {kind}, delivered in {seconds:.1} s"),
                Some(why) => outln!("{name}: {kind}, NOT DELIVERED after {seconds:.1} s: {why}"),
            }
        }
        let all = !report.receivers.is_empty() && report.receivers.iter().all(|receiver| receiver.delivered);
        Ok(if all { Outcome::Fine } else { Outcome::Found })
    }
}
