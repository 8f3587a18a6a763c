//! Counts of the run-time compiler for the plan of a case; nothing is run.

use super::rounds::best_of;
use super::{BenchError, Case};
use gabion_engine::kernel::{Backend, Explanation, KernelSet, Stage};
use gabion_engine::{Error, Layout, Mode, Plan};
use serde::Serialize;

/// Compilations of which the fastest counts.
const REPEATS: usize = 5;

/// One plan and one kernel.
#[derive(Debug, Clone)]
pub struct Explained {
    /// What the plan is for.
    pub case: Case,
    /// The kernel.
    pub row: &'static KernelSet,
    /// Operations by the matrix.
    pub by_matrix: Stage,
    /// The compilation, or the reason why there is none.
    pub outcome: Result<Compilation, String>,
}

/// A plan that is compiled.
#[derive(Debug, Clone)]
pub struct Compilation {
    /// Counts of the compiler.
    pub explanation: Explanation,
    /// Seconds for all passes, emission and listing, without the allocation of executable pages.
    pub seconds: f64,
}

/// Execution of a plan that has processed enough data to be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// Machine code.
    Code,
    /// The interpreter of compiled steps.
    Steps,
    /// The generic kernels, as before.
    Generic,
}

/// One stage as a JSON line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainLine {
    /// Always `explain`.
    pub bench: &'static str,
    /// Operation, shape, options.
    pub case: String,
    /// The kernel.
    pub kernel: String,
    /// The pass before the counts.
    pub stage: String,
    /// Multiplications per register of every block.
    pub products: usize,
    /// Additions of two registers, likewise.
    pub additions: usize,
    /// Adding instructions, after instructions are selected.
    pub adding_instructions: Option<usize>,
    /// Copies, saves and restores, after registers are allocated.
    pub moves: Option<usize>,
    /// Execution of the plan.
    pub runs: Runs,
    /// Registers of every block in a turn of the loop.
    pub columns: Option<usize>,
    /// Bytes of a register.
    pub register_bytes: Option<usize>,
    /// Cycles of machine code per register of every block, estimated.
    pub cycles: Option<f64>,
    /// Bytes of machine code.
    pub code_bytes: Option<usize>,
    /// Seconds of compilation.
    pub compile_seconds: Option<f64>,
}

impl Explained {
    /// Compiles the plan of `case` for `row`; `None` for a case without a plan.
    ///
    /// # Errors
    /// The case cannot be measured, or the engine refuses the plan.
    pub fn new(case: &Case, row: &'static KernelSet) -> Result<Option<Explained>, BenchError> {
        case.check()?;
        let Some(plan) = case.plan()? else { return Ok(None) };
        let by_matrix = by_matrix(&plan)?;
        let explanation = row.explain(&plan);
        let outcome = explanation.ok_or_else(|| refusal_reason(&plan)).map(|explanation| {
            let seconds = best_of(REPEATS, || drop(row.explain(&plan))).as_secs_f64();
            Compilation { explanation, seconds }
        });
        Ok(Some(Explained { case: case.clone(), row, by_matrix, outcome }))
    }

    /// Operation, shape, options: the name of a measurement without the size of blocks.
    pub fn name(&self) -> String {
        format!("{} {}{}", self.case.operation, self.case.shape(), self.case.options(self.row))
    }

    /// Counts of the matrix, then those of the compiler.
    pub fn stages(&self) -> Vec<&Stage> {
        let noted = self.outcome.iter().flat_map(|compilation| &compilation.explanation.stages);
        // A compiler's line with the same counts is left out.
        let others = noted.filter(|stage| stage.name != self.by_matrix.name);
        std::iter::once(&self.by_matrix).chain(others).collect()
    }

    /// Counts of the last stage, if the plan is compiled.
    pub fn last(&self) -> Option<&Stage> {
        self.outcome.as_ref().ok().and_then(|compilation| compilation.explanation.stages.last())
    }

    /// Execution of the plan.
    pub fn runs(&self) -> Runs {
        match &self.outcome {
            Ok(compilation) if compilation.explanation.code_bytes.is_some() => Runs::Code,
            Ok(_) => Runs::Steps,
            Err(_) => Runs::Generic,
        }
    }

