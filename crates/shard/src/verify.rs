//! Verification: every block against its seal, every stripe against the code, the content against the set's identity.

use crate::error::Error;
use crate::format::{Content, SetHasher, SetId, parse_shard_file_name};
use crate::frame::{SEAL_BYTES, seal};
use crate::pipeline::{Progress, Run, for_each_stripe};
use crate::set::{Damaged, Note, Scan, Set, open_regular, read_up_to};
use crate::sources::{BadBlock, BadBlocks, Sources, Stripe};
use crate::stripe_list::StripeList;
use gabion_engine::Signature;
use gabion_platform::display_path::DisplayPath;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Health of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Complete and correct.
    Good,
    /// Damaged, and everything can be repaired.
    Recoverable,
    /// Data is lost.
    Unrecoverable,
}

/// State of a shard.
#[derive(Debug, Clone)]
pub enum State {
    /// Complete and correct.
    Ok,
    /// There is no file for it.
    Missing,
    /// The file in its place has no usable header.
    HeaderDamaged {
        /// The reason.
        reason: String,
        /// Whether the file may be replaced as a damaged shard.
        was_shard: bool,
    },
    /// Some blocks are bad, or bytes follow the last one.
    Damaged {
        /// The bad blocks.
        blocks: Box<BadBlocks>,
        /// Bytes after the last frame.
        excess: u64,
    },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Ok => write!(f, "ok"),
            State::Missing => write!(f, "missing"),
            State::HeaderDamaged { reason, .. } => write!(f, "header damaged: {reason}"),
            State::Damaged { blocks, excess: 0 } => write!(f, "{blocks}"),
            State::Damaged { blocks, excess } if blocks.is_empty() => write!(f, "{excess} bytes too long"),
            State::Damaged { blocks, excess } => write!(f, "{blocks}, {excess} bytes too long"),
        }
    }
}

impl State {
    /// Its name in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::HeaderDamaged { .. } => "header damaged",
            State::Damaged { blocks, .. } if !blocks.short.is_empty() => "truncated",
            State::Damaged { .. } => "bad blocks",
        }
    }
}

/// One shard of a set.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Its index.
    pub index: u32,
    /// Its file, if there is one.
    pub path: Option<PathBuf>,
    /// How it is.
    pub state: State,
}

/// One set.
#[derive(Debug)]
pub struct Report {
    /// Identity of the set.
    pub set: SetId,
    /// Content of the headers.
    pub content: Content,
    /// Its shards by index.
    pub shards: Vec<Shard>,
    /// Stripes that cannot be rebuilt.
    pub lost: StripeList,
    /// True if the content is the one that was split; unknown while stripes are lost.
    pub content_right: Option<bool>,
    /// Other files that look like shards.
    pub others: Vec<Note>,
}

impl Report {
    /// How the set is.
    pub fn health(&self) -> Health {
        let bad = self.shards.iter().filter(|shard| !matches!(shard.state, State::Ok)).count();
        match (bad, self.lost.is_empty(), self.content_right) {
            (0, true, Some(true)) => Health::Good,
            (_, true, Some(true)) => Health::Recoverable,
            _ => Health::Unrecoverable,
        }
    }

    /// Why it is beyond repair.
    pub fn loss(&self) -> Option<String> {
        if self.health() != Health::Unrecoverable {
            return None;
        }
        let (k, blocks) = (self.content.code.k(), self.content.code.blocks());
        let have =
            self.shards.iter().filter(|s| matches!(s.state, State::Ok | State::Damaged { .. })).count();
        Some(if have < k {
            let gone = |s: &&Shard| !matches!(s.state, State::Ok | State::Damaged { .. });
            let gone: Vec<u32> = self.shards.iter().filter(gone).map(|s| s.index).collect();
            format!("need {k} shards, have {have} of {blocks}: missing {}", crate::error::numbers(&gone))
        } else if self.lost.is_empty() {
            "the blocks fit their seals but not the identity of the set".to_owned()
        } else {
            format!("{} with fewer than {k} good blocks", self.lost)
        })
    }
}

