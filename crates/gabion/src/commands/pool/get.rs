//! `gabion pool get`.

use super::terminal::{FileErrors, Which, inside};
use crate::commands::device::{self, DeviceArgs};
use crate::output::{self, Amount, OutputArgs, print_json};
use anyhow::{Context, bail};
use gabion::exit::{Outcome, error_message};
use gabion::report::pool::GetReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::coder::Coders;
use gabion_vault::degraded::{self, DegradedReader, Report, copy_out};
use gabion_vault::metadata;
use gabion_vault::storage::Storage;
use gabion_vault::storage::pool::Pool;
use gabion_vault::tree::{Kind, Stat, join, split};
use gabion_vault::vault::Vault;
use gabion_vault::world::Clock;
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gabion pool get tank films/film.mkv             into this directory
  gabion pool get tank films/film.mkv other.mkv   under another name
  gabion pool get tank photos /mnt/restore        a directory with its content
  gabion pool get tank notes.txt -                to standard output

Files are created atomically. Blocks are verified against their signatures; missing and corrupt ones are reconstructed \
and reported. A file with unrecoverable bytes is an error that names the targets.";

/// Arguments of `gabion pool get`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The file or directory in the pool
    path: OsString,
    /// Destination: an existing directory, another name, or - for standard output
    dest: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A file to copy.
struct Item {
    from: Vec<u8>,
    to: PathBuf,
    stat: Stat,
}

impl Args {
    /// True if the destination is standard output.
    pub(super) fn only_reads(&self) -> bool {
        self.dest.as_ref().is_some_and(|dest| dest.as_os_str() == "-")
    }

    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let to_stdout = self.only_reads();
        let Args { which, path, dest, force, dry_run, device, output } = self;
        let compute = device.open()?;
        let pool = which.open()?;
        let out = Out { pool: &pool, coders: compute.coders(1)?, degraded: RefCell::default() };
        let from = inside(&path);
        let Some(stat) = pool.find(&from)? else { bail!("{}: not in the pool", DisplayPath::bytes(&from)) };
        if to_stdout {
            out.copy(&from, &mut io::stdout().lock())?;
            io::stdout().flush()?;
            out.note();
            device::print_warning(&compute);
            return Ok(Outcome::Fine);
        }
        let name = OsStr::from_bytes(split(&from).1);
        let name = if name.is_empty() { OsString::from(pool.config().name) } else { name.to_owned() };
        let to = match dest {
            Some(dest) if dest.is_dir() => dest.join(name),
            Some(dest) => dest,
            None => PathBuf::from(name),
        };
        let mut errors = FileErrors::default();
        let mut items = Vec::new();
        collect(&pool, Item { from, to, stat }, &mut items, &mut errors);
        let bar = output.bar("get", Amount::Bytes(Some(items.iter().map(size).sum())));
        let (mut files, mut bytes) = (0, 0);
        for item in &items {
            let got = if dry_run { Ok(size(item)) } else { get(&out, item, force, &bar) };
            match got {
                Ok(size) => {
                    bytes += size;
                    files += u64::from(item.stat.kind != Kind::Directory);
                    if dry_run {
                        output.print_line(format!(
                            "would get {} to {}",
                            DisplayPath::bytes(&item.from),
                            DisplayPath::path(&item.to)
                        ));
                    }
                }
                Err(error) => errors.report(&item.from, &error_message(&error)),
            }
        }
        // Last, because files could not be created in a read-only directory.
        for item in items.iter().rev().filter(|item| item.stat.kind == Kind::Directory && !dry_run) {
            if let Err(error) = fs::set_permissions(&item.to, fs::Permissions::from_mode(item.stat.mode)) {
                errors.report(&item.from, &error);
            }
        }
        bar.finish_and_clear();
        let degraded = out.note();
        if output.json {
            let report = GetReport { dry_run, files, bytes, degraded, failed: errors.texts() };
            print_json(&device::add_to(report, &compute));
        }
        let verb = if dry_run { "would get" } else { "got" };
        output.print_line(format!("{verb} {}, {}", output::files(files), output::bytes(bytes)));
        device::print(&compute, |line| output.print_line(line));
        Ok(errors.outcome())
    }
}

/// Reader of verified files; reports and records reconstructed blocks.
struct Out<'a> {
    pool: &'a Pool,
    coders: Coders,
    degraded: RefCell<Vec<Report>>,
}

