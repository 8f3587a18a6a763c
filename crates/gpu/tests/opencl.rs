//! The engine's conformance suite on a real OpenCL device: PoCL in CI, whatever there is elsewhere.

use gabion_engine::Field;
use gabion_engine::conformance::PatternLimits;
use gabion_engine::kernel::Backend;
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
        wide: vec![("40+17", 333), ("3+2", 900_001)],
        boundaries: vec![Field::GF4, Field::GF8, Field::GF16, Field::GF64],
        threads: 2,
    };
    check(&device, Choice::Generic, &effort);
    assert!(device.launches() > 100, "{}", device.launches());
}

/// Every plan is a text of its own.
#[test]
fn specialised_kernels_conform() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device("specialised_kernels_conform", quickly_compiled()) else { return };
    let effort = Effort {
        rounds: 0,
        codes: vec!["4+2"],
        losses: PatternLimits { exhaustive: 0, samples: 1 },
        updates: vec![],
        wide: vec![("10+4", 70_001), ("4+2:packets=48", 4000), ("cauchy:3+2:w7:packets=17", 500)],
        boundaries: vec![],
        threads: 2,
    };
    check(&device, Choice::Specialised, &effort);
}
