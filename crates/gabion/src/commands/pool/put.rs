//! `gabion pool put`.

use super::terminal::{FileErrors, Which, inside, warn};
use crate::output::{self, Amount, OutputArgs, print_json};
use anyhow::{Context, bail};
use gabion::exit::{Outcome, error_message};
use gabion::report::pool::PutReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::metadata;
use gabion_vault::storage::Storage;
use gabion_vault::storage::pool::Pool;
use gabion_vault::tree::{Kind, join, stat_of};
use gabion_vault::vault::OWN;
use indicatif::ProgressBar;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gabion pool put tank film.mkv                 to /film.mkv in the pool
  gabion pool put tank film.mkv films/film      under another name
  gabion pool put tank photos music /           directories with their content

A single FILE without DEST goes to the root of the pool. DEST is a directory if it is one in the pool, ends with a slash, or \
more than one FILE is given. Existing files are replaced atomically. \
Repositories of protected directories (.gabion) are left out.";

/// Arguments of `gabion pool put`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Files and directories, and their destination in the pool
    #[arg(required = true, value_name = "FILE… [DEST]")]
    paths: Vec<PathBuf>,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A file to copy.
struct Item {
    from: PathBuf,
    to: Vec<u8>,
    kind: fs::FileType,
    size: u64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, mut paths, dry_run, output } = self;
        let pool = which.open()?;
        let destination = if paths.len() > 1 { paths.pop() } else { None };
        let destination = destination.unwrap_or_else(|| PathBuf::from("/"));
        let to = inside(destination.as_os_str());
        let is_directory = paths.len() > 1
            || to.is_empty()
            || destination.as_os_str().as_bytes().ends_with(b"/")
            || pool.find(&to)?.is_some_and(|stat| stat.kind == Kind::Directory);
        let mut errors = FileErrors::default();
        let (mut items, mut left_out) = (Vec::new(), 0_u64);
        for path in &paths {
            let to = match (is_directory, name_of(path)) {
                (false, _) => to.clone(),
                (true, Some(name)) => join(&to, &name),
                (true, None) => bail!("{}: has no file name", DisplayPath::path(path)),
            };
            collect(path, to, &mut items, &mut left_out, &mut errors);
        }
        let bar = output.bar("put", Amount::Bytes(Some(items.iter().map(|item| item.size).sum())));
        let (mut files, mut bytes) = (0, 0);
        for item in &items {
            let put = if dry_run { Ok(item.size) } else { put(&pool, item, &bar) };
            match put {
                Ok(size) => {
                    bytes += size;
                    files += u64::from(!item.kind.is_dir());
                    output::show_files(&bar, files);
                    if dry_run {
                        output.print_line(format!(
                            "would put {} to {}",
                            DisplayPath::path(&item.from),
                            DisplayPath::bytes(&item.to)
                        ));
                    }
                }
                Err(error) => errors.report(item.from.as_os_str().as_bytes(), &error_message(&error)),
            }
        }
        bar.finish_and_clear();
        if output.json {
            print_json(&PutReport { dry_run, files, bytes, left_out, failed: errors.texts() });
        }
        let verb = if dry_run { "would put" } else { "put" };
        output.print_line(format!("{verb} {}, {}", output::files(files), output::bytes(bytes)));
        if left_out > 0 {
            output.print_line(format!("left out {left_out} vaults ({OWN}) of protected directories"));
        }
        Ok(errors.outcome())
    }
}

/// The file name of a path, also of `.`.
fn name_of(path: &Path) -> Option<Vec<u8>> {
    let name = path.file_name().map(OsString::from);
    let name = name.or_else(|| fs::canonicalize(path).ok()?.file_name().map(OsString::from));
    name.map(OsString::into_vec)
}

/// The files at and below a path, each directory before its content.
fn collect(path: &Path, to: Vec<u8>, items: &mut Vec<Item>, left_out: &mut u64, errors: &mut FileErrors) {
    let trouble = |errors: &mut FileErrors, error: &dyn std::fmt::Display| {
        errors.report(path.as_os_str().as_bytes(), error);
    };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) => return trouble(errors, &error),
    };
    let kind = found.file_type();
    if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
        return trouble(errors, &"neither a file, a directory nor a link; left out");
    }
    let size = if kind.is_file() { found.len() } else { 0 };
    items.push(Item { from: path.to_owned(), to: to.clone(), kind, size });
    if !kind.is_dir() {
        return;
    }
    let entries = match fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(mut entries) => {
            entries.sort_by_key(fs::DirEntry::file_name);
            entries
        }
        Err(error) => return trouble(errors, &error),
    };
    for entry in entries {
        if entry.file_name() == OWN {
            *left_out += 1;
            continue;
        }
        collect(&entry.path(), join(&to, entry.file_name().as_bytes()), items, left_out, errors);
    }
}

fn put(pool: &Pool, item: &Item, bar: &ProgressBar) -> anyhow::Result<u64> {
    if item.kind.is_dir() {
        let found = fs::metadata(&item.from)?;
        warn(&pool.make_directory(&item.to, found.mode() & 0o7777, found.uid(), found.gid())?);
        return Ok(0);
    }
    if item.kind.is_symlink() {
        let found = fs::symlink_metadata(&item.from)?;
        let target = fs::read_link(&item.from)?.into_os_string().into_vec();
        let (mode, uid, gid) = (found.mode() & 0o7777, found.uid(), found.gid());
        let about = gabion_vault::format::Metadata { mode, uid, gid, ..Default::default() };
        let mtime = gabion_vault::world::Timestamp::from_parts(found.mtime(), found.mtime_nsec() as u32);
        warn(&pool.put_link(&item.to, &target, &about, mtime)?.faults);
        return Ok(0);
    }
    // O_NONBLOCK: the file may have been replaced by a pipe, and opening that would block.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(&item.from)?;
    let stat = stat_of(&file)?;
    let about = metadata::read(&file, &stat).context("reading its attributes")?;
    if about.attributes_left_out {
        errln!("gabion: warning: {}: some extended attributes are left out", DisplayPath::path(&item.from));
    }
    let written = pool.put(&item.to, &mut bar.wrap_read(&file), &about, stat.mtime)?;
    warn(&written.faults);
    let after = stat_of(&file)?;
    if after.generation() != stat.generation() {
        bail!("changed while it was read, so the copy may be inconsistent: put it again");
    }
    Ok(written.stub.size)
}
