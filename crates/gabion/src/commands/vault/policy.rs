//! `gabion policy`.

use super::Which;
use crate::output::print_json;
use anyhow::Context;
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::report::{PolicyReport, RuleDecisionReport, RuleReport, TreatmentReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::policy::Treatment;
use gabion_vault::private::read_text;
use gabion_vault::tree::split;
use gabion_vault::vault::{DEFAULT_CODE, parse_policy};
use std::path::PathBuf;

/// Arguments of `gabion policy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a policy file; errors give line and column
    Check {
        /// The policy
        file: PathBuf,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Explain which rule applies to a file, and why earlier rules do not
    Explain {
        #[command(flatten)]
        which: Which,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Check { file, json } => check(&file, json),
            Command::Explain { which, json } => explain(&which, json),
        }
    }
}

fn check(file: &std::path::Path, as_json: bool) -> anyhow::Result<Outcome> {
    let text =
        std::fs::File::open(file).and_then(read_text).with_context(|| DisplayPath::path(file).to_string())?;
    let policy = parse_policy(&text, file, &DEFAULT_CODE.parse()?)?;
    if as_json {
        let default = TreatmentReport::new(&policy.default);
        print_json(&PolicyReport { default, rules: policy.rules().map(RuleReport::new).collect() });
        return Ok(Outcome::Fine);
    }
    for (name, treatment) in policy.rules() {
        let what = treatment.map_or("not protected".to_owned(), Treatment::to_string);
        outln!("{name}: {what}");
    }
    outln!("default: {}", policy.default);
    Ok(Outcome::Fine)
}

fn explain(which: &Which, as_json: bool) -> anyhow::Result<Outcome> {
    let (vault, path) = which.open_to_examine()?;
    let stat = vault.storage.find(&path)?;
    let stat = stat.with_context(|| format!("{}: no such file", DisplayPath::path(&which.path)))?;
    let now = vault.clock.now();
    let decision = vault.policy.decide(&path, &stat, now);
    let name = vault.policy.rule_name(decision.rule);
    let refusals = vault.policy.refusals(&path, &stat, now);
    let because = vault.policy.reasons(decision.rule, &path, &stat, now);
    let above = vault.policy.in_directory(split(&path).0, now);
    let ignored: Vec<(Vec<u8>, &str)> = above.ignored().collect();
    if as_json {
        let report = RuleDecisionReport::new(&path, name, &decision, &because, &refusals, &ignored);
        print_json(&report);
        return Ok(Outcome::Fine);
    }
    for (rule, why) in &refusals {
        outln!("{rule}: does not apply, {why}");
    }
    let because = if because.is_empty() { String::new() } else { format!(", {}", because.join(" and ")) };
    let what = decision.treatment.as_deref().map_or("not protected".to_owned(), Treatment::to_string);
    match &decision.user {
        None => outln!("{name}: applies{because}: {what}"),
        Some(user) => {
            let file = DisplayPath::bytes(&user.file);
            outln!("{name}: applies{because}, and then the rule of the file's owner");
            for why in &user.refused {
                outln!("{file}, {}: refused: {why}", user.rule);
            }
            outln!("{file}, {}: applies: {what}", user.rule);
        }
    }
    for (file, why) in &ignored {
        outln!("{}: ignored: {why}", DisplayPath::bytes(file));
    }
    Ok(Outcome::Fine)
}