impl Out<'_> {
    fn copy(&self, from: &[u8], output: &mut dyn Write) -> anyhow::Result<u64> {
        let reader = DegradedReader::open(self.pool, &self.coders, from)?;
        let bytes = copy_out(&reader, output)?;
        let report = reader.report();
        if report.is_degraded() {
            errln!(
                "gabion: warning: {}: {} blocks were reconstructed ({})",
                DisplayPath::bytes(from),
                report.reconstructed,
                report.causes()
            );
            self.degraded.borrow_mut().push(report);
        }
        Ok(bytes)
    }

    /// Records degraded reads for `gabion status`. Returns their number.
    fn note(&self) -> usize {
        let reports = self.degraded.borrow();
        if reports.is_empty() {
            return 0;
        }
        let noted = || -> anyhow::Result<()> {
            let (vault, ..) = Vault::of_pool_to_examine(self.pool, Clock::System)?;
            for report in reports.iter() {
                degraded::note(&vault.catalogue, report, vault.clock.now())?;
            }
            Ok(())
        };
        if let Err(error) = noted() {
            errln!("gabion: warning: cannot record degraded reads: {}", error_message(&error));
        }
        reports.len()
    }
}

fn size(item: &Item) -> u64 {
    if item.stat.kind == Kind::File { item.stat.size } else { 0 }
}

/// Writes zeros as holes, so that a copy of a sparse file is sparse.
struct Sparse<'a>(&'a mut fs::File);

impl Write for Sparse<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// Block size of usual file systems; smaller holes save no space.
        const HOLE: usize = 4096;
        let is_hole = |piece: &[u8]| piece.len() == HOLE && piece.iter().all(|&byte| byte == 0);
        let holes: usize = bytes.chunks(HOLE).take_while(|piece| is_hole(piece)).map(<[u8]>::len).sum();
        if holes > 0 {
            self.0.seek_relative(holes as i64)?;
            return Ok(holes);
        }
        let pieces = bytes.chunks(HOLE).take_while(|piece| !is_hole(piece));
        self.0.write(&bytes[..pieces.map(<[u8]>::len).sum()])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The files at and below a path of the pool, each directory before its content.
fn collect(pool: &Pool, item: Item, items: &mut Vec<Item>, errors: &mut FileErrors) {
    let (from, to, is_directory) = (item.from.clone(), item.to.clone(), item.stat.kind == Kind::Directory);
    items.push(item);
    if !is_directory {
        return;
    }
    let listed = match pool.list(&from) {
        Ok(listed) => listed,
        Err(error) => return errors.report(&from, &error),
    };
    for (name, listed) in listed {
        let below = join(&from, &name);
        match listed {
            Ok(listed) => {
                let to = to.join(OsStr::from_bytes(&name));
                collect(pool, Item { from: below, to, stat: listed.stat }, items, errors);
            }
            Err(error) => errors.report(&below, &error),
        }
    }
}

fn get(out: &Out<'_>, item: &Item, force: bool, bar: &ProgressBar) -> anyhow::Result<u64> {
    let Item { from, to, stat } = item;
    if stat.kind == Kind::Directory {
        return match fs::DirBuilder::new().mode(0o700).create(to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && to.is_dir() => Ok(0),
            made => made.map(|()| 0).with_context(|| format!("making {}", DisplayPath::path(to))),
        };
    }
    if !force && to.symlink_metadata().is_ok() {
        bail!("{} exists; --force replaces it", DisplayPath::path(to));
    }
    let stub = out.pool.stub(from)?;
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(target) = &stub.link {
        if force && to.symlink_metadata().is_ok() {
            fs::remove_file(to)?;
        }
        symlink(OsStr::from_bytes(target), to)
            .with_context(|| format!("making {}", DisplayPath::path(to)))?;
        return Ok(0);
    }
    let mut draft = tempfile::Builder::new().prefix(".gabion-").suffix(".tmp").tempfile_in(directory)?;
    let bytes = out.copy(from, &mut bar.wrap_write(Sparse(draft.as_file_mut())))?;
    // A hole at the end needs the length to be set.
    draft.as_file().set_len(bytes)?;
    let failed = metadata::restore(draft.as_file(), &stub.metadata);
    for failed in failed.into_iter().chain(metadata::restore_mtime(draft.as_file(), stub.mtime)) {
        errln!("gabion: warning: {}: {failed}", DisplayPath::path(to));
    }
    match force {
        true => draft.persist(to).map(drop),
        false => draft.persist_noclobber(to).map(drop),
    }
    .with_context(|| format!("naming {}", DisplayPath::path(to)))?;
    Ok(bytes)
}
