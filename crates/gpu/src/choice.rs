//! Which of the kernels serves a plan.

use crate::error::GpuError;
use crate::shape::Shape;
use crate::source::{Dialect, generic, products, transforms};
use crate::takeover::Ledger;
use crate::tuning::{self, FEW_ROWS, Tuning, check_size};
use gabion_engine::kernel::Kernel;
use gabion_engine::{Error, Plan};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the user wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// A kernel that is ready at once, until a plan has done enough work that compiling its own pays.
    #[default]
    Automatic,
    /// The plan's own kernel wherever it is not too large to be unrolled.
    Specialised,
    /// The generic kernel.
    Generic,
    /// The kernel of tensor cores where there is one for the plan, and the generic one otherwise.
    Products,
}

/// What a plan gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Its matrix unrolled into code.
    Specialised,
    /// Its matrix as data.
    Generic,
    /// Its matrix as data of tensor cores.
    Products,
}

impl Choice {
    /// What follows a back end's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Choice::Automatic => "",
            Choice::Specialised => "-specialised",
            Choice::Generic => "-generic",
            Choice::Products => "-products",
        }
    }

    /// The form in which a plan of this shape begins, on a device that has tensor cores for bits or has not.
    pub fn form(self, shape: &Shape, tensor_cores: bool) -> Form {
        match self {
            Choice::Specialised if check_size(shape).is_ok() => Form::Specialised,
            Choice::Products if tensor_cores && products::suits(shape) => Form::Products,
            Choice::Automatic => Form::ready_at_once(shape, tensor_cores),
            _ => Form::Generic,
        }
    }
}

/// The kernel of tensor cores in operations of the unrolled kernel: with one slab more warps fit on a multiprocessor than with two, and
/// packets take more registers than words.
fn cost_of_products(shape: &Shape) -> usize {
    let hundredths = match (shape.packet_words.is_some(), shape.inputs * shape.w <= 256) {
        (false, true) => 123,
        (false, false) => 215,
        (true, true) => 115,
        (true, false) => 170,
    };
    products::operations(shape) * hundredths / 100
}

/// The generic kernel in operations of the unrolled kernel: each of its own goes through shared memory, of which some take two words at once.
fn cost_of_generic(shape: &Shape) -> usize {
    let generic::Operations { puts, rows, .. } = generic::operations(shape);
    let tenths = if generic::lanes(shape) == 1 { 40 } else { 34 };
    (puts + rows) * tenths / 10
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Specialised, Form::Generic, Form::Products];

    /// Its name where people choose.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Specialised => "specialised",
            Form::Generic => "generic",
            Form::Products => "products",
        }
    }

    /// Of the forms that need no compiler for each plan, the faster one.
    pub fn ready_at_once(shape: &Shape, tensor_cores: bool) -> Form {
        let pays = || products::suits(shape) && cost_of_products(shape) < cost_of_generic(shape);
        if tensor_cores && pays() { Form::Products } else { Form::Generic }
    }

    /// The fastest form, for a plan that is used often.
    pub fn fastest(plan: &Plan, tensor_cores: bool) -> Form {
        let shape = Shape::of(plan);
        if check_size(&shape).is_err() {
            return Form::ready_at_once(&shape, tensor_cores);
        }
        let (_, unrolled) = unrolled_tuning(plan);
        let products = cost_of_products(&shape).max(tuning::moving(&shape));
        // Estimates are off by some percent; when in doubt, the kernel that has the plan in its code.
        let pays = tensor_cores && products::suits(&shape) && 10 * products < 9 * unrolled;
        if pays { Form::Products } else { Form::Specialised }
    }
}

