//! Runs over a simulated device in host memory that can fail at every step.

use super::*;
use crate::faults::Fault;
use crate::takeover::Takeover;
use gabion_engine::conformance::TestRng;
use gabion_engine::kernel::{Backend, Kernel, Reference};
use gabion_engine::{Code, Mode};

#[test]
fn rounds_are_whole_units_within_the_share() {
    let each = |len, unit, blocks, share| round_bytes(len, unit, blocks, share, Copies::OnePerBlock);
    assert_eq!(each(1000, 64, 10, 1 << 20), 1024);
    assert_eq!(each(1 << 30, 4096, 14, 14 * 8192), 8192);
    assert_eq!(each(1 << 30, 4096, 14, 10), 4096);
    assert_eq!(each(1 << 30, 4096, 12, 1 << 40), 4 << 20);
    assert_eq!(each(1 << 30, 4096, 63, 1 << 40), 4 << 20);
    assert_eq!(round_bytes(1 << 30, 4096, 63, 1 << 40, Copies::Together), 2 << 20);
}

#[test]
fn rounds_grow_and_shrink_again() {
    let parts = |len: usize, most: usize, unit: usize| {
        let (mut parts, mut left) = (Vec::new(), len);
        while left > 0 {
            parts.push(part_bytes(parts.len(), left, most, unit));
            left -= parts[parts.len() - 1];
        }
        parts
    };
    let mega = 1 << 20;
    let long = parts(100 * mega, 2 * mega, 4096);
    let largest = long.iter().position(|&part| part == 2 * mega).unwrap();
    // A round is copied in while the previous one is copied out.
    assert!(
        long[..=largest].windows(2).all(|pair| pair[0] < pair[1] && 4 * pair[0] + 3 * 4096 >= 3 * pair[1])
    );
    let least = 256 << 10;
    let end = &long[long.len() - 4..];
    assert!(long[0] == least && end[3] <= least && end.windows(2).all(|pair| pair[0] > pair[1]), "{long:?}");
    assert_eq!(parts(100, 4 * mega, 64), [100]);
    for (len, most, unit) in [(10_000_019, 3 * mega, 3 * 4096), (77, 64, 64), (9 * mega, mega, mega)] {
        let parts = parts(len, most, unit);
        assert_eq!(parts.iter().sum::<usize>(), len);
        assert!(parts.iter().all(|&part| part <= most), "{parts:?}");
        assert!(parts[..parts.len() - 1].iter().all(|part| part.is_multiple_of(unit)), "{parts:?}");
    }
}

/// Slots whose device is the reference. A round writes its results when it is synchronised, and garbage if it never is.
struct HostSlots {
    kernel: Box<dyn Kernel>,
    direct: bool,
    results: Vec<Option<Vec<Vec<u8>>>>,
    most_room: usize,
}

impl Slots for HostSlots {
    fn count(&self) -> usize {
        self.results.len()
    }

    fn make_room(&mut self, _: usize, bytes: usize) -> Result<(), GpuError> {
        if bytes > self.most_room {
            return Err(GpuError::Memory { api: Api::OpenCl, kind: "device", bytes });
        }
        Ok(())
    }

    fn writes_directly(&self) -> bool {
        self.direct
    }

    fn begin(
        &mut self,
        slot: usize,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let inputs: Vec<&[u8]> = inputs.iter().map(|block| &block[part.clone()]).collect();
        let mut results: Vec<Vec<u8>> = outputs.iter().map(|block| block[part.clone()].to_vec()).collect();
        self.kernel.run(&inputs, &mut results.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>())?;
        if self.direct {
            // A partial copy, as left by a device that fails now.
            outputs.iter_mut().for_each(|block| block[part.clone()].fill(0xdb));
        }
        self.results[slot] = Some(results);
        Ok(())
    }

    fn wait(&mut self, _: usize) -> Result<(), GpuError> {
        Ok(())
    }

    fn collect(
        &mut self,
        slot: usize,
        part: Range<usize>,
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let results = self.results[slot].take().expect("a round");
        outputs.iter_mut().zip(&results).for_each(|(block, result)| {
            block[part.clone()].copy_from_slice(result);
        });
        Ok(())
    }
}

const LEN: usize = 1000;

struct Scene {
    plan: Plan,
    inputs: Vec<Vec<u8>>,
    before: Vec<Vec<u8>>,
    right: Vec<Vec<u8>>,
}

impl Scene {
    fn new(plan: Plan) -> Scene {
        let mut random = TestRng(31);
        let mut blocks = |count: usize| -> Vec<Vec<u8>> {
            (0..count)
                .map(|_| {
                    let mut block = vec![0; LEN];
                    random.fill(&mut block);
                    block
                })
                .collect()
        };
        let (inputs, before) = (blocks(plan.inputs().len()), blocks(plan.outputs().len()));
        let mut right = before.clone();
        let sources: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
        let mut slices: Vec<&mut [u8]> = right.iter_mut().map(|block| &mut block[..]).collect();
        Reference.compile(&plan).unwrap().run(&sources, &mut slices).unwrap();
        Scene { plan, inputs, before, right }
    }

