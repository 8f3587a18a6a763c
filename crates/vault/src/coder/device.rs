//! Coding of stripes on the back end that the caller of the vault chose.
//!
//! Signatures are computed on the CPU from the blocks themselves. Where signatures of outputs follow from those of
//! inputs, a result of a device that contradicts them is an error and never reaches a file.

use super::has_law;
use gabion_engine::backends::{Backends, Extent, Job, PlanKernel, SharedBackend};
use gabion_engine::{Code, Error, Signature, Signer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most plans of repairs that are kept per code; with more patterns of losses, plans are made again.
const MAX_PLANS: usize = 16;

/// Back ends of a vault, and the number of threads that use them at once.
#[derive(Clone)]
pub(super) struct Devices {
    pub(super) backends: Arc<dyn Backends>,
    pub(super) threads: usize,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Lost columns, then the columns there are.
type Pattern = (Vec<usize>, Vec<usize>);

/// One code on these back ends.
#[derive(Debug)]
pub(super) struct DeviceCoder {
    devices: Devices,
    code: Arc<Code>,
    encode: OnceLock<PlanKernel>,
    repairs: Mutex<BTreeMap<Pattern, Arc<PlanKernel>>>,
}

/// Signatures of the inputs and of the outputs of a run.
pub(super) type Signatures = (Vec<Signature>, Vec<Signature>);

impl DeviceCoder {
    pub(super) fn new(devices: Devices, code: Arc<Code>) -> DeviceCoder {
        DeviceCoder { devices, code, encode: OnceLock::new(), repairs: Mutex::default() }
    }

    /// The device for a stripe with blocks of this length; none if the CPU does it.
    fn backend(&self, block: usize) -> Result<Option<SharedBackend>, Error> {
        if block == 0 {
            return Ok(None);
        }
        let extent = Extent::Stripe((block * self.code.k()) as u64);
        let job = Job { code: &self.code, block, extent, threads: self.devices.threads };
        self.devices.backends.choose(&job)
    }

    /// Makes the redundancy blocks of a stripe; gives the signatures of data and redundancy. None, with nothing done,
    /// if the CPU shall do it.
    pub(super) fn encode(
        &self,
        signer: &Signer,
        data: &[&[u8]],
        redundancy: &mut [&mut [u8]],
    ) -> Result<Option<Signatures>, Error> {
        let Some(backend) = self.backend(data.first().map_or(0, |block| block.len()))? else {
            return Ok(None);
        };
        let kernel = match self.encode.get() {
            Some(kernel) => kernel,
            // Two threads that need it at once may both compile it.
            None => {
                let made = PlanKernel::new(Some(&backend), self.code.encode_plan()?)?;
                self.encode.get_or_init(|| made)
            }
        };
        self.run(&backend, kernel, signer, data, redundancy).map(Some)
    }

    /// Makes the `lost` columns of a stripe from others. False, with nothing done, if the CPU shall do it.
    pub(super) fn repair(
        &self,
        signer: &Signer,
        stripe: &[Option<&[u8]>],
        lost: &[usize],
        outputs: &mut [&mut [u8]],
    ) -> Result<bool, Error> {
        // The CPU's way reports stripes that do not fit the code.
        if stripe.len() != self.code.blocks() || lost.len() != outputs.len() {
            return Ok(false);
        }
        let Some(backend) = self.backend(outputs.first().map_or(0, |block| block.len()))? else {
            return Ok(false);
        };
        let there: Vec<usize> =
            (0..stripe.len()).filter(|column| stripe[*column].is_some() && !lost.contains(column)).collect();
        let kernel = self.repair_kernel(&backend, (lost.to_vec(), there))?;
        let inputs: Vec<&[u8]> = kernel
            .plan()
            .inputs()
            .iter()
            .filter_map(|&column| stripe.get(column).copied().flatten())
            .collect();
        self.run(&backend, &kernel, signer, &inputs, outputs)?;
        Ok(true)
    }

    fn repair_kernel(&self, backend: &SharedBackend, pattern: Pattern) -> Result<Arc<PlanKernel>, Error> {
        let mut repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = repairs.get(&pattern) {
            return Ok(Arc::clone(kernel));
        }
        let plan = self.code.repair_plan(&pattern.0, &pattern.1)?;
        let kernel = Arc::new(PlanKernel::new(Some(backend), plan)?);
        if repairs.len() >= MAX_PLANS {
            repairs.clear();
        }
        repairs.insert(pattern, Arc::clone(&kernel));
        Ok(kernel)
    }

    fn run(
        &self,
        backend: &SharedBackend,
        kernel: &PlanKernel,
        signer: &Signer,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<Signatures, Error> {
        kernel.run(inputs, outputs)?;
        let of_inputs = inputs.iter().map(|block| signer.sign(block)).collect::<Result<Vec<_>, _>>()?;
        let of_outputs = outputs.iter().map(|block| signer.sign(block)).collect::<Result<Vec<_>, _>>()?;
        if has_law(&self.code) && signer.transform(kernel.plan().matrix()?, &of_inputs)? != of_outputs {
            let reason = format!("{}: the result contradicts the signatures of its inputs", backend.name());
            return Err(Error::Device { reason });
        }
        Ok((of_inputs, of_outputs))
    }
}

#[cfg(test)]
mod tests;
