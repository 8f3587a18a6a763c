//! Which of the two kernels serves a plan.

use crate::error::GpuError;
use crate::shape::Shape;
use crate::takeover::Ledger;
use crate::tuning::check_size;
use gabion_engine::kernel::Kernel;
use gabion_engine::{Error, Plan};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the user wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The generic kernel until a plan has done enough work that compiling its own pays.
    #[default]
    Automatic,
    /// The plan's own kernel wherever it is not too large to be unrolled.
    Specialised,
    /// The generic kernel.
    Generic,
}

/// What a plan gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Its matrix unrolled into code.
    Specialised,
    /// Its matrix as data.
    Generic,
}

impl Choice {
    /// What follows a back end's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Choice::Automatic => "",
            Choice::Specialised => "-specialised",
            Choice::Generic => "-generic",
        }
    }

    /// The form in which a plan of this shape begins.
    pub fn form(self, shape: &Shape) -> Form {
        match self {
            Choice::Specialised if check_size(shape).is_ok() => Form::Specialised,
            _ => Form::Generic,
        }
    }
}

/// Bytes that go through a plan's generic kernel before it gets its own. Compiling takes about a second, and the generic
/// kernel is slower than the bus only where there are many outputs: a plan that is used once is not worth it.
pub const AUTOMATIC_BYTES: u64 = 4 << 30;

/// Compiles a plan's own kernel.
pub type Make = Box<dyn Fn() -> Result<Box<dyn Kernel>, Error> + Send + Sync>;

/// A kernel that begins in the generic form and gets its own once it has seen enough work.
pub struct Growing {
    generic: Box<dyn Kernel>,
    own: OnceLock<Result<Box<dyn Kernel>, Error>>,
    make: Option<Make>,
    bytes: AtomicU64,
    after: u64,
}

impl Growing {
    /// Begins with `generic`; `make` compiles the plan's own kernel, or is `None` for a plan too large for one.
    pub fn new(generic: Box<dyn Kernel>, make: Option<Make>, after: u64) -> Growing {
        Growing { generic, own: OnceLock::new(), make, bytes: AtomicU64::new(0), after }
    }

    /// A plan on a device: `generic` first, what `own` compiles later, and the CPU where the device has none and `ledger`
    /// allows it.
    pub(crate) fn on_device<K: Kernel + 'static>(
        plan: &Plan,
        generic: K,
        own: impl Fn() -> Result<K, GpuError> + Send + Sync + 'static,
        ledger: Arc<Ledger>,
    ) -> Growing {
        let can = Choice::Specialised.form(&Shape::of(plan)) == Form::Specialised;
        let plan = plan.clone();
        let make: Make = Box::new(move || ledger.kernel(&plan, own().map(boxed)));
        Growing::new(Box::new(generic), can.then_some(make), AUTOMATIC_BYTES)
    }

    /// The form that serves now.
    pub fn form(&self) -> Form {
        if self.own.get().is_some() { Form::Specialised } else { Form::Generic }
    }
}

/// A kernel that nobody need know the type of.
pub(crate) fn boxed<K: Kernel + 'static>(kernel: K) -> Box<dyn Kernel> {
    Box::new(kernel)
}

impl Kernel for Growing {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let bytes: usize = inputs.iter().map(|block| block.len()).sum();
        let before = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match &self.make {
            Some(make) if before >= self.after => match self.own.get_or_init(make) {
                Ok(own) => own.run(inputs, outputs),
                Err(error) => Err(error.clone()),
            },
            _ => self.generic.run(inputs, outputs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;
    use gabion_engine::kernel::{Backend, Reference};
    use std::sync::Mutex;

    struct Counting(Box<dyn Kernel>, Arc<AtomicU64>);

    impl Kernel for Counting {
        fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.run(inputs, outputs)
        }
    }

    #[test]
    fn enough_work_earns_a_kernel_of_its_own() {
        let plan = "2+1".parse::<Code>().unwrap().encode_plan().unwrap();
        let (generic, own) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let kernel =
            |count: &Arc<AtomicU64>| boxed(Counting(Reference.compile(&plan).unwrap(), count.clone()));
        let later = Mutex::new(Some(kernel(&own)));
        let make: Make = Box::new(move || Ok(later.lock().unwrap().take().unwrap()));
        let growing = Growing::new(kernel(&generic), Some(make), 100);
        let block = [7u8; 32];
        for (run, form) in
            [Form::Generic, Form::Generic, Form::Specialised, Form::Specialised].into_iter().enumerate()
        {
            let mut output = [0u8; 32];
            growing.run(&[&block, &block], &mut [&mut output]).unwrap();
            assert_eq!(growing.form(), form, "run {run}");
        }
        assert_eq!((generic.load(Ordering::Relaxed), own.load(Ordering::Relaxed)), (2, 2));
    }

    #[test]
    fn a_kernel_that_does_not_compile_is_an_error_and_not_another_kernel() {
        let plan = "2+1".parse::<Code>().unwrap().encode_plan().unwrap();
        let generic = boxed(Counting(Reference.compile(&plan).unwrap(), Arc::default()));
        let refused =
            || GpuError::Compile { api: crate::Api::Cuda, reason: "no".to_owned(), log: "line 3".to_owned() };
        let growing = Growing::new(generic, Some(Box::new(move || Err(refused().into()))), 0);
        let (block, mut output) = ([7u8; 32], [9u8; 32]);
        let error = growing.run(&[&block, &block], &mut [&mut output]).unwrap_err();
        assert!(error.to_string().contains("line 3"), "{error}");
        assert_eq!(output, [9u8; 32]);
    }

    #[test]
    fn plans_too_large_to_be_unrolled_are_generic() {
        let form = |code: &str| {
            Choice::Specialised.form(&Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap()))
        };
        assert_eq!(form("64+16"), Form::Specialised);
        assert_eq!(form("30+33"), Form::Specialised);
        assert_eq!(form("200+56"), Form::Generic);
        assert_eq!(form("20+8:w64"), Form::Generic);
    }
}
