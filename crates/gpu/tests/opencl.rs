//! The engine's conformance suite on an OpenCL device: PoCL in CI, any device elsewhere.

use gabion_engine::conformance::{Buffers, PatternLimits, TestRng, same_as_reference};
use gabion_engine::kernel::{Backend, Kernel, Reference};
use gabion_engine::{Code, Field};
use gabion_gpu::check::{Effort, Part, conformance};
use gabion_gpu::opencl::{OpenClBackend, OpenClDevice, OpenClKernel, OpenClOptions, OpenClTransfer, devices};
use gabion_gpu::shape::Shape;
use gabion_gpu::source::method::{Method, Variant, Vector};
use gabion_gpu::source::stages::Stage;
use gabion_gpu::tuning::Tuning;
use gabion_gpu::{Choice, Fault, Faults, Form, GpuError, Step, Takeover};
use std::sync::{Arc, Mutex, PoisonError};

/// The device to test with; a missing device is recorded as a skip.
fn device(test: &str, options: OpenClOptions) -> Option<OpenClDevice> {
    match devices() {
        Err(GpuError::Unavailable { reason, .. }) => {
            gabion_testkit::skip!("{test}: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
        Ok(found) => {
            println!("{test} on {}", found[0].name);
            Some(OpenClDevice::open(0, options).unwrap())
        }
    }
}

/// Correctness does not depend on compiler optimisations, but the duration of the test does.
fn quickly_compiled() -> OpenClOptions {
    OpenClOptions { build: "-cl-opt-disable".to_owned(), ..OpenClOptions::default() }
}

/// Serialises the tests: PoCL 3.1 sometimes crashes if two contexts compile at once.
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

/// There is one text per width, layout, mode and packet size; PoCL takes one or two seconds for each, so few are
/// tested.
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
        general: true,
        part: Part::WHOLE,
    };
    check(&device, Choice::Generic, &effort);
    assert!(device.launches() > 100, "{}", device.launches());
}

/// Every plan has its own text, so few plans are tested; `gabion-bench gpu --check --api opencl` runs the whole suite
/// on devices with a fast compiler.
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
        assert_eq!(backend.kernel(&plan).unwrap().form(), Form::Specialised);
        let (len, before) = (usize::next_multiple_of(len, plan.granule()), device.launches());
        same_as_reference(&[&backend], &plan, len, &mut Heap, &mut TestRng(4));
        assert!(device.launches() > before, "a run that was not launched");
    }
}

/// Plans with structure: encoding, full cosets and cosets with gaps, repairs of data and redundancy, added outputs.
#[test]
fn transformed_kernels_conform() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device("transformed_kernels_conform", quickly_compiled()) else { return };
    let code = |text: &str| text.parse::<Code>().unwrap();
    let repair = |text: &str, lost: &[usize]| {
        let code = code(text);
        let left: Vec<usize> = (0..code.blocks()).filter(|column| !lost.contains(column)).collect();
        code.repair_plan(lost, &left).unwrap()
    };
    let plans = [
        code("9+7:packets=16").encode_plan().unwrap(),
        code("8+8:w4:packets=12").encode_plan().unwrap(),
        code("6+4:packets=8").encode_plan().unwrap(),
        code("9+7:packets=16").update_plan(&[2, 3, 8]).unwrap(),
        code("cauchy-isal:4+4:packets=16").encode_plan().unwrap(),
        repair("9+7:packets=16", &[0, 3, 4, 5, 8, 10]),
        repair("8+4:packets=20", &[1, 2, 9]),
        repair("7+8:w4:packets=20", &[0, 1, 2, 3, 4, 5, 6]),
        repair("12+4:packets=8", &[4, 5, 6, 7]),
        repair("16+8:packets=16", &[0, 1, 2, 3, 4, 5, 6, 7]),
    ];
    for (width, plan) in [4, 8].into_iter().cycle().zip(plans) {
        let tuning = Tuning { transformed: width, ..Tuning::of(&Shape::of(&plan)) };
        let kernel = OpenClKernel::specialised(&device, &plan, Some(tuning)).unwrap();
        let (len, before) = (5 * plan.granule(), device.launches());
        let mut random = TestRng(8);
        let mut filled = |count: usize| {
            let mut blocks = vec![vec![0; len]; count];
            blocks.iter_mut().for_each(|block| random.fill(block));
            blocks
        };
        let (inputs, outputs) = (filled(plan.inputs().len()), filled(plan.outputs().len()));
        let run = |kernel: &dyn Kernel| {
            let mut outputs = outputs.clone();
            let inputs: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
            let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[..]).collect();
            kernel.run(&inputs, &mut slices).unwrap();
            outputs
        };
        let expected = run(&*Reference.compile(&plan).unwrap());
        assert!(run(&kernel) == expected, "{} inputs, {} outputs", inputs.len(), outputs.len());
        assert!(device.launches() > before, "a run that was not launched");
    }
}

