//! Compiled plans, kept for the process: whoever asks for a plan again finds its code.
//!
//! Compilation waits until a plan has worked enough to be worth it, and never holds up a call for long: what
//! would take longer than about a millisecond is compiled by a thread of its own, one at a time, and the generic kernel
//! serves until then.

use super::choose::{self, Choice};
use super::kernel::{CodeKernel, SigningKernel};
use super::lower::planar;
use super::machine::{Allocated, Form};
use super::target::Target;
use crate::division::SignaturePoints;
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes of each block that a plan has to see before it is compiled. What compiling takes grows with the coefficients,
/// and what the generic kernels take with them and the length: after some hundred KiB they have worked as long as it
/// takes, some tenths of a millisecond for 10+4. A stripe that lost what none lost before is repaired without waiting
/// for code that nobody uses again.
const WORTH_BYTES: usize = 512 << 10;

/// Coefficients of the largest plan that is compiled while its caller waits: 30+3, with 90, took 0.7 ms, 45+8, with
/// 360, took 1.6 ms.
const SHORT_COEFFICIENTS: usize = 160;

/// Plans that are remembered. Their code takes some pages each.
const MAX_PLANS: usize = 256;

/// The code of one plan, sooner or later.
#[derive(Debug)]
pub(crate) struct Slot {
    plan: Plan,
    target: Target,
    purpose: Purpose,
    seen_bytes: AtomicUsize,
    started: AtomicBool,
    /// `None` inside: the plan is not for this compiler.
    ready: OnceLock<Option<Ready>>,
}

/// What a plan is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Its outputs.
    Code,
    /// Its outputs, and signatures of its inputs at these points besides; for machine code only.
    SignedCode { points: SignaturePoints },
}

/// What a plan was compiled to.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Machine code.
    Code(Box<CodeKernel>),
    /// Machine code that signs.
    SigningCode(Box<SigningKernel>),
    /// Steps to be interpreted.
    Steps(Allocated),
}

impl Ready {
    /// A matrix times blocks in the planar layout, where planes are the blocks of the program.
    ///
    /// # Safety
    /// The CPU has the target's instruction set.
    pub(crate) unsafe fn planar(matrix: &Matrix, mode: Mode, target: Target) -> Option<Ready> {
        let program = planar::lower(matrix, mode);
        let choice = choose::choose_planar(program, target)?;
        if !target.native {
            return Some(Ready::Steps(choice.allocated));
        }
        let bytes = matrix.field().word_bytes().ok()?;
        let (inputs, outputs) = (matrix.columns() * bytes, matrix.rows() * bytes);
        let form = Form { inputs, outputs, mode, symbol_bytes: 1, packets: None };
        // SAFETY: passed on unchanged; the steps were just chosen for the program.
        unsafe { CodeKernel::new(form, target, &choice) }.map(Box::new).map(Ready::Code)
    }

    /// # Safety
    /// The CPU has the target's instruction set.
    unsafe fn new(plan: &Plan, target: Target, purpose: Purpose) -> Option<Ready> {
        if let Purpose::SignedCode { points } = purpose {
            let Choice { allocated, .. } = choose::choose_signed(plan, target, points)?;
            // SAFETY: as below.
            let code = unsafe { SigningKernel::new(plan, target, &allocated, points) };
            return code.map(Box::new).map(Ready::SigningCode);
        }
        let choice = choose::choose(plan, target, &mut |_| ())?;
        if target.native {
            // SAFETY: passed on unchanged; the steps were just chosen for the plan.
            unsafe { CodeKernel::new(Form::of(plan), target, &choice) }.map(Box::new).map(Ready::Code)
        } else {
            Some(Ready::Steps(choice.allocated))
        }
    }
}

impl Slot {
    /// The slot of a plan, shared by all who ask for it.
    ///
    /// # Safety
    /// The CPU has the target's instruction set.
    pub(crate) unsafe fn of(plan: &Plan, target: Target, purpose: Purpose) -> Arc<Slot> {
        static CACHE: OnceLock<Mutex<Cache>> = OnceLock::new();
        let cache = CACHE.get_or_init(Mutex::default);
        cache.lock().unwrap_or_else(PoisonError::into_inner).slot(plan, target, purpose)
    }

    /// The code, compiled now if it was not before.
    pub(crate) fn ready(&self) -> Option<&Ready> {
        // SAFETY: a slot exists only where the CPU has the target.
        self.ready.get_or_init(|| unsafe { Ready::new(&self.plan, self.target, self.purpose) }).as_ref()
    }

    /// The code if there is some. `bytes` more of each block have to be worked on; that may make it worth compiling.
    #[inline]
    pub(crate) fn get(self: &Arc<Slot>, bytes: usize) -> Option<&Ready> {
        match self.ready.get() {
            Some(ready) => ready.as_ref(),
            None => self.count(bytes),
        }
    }

    /// Counts bytes that are worked on without code, and makes some once it is worth it.
    #[cold]
    fn count(self: &Arc<Slot>, bytes: usize) -> Option<&Ready> {
        let seen = self.seen_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if seen < WORTH_BYTES || self.started.load(Ordering::Relaxed) {
            return None;
        }
        let is_short = coefficients(&self.plan) <= SHORT_COEFFICIENTS;
        let permit = if is_short { None } else { Some(Permit::take()?) };
        if self.started.swap(true, Ordering::Relaxed) {
            return None;
        }
        let Some(permit) = permit else { return self.ready() };
        let slot = self.clone();
        let compile = move || {
            slot.ready();
            drop(permit);
        };
        // Without a thread the generic kernel goes on serving, as it does where there is no compiler.
        drop(std::thread::Builder::new().name("gabion-compile".into()).spawn(compile));
        None
    }
}

