//! What the run-time compiler tells about a plan.

/// A plan on its way to machine code.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Operations per register of every block, pass by pass.
    pub stages: Vec<Stage>,
    /// Registers of every block in one turn of the loop.
    pub columns: usize,
    /// Bytes of a register.
    pub register_bytes: usize,
    /// Cycles per register of every block, by the limits of the ports.
    pub cycles: f64,
    /// Bytes of machine code; `None` where steps are interpreted.
    pub code_bytes: Option<usize>,
    /// The machine code as text, one instruction per line.
    pub assembly: Option<String>,
}

/// Operations of a program after some pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The pass.
    pub name: String,
    /// Multiplications by constants: byte maps, or look-ups by half bytes and what they need.
    pub products: usize,
    /// Additions of two registers that were asked for: a sum of n terms counts n - 1.
    pub additions: usize,
    /// Instructions that add, where it is decided which.
    pub adding_instructions: Option<usize>,
    /// Registers saved and restored, copies included, where it is decided.
    pub moves: Option<usize>,
}