/// Unoptimised stages compute the same results.
#[test]
fn every_stage_of_a_kernel_conforms() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device("every_stage_of_a_kernel_conforms", OpenClOptions::default()) else { return };
    let wide = "10+8:packets=64".parse::<Code>().unwrap().encode_plan().unwrap();
    for stage in Stage::ALL {
        for code in ["cauchy:3+2:w5:packets=17", "10+4:packets=48"] {
            let plan = code.parse::<Code>().unwrap().encode_plan().unwrap();
            let len = 7 * plan.granule();
            let mut blocks = vec![vec![0; len]; plan.inputs().len()];
            blocks.iter_mut().for_each(|block| TestRng(5).fill(block));
            let inputs: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
            let run = |kernel: &dyn Kernel| {
                let mut outputs = vec![vec![0xEE; len]; plan.outputs().len()];
                kernel
                    .run(&inputs, &mut outputs.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>())
                    .unwrap();
                outputs
            };
            let before = device.launches();
            let found = run(&OpenClKernel::at_stage(&device, &plan, stage).unwrap());
            assert!(device.launches() > before, "a run that was not launched");
            assert!(found == run(&*Reference.compile(&plan).unwrap()), "{code}, {}", stage.name());
        }
        let refused = OpenClKernel::at_stage(&device, &wide, stage).err().unwrap();
        assert!(refused.to_string().contains("32 rows"), "{refused}");
    }
}

/// Every method with every vector: losses, updates, lengths around every boundary, several rounds.
#[test]
fn methods_of_multiplication_conform() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device("methods_of_multiplication_conform", quickly_compiled()) else { return };
    for method in Method::ALL {
        for vector in Vector::ALL {
            // One text per number of inputs.
            let codes = if method == Method::Unrolled { vec!["4+2"] } else { vec!["10+4", "raidz:8+3"] };
            let effort = Effort {
                codes,
                losses: PatternLimits { exhaustive: 0, samples: 2 },
                updates: vec!["6+3"],
                wide: vec![("3+2", 200_001)],
                ..Effort::of_bytes(1)
            };
            let backend = OpenClBackend::by_method(device.clone(), Variant { method, vector });
            let before = device.launches();
            let failed = conformance(&backend, &|| device.launches(), &effort, &|check, outcome| {
                if let Err(why) = outcome {
                    println!("{}: {check}: {why}", backend.name());
                }
            });
            assert_eq!(failed, 0, "{}", backend.name());
            assert!(device.launches() - before > 20, "{}", device.launches() - before);
        }
    }
    for code in ["3+2:w4", "3+2:w16", "3+2:w32"] {
        let plan = code.parse::<Code>().unwrap().encode_plan().unwrap();
        let variant = Variant { method: Method::Peasant, vector: Vector::Four };
        let backend = OpenClBackend::by_method(device.clone(), variant);
        same_as_reference(&[&backend], &plan, 5000, &mut Heap, &mut TestRng(9));
        let variant = Variant { method: Method::Full, vector: Vector::Four };
        let refused = OpenClBackend::by_method(device.clone(), variant).kernel(&plan).err().unwrap();
        assert!(matches!(refused, GpuError::Method { method: "full", .. }), "{refused}");
    }
}

/// Blocks transferred through shared virtual memory.
#[test]
fn shared_memory_conforms() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options =
        OpenClOptions { transfer: OpenClTransfer::SharedMemory, device_bytes: 1 << 20, ..quickly_compiled() };
    let device = match devices() {
        Ok(_) => OpenClDevice::open(0, options),
        Err(error) => Err(error),
    };
    let device = match device {
        Err(error @ (GpuError::Unavailable { .. } | GpuError::Transfer { .. })) => {
            gabion_testkit::skip!("shared_memory_conforms: {error}");
            return;
        }
        other => other.unwrap(),
    };
    let effort = Effort {
        rounds: 0,
        codes: vec!["10+4", "cauchy-good:10+4:w4:packets=24"],
        losses: PatternLimits { exhaustive: 0, samples: 2 },
        updates: vec!["6+3", "cauchy-good:6+3:w6:packets=11"],
        wide: vec![("3+2", 900_001)],
        boundaries: vec![Field::GF8],
        threads: 1,
        general: true,
        part: Part::WHOLE,
    };
    check(&device, Choice::Generic, &effort);
}

fn with_faults(takeover: Takeover) -> (OpenClOptions, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    // Rounds of few tiles, so that there are many rounds.
    let options = OpenClOptions {
        device_bytes: 2 << 20,
        slots: 3,
        takeover,
        faults: Some(faults.clone()),
        ..quickly_compiled()
    };
    (options, faults)
}

