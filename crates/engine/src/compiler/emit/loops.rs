//! Measuring loops: repeated instructions, loads over a buffer, several streams, pointer chasing.
//!
//! ```text
//! fn(place: *const u8, bytes: usize, turns: usize) -> *const u8    System V
//!    rdi               rsi           rdx              rax
//! ```

use super::assembler::{Assembler, indexed, memory};
use crate::compiler::measure::{Access, CHASED, LINE, Operation, REPEATS, Stores, Width};
use iced_x86::{Code, Instruction, Register};

const PLACE: Register = Register::RDI;
const BYTES: Register = Register::RSI;
const TURNS: Register = Register::RDX;
const INDEX: Register = Register::RAX;
const POINTER: Register = Register::R8;

/// Any truth table would do; this is the sum of three.
const TABLE: u32 = 0x96;

/// Caller-saved registers, except those with arguments, the index and the pointer.
const SCALARS: [Register; 4] = [Register::RCX, Register::R9, Register::R10, Register::R11];

fn vector(width: Width, index: usize) -> Register {
    let first = match width {
        Width::Scalar => return SCALARS[index % SCALARS.len()],
        Width::Bits128 => Register::XMM0,
        Width::Bits256 => Register::YMM0,
        Width::Bits512 => Register::ZMM0,
    };
    first + (index % 16) as u32
}

/// The instruction; `None` if it does not exist for this width.
pub(in crate::compiler) fn instruction(operation: Operation, width: Width) -> Option<Code> {
    let [scalar, narrow, middle, wide] = match operation {
        Operation::Load => [
            Code::Mov_r64_rm64,
            Code::VEX_Vmovdqu_xmm_xmmm128,
            Code::VEX_Vmovdqu_ymm_ymmm256,
            Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
        ],
        Operation::Store => [
            Code::Mov_rm64_r64,
            Code::VEX_Vmovdqu_xmmm128_xmm,
            Code::VEX_Vmovdqu_ymmm256_ymm,
            Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
        ],
        Operation::Xor => [
            Code::Xor_r64_rm64,
            Code::VEX_Vpxor_xmm_xmm_xmmm128,
            Code::VEX_Vpxor_ymm_ymm_ymmm256,
            Code::EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
        ],
        Operation::Ternary => [
            Code::INVALID,
            Code::EVEX_Vpternlogd_xmm_k1z_xmm_xmmm128b32_imm8,
            Code::EVEX_Vpternlogd_ymm_k1z_ymm_ymmm256b32_imm8,
            Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8,
        ],
        Operation::Shift => [
            Code::Shl_rm64_imm8,
            Code::VEX_Vpsllw_xmm_xmm_imm8,
            Code::VEX_Vpsllw_ymm_ymm_imm8,
            Code::EVEX_Vpsllw_zmm_k1z_zmmm512_imm8,
        ],
        Operation::Shuffle => [
            Code::INVALID,
            Code::VEX_Vpshufb_xmm_xmm_xmmm128,
            Code::VEX_Vpshufb_ymm_ymm_ymmm256,
            Code::EVEX_Vpshufb_zmm_k1z_zmm_zmmm512,
        ],
        Operation::Affine => [
            Code::INVALID,
            Code::VEX_Vgf2p8affineqb_xmm_xmm_xmmm128_imm8,
            Code::VEX_Vgf2p8affineqb_ymm_ymm_ymmm256_imm8,
            Code::EVEX_Vgf2p8affineqb_zmm_k1z_zmm_zmmm512b64_imm8,
        ],
        Operation::Multiply => [
            Code::INVALID,
            Code::VEX_Vpclmulqdq_xmm_xmm_xmmm128_imm8,
            Code::VEX_Vpclmulqdq_ymm_ymm_ymmm256_imm8,
            Code::EVEX_Vpclmulqdq_zmm_zmm_zmmm512_imm8,
        ],
    };
    let code = match width {
        Width::Scalar => scalar,
        Width::Bits128 => narrow,
        Width::Bits256 => middle,
        Width::Bits512 => wide,
    };
    (code != Code::INVALID).then_some(code)
}

