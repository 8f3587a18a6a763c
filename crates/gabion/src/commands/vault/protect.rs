//! `gabion protect`.

mod selected;

use super::diff::print_counts;
use super::events::changed_in_growth;
use super::lists::read_list;
use super::protection_args::{ProtectionArgs, directory};
use super::scrub::print_damage;
use super::{Effort, Elsewhere, FIRST, warn};
use crate::commands::device::{self, DeviceArgs};
use crate::commands::served::{self, Turn};
use crate::output::{OutputArgs, bytes, count, files, left_undone, print_json, unless_interrupted};
use gabion::compute::Compute;
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::report::{HeldReport, ProtectPlanReport, ProtectReport};
use gabion::shell::ApproveCommand;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::Recent;
use gabion_vault::deduplication::survey;
use gabion_vault::promises::{Loss, Mode, promise};
use gabion_vault::protect::{Report, protect, scan, would_hold};
use gabion_vault::scan::Seen;
use gabion_vault::vault::{DEFAULT_CODE, Location, Vault, exclude};
use gabion_vault::world::{Clock, Stopwatch};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gabion protect /srv/photos
  gabion protect /srv/photos --code 10+4
  gabion protect /srv/data --policy policy.toml --repository /mnt/other-disk/data.gabion
  gabion protect /srv/photos --exclude '*.tmp' --exclude work/scratch
  gabion protect /srv/photos --dry-run
  gabion protect /srv/photos/2026 /srv/photos/index.db
  find /srv/photos -name '*.db' -print0 | gabion protect --files-from - --from0

The first run protects all files, later runs those that changed; redundancy follows files that were \
moved. Files and directories within a protected tree are protected by themselves, at once, and nothing else is read or \
changed. Redundancy is stored in DIR/.gabion, or in a repository elsewhere, to which a pointer file DIR/.gabion then leads. \
Code and policy are stored in the repository. \
When very many files disappeared or changed at once, their redundancy is kept until `gabion approve`.
Exit codes: 0 all is protected, 1 changes are held or pending, or files are damaged, degraded or lost, 2 some files could not be protected.";

/// Examples, and the table of survivable losses.
fn help() -> String {
    let mut help = format!(
        "{EXAMPLES}\n\n{}\n\nSurvivable losses with a code k+m (default 8+2; `gabion status` prints them for a vault):",
        device::HELP
    );
    for mode in Mode::ALL {
        help += &format!("\n  {}:", mode.words());
        for loss in Loss::ALL {
            help += &format!("\n    {:<29} {}", loss.words(), promise(mode, loss).1);
        }
    }
    help
}

