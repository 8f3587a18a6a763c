//! Repair: missing and damaged shards are rebuilt beside the old ones, read back, and put in place.

use crate::draft::{Draft, publish};
use crate::error::Error;
use crate::format::{Header, SetHasher};
use crate::frame::{SEAL_BYTES, seal};
use crate::pipeline::{Progress, Run, for_each_stripe};
use crate::set::{Scan, Set, read_up_to};
use crate::sources::{Sources, Stripe, allow_open_files};
use crate::split::write_header;
use crate::verify::{Report, State, verify};
use rustix::fs::{Advice, fadvise};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One shard to rebuild.
#[derive(Debug, Clone)]
pub struct Rebuild {
    /// Its index.
    pub index: u32,
    /// The reason.
    pub why: String,
    /// Where it goes.
    pub to: PathBuf,
    /// Whether something there is replaced.
    pub replaces: bool,
}

/// Plan of a repair.
pub struct Plan<'a> {
    set: &'a Set,
    /// Result of the verification.
    pub report: Report,
    /// The shards to rebuild; none if nothing is wrong.
    pub rebuild: Vec<Rebuild>,
}

impl<'a> Plan<'a> {
    /// Verifies the set and plans its repair.
    ///
    /// # Errors
    /// Loss beyond repair; files in the way, unless `force` is given.
    pub fn new(scan: &'a Scan, prefix: Option<&str>, force: bool, run: &Run<'_>) -> Result<Plan<'a>, Error> {
        let set = scan.choose(prefix, true)?;
        let report = verify(scan, set, run)?;
        if let Some(reason) = report.loss() {
            return Err(Error::BeyondRepair { reason });
        }
        let mut rebuild = Vec::new();
        for shard in &report.shards {
            let (to, may_replace) = match (&shard.state, &shard.path) {
                (State::Ok, _) => continue,
                (State::HeaderDamaged { was_shard, .. }, Some(path)) => (path.clone(), *was_shard),
                (State::Damaged { .. }, Some(path)) => (path.clone(), true),
                _ => (place_for(scan, set, &report, shard.index), false),
            };
            let replaces = fs::symlink_metadata(&to).is_ok();
            if replaces && !may_replace && !force {
                return Err(Error::InTheWay { what: what_is(scan, set, &to), path: to });
            }
            rebuild.push(Rebuild { index: shard.index, why: shard.state.to_string(), to, replaces });
        }
        Ok(Plan { set, report, rebuild })
    }

    /// Carries it out.
    ///
    /// # Errors
    /// Reading, writing, interruption: shards are as they were then. A failure among the renames
    /// themselves leaves some shards repaired.
    pub fn run(&self, run: &Run<'_>) -> Result<(), Error> {
        let sources = Sources::open(self.set, run)?;
        allow_open_files(2 * self.report.content.code.blocks());
        let (content, geometry) = (&sources.content, &sources.geometry);
        let mode = Some(self.set.mode());
        let drafts = self.rebuild.iter().map(|rebuild| Draft::new(rebuild.to.clone(), mode));
        let drafts = drafts.collect::<Result<Vec<Draft>, Error>>()?;
        let columns: Vec<usize> = self.rebuild.iter().map(|rebuild| rebuild.index as usize).collect();
        (run.progress)(Progress::Pass("repair", Some(content.size)));
        let k = content.code.k();
        let mut signatures = SetHasher::default();
        // What must come back from disk: a hash of all seals of each new shard, in order.
        let mut written = vec![blake3::Hasher::new(); columns.len()];
        for_each_stripe(
            run.workers(geometry.stripe_bytes()),
            || sources.new_stripe(),
            |stripe, _: &mut Stripe| run.check().map(|()| stripe < geometry.stripes()),
            |stripe, buffer| {
                self.make_whole(&sources, stripe, &columns, buffer)?;
                let len = geometry.block_len(stripe);
                let offset = sources.header_len() + geometry.frame_offset(stripe);
                for (&column, draft) in columns.iter().zip(&drafts) {
                    let Some(signature) = &buffer.good[column] else { return Err(Error::Unsound { stripe }) };
                    let frame = &mut buffer.slots.slot(column)[..len + SEAL_BYTES];
                    frame[len..].copy_from_slice(&seal(signature, column as u32, stripe));
                    let hole = content.sparse && frame[..len].iter().all(|&byte| byte == 0);
                    let skipped = if hole { len } else { 0 };
                    let done = draft.file().write_all_at(&frame[skipped..], offset + skipped as u64);
                    done.map_err(draft.failed("write"))?;
                }
                Ok(())
            },
            |stripe, buffer| {
                buffer.good.iter().take(k).flatten().for_each(|signature| signatures.add(signature));
                for (&column, written) in columns.iter().zip(&mut written) {
                    if let Some(signature) = &buffer.good[column] {
                        written.update(&seal(signature, column as u32, stripe));
                    }
                }
                (run.progress)(Progress::Bytes(geometry.data_len(stripe) as u64));
                Ok(())
            },
        )?;
        if signatures.finish(content) != self.set.id {
            return Err(Error::WrongContent { set: self.set.id.to_string() });
        }
        (run.progress)(Progress::Pass("check", Some(geometry.body_len() * drafts.len() as u64)));
        for ((draft, &column), written) in drafts.iter().zip(&columns).zip(&written) {
            let header = Header { set: self.set.id, content: content.clone(), index: column as u32 };
            write_header(draft, &header)?;
            draft.file().set_len(sources.shard_len()).map_err(draft.failed("write"))?;
            draft.sync()?;
            // From the disk, as far as the system can be asked, not from memory.
            let _ = fadvise(draft.file(), 0, None, Advice::DontNeed);
            if read_back(&sources, draft, column, &header, run)? != written.finalize() {
                return Err(Error::ReadBack { path: draft.target().to_owned() });
            }
        }
        run.check()?;
        // Each draft replaces one bad shard; whatever happens between two renames, the set only gets better.
        let (replacing, new): (Vec<_>, Vec<_>) =
            drafts.into_iter().zip(&self.rebuild).partition(|(_, rebuild)| rebuild.replaces);
        publish(new.into_iter().map(|(draft, _)| draft).collect(), false)?;
        publish(replacing.into_iter().map(|(draft, _)| draft).collect(), true)
    }

    /// Fills the buffer with the right blocks of all `columns` and the signatures of all data.
    fn make_whole(
        &self,
        sources: &Sources,
        stripe: u64,
        columns: &[usize],
        buffer: &mut Stripe,
    ) -> Result<(), Error> {
        let k = sources.content.code.k();
        let contradicts = |column: usize| match &self.report.shards[column].state {
            State::Damaged { blocks, .. } => blocks.contradicting.contains(stripe),
            _ => false,
        };
        sources.gather(stripe, buffer, contradicts)?;
        // Good blocks of the shards to rebuild are copied, also those that gathering did not need.
        for &column in columns {
            let known_bad = buffer.bad.iter().any(|&(bad, _)| bad == column) || contradicts(column);
            if buffer.good[column].is_none() && !known_bad {
                sources.read(stripe, column, buffer)?;
            }
        }
        let mut wanted: Vec<usize> = (0..k).filter(|&column| buffer.good[column].is_none()).collect();
        wanted.extend(columns.iter().filter(|&&column| column >= k && buffer.good[column].is_none()));
        sources.rebuild(stripe, &wanted, buffer)
    }
}

