//! The `gabion` command. It parses, calls the library, prints, and maps the result to an exit code.

#![forbid(unsafe_code)]

mod commands;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use gabion::exit::Outcome;
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

/// An error with its causes; many have the text of theirs in their own, and nothing is said twice. There may be names in it, of which
/// a terminal must not obey anything.
fn told(error: &anyhow::Error) -> String {
    let told = error.chain().fold(String::new(), |text, cause| match cause.to_string().trim_end() {
        cause if text.is_empty() => cause.to_owned(),
        cause if text.contains(cause) => text,
        cause => format!("{text}: {cause}"),
    });
    let mut safe = String::new();
    for letter in told.chars() {
        match letter.is_control() && letter != '\n' {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
    }
    safe
}

/// Who reads what we print may have enough of it (`gabion status | head`): then we end without a word, as other programs do. Rust
/// programs ignore the signal for that unless they ask for it.
fn end_with_the_reader() {
    let always = Arc::new(AtomicBool::new(true));
    if let Err(error) = signal_hook::flag::register_conditional_default(SIGPIPE, always) {
        eprintln!("gabion: warning: the signal of a closed pipe: {error}");
    }
}
