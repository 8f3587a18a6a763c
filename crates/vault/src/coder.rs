//! Coders: codes compiled for use: encoding, signatures and their law, optional hashes, repair.
//!
//! The back end that computes is a value of the caller ([`Coders::with_backends`]). Redundancy files are the same
//! whatever computes them.

mod device;

use crate::format::frame::{Seal, seal, signature, table_bytes};
use crate::format::header::{MAX_COLUMNS, STRONG, coding};
use crate::format::{Header, Version};
use device::{DeviceCoder, Devices};
use gabion_engine::backends::Backends;
use gabion_engine::{Code, Compiled, Engine, Error, Family, Field, Layout, Repairer, Signature, Signer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most codes that are kept compiled; bounds the memory that a hostile repository can claim.
const MAX_KEPT: usize = 256;

/// Fewest redundancy columns of the code that new redundancy names.
///
/// The columns of the default family depend on m rounded up to a power of two. New redundancy therefore takes the first
/// m columns of a code with at least this many, so that columns can be added and removed later. With fewer the bytes
/// would differ, but encoding would not be faster (docs/notes/vault.md).
const ROOM: usize = 4;

/// The code for new redundancy of `code`: the same numbers of blocks, with room for more columns where that matters.
fn with_room(code: Code) -> Code {
    let room = code.m().next_power_of_two().max(ROOM);
    if code.family() != Family::Subspace || code.m() == 0 || code.k() + room > MAX_COLUMNS {
        return code;
    }
    let wide = Code::new(code.family(), code.field(), code.k(), room, code.layout());
    // Small fields have no points for more columns.
    wide.and_then(|wide| wide.first_columns(code.m())).unwrap_or(code)
}

/// A code with everything that workers need to use it.
#[derive(Debug)]
pub struct Coder {
    version: Version,
    code: Arc<Code>,
    strong: bool,
    engine: Engine,
    encode: Compiled,
    /// Plans for some redundancy columns only.
    columns: Mutex<HashMap<Vec<usize>, Arc<Compiled>>>,
    signer: Signer,
    repairer: Repairer,
    /// None if the CPU does everything.
    device: Option<DeviceCoder>,
}

impl Coder {
    fn new(
        engine: &Engine,
        devices: Option<&Devices>,
        version: Version,
        code: &Code,
        strong: bool,
    ) -> Result<Coder, Error> {
        let encode = engine.compile(&code.encode_plan()?)?;
        let signer = match version {
            Version::One => Signer::tower(Field::GF8, 2)?,
            Version::Two => Signer::independent()?,
        };
        let repairer = engine.repairer(code);
        let (engine, code) = (engine.clone(), Arc::new(code.clone()));
        // Without redundancy a device has nothing to compute.
        let device = devices.filter(|_| code.m() > 0);
        let device = device.map(|devices| DeviceCoder::new(devices.clone(), Arc::clone(&code)));
        let columns = Mutex::default();
        Ok(Coder { version, code, strong, engine, encode, columns, signer, repairer, device })
    }

    /// The version of the format whose signatures it makes.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The code.
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// Whether blocks have BLAKE3 beside their signatures.
    pub fn is_strong(&self) -> bool {
        self.strong
    }

    /// The code and what blocks have, as [`Coders::get`] takes it.
    pub fn coding(&self) -> String {
        coding(&self.code, self.strong)
    }

    /// Bytes of the table of a frame.
    pub fn table_bytes(&self) -> usize {
        table_bytes(self.code.k(), self.strong)
    }

    /// What a table has to be read.
    pub fn shape(&self) -> (usize, bool) {
        (self.code.k(), self.strong)
    }

    /// Makes the redundancy blocks of a stripe; gives the seals of all k + m blocks.
    ///
    /// # Errors
    /// Blocks that do not fit the code.
    pub fn encode(&self, data: &[&[u8]], redundancy: &mut [&mut [u8]]) -> Result<Vec<Seal>, Error> {
        let on_device = match &self.device {
            Some(device) => device.encode(&self.signer, data, redundancy)?,
            None => None,
        };
        let (inputs, outputs) = match on_device {
            Some(signatures) => signatures,
            None => {
                let signed = self.encode.run_signed(&self.signer, data, redundancy)?;
                (signed.inputs, signed.outputs)
            }
        };
        Ok(self.seals_of(inputs.iter().chain(&outputs), data, redundancy))
    }

    /// Makes only some redundancy blocks of a stripe, numbered from 0; gives the seals of the k data blocks and of
    /// these.
    ///
    /// # Errors
    /// Columns that the code does not have, blocks that do not fit it.
    pub fn encode_columns(
        &self,
        columns: &[usize],
        data: &[&[u8]],
        redundancy: &mut [&mut [u8]],
    ) -> Result<Vec<Seal>, Error> {
        let known = lock(&self.columns).get(columns).cloned();
        let compiled = match known {
            Some(compiled) => compiled,
            None => {
                let wanted: Vec<usize> = columns.iter().map(|column| self.code.k() + column).collect();
                let compiled = Arc::new(self.engine.compile(&self.code.encode_columns_plan(&wanted)?)?);
                keep(&self.columns, columns.to_vec(), &compiled);
                compiled
            }
        };
        let signed = compiled.run_signed(&self.signer, data, redundancy)?;
        Ok(self.seals_of(signed.inputs.iter().chain(&signed.outputs), data, redundancy))
    }

    /// The seals of blocks by their signatures.
    fn seals_of<'a>(
        &self,
        signatures: impl Iterator<Item = &'a Signature>,
        data: &[&[u8]],
        redundancy: &[&mut [u8]],
    ) -> Vec<Seal> {
        let mut seals: Vec<Seal> = signatures.map(seal).collect();
        if self.strong {
            let blocks = data.iter().copied().chain(redundancy.iter().map(|block| &**block));
            seals.iter_mut().zip(blocks).for_each(|(seal, block)| seal.hash = Some(hash(block)));
        }
        seals
    }

    /// The seal of a block.
    ///
    /// # Errors
    /// A block that is too long.
    pub fn sign(&self, block: &[u8]) -> Result<Seal, Error> {
        Ok(Seal { hash: self.strong.then(|| hash(block)), ..seal(&self.signer.sign(block)?) })
    }

    /// The seals of the redundancy blocks as they follow from those of the data blocks, without reading a block and so
    /// without hashes; nothing for codes whose signatures have no such law.
    pub fn redundancy_seals(&self, data: &[Seal]) -> Option<Vec<Seal>> {
        if !self.has_law() {
            return None;
        }
        let data: Vec<Signature> = data.iter().map(signature).collect();
        let redundancy = self.signer.transform(self.code.redundancy().ok()?, &data).ok()?;
        Some(redundancy.iter().map(seal).collect())
    }

    /// Whether the seals of redundancy blocks follow from those of data blocks.
    pub fn has_law(&self) -> bool {
        has_law(&self.code)
    }

    /// Makes the `wanted` columns of a stripe from k of the others.
    ///
    /// # Errors
    /// Too few blocks; those of the device.
    pub fn repair(
        &self,
        stripe: &[Option<&[u8]>],
        wanted: &[usize],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        if let Some(device) = &self.device
            && device.repair(&self.signer, stripe, wanted, outputs)?
        {
            return Ok(());
        }
        self.repairer.repair(stripe, wanted, outputs)
    }
}