/// The hash of the seals of what is on disk, from the blocks as they are read.
fn read_back(
    sources: &Sources,
    draft: &Draft,
    column: usize,
    header: &Header,
    run: &Run<'_>,
) -> Result<blake3::Hash, Error> {
    let geometry = &sources.geometry;
    let mut hasher = blake3::Hasher::new();
    let differs = || Error::ReadBack { path: draft.target().to_owned() };
    let on_disk = crate::set::read_header(draft.file(), &mut crate::format::Codes::default());
    if on_disk.map_err(draft.failed("read"))?.as_ref() != Ok(header) {
        return Err(differs());
    }
    let mut frame = vec![0; geometry.longest_block() + SEAL_BYTES];
    for stripe in 0..geometry.stripes() {
        run.check()?;
        let len = geometry.block_len(stripe);
        let frame = &mut frame[..len + SEAL_BYTES];
        let offset = sources.header_len() + geometry.frame_offset(stripe);
        read_up_to(draft.file(), frame, offset).map_err(draft.failed("read"))?;
        let (block, stored) = frame.split_at(len);
        let own = seal(&sources.sealer.sign(block)?, column as u32, stripe);
        if own != *stored {
            return Err(differs());
        }
        hasher.update(&own);
        (run.progress)(Progress::Bytes(frame.len() as u64));
    }
    Ok(hasher.finalize())
}

/// Path for a missing shard: its usual name, or another one if a shard that must stay has that name. Users rename
/// shards, and a shard under the name of another one is as valuable as any.
fn place_for(scan: &Scan, set: &Set, report: &Report, index: u32) -> PathBuf {
    let place = set.place(&scan.dir, index);
    if !is_needed(scan, set, report, &place) {
        return place;
    }
    let others = (1..).map(|number| set.other_place(&scan.dir, index, number));
    others.into_iter().find(|place| fs::symlink_metadata(place).is_err()).unwrap_or(place)
}

/// True if the file is a shard of a set, this one or another, and not just one more copy of a shard that is all right.
fn is_needed(scan: &Scan, chosen: &Set, report: &Report, path: &Path) -> bool {
    scan.sets.iter().any(|set| {
        set.files.iter().any(|(&index, files)| {
            let is_ok = std::ptr::eq(set, chosen)
                && report.shards.get(index as usize).is_some_and(|shard| matches!(shard.state, State::Ok));
            files.iter().enumerate().any(|(copy, found)| found.path == path && !(copy > 0 && is_ok))
        })
    })
}

/// Describes the file that lies in the place of a shard.
fn what_is(scan: &Scan, set: &Set, path: &Path) -> String {
    let note = scan.others(set).into_iter().find(|note| note.path == path);
    let same_set = set.files.iter().find(|(_, files)| files.iter().any(|found| found.path == path));
    match (note, same_set) {
        (Some(note), _) => note.text,
        (None, Some((index, _))) => format!("it is shard {index} of this set"),
        (None, None) => "it is no shard".to_owned(),
    }
}