    /// One line per stage.
    pub fn lines(&self) -> Vec<ExplainLine> {
        let compilation = self.outcome.as_ref().ok();
        let explanation = compilation.map(|compilation| &compilation.explanation);
        // The estimate is for ports of the CPU, which do not limit the interpreter.
        let cycles = explanation
            .filter(|explanation| explanation.code_bytes.is_some())
            .map(|explanation| explanation.cycles);
        let line = |stage: &Stage| ExplainLine {
            bench: "explain",
            case: self.name(),
            kernel: self.row.name().to_owned(),
            stage: stage.name.clone(),
            products: stage.products,
            additions: stage.additions,
            adding_instructions: stage.adding_instructions,
            moves: stage.moves,
            runs: self.runs(),
            columns: explanation.map(|explanation| explanation.columns),
            register_bytes: explanation.map(|explanation| explanation.register_bytes),
            cycles,
            code_bytes: explanation.and_then(|explanation| explanation.code_bytes),
            compile_seconds: compilation.map(|compilation| compilation.seconds),
        };
        self.stages().into_iter().map(line).collect()
    }
}

/// Operations of the matrix: a product for every distinct coefficient of a column other than 0 and 1, a sum for every
/// output.
fn by_matrix(plan: &Plan) -> Result<Stage, Error> {
    let kept = usize::from(plan.mode() == Mode::Add);
    let additions = |terms: usize| (terms + kept).saturating_sub(1);
    if let Layout::Packets { .. } = plan.layout() {
        let bits = gabion_engine::matrix::bits::BitMatrix::expand(plan.matrix()?)?;
        let additions = (0..bits.rows()).map(|row| additions(bits.ones_in_row(row).count())).sum();
        return Ok(stage("by bit matrix", 0, additions));
    }
    let matrix = plan.matrix()?;
    let column = |input: usize| (0..matrix.rows()).map(move |output| matrix.at(output, input));
    let products = (0..matrix.columns()).map(|input| {
        let mut constants: Vec<u64> = column(input).filter(|&constant| constant > 1).collect();
        constants.sort_unstable();
        constants.dedup();
        constants.len()
    });
    let terms = |output: usize| matrix.row(output).iter().filter(|&&constant| constant != 0).count();
    Ok(stage("by matrix", products.sum(), (0..matrix.rows()).map(|output| additions(terms(output))).sum()))
}

fn stage(name: &str, products: usize, additions: usize) -> Stage {
    Stage { name: name.to_owned(), products, additions, adding_instructions: None, moves: None }
}

/// Reason why generic kernels run a plan. The limits are those of the compiler, as far as they can be seen from
/// outside.
fn refusal_reason(plan: &Plan) -> String {
    let (rows, columns) = (plan.outputs().len(), plan.inputs().len());
    match plan.layout() {
        Layout::Words if plan.field().w() > 8 => format!(
            "words of {} bits need AVX-512 with GFNI and VBMI, or {rows} x {columns} is too large",
            plan.field().w()
        ),
        Layout::Words => format!("a matrix of {rows} x {columns} is too large"),
        Layout::Packets { bytes } => format!(
            "packets of {bytes} bytes are no whole registers of this kernel, or {rows} x {columns} is too large"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Operation;
    use gabion_engine::kernel::kernel_sets;

    fn explained(operation: Operation, code: &str, row: &'static KernelSet) -> Explained {
        let code: gabion_engine::Code = code.parse().unwrap();
        let case = Case { lost: Some(1), ..Case::unmeasured(operation, code) };
        Explained::new(&case, row).unwrap().expect("the operation has a plan")
    }

    #[test]
    fn the_matrix_comes_first_and_registers_last() {
        for row in kernel_sets() {
            for operation in [Operation::Encode, Operation::Repair, Operation::Update] {
                let it = explained(operation, "6+3", row);
                let names: Vec<&str> = it.stages().iter().map(|stage| stage.name.as_str()).collect();
                assert_eq!((names[0], *names.last().unwrap()), ("by matrix", "allocate"), "{row:?}");
                assert_eq!(names.iter().filter(|name| **name == "by matrix").count(), 1);
                assert!(it.last().unwrap().adding_instructions.is_some());
            }
        }
    }

    /// The compiler's own count of the matrix, where there is one, is the same.
    #[test]
    fn both_count_the_matrix_alike() {
        for code in ["rs-isal:6+3", "cauchy-good:5+3:w4:packets=64", "3+2:w8:packets=128", "raidz:5+3"] {
            for operation in [Operation::Encode, Operation::Repair, Operation::Update] {
                let it = explained(operation, code, &kernel_sets()[0]);
                let noted = &it.outcome.as_ref().unwrap().explanation.stages;
                assert_eq!(noted[0], it.by_matrix, "{operation} {code}");
            }
        }
    }

    #[test]
    fn what_is_not_compiled_says_why() {
        for (code, why) in [("4+2:w16", "words of 16 bits"), ("cauchy-good:128+64", "64 x 128 is too large")]
        {
            let it = explained(Operation::Encode, code, &kernel_sets()[0]);
            assert!(it.outcome.as_ref().unwrap_err().contains(why), "{it:?}");
            assert_eq!((it.runs(), it.lines().len()), (Runs::Generic, 1));
        }
    }
}
