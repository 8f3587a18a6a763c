//! Joining: restores the file from k good blocks of every stripe.

use crate::draft::{Draft, publish};
use crate::error::{Error, numbers};
use crate::format::{Content, SetHasher, SetId};
use crate::pipeline::{Progress, Run, for_each_stripe};
use crate::set::{Note, Scan};
use crate::sources::{BadBlocks, Sources, Stripe};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Zero pages of this size become holes.
const PAGE: usize = 4096;

/// Destination of the file.
#[derive(Debug, Clone)]
pub enum Target {
    /// A file, which appears when it is complete and checked.
    File {
        /// Its path.
        path: PathBuf,
        /// Replace it if it exists.
        force: bool,
    },
    /// Standard output. The check of the whole comes after the last byte.
    Stdout,
}

/// Result of a join.
#[derive(Debug)]
pub struct Report {
    /// Identity of the set.
    pub set: SetId,
    /// Content of the headers.
    pub content: Content,
    /// Notes on files that were not used, although the file is complete.
    pub notes: Vec<Note>,
    /// Shards that are not there.
    pub missing: Vec<u32>,
}

/// Joins the set that `prefix` names, or the only one.
///
/// # Errors
/// Too little left, a content that is not what was split, reading, writing, interruption.
pub fn join(dir: &Path, prefix: Option<&str>, target: &Target, run: &Run<'_>) -> Result<Report, Error> {
    let scan = Scan::of(dir)?;
    let set = scan.choose(prefix, true)?;
    let sources = Sources::open(set, run)?;
    let (content, geometry) = (&sources.content, &sources.geometry);
    let draft = match target {
        Target::Stdout => None,
        Target::File { path, force } => {
            check_target(path, *force, &scan)?;
            Some(Draft::new(path.clone(), Some(set.mode()))?)
        }
    };
    (run.progress)(Progress::Pass("join", Some(content.size)));
    let k = content.code.k();
    let mut signatures = SetHasher::default();
    let mut bad: Vec<BadBlocks> = vec![BadBlocks::default(); content.code.blocks()];
    let mut stdout = io::stdout().lock();
    for_each_stripe(
        run.workers(geometry.stripe_bytes()),
        || sources.new_stripe(),
        |stripe, _: &mut Stripe| run.check().map(|()| stripe < geometry.stripes()),
        |stripe, buffer| {
            sources.gather(stripe, buffer, |_| false)?;
            let lost: Vec<usize> = (0..k).filter(|&column| buffer.good[column].is_none()).collect();
            sources.rebuild(stripe, &lost, buffer)
        },
        |stripe, buffer| {
            buffer.good.iter().take(k).flatten().for_each(|signature| signatures.add(signature));
            buffer.bad.iter().for_each(|(column, reason)| bad[*column].add(stripe, reason));
            // One writer, in order: threads that write to one file only wait for its lock.
            let mut offset = stripe * geometry.stripe_data();
            for piece in pieces(&sources, stripe, buffer) {
                match &draft {
                    None => {
                        stdout.write_all(piece).map_err(Error::io("write", Path::new("standard output")))?
                    }
                    Some(draft) => {
                        let write = if content.sparse { write_around_holes } else { write_all };
                        write(draft.file(), piece, offset).map_err(draft.failed("write"))?;
                    }
                }
                offset += piece.len() as u64;
            }
            (run.progress)(Progress::Bytes(geometry.data_len(stripe) as u64));
            Ok(())
        },
    )?;
    stdout.flush().map_err(Error::io("write", Path::new("standard output")))?;
    if signatures.finish(content) != set.id {
        return Err(Error::WrongContent { set: set.id.to_string() });
    }
    if let (Some(draft), Target::File { force, .. }) = (draft, target) {
        draft.file().set_len(content.size).map_err(draft.failed("write"))?;
        draft.sync()?;
        run.check()?;
        publish(vec![draft], *force)?;
    }
    let mut notes = scan.others(set);
    for (bad, source) in bad.iter().zip(&sources.shards) {
        if let (Some(source), false) = (source, bad.is_empty()) {
            notes.push(Note { path: source.path.clone(), text: format!("{bad}, routed around") });
        }
    }
    let missing = set.missing();
    if !missing.is_empty() {
        let text = format!("shards missing: {}", numbers(&missing));
        notes.push(Note { path: dir.to_owned(), text });
    }
    Ok(Report { set: set.id, content: content.clone(), notes, missing })
}

/// The bytes of the file in a stripe, block by block.
fn pieces<'a>(sources: &Sources, stripe: u64, buffer: &'a Stripe) -> impl Iterator<Item = &'a [u8]> {
    let (len, mut rest) = (sources.geometry.block_len(stripe), sources.geometry.data_len(stripe));
    (0..sources.content.code.k()).map_while(move |column| {
        let here = rest.min(len);
        rest -= here;
        (here > 0).then(|| buffer.slots.block(column, here))
    })
}

fn write_all(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Writes what is not zero, in whole pages of the file; what is left out reads as zeros.
fn write_around_holes(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut at = 0;
    let mut unwritten = 0;
    while at < bytes.len() {
        let page_end = PAGE - (offset as usize + at) % PAGE;
        let end = bytes.len().min(at + page_end);
        if bytes[at..end].iter().all(|&byte| byte == 0) {
            file.write_all_at(&bytes[unwritten..at], offset + unwritten as u64)?;
            unwritten = end;
        }
        at = end;
    }
    file.write_all_at(&bytes[unwritten..], offset + unwritten as u64)
}

/// An output that exists is replaced only when asked, and never when it is one of the inputs.
fn check_target(path: &Path, force: bool, scan: &Scan) -> Result<(), Error> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("look at", path)(error)),
    };
    if there.is_dir() {
        return Err(Error::io("write", path)(io::ErrorKind::IsADirectory.into()));
    }
    let same =
        |other: &Path| fs::metadata(other).is_ok_and(|m| (m.dev(), m.ino()) == (there.dev(), there.ino()));
    let mut shards = scan.sets.iter().flat_map(|set| set.files.values().flatten());
    if shards.any(|found| same(&found.path)) {
        return Err(Error::OutputIsSource { path: path.to_owned() });
    }
    if force { Ok(()) } else { Err(Error::Exists { path: path.to_owned() }) }
}
