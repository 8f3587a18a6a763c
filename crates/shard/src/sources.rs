//! Blocks of a set: read from the shards, checked, and reconstructed if they are bad.

use crate::error::{Error, plain};
use crate::format::{Codes, Content};
use crate::frame::{SEAL_BYTES, Sealer, seal};
use crate::geometry::Geometry;
use crate::pipeline::{Run, Slots};
use crate::set::{Set, open_regular, read_header, read_up_to};
use crate::stripe_list::StripeList;
use gabion_engine::backends::{Backends, Extent, Job, PlanKernel};
use gabion_engine::{Field, Layout, Plan, Signature};
use gabion_platform::display_path::DisplayPath;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// Most compiled plans that are kept: one per pattern of bad blocks. When a set has more patterns
/// than this, they are compiled again.
const MAX_PLANS: usize = 64;

/// Why a block cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadBlock {
    /// The shard is not there.
    Missing,
    /// The shard ends before or within it.
    Short,
    /// It does not fit its seal.
    Seal,
    /// It could not be read.
    Unreadable(String),
    /// It fits its seal but contradicts the rest of its stripe.
    Contradicts,
}

impl fmt::Display for BadBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadBlock::Missing => write!(f, "missing"),
            BadBlock::Short => write!(f, "truncated"),
            BadBlock::Seal => write!(f, "bad block"),
            BadBlock::Unreadable(reason) => write!(f, "unreadable: {reason}"),
            BadBlock::Contradicts => write!(f, "contradicts the data"),
        }
    }
}

/// An open shard.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    file: File,
}

/// The open shards of one set.
pub(crate) struct Sources {
    pub(crate) content: Content,
    pub(crate) geometry: Geometry,
    pub(crate) sealer: Sealer,
    /// By column.
    pub(crate) shards: Vec<Option<Source>>,
    header_len: u64,
    backends: Arc<dyn Backends>,
    threads: usize,
    plans: Mutex<BTreeMap<Pattern, Arc<Repair>>>,
}

/// The plan of a pattern, and its kernel once there are blocks to make.
pub(crate) struct Repair {
    pub(crate) plan: Plan,
    kernel: OnceLock<PlanKernel>,
}

/// Wanted columns, then the columns there are.
type Pattern = (Vec<usize>, Vec<usize>);

/// One stripe in memory.
pub(crate) struct Stripe {
    pub(crate) slots: Slots,
    /// By column: the signature of the block in its slot, if that is good.
    pub(crate) good: Vec<Option<Signature>>,
    /// Blocks that were found bad.
    pub(crate) bad: Vec<(usize, BadBlock)>,
}

impl Sources {
    /// Opens the shards of a set.
    pub(crate) fn open(set: &Set, run: &Run<'_>) -> Result<Sources, Error> {
        let blocks = set.content.code.blocks();
        allow_open_files(blocks);
        let mut codes = Codes::default();
        let mut shards: Vec<Option<Source>> = (0..blocks).map(|_| None).collect();
        for (&index, files) in &set.files {
            let Some(found) = files.first() else { continue };
            let opened = open_regular(&found.path).map_err(Error::io("read", &found.path))?;
            let Some((file, metadata)) = opened else { continue };
            // It may have been replaced since the directory was looked at.
            let header = read_header(&file, &mut codes).map_err(Error::io("read", &found.path))?;
            let same = header.is_ok_and(|h| h.set == set.id && h.content == set.content && h.index == index);
            if same {
                shards[index as usize] = Some(Source { path: found.path.clone(), len: metadata.len(), file });
            }
        }
        let geometry = set.content.geometry()?;
        Ok(Sources {
            threads: run.workers(geometry.stripe_bytes()),
            geometry,
            sealer: Sealer::new()?,
            shards,
            header_len: set.content.header_len() as u64,
            backends: run.backends.clone(),
            plans: Mutex::default(),
            content: set.content.clone(),
        })
    }

    /// Length of a complete shard.
    pub(crate) fn shard_len(&self) -> u64 {
        self.header_len + self.geometry.body_len()
    }

