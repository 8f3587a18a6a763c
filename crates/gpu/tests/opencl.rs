//! The engine's conformance suite on a real OpenCL device: PoCL in CI, whatever there is elsewhere.

use gabion_engine::conformance::PatternLimits;
use gabion_engine::kernel::{Backend, Kernel};
use gabion_engine::{Code, Error};
use gabion_gpu::check::{CODES, Effort, UPDATES, conformance};
use gabion_gpu::opencl::{OpenClBackend, OpenClDevice, OpenClOptions, devices};
use gabion_gpu::{Choice, GpuError};

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

fn check(device: &OpenClDevice, choice: Choice, effort: &Effort) {
    let backend = OpenClBackend::new(device.clone(), choice);
    let failed = conformance(&backend, &|| device.launches(), effort, &|check, outcome| {
        if let Err(why) = outcome {
            println!("{}: {check}: {why}", backend.name());
        }
    });
    assert_eq!(failed, 0, "checks failed");
}

#[test]
fn the_generic_kernel_conforms() {
    let Some(device) = device("the_generic_kernel_conforms", OpenClOptions::default()) else { return };
    let effort = Effort {
        rounds: 1,
        codes: CODES.into_iter().filter(|code| *code != "200+56").collect(),
        losses: PatternLimits { exhaustive: 3, samples: 2 },
        updates: UPDATES.to_vec(),
        wide: vec![("40+17", 333), ("64+9:w16", 130), ("3+2", 900_001)],
        threads: 2,
    };
    check(&device, Choice::Generic, &effort);
    assert!(device.launches() > 100);
}

/// Compiling an unrolled kernel takes PoCL a second or more, so there are few of them here.
#[test]
fn specialised_kernels_conform() {
    let Some(device) = device("specialised_kernels_conform", OpenClOptions::default()) else { return };
    let effort = Effort {
        rounds: 0,
        codes: vec!["4+2", "raidz:8+3", "subspace:5+3:w4", "cauchy:5+3:w7:packets=17", "cauchy:3+2:w16"],
        losses: PatternLimits { exhaustive: 0, samples: 2 },
        updates: vec!["3+2"],
        wide: vec![("10+4", 70_001), ("4+2:packets=48", 4000), ("10+14", 300)],
        threads: 2,
    };
    check(&device, Choice::Specialised, &effort);
}
