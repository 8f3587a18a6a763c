//! `gabion catalogue`.

use super::{Effort, Talk, Which, files};
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::shard::Shown;
use gabion_vault::rebuild::rebuild;
use gabion_vault::vault::Renewed;
use serde_json::{Value, json};

/// Arguments of `gabion catalogue`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the catalogue anew from the headers of redundancy files; settings and changelog as well where they are damaged
    Rebuild {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        talk: Talk,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let Command::Rebuild { which, talk } = self.command;
        let (vault, _lock, renewed) = which.renew("catalogue rebuild")?;
        for what in &renewed {
            eprintln!("gabion: warning: {}", was_renewed(*what));
        }
        let rebuilt = talk.run(&Effort::ALL, |manner| rebuild(&vault, manner))??;
        if talk.json {
            let unusable: Vec<Value> = rebuilt
                .unusable
                .iter()
                .map(|(path, why)| json!({ "path": Shown::path(path).to_string(), "why": why }))
                .collect();
            println!(
                "{}",
                json!({ "command": "catalogue rebuild", "files": rebuilt.files, "unusable": unusable,
                        "renewed": renewed.iter().map(|what| word(*what)).collect::<Vec<_>>() })
            );
        } else {
            talk.say(format!("the catalogue has {} now", files(rebuilt.files)));
            for (path, why) in &rebuilt.unusable {
                eprintln!("gabion: {}: {why}", Shown::path(path));
            }
        }
        Ok(if rebuilt.unusable.is_empty() { Outcome::Fine } else { Outcome::Found })
    }
}

fn word(what: Renewed) -> &'static str {
    match what {
        Renewed::Settings => "settings",
        Renewed::Catalogue => "catalogue",
        Renewed::Changelog => "changelog",
    }
}

fn was_renewed(what: Renewed) -> &'static str {
    match what {
        Renewed::Settings => {
            "the settings were gone or damaged and are made anew; if changes were remembered on a Redis server, put its address into \
             vault.toml"
        }
        Renewed::Catalogue => "the catalogue was damaged: a new one takes its place",
        Renewed::Changelog => {
            "the changelog was damaged: a new one takes its place, and `gabion protect` finds what changed"
        }
    }
}