/// The choice for a plan, with what its kernel costs in operations on words. Where additions of its matrix are not far from bounding it, its structure is
/// tried as well, and taken where it has so many fewer that what else its kernel does is paid for.
pub(crate) fn unrolled_tuning(plan: &Plan) -> (Tuning, usize) {
    let shape = Shape::of(plan);
    let (tuning, moving) = (Tuning::of(&shape), tuning::moving(&shape));
    let operations = tuning.operations(&shape);
    let transformed =
        || Some(transforms::source(Dialect::Cuda, plan, transforms::WIDTH)?.counts.arithmetic());
    // With fewer sums the matrix leaves room for twice as many threads, and is as fast as memory.
    let tries = shape.outputs * shape.w > FEW_ROWS && 10 * operations > 6 * moving;
    match tries.then(transformed).flatten() {
        Some(fewer) if 4 * fewer < 3 * operations => {
            (Tuning { transformed: transforms::WIDTH, ..tuning }, fewer.max(moving))
        }
        _ => (tuning, operations.max(moving)),
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

    /// A plan on a device: `ready` first, what `own` compiles later where that is faster, and the CPU where the device has none and
    /// `ledger` allows it.
    pub(crate) fn on_device<K: Kernel + 'static>(
        plan: &Plan,
        ready: K,
        own: impl Fn() -> Result<K, GpuError> + Send + Sync + 'static,
        ledger: Arc<Ledger>,
        tensor_cores: bool,
    ) -> Growing {
        let can = Form::fastest(plan, tensor_cores) == Form::Specialised;
        let plan = plan.clone();
        let make: Make = Box::new(move || ledger.kernel(&plan, own().map(boxed)));
        Growing::new(Box::new(ready), can.then_some(make), AUTOMATIC_BYTES)
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

    fn plan(code: &str) -> Plan {
        code.parse::<Code>().unwrap().encode_plan().unwrap()
    }

    fn shape(code: &str) -> Shape {
        Shape::of(&plan(code))
    }

    /// Transforms where they were faster when measured.
    #[test]
    fn many_outputs_of_packets_are_transformed() {
        let transformed = |code: &str| {
            let plan = format!("{code}:packets=4096").parse::<Code>().unwrap().encode_plan().unwrap();
            unrolled_tuning(&plan).0.transformed > 0
        };
        for code in ["16+16", "20+16", "24+12", "32+16", "64+16"] {
            assert!(transformed(code), "{code}");
        }
        for code in ["10+8", "20+8", "45+8", "64+8", "64+4"] {
            assert!(!transformed(code), "{code}");
        }
    }

    #[test]
    fn plans_too_large_to_be_unrolled_are_generic() {
        let form = |code: &str| Choice::Specialised.form(&shape(code), true);
        assert_eq!(form("64+16"), Form::Specialised);
        assert_eq!(form("30+33"), Form::Specialised);
        assert_eq!(form("200+56"), Form::Generic);
        assert_eq!(form("20+8:w64"), Form::Generic);
    }

    /// The form that was fastest when measured.
    #[test]
    fn tensor_cores_serve_plans_with_many_inputs_and_outputs() {
        let fastest = |code: &str| Form::fastest(&plan(code), true);
        for code in ["10+4", "45+8", "16+16", "32+16", "30+33", "10+4:w16", "10+4:packets=4096"] {
            assert_eq!(fastest(code), Form::Specialised, "{code}");
        }
        for code in ["64+16", "200+56"] {
            assert_eq!(fastest(code), Form::Products, "{code}");
            assert_ne!(Form::fastest(&plan(code), false), Form::Products, "{code}");
        }
        for code in ["4+2", "10+4", "45+2", "10+4:packets=4096", "10+8:packets=4096"] {
            assert_eq!(Form::ready_at_once(&shape(code), true), Form::Generic, "{code}");
        }
        for code in
            ["10+8", "16+4", "30+3", "64+4", "64+4:packets=4096", "20+8:packets=4096", "16+16:packets=4096"]
        {
            assert_eq!(Form::ready_at_once(&shape(code), true), Form::Products, "{code}");
        }
        assert_eq!(Form::ready_at_once(&shape("10+8"), false), Form::Generic);
        assert_eq!(Form::ready_at_once(&shape("10+8:w16"), true), Form::Generic);
    }
}