/// Arguments of `gabion protect`.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    /// The directory or pool to protect, or files and directories within one that is protected
    #[arg(value_name = "PATH", required_unless_present = "files_from")]
    paths: Vec<PathBuf>,
    /// Also protect the files that LIST names, one per line; - is standard input
    #[arg(long, value_name = "LIST")]
    files_from: Option<PathBuf>,
    /// Names in LIST end with a zero byte, as `find -print0` writes them
    #[arg(long, requires = "files_from")]
    from0: bool,
    #[command(flatten)]
    protection: ProtectionArgs,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Leave out files of this name or path, and what is below: *.tmp, node_modules, work/scratch. Stored as a rule of
    /// the policy; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait if another command is using the vault
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let mut paths = self.paths.clone();
        if let Some(list) = &self.files_from {
            paths.extend(read_list(list, self.from0)?);
        }
        match &paths[..] {
            [dir] if self.files_from.is_none() && !self.is_part(dir)? => self.run_whole(dir),
            paths => self.run_selected(paths),
        }
    }

    /// Protects a directory or a pool.
    fn run_whole(&self, dir: &Path) -> anyhow::Result<Outcome> {
        let location = match self.elsewhere.pool(dir)? {
            Some((pool, _)) => Location::of_pool(&pool)?,
            None => {
                directory(dir)?;
                Location::to_protect(dir, self.elsewhere.repository.as_deref())?
            }
        };
        let compute = self.device.open()?;
        let options = self.protection.to_options();
        let policy = self.with_exclusions(options.policy_text()?, &location)?;
        let unprotected = || {
            let opened = Vault::open(&location, Clock::System);
            matches!(opened, Err(gabion_vault::vault::VaultError::Unprotected { .. }))
        };
        if self.dry_run && unprotected() {
            return self.dry_first(dir, &location, policy.as_deref());
        }
        let mut vault = match self.dry_run {
            true => Vault::open_to_examine(&location, Clock::System)?.0,
            false => options.open(&location, policy.as_deref(), &warn)?,
        };
        if self.dry_run {
            if let Some(text) = &policy {
                let policy = options.check_policy(text, &vault.default_code)?;
                vault.use_policy(policy);
            }
            return self.dry(dir, &vault);
        }
        let plain = !self.sets_up() && self.effort.is_usual() && self.device.is_usual();
        let turn = served::turn(&vault, "protect", self.wait, &self.output, |source| {
            plain.then_some(Request::Protect { source, wait: true })
        })?;
        let _lock = match turn {
            Turn::Ours(lock) => lock,
            Turn::Theirs(outcome) => return Ok(outcome),
        };
        if let Some(text) = &policy {
            vault.set_policy(text)?;
        }
        vault.coders = compute.coders(self.effort.threads())?;
        let start = Stopwatch::start();
        let report = self.output.run(&self.effort, |context| protect(&vault, context))??;
        let outcome = match &report {
            Report { done, seen, .. } if done.failures > 0 || !seen.unreadable.is_empty() => Outcome::Failed,
            Report { held: Some(_), .. } => Outcome::Found,
            Report { seen, .. } if !seen.write_once.is_empty() => Outcome::Found,
            Report { unhealed, .. } if !unhealed.is_empty() => Outcome::Found,
            Report { sharing, .. } if !sharing.failed.is_empty() => Outcome::Found,
            Report { affected, pending, .. } if !affected.is_empty() || *pending > 0 => Outcome::Found,
            _ => Outcome::Fine,
        };
        self.print(&vault, &report, &compute, start.seconds(), left_undone(outcome));
        Ok(unless_interrupted(outcome))
    }

    /// True if options set the policy or the changelog of the vault.
    fn sets_up(&self) -> bool {
        self.protection.is_set() || !self.exclude.is_empty()
    }

    /// The policy of the options, or the one that the vault has, with the rules of `--exclude`.
    fn with_exclusions(&self, text: Option<String>, location: &Location) -> anyhow::Result<Option<String>> {
        if self.exclude.is_empty() {
            return Ok(text);
        }
        let (code, path) = (DEFAULT_CODE.parse()?, Path::new("--exclude"));
        let text = match text {
            Some(text) => text,
            None => location.policy_text()?.unwrap_or_default(),
        };
        Ok(Some(exclude(&text, &self.exclude, path, &code)?))
    }

    /// A dry run on an unprotected directory, with a temporary vault.
    fn dry_first(&self, dir: &Path, location: &Location, policy: Option<&str>) -> anyhow::Result<Outcome> {
        let place = tempfile::tempdir()?;
        let temporary = Location { repository: place.path().to_owned(), ..location.clone() };
        let mut vault = Vault::create(&temporary, None, Clock::System)?;
        if let Some(text) = policy {
            let policy = self.protection.to_options().check_policy(text, &vault.default_code)?;
            vault.use_policy(policy);
        }
        location.refuse_nested(&vault.policy, vault.clock.now())?;
        self.dry(dir, &vault)
    }

    fn dry(&self, dir: &Path, vault: &Vault) -> anyhow::Result<Outcome> {
        let seen = self.output.run(&self.effort, |context| scan(vault, context))??;
        let held = would_hold(vault, &seen)?.held().cloned();
        let sharing = self.output.run(&self.effort, |context| survey(vault, context))??;
        if self.output.json {
            let held = held.as_ref().map(HeldReport::new);
            print_json(&ProtectPlanReport::new(&seen, held, &sharing));
        } else {
            self.output.print_line(format!("would protect {}:", DisplayPath::path(dir)));
            print_counts(&self.output, &seen.changes);
            if let Some(held) = held {
                self.output.print_line(format!("would hold removed and changed files: {}", reason(&held)));
            }
            if sharing.files > 0 {
                self.output.print_line(format!(
                    "of those that are protected, {} would share redundancy, and {} would be freed",
                    files(sharing.files),
                    bytes(sharing.saved)
                ));
            }
        }
        Ok(Outcome::Fine)
    }

    fn print(&self, vault: &Vault, report: &Report, compute: &Compute, seconds: f64, stopped: bool) {
        let Report { seen, done, held, pending, affected, unhealed, sharing } = report;
        if self.output.json {
            return print_json(&device::add_to(ProtectReport::new(vault, report, seconds, stopped), compute));
        }
        let output = &self.output;
        print_counts(output, &seen.changes);
        device::print(compute, |line| output.print_line(line));
        let rate = done.encoded_bytes as f64 / seconds.max(1e-9);
        if done.encoded + done.adopted > 0 {
            output.print_line(format!(
                "encoded   {} ({}), {} of redundancy, in {seconds:.1} s ({}/s)",
                files(done.encoded),
                bytes(done.encoded_bytes),
                bytes(done.redundancy_bytes),
                bytes(rate as u64),
            ));
        }
        if done.stripes.1 > 0 {
            let (new, kept) = done.stripes;
            output.print_line(format!("stripes   {} encoded, {} unchanged", count(new), count(kept)));
        }
        for (label, number) in [("moved", done.moved), ("removed", done.removed), ("adopted", done.adopted)] {
            if number > 0 {
                output.print_line(format!("{label:<9} redundancy of {}", files(number)));
            }
        }
        if sharing.files > 0 {
            let (number, saved) = (files(sharing.files), bytes(sharing.saved));
            output.print_line(format!("shared    redundancy of {number} with equal content, {saved} freed"));
        }
        let skipped: Vec<String> = [
            (seen.left_out, "left out by the policy"),
            (seen.links, "symbolic links"),
            (seen.special, "sockets, pipes and devices"),
        ]
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(*number)))
        .collect();
        if !skipped.is_empty() {
            output.print_line(format!("not protected: {}", skipped.join(", ")));
        }
        if done.reduced_redundancy > 0 {
            outln!("WARNING: {} have fewer redundancy columns than wanted", files(done.reduced_redundancy));
        }
        for path in seen.write_once.iter().take(FIRST) {
            outln!("WARNING: {} is write-once and changed: its redundancy is kept", DisplayPath::bytes(path));
        }
        if !seen.write_once.is_empty() {
            outln!("{}", WRITE_ONCE_ADVICE);
        }
        let failures = done.failures + seen.unreadable.len() as u64;
        for (path, why) in done.failed.iter().chain(&seen.unreadable).take(FIRST) {
            errln!("gabion: {}: {why}", DisplayPath::bytes(path));
        }
        if failures > FIRST as u64 {
            errln!("gabion: and {} more; --json lists them", files(failures - FIRST as u64));
        }
        for (path, aside) in done.set_aside.iter().take(FIRST) {
            let (path, aside) = (DisplayPath::bytes(path), DisplayPath::path(aside));
            outln!(
                "WARNING: an unknown file was in the place of {path}'s redundancy; it was moved to {aside}"
            );
        }
        if !done.damaged.is_empty() {
            let found = files(done.damaged.len() as u64);
            outln!(
                "WARNING: {found} differ from the protected content, with unchanged size and mtime (silent corruption):"
            );
            print_damage(&done.damaged[..FIRST.min(done.damaged.len())], true);
            outln!(
                "`gabion status --files` lists all. Their redundancy is kept: `gabion repair` restores the protected"
            );
            outln!("content. If the change of a file is intended, `touch` the file");
        }
        for (path, ranges) in done.changed.iter().take(FIRST) {
            outln!("WARNING: {}", changed_in_growth(path, ranges));
        }
        if done.changed.len() > FIRST {
            outln!("WARNING: and {} more; --json lists them", files((done.changed.len() - FIRST) as u64));
        }
        if let Some(held) = held {
            outln!("HELD: {}.", reason(held));
            let approve = ApproveCommand::of_vault(vault).text(&held.digest);
            outln!("Their redundancy is kept. If the change is intended: {approve}");
        }
        print_user_policies(seen);
        for why in unhealed {
            outln!("WARNING: mirrors of the namespace: {why}");
        }
        for why in sharing.failed.iter().take(FIRST) {
            outln!("WARNING: shared redundancy: {why}");
        }
        for (state, number) in affected {
            outln!("WARNING: {} {}: see `gabion status`", files(*number), state.word());
        }
        if stopped {
            outln!("stopped; the next `gabion protect` continues from here");
        }
        if *pending > done.failures {
            outln!("{} changes are still pending", count(*pending - done.failures));
        }
        if failures == 0 && held.is_none() && affected.is_empty() && *pending == 0 {
            output.print_line(format!("all {} ({}) are protected", files(seen.files), bytes(seen.bytes)));
        } else if failures > 0 || held.is_some() {
            let open = failures + held.as_ref().map_or(0, |it| it.changed);
            if open == 0 {
                return;
            }
            let (are, they_are) = if open == 1 { ("is", "it is") } else { ("are", "they are") };
            outln!("{} {are} not protected as {they_are} now", files(open));
        }
    }
}

/// Advice for changed write-once files.
pub(super) const WRITE_ONCE_ADVICE: &str = "`gabion approve PATH` accepts the change of a write-once file, \
    `gabion repair PATH --revert-changes` restores the protected content";

/// Warnings about users' policies.
pub(super) fn print_user_policies(seen: &Seen) {
    for (file, why) in seen.user_policies.iter().take(FIRST) {
        outln!("WARNING: user's policy {}: {why}", DisplayPath::bytes(file));
    }
    if seen.user_policies.len() > FIRST {
        outln!("WARNING: and {} more; --json lists them", count((seen.user_policies.len() - FIRST) as u64));
    }
}

pub(super) fn reason(held: &gabion_vault::guard::Held) -> String {
    let Recent { removed, changed } = held.before;
    let before = match removed + changed {
        0 => String::new(),
        _ => format!("; shortly before, {} disappeared and {} changed", count(removed), count(changed)),
    };
    let empty = match held.removed + removed >= held.known {
        true => "; no file is left, perhaps because a file system is not mounted",
        false => "",
    };
    format!(
        "of {} that were protected, {} disappeared and {} changed at once{before}{empty}",
        files(held.known),
        count(held.removed),
        count(held.changed)
    )
}
