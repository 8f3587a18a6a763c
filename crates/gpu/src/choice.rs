//! Choice of the kernel form for a plan.

use crate::error::GpuError;
use crate::shape::Shape;
use crate::source::{Dialect, generic, products, transforms};
use crate::takeover::Ledger;
use crate::tuning::{self, FEW_ROWS, Tuning, check_size};
use gabion_engine::kernel::Kernel;
use gabion_engine::{Error, Plan};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The user's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// A kernel that is ready at once, until the plan has processed enough bytes for compiling its own kernel.
    #[default]
    Automatic,
    /// The plan's own kernel, unless it is too large to be unrolled.
    Specialised,
    /// The generic kernel.
    Generic,
    /// The tensor-core kernel if it supports the plan, otherwise the generic one.
    Products,
}

/// Form of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The matrix is unrolled into code.
    Specialised,
    /// The matrix is data.
    Generic,
    /// The matrix is data for tensor cores.
    Products,
}

impl Choice {
    /// Suffix of the back end's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Choice::Automatic => "",
            Choice::Specialised => "-specialised",
            Choice::Generic => "-generic",
            Choice::Products => "-products",
        }
    }

    /// The initial form for a plan of this shape, on a device with or without tensor cores for bits.
    pub fn form(self, shape: &Shape, tensor_cores: bool) -> Form {
        match self {
            Choice::Specialised if check_size(shape).is_ok() => Form::Specialised,
            Choice::Products if tensor_cores && products::suits(shape) => Form::Products,
            Choice::Automatic => Form::ready_at_once(shape, tensor_cores),
            _ => Form::Generic,
        }
    }
}

/// Cost of the tensor-core kernel in operations of the unrolled kernel: with one slab more warps fit on a
/// multiprocessor than with two, and packets take more registers than words.
fn cost_of_products(shape: &Shape) -> usize {
    let hundredths = match (shape.packet_words.is_some(), shape.inputs * shape.w <= 256) {
        (false, true) => 123,
        (false, false) => 215,
        (true, true) => 115,
        (true, false) => 170,
    };
    products::operations(shape) * hundredths / 100
}

/// Cost of the generic kernel in operations of the unrolled kernel: each of its operations goes through shared memory,
/// some with two words at once.
fn cost_of_generic(shape: &Shape) -> usize {
    let generic::Operations { puts, rows, .. } = generic::operations(shape);
    let tenths = if generic::lanes(shape) == 1 { 40 } else { 34 };
    (puts + rows) * tenths / 10
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 3] = [Form::Specialised, Form::Generic, Form::Products];

    /// Its name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Specialised => "specialised",
            Form::Generic => "generic",
            Form::Products => "products",
        }
    }

    /// The faster of the forms that need no compilation per plan.
    pub fn ready_at_once(shape: &Shape, tensor_cores: bool) -> Form {
        let pays = || products::suits(shape) && cost_of_products(shape) < cost_of_generic(shape);
        if tensor_cores && pays() { Form::Products } else { Form::Generic }
    }

    /// The fastest form for a plan that is used often.
    pub fn fastest(plan: &Plan, tensor_cores: bool) -> Form {
        let shape = Shape::of(plan);
        if check_size(&shape).is_err() {
            return Form::ready_at_once(&shape, tensor_cores);
        }
        let (_, unrolled) = unrolled_tuning(plan);
        let products = cost_of_products(&shape).max(tuning::moving(&shape));
        // Estimates are off by some percent; the specialised kernel is preferred when they are close.
        let pays = tensor_cores && products::suits(&shape) && 10 * products < 9 * unrolled;
        if pays { Form::Products } else { Form::Specialised }
    }
}

/// The tuning of the unrolled kernel of a plan, with its cost in operations on words. If the additions of the matrix
/// are close to the bottleneck, the factored structure is tried as well, and used if it saves enough additions to
/// outweigh its other costs.
pub(crate) fn unrolled_tuning(plan: &Plan) -> (Tuning, usize) {
    let shape = Shape::of(plan);
    let (tuning, moving) = (Tuning::of(&shape), tuning::moving(&shape));
    let operations = tuning.operations(&shape);
    let transformed =
        || Some(transforms::source(Dialect::Cuda, plan, transforms::WIDTH)?.counts.arithmetic());
    // With fewer sums the matrix kernel has registers for twice as many threads and is memory-bound.
    let tries = shape.outputs * shape.w > FEW_ROWS && 10 * operations > 6 * moving;
    match tries.then(transformed).flatten() {
        Some(fewer) if 4 * fewer < 3 * operations => {
            (Tuning { transformed: transforms::WIDTH, ..tuning }, fewer.max(moving))
        }
        _ => (tuning, operations.max(moving)),
    }
}

/// Bytes that a plan's generic kernel processes before its own kernel is compiled. Compilation takes about a second,
/// and the generic kernel is slower than the bus only for many outputs: it does not pay for a plan that is used once.
pub const AUTOMATIC_BYTES: u64 = 4 << 30;

/// Compiles a plan's own kernel.
pub type Make = Box<dyn Fn() -> Result<Box<dyn Kernel>, Error> + Send + Sync>;

/// A kernel that starts in the generic form and switches to its own kernel after enough bytes.
pub struct Growing {
    generic: Box<dyn Kernel>,
    own: OnceLock<Result<Box<dyn Kernel>, Error>>,
    make: Option<Make>,
    bytes: AtomicU64,
    after: u64,
}

impl Growing {
    /// Starts with `generic`; `make` compiles the plan's own kernel, or is `None` for a plan that is too large.
    pub fn new(generic: Box<dyn Kernel>, make: Option<Make>, after: u64) -> Growing {
        Growing { generic, own: OnceLock::new(), make, bytes: AtomicU64::new(0), after }
    }

    /// A plan on a device: first `ready`, later the kernel from `own` if that is faster, and the CPU if the device
    /// fails and `ledger` allows it.
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

    /// The form in use.
    pub fn form(&self) -> Form {
        if self.own.get().is_some() { Form::Specialised } else { Form::Generic }
    }
}

/// Boxes a kernel.
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
    fn enough_work_compiles_the_own_kernel() {
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

    /// Transforms are chosen where they were faster in measurements.
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

    /// The form that was fastest in measurements.
    #[test]
    fn tensor_cores_are_used_for_many_inputs_and_outputs() {
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
