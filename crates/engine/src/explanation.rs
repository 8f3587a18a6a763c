//! Report of the run-time compiler about a plan.

/// Statistics of the compilation of a plan.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Operations per register of every block, after each pass.
    pub stages: Vec<Stage>,
    /// Registers of every block per iteration of the loop.
    pub columns: usize,
    /// Bytes of a register.
    pub register_bytes: usize,
    /// Estimated cycles per register of every block, by the limits of the execution ports.
    pub cycles: f64,
    /// Bytes of machine code; `None` if steps are interpreted.
    pub code_bytes: Option<usize>,
    /// The machine code as text, one instruction per line; `None` without the feature `measure`.
    pub assembly: Option<String>,
}

/// Operations of a program after one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The pass.
    pub name: String,
    /// Multiplications by constants: byte maps, or nibble lookups with their preparation.
    pub products: usize,
    /// Additions of two registers: a sum of n terms counts n - 1.
    pub additions: usize,
    /// Instructions that add, once they are selected.
    pub adding_instructions: Option<usize>,
    /// Register saves, restores and copies, once registers are allocated.
    pub moves: Option<usize>,
}
