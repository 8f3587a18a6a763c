//! Coders on other back ends give what the CPU gives.

use crate::coder::Coders;
use gabion_engine::backends::{Backends, SharedBackend};
use gabion_engine::kernel::{Backend, Kernel, Reference};
use gabion_engine::{Error, Plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device in memory: the reference kernels, which count their runs and may give a wrong byte.
#[derive(Default)]
struct Simulated {
    runs: Arc<AtomicU64>,
    is_wrong: bool,
}

struct SimulatedKernel {
    kernel: Box<dyn Kernel>,
    runs: Arc<AtomicU64>,
    is_wrong: bool,
}

impl Backend for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        let (kernel, runs) = (Reference.compile(plan)?, Arc::clone(&self.runs));
        Ok(Box::new(SimulatedKernel { kernel, runs, is_wrong: self.is_wrong }))
    }
}

impl Kernel for SimulatedKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.kernel.run(inputs, outputs)?;
        if self.is_wrong {
            outputs[0][0] ^= 1;
        }
        Ok(())
    }
}

fn coders(device: Simulated) -> (Coders, Arc<AtomicU64>) {
    let runs = Arc::clone(&device.runs);
    let device: SharedBackend = Arc::new(device);
    let backends: Arc<dyn Backends> = Arc::new(device);
    (Coders::with_backends(backends, 1).unwrap(), runs)
}

fn blocks(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|block| (0..len).map(|at| (at * 31 + block * 7 + at / 251) as u8).collect()).collect()
}

const CODES: [&str; 4] = ["4+2", "8+3 blake3", "cauchy-good:5+2:w8:packets=64", "subspace:6+2:w16"];

#[test]
fn a_device_gives_the_blocks_and_seals_of_the_cpu() {
    let cpu = Coders::new().unwrap();
    let (device, runs) = coders(Simulated::default());
    for code in CODES {
        let (cpu, device) = (cpu.get(code).unwrap(), device.get(code).unwrap());
        let (k, m) = (cpu.code().k(), cpu.code().m());
        for len in [0, 512, 66_048] {
            let data = blocks(k, len);
            let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let encode = |coder: &crate::coder::Coder| {
                let mut redundancy = vec![vec![0; len]; m];
                let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
                let seals = coder.encode(&data, &mut outputs).unwrap();
                (redundancy, seals)
            };
            let before = runs.load(Ordering::Relaxed);
            let made = encode(&device);
            assert_eq!(made, encode(&cpu), "{code}, {len} bytes");
            assert_eq!(runs.load(Ordering::Relaxed) - before, u64::from(len > 0), "{code}, {len} bytes");
            if len == 0 {
                continue;
            }
            // One data block and one redundancy block are lost.
            let lost = [1, k];
            let all: Vec<&[u8]> = data.iter().copied().chain(made.0.iter().map(|block| &block[..])).collect();
            let stripe: Vec<Option<&[u8]>> =
                all.iter().enumerate().map(|(at, block)| (!lost.contains(&at)).then_some(*block)).collect();
            let mut repaired = vec![vec![0; len]; 2];
            let mut outputs: Vec<&mut [u8]> = repaired.iter_mut().map(|block| &mut block[..]).collect();
            device.repair(&stripe, &lost, &mut outputs).unwrap();
            assert_eq!([&repaired[0][..], &repaired[1][..]], lost.map(|column| all[column]), "{code}");
            assert_eq!(runs.load(Ordering::Relaxed) - before, 2, "{code}");
        }
    }
}

/// A result that contradicts the signatures is an error, in encoding and in repair.
#[test]
fn a_wrong_result_of_a_device_is_an_error() {
    let (device, _) = coders(Simulated { is_wrong: true, ..Simulated::default() });
    let coder = device.get("4+2").unwrap();
    let data = blocks(4, 512);
    let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
    let mut redundancy = vec![vec![0; 512]; 2];
    let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
    let error = coder.encode(&data, &mut outputs).unwrap_err();
    assert!(error.to_string().contains("simulated: the result contradicts"), "{error}");
    let parity = Coders::new().unwrap();
    let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
    parity.get("4+2").unwrap().encode(&data, &mut outputs).unwrap();
    let stripe = [None, Some(data[1]), Some(data[2]), Some(data[3]), Some(&redundancy[0][..]), None];
    let mut made = vec![0; 512];
    let error = coder.repair(&stripe, &[0], &mut [&mut made[..]]).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error}");
}

#[test]
fn stripes_that_do_not_fit_the_code_are_errors() {
    let (device, _) = coders(Simulated::default());
    let coder = device.get("4+2").unwrap();
    let mut made = [0; 64];
    assert!(coder.repair(&[None; 3], &[0], &mut [&mut made[..]]).is_err());
    let block = [7; 64];
    let too_few = [None, None, None, Some(&block[..]), Some(&block[..]), Some(&block[..])];
    let error = coder.repair(&too_few, &[0], &mut [&mut made[..]]).unwrap_err();
    assert!(matches!(error, Error::NotEnoughBlocks { .. }), "{error}");
}
