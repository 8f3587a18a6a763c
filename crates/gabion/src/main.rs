//! The `gabion` command. It parses, calls the library, prints, and maps the result to an exit code.

#![forbid(unsafe_code)]

#[macro_use]
mod output;
mod commands;
mod progress;

use clap::{ArgMatches, FromArgMatches};
use gabion::exit::{Outcome, error_message};
use gabion::report::ErrorReport;
use signal_hook::consts::SIGPIPE;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let matches = match commands::Cli::grouped().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return refuse(&error),
    };
    let cli = commands::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if cli.only_reads() {
        end_with_the_reader();
    }
    let result = cli.run();
    if let Err(error) = &result {
        let why = error_message(error);
        errln!("gabion: {why}");
        if asks_for_json(&matches) {
            output::print_json(&ErrorReport { error: why });
        }
    }
    output::finish(Outcome::of(result)).into()
}

/// Reports wrong arguments, or prints help, which is no error.
fn refuse(error: &clap::Error) -> ExitCode {
    let asks_for_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && asks_for_json {
        output::print_json(&ErrorReport { error: usage_error(error) });
    }
    let printed = error.print();
    if error.use_stderr() {
        return Outcome::Failed.into();
    }
    output::keep(printed);
    output::finish(Outcome::Fine).into()
}

/// The message of a usage error, without the hints for terminals.
fn usage_error(error: &clap::Error) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command was given".to_owned();
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let lines: Vec<&str> = first.trim_start_matches("error: ").lines().map(str::trim).collect();
    error_message(&anyhow::anyhow!(lines.join(" ")))
}

/// True if `--json` was given.
fn asks_for_json(mut matches: &ArgMatches) -> bool {
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    matches.try_get_one::<bool>("json").is_ok_and(|json| json == Some(&true))
}

/// Restores the default action of SIGPIPE, which the Rust runtime ignores: a command that only prints ends silently
/// when its reader ends (`gabion status | head`), as other programs do. A command that changes or checks files must
/// not: its work would stop.
fn end_with_the_reader() {
    let always = Arc::new(AtomicBool::new(true));
    if let Err(error) = signal_hook::flag::register_conditional_default(SIGPIPE, always) {
        errln!("gabion: warning: cannot set the action for SIGPIPE: {error}");
    }
}
