//! Coders: codes compiled for use: encoding, signatures and their law, optional hashes, repair.
//!
//! The back end that computes is a value of the caller ([`Coders::with_backends`]). Redundancy files are the same
//! whatever computes them.

mod device;

use crate::format::frame::{Seal, seal, signature, table_bytes};
use crate::format::header::{STRONG, coding};
use crate::format::{Header, Version};
use device::{DeviceCoder, Devices};
use gabion_engine::backends::Backends;
use gabion_engine::{Code, Compiled, Engine, Error, Field, Layout, Repairer, Signature, Signer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most codes that are kept compiled; bounds the memory that a hostile repository can claim.
const MAX_KEPT: usize = 256;

/// A code with everything that workers need to use it.
#[derive(Debug)]
pub struct Coder {
    version: Version,
    code: Arc<Code>,
    strong: bool,
    encode: Compiled,
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
        code: Code,
        strong: bool,
    ) -> Result<Coder, Error> {
        let encode = engine.compile(&code.encode_plan()?)?;
        let signer = match version {
            Version::One => Signer::tower(Field::GF8, 2)?,
            Version::Two => Signer::independent()?,
        };
        let repairer = engine.repairer(&code);
        let code = Arc::new(code);
        // Without redundancy a device has nothing to compute.
        let device = devices.filter(|_| code.m() > 0);
        let device = device.map(|devices| DeviceCoder::new(devices.clone(), Arc::clone(&code)));
        Ok(Coder { version, code, strong, encode, signer, repairer, device })
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
        let mut seals: Vec<Seal> = inputs.iter().chain(&outputs).map(seal).collect();
        if self.strong {
            let blocks = data.iter().copied().chain(redundancy.iter().map(|block| &**block));
            seals.iter_mut().zip(blocks).for_each(|(seal, block)| seal.hash = Some(hash(block)));
        }
        Ok(seals)
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

/// The codes that are in use, each compiled once.
#[derive(Debug)]
pub struct Coders {
    engine: Engine,
    devices: Option<Devices>,
    ready: Mutex<HashMap<(String, Version), Arc<Coder>>>,
}

impl Coders {
    /// With the CPU's kernels. Workers are threads already, so a coder uses only the one it runs on.
    ///
    /// # Errors
    /// A forced kernel that cannot run here.
    pub fn new() -> Result<Coders, Error> {
        Ok(Coders { engine: Engine::new(1)?, devices: None, ready: Mutex::default() })
    }

    /// With the back ends that `backends` chooses for stripes, used by `threads` threads at once.
    ///
    /// # Errors
    /// A forced kernel that cannot run here.
    pub fn with_backends(backends: Arc<dyn Backends>, threads: usize) -> Result<Coders, Error> {
        Ok(Coders { devices: Some(Devices { backends, threads }), ..Coders::new()? })
    }

    /// The coder for new redundancy with an identity such as `subspace:8+2:w8` or, in short, `8+2`; with ` blake3`
    /// behind it, one whose blocks have that.
    ///
    /// # Errors
    /// An identity that no code has.
    pub fn get(&self, identity: &str) -> Result<Arc<Coder>, Error> {
        self.of_version(identity, Version::NEWEST)
    }

    /// The coder for redundancy that is there.
    ///
    /// # Errors
    /// An identity that no code has.
    pub fn of_header(&self, header: &Header) -> Result<Arc<Coder>, Error> {
        self.of_version(&header.coding(), header.version)
    }

    fn of_version(&self, identity: &str, version: Version) -> Result<Arc<Coder>, Error> {
        if let Some(coder) = self.known_of(identity, version) {
            return Ok(coder);
        }
        let (code, strong) = match identity.strip_suffix(STRONG) {
            Some(code) => (code, true),
            None => (identity, false),
        };
        let coder =
            Arc::new(Coder::new(&self.engine, self.devices.as_ref(), version, code.parse()?, strong)?);
        let mut ready = self.ready();
        if ready.len() < MAX_KEPT {
            ready.insert((identity.to_owned(), version), coder.clone());
        }
        Ok(coder)
    }

    /// The coder for an identity, if it was made ready before.
    pub fn known(&self, identity: &str) -> Option<Arc<Coder>> {
        self.known_of(identity, Version::NEWEST)
    }

    fn known_of(&self, identity: &str, version: Version) -> Option<Arc<Coder>> {
        self.ready().get(&(identity.to_owned(), version)).cloned()
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, HashMap<(String, Version), Arc<Coder>>> {
        // A map is whole whenever its lock is free.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
