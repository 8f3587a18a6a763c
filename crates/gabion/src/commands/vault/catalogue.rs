//! `gabion catalogue`.

use super::{Effort, Talk, Which, files, lock};
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::shard::Shown;
use gabion_vault::rebuild::rebuild;
use serde_json::{Value, json};

/// Arguments of `gabion catalogue`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the catalogue anew from the headers of redundancy files
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
        let (vault, _) = which.open()?;
        let _lock = lock(&vault, "catalogue rebuild", false, &talk)?;
        let rebuilt = talk.run(&Effort::ALL, |manner| rebuild(&vault, manner))??;
        if talk.json {
            let unusable: Vec<Value> = rebuilt
                .unusable
                .iter()
                .map(|(path, why)| json!({ "path": Shown::path(path).to_string(), "why": why }))
                .collect();
            println!(
                "{}",
                json!({ "command": "catalogue rebuild", "files": rebuilt.files, "unusable": unusable })
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