    pub(crate) fn header_len(&self) -> u64 {
        self.header_len
    }

    /// Whether signatures of redundancy follow from those of data.
    pub(crate) fn law_holds(&self) -> bool {
        law_holds(&self.content)
    }

    pub(crate) fn new_stripe(&self) -> Stripe {
        let blocks = self.content.code.blocks();
        // A header may promise gigabytes: buffers are for blocks that some shard is long enough to hold.
        let first_frame = self.header_len + (self.geometry.longest_block() + SEAL_BYTES) as u64;
        let possible = self.shards.iter().flatten().any(|source| source.len >= first_frame);
        let slots = Slots::new(blocks, if possible { self.geometry.longest_block() } else { 0 });
        Stripe { slots, good: vec![None; blocks], bad: Vec::new() }
    }

    /// Reads one block into its slot and checks it.
    pub(crate) fn read(&self, stripe: u64, column: usize, into: &mut Stripe) -> Result<bool, Error> {
        let bad = match &self.shards[column] {
            None => BadBlock::Missing,
            Some(source) => {
                let len = self.geometry.block_len(stripe);
                match self.read_frame(source, stripe, &mut into.slots.slot(column)[..]) {
                    Err(bad) => bad,
                    Ok(()) => {
                        let (block, stored) = into.slots.block(column, len + SEAL_BYTES).split_at(len);
                        let signature = self.sealer.sign(block)?;
                        if seal(&signature, column as u32, stripe) == *stored {
                            into.good[column] = Some(signature);
                            return Ok(true);
                        }
                        BadBlock::Seal
                    }
                }
            }
        };
        into.bad.push((column, bad));
        Ok(false)
    }

    fn read_frame(&self, source: &Source, stripe: u64, slot: &mut [u8]) -> Result<(), BadBlock> {
        let bytes = self.geometry.block_len(stripe) + SEAL_BYTES;
        let offset = self.header_len + self.geometry.frame_offset(stripe);
        // Checked before the slot is touched: it is as long as a frame only if some shard is.
        if source.len < offset + bytes as u64 {
            return Err(BadBlock::Short);
        }
        match read_up_to(&source.file, &mut slot[..bytes], offset) {
            Ok(got) if got == bytes => Ok(()),
            Ok(_) => Err(BadBlock::Short),
            Err(error) => Err(BadBlock::Unreadable(plain(&error))),
        }
    }

    /// Fills the stripe with k good blocks, data first.
    ///
    /// # Errors
    /// [`Error::StripeLost`] where there are fewer.
    pub(crate) fn gather(
        &self,
        stripe: u64,
        into: &mut Stripe,
        distrust: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let (k, blocks) = (self.content.code.k(), self.content.code.blocks());
        into.good.fill(None);
        into.bad.clear();
        let mut have = 0;
        for column in 0..blocks {
            if have == k {
                return Ok(());
            }
            if distrust(column) {
                into.bad.push((column, BadBlock::Contradicts));
            } else {
                have += usize::from(self.read(stripe, column, into)?);
            }
        }
        if have == k {
            return Ok(());
        }
        let bad = into.bad.iter().map(|(column, reason)| format!("{} ({reason})", self.called(*column)));
        Err(Error::StripeLost { stripe, need: k, have, bad: bad.collect() })
    }

    /// A shard in messages: its file, or its number.
    pub(crate) fn called(&self, column: usize) -> String {
        match &self.shards[column] {
            Some(source) => DisplayPath::path(&source.path).to_string(),
            None => format!("shard {column}"),
        }
    }

