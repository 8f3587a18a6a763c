//! `gabion policy`.

use super::Which;
use crate::output::print_json;
use anyhow::Context;
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::report::{PolicyReport, RuleDecisionReport, RuleReport, TreatmentReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::policy::{Policy, Treatment};
use gabion_vault::private::read_text;
use gabion_vault::tree::{Stat, Tree, split};
use gabion_vault::vault::{DEFAULT_CODE, Location, parse_policy};
use gabion_vault::world::{Clock, Timestamp};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
        /// Explain this policy instead of the one of a vault: before it is used, or without a vault
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// With --policy: the directory to which its paths are relative [default: the protected directory around PATH,
        /// otherwise the current directory]
        #[arg(long, value_name = "DIR", requires = "policy", conflicts_with_all = ["repository", "pools"])]
        root: Option<PathBuf>,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Check { file, json } => check(&file, json),
            Command::Explain { which, policy: Some(policy), root, json } => {
                explain_file(&which, &policy, root.as_deref(), json)
            }
            Command::Explain { which, json, .. } => explain(&which, json),
        }
    }
}

fn read(file: &Path) -> anyhow::Result<Policy> {
    let text =
        std::fs::File::open(file).and_then(read_text).with_context(|| DisplayPath::path(file).to_string())?;
    Ok(parse_policy(&text, file, &DEFAULT_CODE.parse()?)?)
}

fn check(file: &Path, as_json: bool) -> anyhow::Result<Outcome> {
    let policy = read(file)?;
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
    Ok(print(&vault.policy, &path, &stat, vault.clock.now(), as_json))
}

/// Explains a policy file for a file of a directory, which need not be protected.
fn explain_file(which: &Which, file: &Path, root: Option<&Path>, as_json: bool) -> anyhow::Result<Outcome> {
    let mut policy = read(file)?;
    let shown = || DisplayPath::path(&which.path).to_string();
    let real = |path: &Path| std::fs::canonicalize(path).with_context(|| DisplayPath::path(path).to_string());
    let vault = Location::find(&which.path, which.elsewhere.repository.as_deref());
    let root = match (root, vault) {
        (Some(root), _) => real(root)?,
        (None, Ok(location)) => real(&location.root)?,
        (None, Err(_)) => real(Path::new("."))?,
    };
    // The last name is not resolved: it may be a link.
    let name = which.path.file_name().with_context(|| format!("{}: name a file", shown()))?;
    let parent = which.path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let absolute = real(parent.unwrap_or(Path::new(".")))?.join(name);
    let inside = absolute.strip_prefix(&root).ok().with_context(|| {
        format!("{} is not within {}: name its directory with --root", shown(), DisplayPath::path(&root))
    })?;
    let path = inside.as_os_str().as_bytes();
    let tree = Tree::open(&root)?;
    let stat = tree.find(path)?.with_context(|| format!("{}: no such file", shown()))?;
    policy.look_in(Some(tree));
    Ok(print(&policy, path, &stat, Clock::System.now(), as_json))
}

fn print(policy: &Policy, path: &[u8], stat: &Stat, now: Timestamp, as_json: bool) -> Outcome {
    let decision = policy.decide(path, stat, now);
    let name = policy.rule_name(decision.rule);
    let refusals = policy.refusals(path, stat, now);
    let because = policy.reasons(decision.rule, path, stat, now);
    let above = policy.in_directory(split(path).0, now);
    let ignored: Vec<(Vec<u8>, &str)> = above.ignored().collect();
    if as_json {
        let report = RuleDecisionReport::new(path, name, &decision, &because, &refusals, &ignored);
        print_json(&report);
        return Outcome::Fine;
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
    Outcome::Fine
}