/// Verifies one set of a directory.
///
/// # Errors
/// Interruption; damage of shards is in the report.
pub fn verify(scan: &Scan, set: &Set, run: &Run<'_>) -> Result<Report, Error> {
    let sources = Sources::open(set, run)?;
    let (content, geometry) = (&sources.content, &sources.geometry);
    let present = sources.shards.iter().flatten().count() as u64;
    (run.progress)(Progress::Pass("verify", Some(present * geometry.body_len())));
    let mut tally: Vec<BadBlocks> = vec![BadBlocks::default(); content.code.blocks()];
    let (mut lost, mut signatures) = (StripeList::default(), SetHasher::default());
    for_each_stripe(
        run.workers(geometry.stripe_bytes()),
        || sources.new_stripe(),
        |stripe, _: &mut Stripe| run.check().map(|()| stripe < geometry.stripes()),
        |stripe, buffer| check_stripe(&sources, stripe, buffer),
        |stripe, buffer| {
            buffer.bad.iter().for_each(|(column, reason)| tally[*column].add(stripe, reason));
            let data = &buffer.good[..content.code.k()];
            if data.iter().any(|signature| signature.is_none()) {
                lost.push(stripe);
            }
            data.iter().flatten().for_each(|signature| signatures.add(signature));
            (run.progress)(Progress::Bytes(present * geometry.block_len(stripe) as u64));
            Ok(())
        },
    )?;
    let content_right = lost.is_empty().then(|| signatures.finish(content) == set.id);
    let enough = present as usize >= content.code.k();
    let content_right = if enough { content_right } else { None };
    let mut others = scan.others(set);
    let shards = tally.into_iter().enumerate().map(|(column, blocks)| {
        let index = column as u32;
        let Some(source) = &sources.shards[column] else {
            let place = set.place(&scan.dir, index);
            let Some(damaged) = damaged_shard(scan, set, index) else {
                return Shard { index, path: None, state: State::Missing };
            };
            others.retain(|note| note.path != damaged.path);
            let (reason, was_shard) =
                (damaged.reason.clone(), damaged.was_shard || was_shard_of(damaged, &sources, index));
            let path = if damaged.path == place { place } else { damaged.path.clone() };
            return Shard { index, path: Some(path), state: State::HeaderDamaged { reason, was_shard } };
        };
        let excess = source.len.saturating_sub(sources.shard_len());
        let whole = blocks.is_empty() && excess == 0;
        let state = if whole { State::Ok } else { State::Damaged { blocks: Box::new(blocks), excess } };
        Shard { index, path: Some(source.path.clone()), state }
    });
    let shards = shards.collect();
    // Damaged files that are not named like this set's shards belong to others.
    others.retain(|note| {
        let named = note.path.file_name().and_then(|name| parse_shard_file_name(name.as_bytes()));
        let damaged = scan.damaged.iter().any(|damaged| damaged.path == note.path);
        !damaged || named.is_some_and(|(name, _)| name == content.name)
    });
    Ok(Report { set: set.id, content: content.clone(), shards, lost, content_right, others })
}

fn damaged_shard<'a>(scan: &'a Scan, set: &Set, index: u32) -> Option<&'a Damaged> {
    let place = set.place(&scan.dir, index);
    scan.damaged.iter().find(|damaged| damaged.path == place)
}

/// Frames of a file with a damaged header that are looked at.
const SAMPLES: u64 = 64;