    /// Rebuilds the wanted columns, none of which is good, from the good ones, and signs them.
    ///
    /// # Errors
    /// [`Error::Unsound`] where the result contradicts the law.
    pub(crate) fn rebuild(&self, stripe: u64, wanted: &[usize], of: &mut Stripe) -> Result<(), Error> {
        if wanted.is_empty() {
            return Ok(());
        }
        let len = self.geometry.block_len(stripe);
        let there: Vec<usize> = (0..of.good.len()).filter(|&column| of.good[column].is_some()).collect();
        let repair = self.repair(wanted, &there)?;
        of.slots.apply(self.kernel(&repair)?, len)?;
        let plan = &repair.plan;
        let inputs: Vec<Signature> = plan.inputs().iter().filter_map(|&c| of.good[c].clone()).collect();
        for &column in wanted {
            of.good[column] = Some(self.sealer.sign(of.slots.block(column, len))?);
        }
        if self.law_holds() {
            let lawful = self.sealer.signer().transform(plan.matrix()?, &inputs)?;
            let kept = wanted.iter().zip(&lawful).all(|(&column, law)| of.good[column].as_ref() == Some(law));
            if !kept {
                return Err(Error::Unsound { stripe });
            }
        }
        Ok(())
    }

    /// The plan from `there` to `wanted`, made once per pattern.
    pub(crate) fn repair(&self, wanted: &[usize], there: &[usize]) -> Result<Arc<Repair>, Error> {
        let pattern = (wanted.to_vec(), there.to_vec());
        let known = self.plans.lock().ok().and_then(|plans| plans.get(&pattern).cloned());
        if let Some(repair) = known {
            return Ok(repair);
        }
        let plan = self.content.code.repair_plan(wanted, there)?;
        let repair = Arc::new(Repair { plan, kernel: OnceLock::new() });
        if let Ok(mut plans) = self.plans.lock() {
            if plans.len() >= MAX_PLANS {
                plans.clear();
            }
            plans.insert(pattern, repair.clone());
        }
        Ok(repair)
    }

    /// Its kernel; two threads that need it at once may both compile it.
    fn kernel<'a>(&self, repair: &'a Repair) -> Result<&'a PlanKernel, Error> {
        if let Some(kernel) = repair.kernel.get() {
            return Ok(kernel);
        }
        let (code, block) = (&self.content.code, self.geometry.longest_block());
        let job = Job { code, block, extent: Extent::Total(self.content.size), threads: self.threads };
        let backend = self.backends.choose(&job)?;
        let made = PlanKernel::new(backend.as_ref(), repair.plan.clone())?;
        Ok(repair.kernel.get_or_init(|| made))
    }
}

/// Whether the seals' signatures obey the law for this code.
pub(crate) fn law_holds(content: &Content) -> bool {
    content.code.field() == Field::GF8 && content.code.layout() == Layout::Words
}

/// Bad blocks of one shard.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct BadBlocks {
    /// Blocks that do not fit their seal.
    pub seal: StripeList,
    /// Blocks behind the end of the file.
    pub short: StripeList,
    /// Blocks that could not be read.
    pub unreadable: StripeList,
    /// Blocks that contradict their stripe.
    pub contradicting: StripeList,
    /// Error of the first block that could not be read.
    pub reason: Option<String>,
}

impl BadBlocks {
    /// Notes one.
    pub(crate) fn add(&mut self, stripe: u64, bad: &BadBlock) {
        match bad {
            BadBlock::Missing => {}
            BadBlock::Seal => self.seal.push(stripe),
            BadBlock::Short => self.short.push(stripe),
            BadBlock::Contradicts => self.contradicting.push(stripe),
            BadBlock::Unreadable(reason) => {
                self.unreadable.push(stripe);
                self.reason.get_or_insert_with(|| reason.clone());
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.seal, &self.short, &self.unreadable, &self.contradicting];
        lists.iter().all(|list| list.is_empty())
    }
}

impl fmt::Display for BadBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut say = |what: String, list: &StripeList| {
            if !list.is_empty() {
                let s = if list.count() == 1 { "" } else { "s" };
                parts.push(format!("{} {what} block{s} ({list})", list.count()));
            }
        };
        say("bad".to_owned(), &self.seal);
        say("truncated".to_owned(), &self.short);
        say(format!("unreadable [{}]", self.reason.as_deref().unwrap_or("")), &self.unreadable);
        say("contradicting".to_owned(), &self.contradicting);
        write!(f, "{}", parts.join(", "))
    }
}

/// Asks for enough file descriptors.
pub(crate) fn allow_open_files(shards: usize) {
    gabion_platform::open_files::allow(shards as u64 + 64);
}