/// A loop with [`REPEATS`] independent copies of the instruction per iteration.
pub(in crate::compiler) fn repeated(code: Code, operation: Operation, width: Width) -> Vec<u8> {
    let mut assembler = Assembler::default();
    let head = assembler.here();
    let (first, second) = match width {
        // Source registers, never written.
        Width::Scalar => (BYTES, BYTES),
        _ => (vector(width, 14), vector(width, 15)),
    };
    for index in 0..REPEATS {
        let to = vector(width, index % 12);
        let at = memory(PLACE, index * LINE);
        match operation {
            Operation::Load => assembler.load(code, to, at),
            Operation::Store => assembler.store(code, at, second),
            Operation::Xor if width == Width::Scalar => assembler.with2(code, to, second),
            Operation::Shift if width == Width::Scalar => assembler.with2_immediate(code, to, 1),
            Operation::Xor | Operation::Shuffle => assembler.with3(code, to, first, second),
            Operation::Shift => assembler.shift(code, to, first, 1),
            Operation::Ternary => assembler.three(code, to, first, Err(second), Some(TABLE)),
            Operation::Affine | Operation::Multiply => assembler.three(code, to, first, Err(second), Some(0)),
        }
    }
    count_down(&mut assembler, head);
    finish(assembler, width != Width::Scalar)
}

/// A loop that loads all of a buffer the given number of times.
pub(in crate::compiler) fn loads(load: Code, width: Width, access: Access) -> Vec<u8> {
    let mut assembler = Assembler::default();
    let again = assembler.here();
    zero_index(&mut assembler);
    let head = assembler.here();
    let turn = access.turn(width);
    for offset in (0..turn).step_by(width.bytes()) {
        if let (Access::Prefetched { ahead }, true) = (access, offset % LINE == 0) {
            assembler.push_memory(Code::Prefetcht0_m8, indexed(PLACE, INDEX, (offset + ahead) as isize));
        }
        let to = vector(width, offset / width.bytes());
        assembler.load(load, to, indexed(PLACE, INDEX, offset as isize));
    }
    advance(&mut assembler, turn, head);
    count_down(&mut assembler, again);
    finish(assembler, width != Width::Scalar)
}

/// A loop that loads a line of every input, then stores a line of every output. There is at least one input.
pub(in crate::compiler) fn streams(
    (load, store): (Code, Code),
    width: Width,
    (inputs, outputs): (usize, usize),
    (stores, ahead): (Stores, usize),
) -> Vec<u8> {
    let mut assembler = Assembler::default();
    zero_index(&mut assembler);
    let head = assembler.here();
    for block in 0..inputs + outputs {
        assembler.load(Code::Mov_r64_rm64, POINTER, memory(PLACE, 8 * block));
        if ahead > 0 && block < inputs {
            assembler.push_memory(Code::Prefetcht0_m8, indexed(POINTER, INDEX, ahead as isize));
        }
        for offset in (0..LINE).step_by(width.bytes()) {
            let at = indexed(POINTER, INDEX, offset as isize);
            match block < inputs {
                true => assembler.load(load, vector(width, block), at),
                // Stores a register that an input was loaded into.
                false => assembler.store(store, at, vector(width, (block - inputs) % inputs)),
            }
        }
    }
    advance(&mut assembler, LINE, head);
    if stores == Stores::NonTemporal {
        assembler.push(Instruction::with(Code::Sfence));
    }
    finish(assembler, width != Width::Scalar)
}

/// The non-temporal store instruction.
pub(in crate::compiler) fn streaming_store(width: Width) -> Code {
    match width {
        Width::Scalar => Code::Movnti_m64_r64,
        Width::Bits128 => Code::VEX_Vmovntdq_m128_xmm,
        Width::Bits256 => Code::VEX_Vmovntdq_m256_ymm,
        Width::Bits512 => Code::EVEX_Vmovntdq_m512_zmm,
    }
}

/// A loop of [`CHASED`] dependent loads per iteration; returns the last address.
pub(in crate::compiler) fn chase() -> Vec<u8> {
    let mut assembler = Assembler::default();
    assembler.with2(Code::Mov_r64_rm64, INDEX, PLACE);
    let head = assembler.here();
    for _ in 0..CHASED {
        assembler.load(Code::Mov_r64_rm64, INDEX, memory(INDEX, 0));
    }
    count_down(&mut assembler, head);
    finish(assembler, false)
}

fn zero_index(assembler: &mut Assembler) {
    assembler.with2(Code::Xor_r64_rm64, INDEX, INDEX);
}

fn count_down(assembler: &mut Assembler, head: u64) {
    assembler.with1(Code::Dec_rm64, TURNS);
    assembler.branch(Code::Jne_rel32_64, head);
}

fn advance(assembler: &mut Assembler, by: usize, head: u64) {
    assembler.with2_immediate(Code::Add_rm64_imm32, INDEX, by as i32);
    assembler.with2(Code::Cmp_r64_rm64, INDEX, BYTES);
    assembler.branch(Code::Jb_rel32_64, head);
}

fn finish(mut assembler: Assembler, vectors: bool) -> Vec<u8> {
    if vectors {
        assembler.push(Instruction::with(Code::VEX_Vzeroupper));
    }
    assembler.push(Instruction::with(Code::Retnq));
    assembler.finish()
}