/// True if a file in the place of a shard was that shard: it has exactly the right length, or a block with the seal
/// that only this shard has in this stripe.
fn was_shard_of(damaged: &Damaged, sources: &Sources, index: u32) -> bool {
    let Ok(Some((file, metadata))) = open_regular(&damaged.path) else { return false };
    if metadata.len() == sources.shard_len() || metadata.len() == 0 {
        return true;
    }
    let geometry = &sources.geometry;
    let step = (geometry.stripes() / SAMPLES).max(1);
    let mut frame = vec![0; geometry.longest_block() + SEAL_BYTES];
    (0..geometry.stripes()).step_by(step as usize).any(|stripe| {
        let len = geometry.block_len(stripe);
        let frame = &mut frame[..len + SEAL_BYTES];
        let offset = sources.header_len() + geometry.frame_offset(stripe);
        let is_read = read_up_to(&file, frame, offset).is_ok_and(|got| got == frame.len());
        let (block, stored) = frame.split_at(len);
        is_read
            && sources.sealer.sign(block).is_ok_and(|signature| seal(&signature, index, stripe) == *stored)
    })
}

/// Reads all blocks of a stripe, checks them against their seals and each other, and leaves the signatures
/// of all data blocks in the buffer, as far as they can be known.
fn check_stripe(sources: &Sources, stripe: u64, buffer: &mut Stripe) -> Result<(), Error> {
    let (k, blocks) = (sources.content.code.k(), sources.content.code.blocks());
    buffer.good.fill(None);
    buffer.bad.clear();
    for column in 0..blocks {
        sources.read(stripe, column, buffer)?;
    }
    let there: Vec<usize> = (0..blocks).filter(|&column| buffer.good[column].is_some()).collect();
    let Some((from, surplus)) = there.split_at_checked(k) else {
        return Ok(());
    };
    // k good blocks determine all others.
    let unknown: Vec<usize> = (0..k).filter(|&column| buffer.good[column].is_none()).collect();
    let claimed: Vec<Option<Signature>> = surplus.iter().map(|&column| buffer.good[column].take()).collect();
    let contradictions = if sources.law_holds() {
        let wanted = [surplus, &unknown].concat();
        if wanted.is_empty() {
            return Ok(());
        }
        let repair = sources.repair(&wanted, from)?;
        let plan = &repair.plan;
        let inputs: Vec<Signature> = plan.inputs().iter().filter_map(|&c| buffer.good[c].clone()).collect();
        let lawful = sources.sealer.signer().transform(plan.matrix()?, &inputs)?;
        for (&column, signature) in wanted.iter().zip(lawful) {
            buffer.good[column] = Some(signature);
        }
        surplus
            .iter()
            .zip(&claimed)
            .filter(|&(&column, claimed)| buffer.good[column] != *claimed)
            .map(|(&column, _)| column)
            .collect::<Vec<usize>>()
    } else {
        // No law: the blocks themselves are made again, in the slots of those that were read, whose
        // signatures are known.
        let len = sources.geometry.block_len(stripe);
        let read: Vec<Vec<u8>> = surplus.iter().map(|&c| buffer.slots.block(c, len).to_vec()).collect();
        sources.rebuild(stripe, &[surplus, &unknown].concat(), buffer)?;
        surplus
            .iter()
            .zip(&read)
            .filter(|(c, read)| buffer.slots.block(**c, len) != &read[..])
            .map(|(&column, _)| column)
            .collect()
    };
    buffer.bad.extend(contradictions.into_iter().map(|column| (column, BadBlock::Contradicts)));
    Ok(())
}

/// The sets that a verification without a name covers: all that can be joined, else all there are.
///
/// # Errors
/// No sets at all, or a name that fits none.
pub fn chosen<'a>(scan: &'a Scan, prefix: Option<&str>) -> Result<Vec<&'a Set>, Error> {
    match scan.choose(prefix, false) {
        Ok(set) => Ok(vec![set]),
        Err(Error::SeveralSets { .. }) => {
            let whole: Vec<&Set> = scan.sets.iter().filter(|set| set.joinable()).collect();
            Ok(if whole.is_empty() { scan.sets.iter().collect() } else { whole })
        }
        Err(error) => Err(error),
    }
}

/// The name of a set's file, made printable.
pub fn shown_name(content: &Content) -> String {
    DisplayPath::bytes(&content.name).to_string()
}
