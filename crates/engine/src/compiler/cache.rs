//! Process-wide cache of compiled plans.
//!
//! A plan is compiled once it has processed enough bytes, and without delaying a call for long: plans that take longer
//! than about a millisecond are compiled on a background thread, one at a time, and the generic kernel runs until then.

use super::choose::{self, Choice};
use super::kernel::{CodeKernel, SigningKernel};
use super::lower::planar;
use super::machine::{Allocated, Form};
use super::target::Target;
use crate::division::SignaturePoints;
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use crate::tuning::{COMPILE_AFTER_BYTES, MAX_CACHED_PLANS, MAX_FOREGROUND_COEFFICIENTS};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Cache entry of one plan: its code once it is compiled.
#[derive(Debug)]
pub(crate) struct Slot {
    plan: Plan,
    target: Target,
    purpose: Purpose,
    seen_bytes: AtomicUsize,
    started: AtomicBool,
    /// An inner `None` means that the compiler does not handle the plan.
    ready: OnceLock<Option<Ready>>,
}

/// Purpose of compiled code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Its outputs.
    Code,
    /// Its outputs and the signatures of its inputs at these points; machine code only.
    SignedCode { points: SignaturePoints },
}

/// Result of compiling a plan.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Machine code.
    Code(Box<CodeKernel>),
    /// Machine code that also computes signatures.
    SigningCode(Box<SigningKernel>),
    /// Steps for the interpreter.
    Steps(Allocated),
}

impl Ready {
    /// Compiles a matrix for blocks in the planar layout; the planes are the blocks of the program.
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
    /// The cache entry of a plan, shared by all its users.
    ///
    /// # Safety
    /// The CPU has the target's instruction set.
    pub(crate) unsafe fn of(plan: &Plan, target: Target, purpose: Purpose) -> Arc<Slot> {
        static CACHE: OnceLock<Mutex<Cache>> = OnceLock::new();
        let cache = CACHE.get_or_init(Mutex::default);
        cache.lock().unwrap_or_else(PoisonError::into_inner).slot(plan, target, purpose)
    }

    /// The code, compiled on the first call.
    pub(crate) fn ready(&self) -> Option<&Ready> {
        // SAFETY: a slot exists only where the CPU has the target.
        self.ready.get_or_init(|| unsafe { Ready::new(&self.plan, self.target, self.purpose) }).as_ref()
    }

    /// The code if it is ready. Counts `bytes` of each block towards the compilation threshold.
    #[inline]
    pub(crate) fn get(self: &Arc<Slot>, bytes: usize) -> Option<&Ready> {
        match self.ready.get() {
            Some(ready) => ready.as_ref(),
            None => self.count(bytes),
        }
    }

    /// Counts bytes processed without code, and compiles the plan at the threshold.
    #[cold]
    fn count(self: &Arc<Slot>, bytes: usize) -> Option<&Ready> {
        let seen = self.seen_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if seen < COMPILE_AFTER_BYTES || self.started.load(Ordering::Relaxed) {
            return None;
        }
        let is_short = coefficients(&self.plan) <= MAX_FOREGROUND_COEFFICIENTS;
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
        // If no thread can be started, the generic kernel keeps running.
        drop(std::thread::Builder::new().name("gabion-compile".into()).spawn(compile));
        None
    }
}

/// Permission to compile on a background thread. There is one for the process: a caller with a new erasure pattern in
/// every call would otherwise start threads faster than they end. A plan that finds it taken tries again on its next
/// call.
struct Permit;

static PERMIT_TAKEN: AtomicBool = AtomicBool::new(false);

impl Permit {
    fn take() -> Option<Permit> {
        // Not `then_some`: it would create and drop a permit in both cases.
        if PERMIT_TAKEN.swap(true, Ordering::Acquire) { None } else { Some(Permit) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        PERMIT_TAKEN.store(false, Ordering::Release);
    }
}

/// Coefficients of a plan's program; in the packets layout those of its bit matrix.
fn coefficients(plan: &Plan) -> usize {
    let bits = match plan.layout() {
        Layout::Words => 1,
        Layout::Packets { .. } => (plan.field().w() as usize).pow(2),
    };
    plan.outputs().len() * plan.inputs().len() * bits
}

/// Entries by plan, with the logical time of the last use.
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
        if self.slots.len() >= MAX_CACHED_PLANS {
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
    fn a_plan_has_one_slot_and_the_oldest_are_evicted() {
        let mut cache = Cache::default();
        let first = cache.slot(&encode("3+1"), Target::AVX2, Purpose::Code);
        assert!(Arc::ptr_eq(&first, &cache.slot(&encode("3+1"), Target::AVX2, Purpose::Code)));
        assert!(!Arc::ptr_eq(&first, &cache.slot(&encode("3+1"), Target::AVX512, Purpose::Code)));
        for k in 1..200 {
            cache.slot(&encode(&format!("{k}+1")), Target::AVX512, Purpose::Code);
            cache.slot(&encode(&format!("{k}+2")), Target::AVX512, Purpose::Code);
        }
        assert_eq!(cache.slots.len(), MAX_CACHED_PLANS);
        assert!(!Arc::ptr_eq(&first, &cache.slot(&encode("3+1"), Target::AVX2, Purpose::Code)));
    }

    /// A stripe of 64 KiB blocks with a new erasure pattern is not compiled, for any number of blocks.
    #[test]
    fn only_repeated_plans_are_compiled() {
        let code: Code = "20+6".parse().unwrap();
        let (lost, there): (Vec<usize>, Vec<usize>) = ((0..6).collect(), (6..26).collect());
        let slot = Cache::default().slot(
            &code.repair_plan(&lost, &there).unwrap(),
            Target::interpreted(64),
            Purpose::Code,
        );
        let block = 64 << 10;
        for _ in 1..COMPILE_AFTER_BYTES / block {
            assert!(slot.get(block).is_none());
        }
        assert!(slot.ready.get().is_none());
        assert!(slot.get(block).is_some());
    }

    /// Repairs of large stripes with different erasure patterns: every plan reached the threshold at once, and one
    /// thread per plan was started.
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
        // Repeated calls get code in the end.
        while slots.iter().any(|slot| slot.ready.get().is_none()) {
            for slot in &slots {
                slot.get(COMPILE_AFTER_BYTES);
            }
            // One compiling thread, and threads that are about to end.
            let threads = compiling();
            assert!(threads < 10, "{threads} threads");
        }
    }
}