fn has_law(code: &Code) -> bool {
    code.field() == Field::GF8 && code.layout() == Layout::Words
}

fn hash(block: &[u8]) -> [u8; 32] {
    *blake3::hash(block).as_bytes()
}

type NamedCodes = HashMap<(String, Option<u16>), Arc<Code>>;

/// The codes that are in use, each compiled once.
#[derive(Debug)]
pub struct Coders {
    engine: Engine,
    devices: Option<Devices>,
    ready: Mutex<HashMap<(String, Version), Arc<Coder>>>,
    /// By the identity that a policy gives.
    new: Mutex<HashMap<String, Arc<Coder>>>,
    /// By the identity and the columns in use that a header gives.
    named: Mutex<NamedCodes>,
}

impl Coders {
    /// With the CPU's kernels. Workers are threads already, so a coder uses only the one it runs on.
    ///
    /// # Errors
    /// A forced kernel that cannot run here.
    pub fn new() -> Result<Coders, Error> {
        let (ready, new, named) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Coders { engine: Engine::new(1)?, devices: None, ready, new, named })
    }

    /// With the back ends that `backends` chooses for stripes, used by `threads` threads at once.
    ///
    /// # Errors
    /// A forced kernel that cannot run here.
    pub fn with_backends(backends: Arc<dyn Backends>, threads: usize) -> Result<Coders, Error> {
        Ok(Coders { devices: Some(Devices { backends, threads }), ..Coders::new()? })
    }

    /// The coder for new redundancy with an identity such as `subspace:8+2:w8` or, in short, `8+2`; with ` blake3`
    /// behind it, one whose blocks have that. Its code has room for more columns where the family needs it.
    ///
    /// # Errors
    /// An identity that no code has.
    pub fn get(&self, identity: &str) -> Result<Arc<Coder>, Error> {
        if let Some(coder) = lock(&self.new).get(identity) {
            return Ok(Arc::clone(coder));
        }
        let (code, strong) = match identity.strip_suffix(STRONG) {
            Some(code) => (code, true),
            None => (identity, false),
        };
        let coder = self.of_code(&with_room(code.parse()?), strong, Version::NEWEST)?;
        keep(&self.new, identity.to_owned(), &coder);
        Ok(coder)
    }

    /// The coder for redundancy that is there.
    ///
    /// # Errors
    /// A code that cannot be prepared.
    pub fn of_header(&self, header: &Header) -> Result<Arc<Coder>, Error> {
        self.of_code(&header.code, header.strong, header.version)
    }

    /// The coder of exactly this code.
    ///
    /// # Errors
    /// A code that cannot be prepared.
    pub fn of_code(&self, code: &Code, strong: bool, version: Version) -> Result<Arc<Coder>, Error> {
        let name = (format!("{code}{}", if strong { STRONG } else { "" }), version);
        if let Some(coder) = lock(&self.ready).get(&name) {
            return Ok(Arc::clone(coder));
        }
        let coder = Arc::new(Coder::new(&self.engine, self.devices.as_ref(), version, code, strong)?);
        keep(&self.ready, name, &coder);
        Ok(coder)
    }

    /// The code that a header names, with the columns in use; none stands for all.
    ///
    /// # Errors
    /// What is wrong with it, for messages.
    pub fn named(&self, identity: &str, in_use: Option<u16>) -> Result<Arc<Code>, String> {
        let name = (identity.to_owned(), in_use);
        if let Some(code) = lock(&self.named).get(&name) {
            return Ok(Arc::clone(code));
        }
        // Checked before the code is prepared, which takes time and memory in proportion to k × m.
        let code = identity.parse::<Code>().map_err(|error| error.to_string())?;
        if code.blocks() > MAX_COLUMNS {
            return Err(format!("it has {} columns, more than {MAX_COLUMNS}", code.blocks()));
        }
        let in_use = in_use.map_or(code.m(), usize::from).min(code.m());
        let code = code.first_columns(in_use).map_err(|error| error.to_string())?;
        let coder = self.of_code(&code, false, Version::NEWEST).map_err(|error| error.to_string())?;
        keep(&self.named, name, coder.code());
        Ok(Arc::clone(coder.code()))
    }
}

fn lock<T>(map: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A map is whole whenever its lock is free.
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a value unless there are too many.
fn keep<K: Eq + std::hash::Hash, T>(map: &Mutex<HashMap<K, Arc<T>>>, key: K, value: &Arc<T>) {
    let mut map = lock(map);
    if map.len() < MAX_KEPT {
        map.insert(key, Arc::clone(value));
    }
}
