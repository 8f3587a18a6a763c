//! `gabion protect FILE...`: selected files of one vault.

use super::super::lists::name_inside;
use super::super::scrub::print_damage;
use super::super::{FIRST, lock};
use super::{Args, WRITE_ONCE_ADVICE, print_counts};
use crate::commands::device;
use crate::output::{bytes, count, files, print_json, unless_interrupted};
use gabion::compute::Compute;
use gabion::exit::Outcome;
use gabion::report::{ProtectSelectedPlan, ProtectSelectedReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::protect::selected::{SelectedReport, Selection, preview, protect_selected};
use gabion_vault::storage::pool::naming;
use gabion_vault::vault::{Location, OWN, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a path lies.
enum Place {
    /// In a pool.
    Pool,
    /// In the vault of this tree.
    Tree(PathBuf),
    /// In no vault.
    None,
}

impl Args {
    /// True if the path is a part of a tree that is protected already, or a path in a pool.
    pub(super) fn is_part(&self, path: &Path) -> anyhow::Result<bool> {
        if let Some((_, inside)) = self.elsewhere.pool(path)? {
            return Ok(!inside.is_empty());
        }
        // Options of a vault belong to the whole of it, and a damaged vault is reported by what opens it.
        if self.sets_up() {
            return Ok(false);
        }
        let repository = self.elsewhere.repository.as_deref();
        let Ok(location) = Location::find(path, repository) else { return Ok(false) };
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let Some(found) = real(path) else { return Ok(true) };
        // A directory below a vault that is not trusted gets a vault of its own.
        let begins = || found.is_dir() && Location::to_protect(path, repository).is_ok();
        Ok(real(&location.root).is_some_and(|root| root != found) && !begins())
    }

    /// Protects selected files.
    pub(super) fn run_selected(&self, paths: &[PathBuf]) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            !self.sets_up(),
            "--code, --policy, --exclude and --changelog are options of a whole vault: give its directory alone"
        );
        let Some(first) = paths.first() else {
            self.output.print_line("no file was named: nothing to do");
            return Ok(Outcome::Fine);
        };
        let (mut vault, inside) = match self.elsewhere.pool(first)? {
            Some((pool, inside)) => {
                let (vault, _) = Vault::of_pool(&pool, Clock::System)?;
                let rest = self.others_of_pool(first, inside, paths)?;
                (vault, rest)
            }
            None => {
                let location = Location::find(first, self.elsewhere.repository.as_deref())?;
                let vault = Vault::open(&location, Clock::System)?;
                let inside = self.inside_tree(&vault, paths)?;
                (vault, inside)
            }
        };
        let own = |path: &Vec<u8>| path.split(|&byte| byte == b'/').next() == Some(OWN.as_bytes());
        if let Some(path) = inside.iter().find(|path| vault.pool.is_none() && own(path)) {
            anyhow::bail!("{} is in the repository, which is not protected itself", DisplayPath::bytes(path));
        }
        if self.dry_run {
            let selection = Selection::of(&vault, inside);
            return self.preview(&vault, &selection);
        }
        let compute = self.device.open()?;
        let _lock = lock(&vault, "protect", self.wait, &self.output)?;
        vault.coders = compute.coders(self.effort.threads())?;
        let selection = Selection::of(&vault, inside);
        let start = Stopwatch::start();
        let report =
            self.output.run(&self.effort, |context| protect_selected(&vault, &selection, context))??;
        self.print_selected(&vault, &selection, &report, &compute, start.seconds());
        let SelectedReport { seen, done, held, pending, affected_files, .. } = &report;
        let failed = done.failures > 0 || !seen.unreadable.is_empty() || !selection.refused.is_empty();
        let waits = held.is_some() || *pending > 0 || *affected_files > 0 || !seen.write_once.is_empty();
        Ok(unless_interrupted(match () {
            () if failed || !selection.missing.is_empty() => Outcome::Failed,
            () if waits || !selection.excluded.is_empty() || !done.damaged.is_empty() => Outcome::Found,
            () => Outcome::Fine,
        }))
    }

    /// Paths in a pool, whose first one is known.
    fn others_of_pool(
        &self,
        first: &Path,
        inside: Vec<u8>,
        paths: &[PathBuf],
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let parts = |path: &Path| {
            let named = naming::prefixed(path.as_os_str()).map(PathBuf::from);
            let path = named.unwrap_or_else(|| path.to_owned());
            let mut parts = path.components();
            let name = parts.next().map(|name| name.as_os_str().to_owned());
            (name, parts.as_path().as_os_str().as_bytes().to_vec())
        };
        let (name, _) = parts(first);
        let (mut all, mut others) = (vec![inside], BTreeMap::new());
        for path in &paths[1..] {
            match parts(path) {
                (other, inside) if other == name => all.push(inside),
                _ => self.note_other(path, self.place(path), &mut others),
            }
        }
        refuse_others(&format!("the pool {}", DisplayPath::path(first)), &others)?;
        Ok(all)
    }

    /// Paths relative to the root of a tree.
    fn inside_tree(&self, vault: &Vault, paths: &[PathBuf]) -> anyhow::Result<Vec<Vec<u8>>> {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let root = real(&vault.root);
        // Most paths of a list share their directories.
        let mut owners: HashMap<PathBuf, bool> = HashMap::new();
        let (mut inside, mut others) = (Vec::new(), BTreeMap::new());
        for path in paths {
            let directory = match path.parent() {
                Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                Some(parent) => parent,
                None => path,
            };
            let is_ours = |path: &Path| match self.elsewhere.repository.is_some() {
                true => true,
                false => Location::find(path, None).is_ok_and(|found| real(&found.root) == root),
            };
            let ours = match std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
                true => is_ours(path),
                false => *owners.entry(directory.to_owned()).or_insert_with(|| is_ours(directory)),
            };
            match vault.inside(path).or_else(|| name_inside(&root, path)).filter(|_| ours) {
                Some(path) => inside.push(path),
                None => self.note_other(path, self.place(path), &mut others),
            }
        }
        refuse_others(&DisplayPath::path(&vault.root).to_string(), &others)?;
        Ok(inside)
    }

    fn place(&self, path: &Path) -> Place {
        if let Ok(Some(_)) = self.elsewhere.pool(path) {
            return Place::Pool;
        }
        Location::find(path, None).map_or(Place::None, |found| Place::Tree(found.root))
    }

    fn note_other<'a>(
        &self,
        path: &'a Path,
        place: Place,
        others: &mut BTreeMap<Option<PathBuf>, Vec<&'a Path>>,
    ) {
        let key = match place {
            Place::Tree(root) => Some(root),
            Place::Pool => path.components().next().map(|name| PathBuf::from(name.as_os_str())),
            Place::None => None,
        };
        others.entry(key).or_default().push(path);
    }

    fn preview(&self, vault: &Vault, selection: &Selection) -> anyhow::Result<Outcome> {
        let (seen, held) = self.output.run(&self.effort, |context| preview(vault, selection, context))??;
        if self.output.json {
            print_json(&ProtectSelectedPlan::new(selection, &seen, held.as_ref()));
            return Ok(Outcome::Fine);
        }
        self.output.print_line("would protect, of the selected files:");
        print_counts(&self.output, &seen.changes);
        self.print_left(selection, seen.left_out);
        if let Some(held) = held {
            self.output.print_line(format!("would hold changed files: {}", super::reason(&held)));
        }
        Ok(Outcome::Fine)
    }

    /// Prints the files that are not protected because of what they are.
    fn print_left(&self, selection: &Selection, left_out: u64) {
        for (path, rule) in selection.excluded.iter().take(FIRST) {
            outln!("WARNING: {}: excluded by the policy's rule {rule:?}", DisplayPath::bytes(path));
        }
        if selection.excluded.len() > FIRST {
            outln!("WARNING: and {} more are excluded; --json lists them", selection.excluded.len() - FIRST);
        }
        if left_out > 0 {
            self.output.print_line(format!("not protected: {} left out by the policy", count(left_out)));
        }
        for path in selection.missing.iter().take(FIRST) {
            errln!("gabion: {}: no such file", DisplayPath::bytes(path));
        }
        for (path, why) in selection.refused.iter().take(FIRST) {
            errln!("gabion: {}: {why}", DisplayPath::bytes(path));
        }
        let listed = |number: usize| number.saturating_sub(FIRST);
        let more = listed(selection.missing.len()) + listed(selection.refused.len());
        if more > 0 {
            errln!("gabion: and {more} more; --json lists them");
        }
    }

    fn print_selected(
        &self,
        vault: &Vault,
        selection: &Selection,
        report: &SelectedReport,
        compute: &Compute,
        seconds: f64,
    ) {
        let SelectedReport { seen, done, held, pending, affected, affected_files } = report;
        if self.output.json {
            let report = ProtectSelectedReport::new(vault, selection, report, seconds);
            return print_json(&device::add_to(report, compute));
        }
        let output = &self.output;
        device::print(compute, |line| output.print_line(line));
        if done.encoded + done.adopted > 0 {
            output.print_line(format!(
                "encoded   {} ({}), {} of redundancy, in {seconds:.1} s",
                files(done.encoded),
                bytes(done.encoded_bytes),
                bytes(done.redundancy_bytes),
            ));
        }
        for (label, number) in [("moved", done.moved), ("adopted", done.adopted)] {
            if number > 0 {
                output.print_line(format!("{label:<9} redundancy of {}", files(number)));
            }
        }
        self.print_left(selection, seen.left_out);
        super::print_user_policies(seen);
        for (path, why) in done.failed.iter().chain(&seen.unreadable).take(FIRST) {
            errln!("gabion: {}: {why}", DisplayPath::bytes(path));
        }
        if !done.damaged.is_empty() {
            outln!(
                "WARNING: {} differ from the protected content, with unchanged size and mtime (silent corruption):",
                files(done.damaged.len() as u64)
            );
            print_damage(&done.damaged[..FIRST.min(done.damaged.len())], true);
            outln!("Their redundancy is kept: `gabion repair` restores the protected content");
        }
        for path in seen.write_once.iter().take(FIRST) {
            outln!("WARNING: {} is write-once and changed: its redundancy is kept", DisplayPath::bytes(path));
        }
        if !seen.write_once.is_empty() {
            outln!("{WRITE_ONCE_ADVICE}");
        }
        let is_shown = |path: &Vec<u8>| done.damaged.iter().any(|damage| damage.path == *path);
        for (path, state) in affected.iter().filter(|(path, _)| !is_shown(path)).take(FIRST) {
            outln!("WARNING: {} is {}", DisplayPath::bytes(path), state.word());
        }
        if *affected_files > FIRST as u64 {
            outln!("WARNING: {} of the selected files are not fully protected", count(*affected_files));
        }
        if done.reduced_redundancy > 0 {
            outln!("WARNING: {} have fewer redundancy columns than wanted", files(done.reduced_redundancy));
        }
        if let Some(held) = held {
            outln!("HELD: {}.", super::reason(held));
            let root = DisplayPath::path(&vault.root);
            outln!("Their redundancy is kept. `gabion protect {root}` prints the digest to approve");
        }
        if *pending > 0 {
            outln!("{} changes are still pending", count(*pending));
        }
        let open = done.failures + pending + affected_files + seen.unreadable.len() as u64;
        if held.is_none() && open == 0 && seen.files > 0 {
            output.print_line(format!(
                "all {} ({}) of the selection are protected",
                files(seen.files),
                bytes(seen.bytes)
            ));
        }
    }
}

/// The error that names paths of other vaults, and what to type for them.
fn refuse_others(ours: &str, others: &BTreeMap<Option<PathBuf>, Vec<&Path>>) -> anyhow::Result<()> {
    let mut why = format!("one run protects files of one vault, here that of {ours}; nothing was done:");
    for (vault, paths) in others {
        let shown: Vec<String> =
            paths.iter().take(FIRST).map(|path| DisplayPath::path(path).to_string()).collect();
        let more = if paths.len() > FIRST { " ..." } else { "" };
        let shown = shown.join(" ");
        why += &match vault {
            Some(root) => {
                format!("\n  in the vault of {}: gabion protect {shown}{more}", DisplayPath::path(root))
            }
            None => format!("\n  in no vault (`gabion protect DIR` begins one): {shown}{more}"),
        };
    }
    anyhow::ensure!(others.is_empty(), "{why}");
    Ok(())
}
