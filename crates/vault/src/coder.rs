//! A code made ready: encoding, signatures and their law, hashes where these are wanted, repair.

use crate::format::frame::{Seal, seal, signature, table_bytes};
use crate::format::header::{STRONG, coding};
use crate::format::{Header, Version};
use gabion_engine::{Code, Compiled, Engine, Error, Field, Layout, Repairer, Signature, Signer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Codes that are kept ready; a hostile repository cannot make us keep more.
const MAX_KEPT: usize = 256;

/// A code with all that workers need of it.
#[derive(Debug)]
pub struct Coder {
    version: Version,
    code: Arc<Code>,
    strong: bool,
    encode: Compiled,
    signer: Signer,
    repairer: Repairer,
}

impl Coder {
    fn new(engine: &Engine, version: Version, code: Code, strong: bool) -> Result<Coder, Error> {
        let encode = engine.compile(&code.encode_plan()?)?;
        let signer = match version {
            Version::One => Signer::tower(Field::GF8, 2)?,
            Version::Two => Signer::independent()?,
        };
        let repairer = engine.repairer(&code);
        Ok(Coder { version, code: Arc::new(code), strong, encode, signer, repairer })
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
        let signed = self.encode.run_signed(&self.signer, data, redundancy)?;
        let mut seals: Vec<Seal> = signed.inputs.iter().chain(&signed.outputs).map(seal).collect();
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
        self.code.field() == Field::GF8 && self.code.layout() == Layout::Words
    }

    /// Makes the `wanted` columns of a stripe from k of the others.
    ///
    /// # Errors
    /// Too few blocks.
    pub fn repair(
        &self,
        stripe: &[Option<&[u8]>],
        wanted: &[usize],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.repairer.repair(stripe, wanted, outputs)
    }
}

fn hash(block: &[u8]) -> [u8; 32] {
    *blake3::hash(block).as_bytes()
}

/// The codes that are in use, each made ready once.
#[derive(Debug)]
pub struct Coders {
    engine: Engine,
    ready: Mutex<HashMap<(String, Version), Arc<Coder>>>,
}

impl Coders {
    /// With the kernels of this process. Workers are threads already, so a coder uses only the one it runs on.
    ///
    /// # Errors
    /// A forced kernel that cannot run here.
    pub fn new() -> Result<Coders, Error> {
        Ok(Coders { engine: Engine::new(1)?, ready: Mutex::default() })
    }

    /// The coder for new redundancy with an identity such as `subspace:8+2:w8` or, in short, `8+2`; with ` blake3` behind it, one whose blocks have that.
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
        let coder = Arc::new(Coder::new(&self.engine, version, code.parse()?, strong)?);
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