    /// Runs with 3 slots in rounds of 128 bytes, in units of 32; returns the result and the outputs.
    fn run(
        &self,
        direct: bool,
        faults: Faults,
        takeover: Takeover,
        most_room: usize,
    ) -> (Result<(), GpuError>, Vec<Vec<u8>>, Ledger) {
        let mut outputs = self.before.clone();
        let (faults, ledger) = (Arc::new(faults), Ledger::new(takeover));
        let kernel = Reference.compile(&self.plan).unwrap();
        let mut slots = HostSlots { kernel, direct, results: vec![None; 3], most_room };
        let course = RoundRun {
            api: Api::OpenCl,
            plan: &self.plan,
            len: LEN,
            unit: 32,
            bytes: 128,
            faults: Some(&faults),
            ledger: &ledger,
        };
        let inputs: Vec<&[u8]> = self.inputs.iter().map(|block| &block[..]).collect();
        let result = course.run(
            Ok(&mut slots),
            &inputs,
            &mut outputs.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>(),
        );
        (result, outputs, ledger)
    }
}

fn scenes() -> Vec<(Scene, Vec<bool>)> {
    let code: Code = "4+2".parse().unwrap();
    let (write, add) = (code.encode_plan().unwrap(), code.update_plan(&[1]).unwrap());
    assert_eq!(add.mode(), Mode::Add);
    // Outputs that are added to are never written directly.
    vec![(Scene::new(write), vec![true, false]), (Scene::new(add), vec![false])]
}

fn lost(step: Step, skip: u32) -> Faults {
    let faults = Faults::default();
    faults.plan(step, skip, u32::MAX, Fault::Lost);
    faults
}

/// For a failure at any step, outputs are unchanged, or complete and reported as such.
#[test]
fn outputs_are_complete_or_untouched() {
    let mut ends = [0; 3];
    for (scene, ways) in scenes() {
        for direct in ways {
            for step in [Step::Room, Step::Begin, Step::Wait] {
                for skip in 0..10 {
                    let place = format!("{:?} {direct} {step:?} {skip}", scene.plan.mode());
                    let (result, outputs, _) =
                        scene.run(direct, lost(step, skip), Takeover::Refused, usize::MAX);
                    match result {
                        Ok(()) => {
                            ends[0] += 1;
                            assert!(outputs == scene.right, "{place}");
                        }
                        Err(GpuError::Interrupted { done, len: LEN, .. }) => {
                            ends[1] += 1;
                            assert!(outputs == scene.right, "{place} after {done}");
                        }
                        Err(_) => {
                            ends[2] += 1;
                            assert!(outputs == scene.before, "{place}");
                        }
                    }
                }
            }
        }
    }
    assert!(ends.iter().all(|&count| count > 10), "{ends:?}");
}

#[test]
fn an_allowed_takeover_gives_correct_bytes_and_is_recorded() {
    for (scene, ways) in scenes() {
        for direct in ways {
            for (step, skip) in [(Step::Room, 0), (Step::Begin, 0), (Step::Begin, 4), (Step::Wait, 2)] {
                let (result, outputs, ledger) =
                    scene.run(direct, lost(step, skip), Takeover::Allowed, usize::MAX);
                assert_eq!(result, Ok(()), "{step:?} {skip}");
                assert!(outputs == scene.right, "{step:?} {skip}");
                let taken = ledger.taken().unwrap();
                assert_eq!(taken.times, 1);
                assert!(taken.reason.contains("the device is gone"), "{}", taken.reason);
            }
            let (result, _, ledger) = scene.run(direct, Faults::default(), Takeover::Allowed, usize::MAX);
            assert_eq!((result, ledger.taken()), (Ok(()), None));
        }
    }
}

/// Running out of memory before the first round or between two only makes rounds smaller.
#[test]
fn less_memory_means_smaller_rounds() {
    for (scene, ways) in scenes() {
        for direct in ways {
            for most_room in [127, 64, 32] {
                let (result, outputs, _) = scene.run(direct, Faults::default(), Takeover::Refused, most_room);
                assert_eq!(result, Ok(()));
                assert!(outputs == scene.right);
            }
            for (step, skip) in [(Step::Begin, 0), (Step::Begin, 5), (Step::Wait, 0), (Step::Wait, 3)] {
                let faults = Faults::default();
                faults.plan(step, skip, 2, Fault::Memory);
                let (result, outputs, _) = scene.run(direct, faults, Takeover::Refused, usize::MAX);
                assert_eq!(result, Ok(()), "{step:?} {skip}");
                assert!(outputs == scene.right, "{step:?} {skip}");
            }
            let (result, outputs, _) = scene.run(direct, Faults::default(), Takeover::Refused, 31);
            assert!(matches!(result, Err(GpuError::Memory { .. })), "{result:?}");
            assert!(outputs == scene.before);
        }
    }
}
