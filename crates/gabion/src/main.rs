//! The `gabion` command. It parses, calls the library, prints, and maps the result to an exit code.

#![forbid(unsafe_code)]

mod commands;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use gabion::exit::{Outcome, told};
use serde_json::json;
use signal_hook::consts::SIGPIPE;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let matches = commands::Cli::command().get_matches();
    let cli = commands::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if !cli.is_long() {
        end_with_the_reader();
    }
    let result = cli.run();
    if let Err(error) = &result {
        let why = told(error);
        eprintln!("gabion: {why}");
        if asks_for_json(&matches) {
            println!("{}", json!({ "error": why }));
        }
    }
    Outcome::of(result).into()
}

/// Whether what reads our output expects an object.
fn asks_for_json(mut matches: &ArgMatches) -> bool {
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    matches.try_get_one::<bool>("json").is_ok_and(|json| json == Some(&true))
}

/// Who reads what we print may have enough of it (`gabion status | head`): then we end without a word, as other programs do. Rust
/// programs ignore the signal for that unless they ask for it.
fn end_with_the_reader() {
    let always = Arc::new(AtomicBool::new(true));
    if let Err(error) = signal_hook::flag::register_conditional_default(SIGPIPE, always) {
        eprintln!("gabion: warning: the signal of a closed pipe: {error}");
    }
}