/// A device that fails at any step of a run leaves outputs unchanged or complete.
#[test]
fn a_failing_device_leaves_outputs_complete_or_untouched() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (options, faults) = with_faults(Takeover::Refused);
    let Some(device) = device("a_failing_device_leaves_outputs_complete_or_untouched", options) else {
        return;
    };
    let backend = OpenClBackend::new(device, Choice::Generic);
    let code: Code = "10+4".parse().unwrap();
    const LEN: usize = 600_000;
    for plan in [code.encode_plan().unwrap(), code.update_plan(&[3]).unwrap()] {
        let mut random = TestRng(12);
        let mut blocks = |count: usize| -> Vec<Vec<u8>> {
            let filled = |_| {
                let mut block = vec![0; LEN];
                random.fill(&mut block);
                block
            };
            (0..count).map(filled).collect()
        };
        let (inputs, before) = (blocks(plan.inputs().len()), blocks(plan.outputs().len()));
        let inputs: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
        let run = |kernel: &dyn gabion_engine::kernel::Kernel| {
            let mut outputs = before.clone();
            let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[..]).collect();
            let result = kernel.run(&inputs, &mut slices);
            (result, outputs)
        };
        let (_, right) = run(&*Reference.compile(&plan).unwrap());
        let kernel = backend.compile(&plan).unwrap();
        let (mut untouched, mut whole) = (0, 0);
        for step in [Step::Room, Step::Begin, Step::Wait] {
            for skip in [0, 1, 4, 7] {
                faults.plan(step, skip, 1, Fault::Lost);
                let (result, outputs) = run(&*kernel);
                match result {
                    // The run ended before the fault: a later run fails.
                    Ok(()) => {
                        assert!(outputs == right, "{step:?} {skip}");
                        while !faults.are_over() {
                            let _ = run(&*kernel);
                        }
                    }
                    Err(error) if error.to_string().contains("outputs are complete") => {
                        whole += 1;
                        assert!(outputs == right, "{step:?} {skip}");
                    }
                    Err(_) => {
                        untouched += 1;
                        assert!(outputs == before, "{step:?} {skip}");
                    }
                }
            }
        }
        assert!(untouched > 1 && whole > 2, "{untouched} {whole}");
        // Running out of memory only makes rounds smaller.
        for (step, skip) in [(Step::Room, 0), (Step::Begin, 3), (Step::Wait, 2)] {
            faults.plan(step, skip, 2, Fault::Memory);
            let (result, outputs) = run(&*kernel);
            assert_eq!(result, Ok(()));
            assert!(outputs == right && faults.are_over());
        }
    }
}

/// A compiler error is reported with its log; the CPU takes over if allowed, and that is recorded.
#[test]
fn the_cpu_takes_over_only_if_allowed_and_says_so() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = "4+2".parse::<Code>().unwrap().encode_plan().unwrap();
    let (options, faults) = with_faults(Takeover::Refused);
    let Some(strict) = device("the_cpu_takes_over_only_if_allowed_and_says_so", options) else { return };
    faults.plan(Step::Compile, 0, 1, Fault::Lost);
    let backend = OpenClBackend::new(strict.clone(), Choice::Generic);
    let error = backend.compile(&plan).err().unwrap().to_string();
    assert!(error.contains("line 1: a planned error"), "{error}");
    assert_eq!(strict.taken_over(), None);

    let (options, faults) = with_faults(Takeover::Allowed);
    let lenient = OpenClDevice::open(0, options).unwrap();
    let backend = OpenClBackend::new(lenient.clone(), Choice::Generic);
    faults.plan(Step::Compile, 0, 1, Fault::Lost);
    same_as_reference(&[&backend], &plan, 5000, &mut Heap, &mut TestRng(3));
    let (launches, taken) = (lenient.launches(), lenient.taken_over().unwrap());
    assert_eq!((launches, taken.times), (0, 1));
    assert!(taken.reason.contains("a planned error"), "{}", taken.reason);
    faults.plan(Step::Wait, 0, 1, Fault::Lost);
    same_as_reference(&[&backend], &plan, 5000, &mut Heap, &mut TestRng(3));
    assert!(lenient.taken_over().unwrap().times == 2 && lenient.launches() > 0);
}

/// An invalid program: the log of the device's compiler reaches the caller.
#[test]
fn a_real_compiler_error_has_a_log() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = OpenClOptions { build: "-Dbyte=,".to_owned(), ..OpenClOptions::default() };
    let Some(device) = device("a_real_compiler_error_has_a_log", options) else { return };
    let plan = "4+2".parse::<Code>().unwrap().encode_plan().unwrap();
    let error = OpenClBackend::new(device, Choice::Generic).kernel(&plan).err().unwrap();
    match error {
        GpuError::Compile { log, .. } => assert!(log.contains("error"), "{log}"),
        other => panic!("{other}"),
    }
}

struct Heap;

impl Buffers for Heap {
    type Block = Vec<u8>;

    fn block(&mut self, len: usize) -> Vec<u8> {
        vec![0xa5; len]
    }
}
