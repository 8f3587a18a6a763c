//! Encoder of instructions.

use crate::compiler::target::Target;
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

/// The nth vector register.
pub(super) fn register(target: Target, index: usize) -> Register {
    assert!(index < target.registers(), "there is no vector register {index}");
    let first = if target.width == 64 { Register::ZMM0 } else { Register::YMM0 };
    first + index as u32
}

// The encoder shortens displacements that fit a byte.
const SHORTEST: u32 = 1;

pub(super) fn memory(base: Register, offset: usize) -> MemoryOperand {
    MemoryOperand::with_base_displ_size(base, offset as i64, SHORTEST)
}

pub(super) fn indexed(base: Register, index: Register, offset: isize) -> MemoryOperand {
    MemoryOperand::with_base_index_scale_displ_size(base, index, 1, offset as i64, SHORTEST)
}

/// A constant, broadcast from its 8 bytes where the instruction does that.
pub(super) fn constant(base: Register, offset: usize, broadcast: bool) -> MemoryOperand {
    MemoryOperand::new(base, Register::None, 1, offset as i64, SHORTEST, broadcast, Register::None)
}

const VALID_OPERANDS: &str = "every instruction of the vocabulary takes these operands";

/// A growing buffer of machine code.
pub(super) struct Assembler {
    encoder: Encoder,
    /// Bytes emitted so far.
    length: u64,
}

impl Default for Assembler {
    fn default() -> Assembler {
        Assembler { encoder: Encoder::new(64), length: 0 }
    }
}

impl Assembler {
    /// Offset of the next instruction.
    pub(super) fn here(&self) -> u64 {
        self.length
    }

    pub(super) fn push(&mut self, instruction: Instruction) {
        let encoded = self.encoder.encode(&instruction, self.length);
        self.length += encoded.expect("every instruction here has an encoding") as u64;
    }

    pub(super) fn with1(&mut self, code: Code, register: Register) {
        self.push(Instruction::with1(code, register).expect(VALID_OPERANDS));
    }

    pub(super) fn push_memory(&mut self, code: Code, memory: MemoryOperand) {
        self.push(Instruction::with1(code, memory).expect(VALID_OPERANDS));
    }

    pub(super) fn with2(&mut self, code: Code, to: Register, from: Register) {
        self.push(Instruction::with2(code, to, from).expect(VALID_OPERANDS));
    }

    pub(super) fn with2_immediate(&mut self, code: Code, to: Register, immediate: i32) {
        self.push(Instruction::with2(code, to, immediate).expect(VALID_OPERANDS));
    }

    pub(super) fn load(&mut self, code: Code, to: Register, from: MemoryOperand) {
        self.push(Instruction::with2(code, to, from).expect(VALID_OPERANDS));
    }

    pub(super) fn store(&mut self, code: Code, to: MemoryOperand, from: Register) {
        self.push(Instruction::with2(code, to, from).expect(VALID_OPERANDS));
    }

    pub(super) fn shift(&mut self, code: Code, to: Register, from: Register, by: u32) {
        self.push(Instruction::with3(code, to, from, by).expect(VALID_OPERANDS));
    }

    pub(super) fn with3(&mut self, code: Code, to: Register, a: Register, b: Register) {
        self.push(Instruction::with3(code, to, a, b).expect(VALID_OPERANDS));
    }

    /// An instruction whose third operand is in memory or in a register.
    pub(super) fn three(
        &mut self,
        code: Code,
        to: Register,
        a: Register,
        b: Result<MemoryOperand, Register>,
        immediate: Option<u32>,
    ) {
        let instruction = match (b, immediate) {
            (Ok(b), None) => Instruction::with3(code, to, a, b),
            (Err(b), None) => Instruction::with3(code, to, a, b),
            (Ok(b), Some(immediate)) => Instruction::with4(code, to, a, b, immediate),
            (Err(b), Some(immediate)) => Instruction::with4(code, to, a, b, immediate),
        };
        self.push(instruction.expect(VALID_OPERANDS));
    }

    pub(super) fn branch(&mut self, code: Code, to: u64) {
        self.push(Instruction::with_branch(code, to).expect(VALID_OPERANDS));
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.encoder.take_buffer()
    }
}
