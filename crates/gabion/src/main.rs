//! The `gabion` command. It parses, calls the library, prints, and maps the result to an exit code.

#![forbid(unsafe_code)]

mod commands;

use clap::Parser;
use gabion::exit::{Outcome, told};
use signal_hook::consts::SIGPIPE;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    if !cli.is_long() {
        end_with_the_reader();
    }
    let result = cli.run();
    if let Err(error) = &result {
        eprintln!("gabion: {}", told(error));
    }
    Outcome::of(result).into()
}

/// Who reads what we print may have enough of it (`gabion status | head`): then we end without a word, as other programs do. Rust
/// programs ignore the signal for that unless they ask for it.
fn end_with_the_reader() {
    let always = Arc::new(AtomicBool::new(true));
    if let Err(error) = signal_hook::flag::register_conditional_default(SIGPIPE, always) {
        eprintln!("gabion: warning: the signal of a closed pipe: {error}");
    }
}
