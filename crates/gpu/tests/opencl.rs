//! The engine's conformance suite on a real OpenCL device: PoCL in CI, whatever there is elsewhere.

use gabion_engine::conformance::{Buffers, PatternLimits, Random, same_as_reference};
use gabion_engine::kernel::Backend;
use gabion_engine::{Code, Field};
use gabion_gpu::check::{Effort, conformance};
use gabion_gpu::opencl::{OpenClBackend, OpenClDevice, OpenClOptions, devices};
use gabion_gpu::{Choice, GpuError};
use std::sync::{Mutex, PoisonError};

/// The device to test with. A machine without one is named, so that nobody takes it for tested.
fn device(test: &str, options: OpenClOptions) -> Option<OpenClDevice> {
    match devices() {
        Err(GpuError::Unavailable { reason, .. }) => {
            println!("SKIP {test}: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
        Ok(found) => {
            println!("{test} on {}", found[0].name);
            Some(OpenClDevice::open(0, options).unwrap())
        }
    }
}

/// Whether kernels are right does not depend on how good the compiler makes them; how long the test takes does.
fn quickly_compiled() -> OpenClOptions {
    OpenClOptions { build: "-cl-opt-disable".to_owned(), ..OpenClOptions::default() }
}

/// PoCL 3.1 sometimes crashes where two contexts compile at once, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn check(device: &OpenClDevice, choice: Choice, effort: &Effort) {
    let backend = OpenClBackend::new(device.clone(), choice);
    let failed = conformance(&backend, &|| device.launches(), effort, &|check, outcome| {
        if let Err(why) = outcome {
            println!("{}: {check}: {why}", backend.name());
        }
    });
    assert_eq!(failed, 0, "checks failed");
}

/// One text per width, layout, mode and size of packets; PoCL takes a second or two for each, so there are few of them.
#[test]
fn the_generic_kernel_conforms() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device("the_generic_kernel_conforms", quickly_compiled()) else { return };
    let effort = Effort {
        rounds: 0,
        codes: vec!["10+4", "5+5", "raidz:8+3", "cauchy-good:10+4:w4:packets=24", "30+33"],
        losses: PatternLimits { exhaustive: 3, samples: 2 },
        updates: vec!["6+3"],
        wide: vec![("40+17", 333), ("3+2", 900_001), ("3+2:w32", 520)],
        boundaries: vec![Field::GF4, Field::GF8, Field::GF16],
        threads: 2,
    };
    check(&device, Choice::Generic, &effort);
    assert!(device.launches() > 100, "{}", device.launches());
}

/// Every plan is a text of its own, so there are few plans here; devices that compile quickly run the whole suite
/// (`gabion bench gpu --check-opencl`).
#[test]
fn specialised_kernels_conform() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device("specialised_kernels_conform", quickly_compiled()) else { return };
    let backend = OpenClBackend::new(device.clone(), Choice::Specialised);
    let code = |text: &str| text.parse::<Code>().unwrap();
    let plans = [
        (code("10+4").encode_plan().unwrap(), 70_001),
        (code("4+2").repair_plan(&[0, 2], &[1, 3, 4, 5]).unwrap(), 333),
        (code("raidz:5+3").update_plan(&[1]).unwrap(), 4000),
        (code("4+2:packets=48").encode_plan().unwrap(), 4000),
        (code("cauchy:3+2:w7:packets=17").update_plan(&[0, 2]).unwrap(), 500),
        (code("3+2:w16").encode_plan().unwrap(), 1030),
    ];
    for (plan, len) in plans {
        assert!(backend.kernel(&plan).unwrap().is_specialised());
        let (len, before) = (usize::next_multiple_of(len, plan.granule()), device.launches());
        same_as_reference(&[&backend], &plan, len, &mut Heap, &mut Random(4));
        assert!(device.launches() > before, "a run that was not launched");
    }
}

struct Heap;

impl Buffers for Heap {
    type Block = Vec<u8>;

    fn block(&mut self, len: usize) -> Vec<u8> {
        vec![0xa5; len]
    }
}