/// The right to compile beside the callers. There is one: who meets another loss with every call would start threads
/// faster than they end. A plan that finds it taken asks again with its next call, if there is one.
struct Permit;

static PERMIT_TAKEN: AtomicBool = AtomicBool::new(false);

impl Permit {
    fn take() -> Option<Permit> {
        // Not by `then_some`: that would make one, and give it back, for those who get none.
        if PERMIT_TAKEN.swap(true, Ordering::Acquire) { None } else { Some(Permit) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        PERMIT_TAKEN.store(false, Ordering::Release);
    }
}

/// Coefficients of a plan's program: in the packets layout those of its bit matrix.
fn coefficients(plan: &Plan) -> usize {
    let bits = match plan.layout() {
        Layout::Words => 1,
        Layout::Packets { .. } => (plan.field().w() as usize).pow(2),
    };
    plan.outputs().len() * plan.inputs().len() * bits
}

/// Slots by plan, with the time each was last asked for.
#[derive(Default)]
struct Cache {
    slots: HashMap<(Plan, Target, Purpose), (Arc<Slot>, u64)>,
    clock: u64,
}

impl Cache {
    fn slot(&mut self, plan: &Plan, target: Target, purpose: Purpose) -> Arc<Slot> {
        self.clock += 1;
        let key = (plan.clone(), target, purpose);
        if let Some((slot, asked)) = self.slots.get_mut(&key) {
            *asked = self.clock;
            return slot.clone();
        }
        if self.slots.len() >= MAX_PLANS {
            let oldest = self.slots.iter().min_by_key(|(_, (_, asked))| *asked).map(|(key, _)| key.clone());
            oldest.map(|key| self.slots.remove(&key));
        }
        let slot = Arc::new(Slot {
            plan: plan.clone(),
            target,
            purpose,
            seen_bytes: AtomicUsize::new(0),
            started: AtomicBool::new(false),
            ready: OnceLock::new(),
        });
        self.slots.insert(key, (slot.clone(), self.clock));
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    fn encode(code: &str) -> Plan {
        code.parse::<Code>().unwrap().encode_plan().unwrap()
    }

    #[test]
    fn a_plan_has_one_slot_and_the_oldest_leave() {
        let mut cache = Cache::default();
        let first = cache.slot(&encode("3+1"), Target::AVX2, Purpose::Code);
        assert!(Arc::ptr_eq(&first, &cache.slot(&encode("3+1"), Target::AVX2, Purpose::Code)));
        assert!(!Arc::ptr_eq(&first, &cache.slot(&encode("3+1"), Target::AVX512, Purpose::Code)));
        for k in 1..200 {
            cache.slot(&encode(&format!("{k}+1")), Target::AVX512, Purpose::Code);
            cache.slot(&encode(&format!("{k}+2")), Target::AVX512, Purpose::Code);
        }
        assert_eq!(cache.slots.len(), MAX_PLANS);
        assert!(!Arc::ptr_eq(&first, &cache.slot(&encode("3+1"), Target::AVX2, Purpose::Code)));
    }

    /// A stripe of blocks of 64 KiB that lost what none lost before is not worth code, however many blocks it has.
    #[test]
    fn code_is_made_for_plans_that_come_again() {
        let code: Code = "20+6".parse().unwrap();
        let (lost, there): (Vec<usize>, Vec<usize>) = ((0..6).collect(), (6..26).collect());
        let slot = Cache::default().slot(
            &code.repair_plan(&lost, &there).unwrap(),
            Target::interpreted(64),
            Purpose::Code,
        );
        let block = 64 << 10;
        for _ in 1..WORTH_BYTES / block {
            assert!(slot.get(block).is_none());
        }
        assert!(slot.ready.get().is_none());
        assert!(slot.get(block).is_some());
    }

    /// Repairs of large stripes that each lost something else: every plan was worth compiling at once, and there were
    /// as many threads as plans.
    #[cfg(target_os = "linux")]
    #[test]
    fn many_new_plans_start_few_threads() {
        let code: Code = "40+16".parse().unwrap();
        let mut cache = Cache::default();
        let mut slots = Vec::new();
        for lost in 0..40 {
            let lost: Vec<usize> = (0..16).map(|i| (lost + i * 3) % 56).collect();
            let there: Vec<usize> = (0..56).filter(|block| !lost.contains(block)).collect();
            let plan = code.repair_plan(&lost, &there).unwrap();
            slots.push(cache.slot(&plan, Target::GFNI_AVX512, Purpose::Code));
        }
        let compiling = || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
            names.filter(|name| name.trim() == "gabion-compile").count()
        };
        // Whoever goes on asking gets code in the end.
        while slots.iter().any(|slot| slot.ready.get().is_none()) {
            for slot in &slots {
                slot.get(WORTH_BYTES);
            }
            // One that compiles, and those that are about to end.
            let threads = compiling();
            assert!(threads < 10, "{threads} threads");
        }
    }
}
