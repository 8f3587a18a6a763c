use super::*;
use crate::code::Code;
use crate::division::SignaturePoints;
use crate::engine::Engine;
use crate::field::Field;
use crate::kernel::{Backend, Threads, Tier, kernel_sets};
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};

fn painted(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Compares with `run` and `sign`, on outputs with previous content.
fn check(compiled: &Compiled, signer: &Signer, len: usize) {
    let what = format!("{compiled:?}, {signer:?}, {len} bytes");
    let plan = compiled.plan();
    let blocks = |count: usize, seed: u64| -> Vec<Vec<u8>> {
        (0..count as u64).map(|i| painted(len, seed + i)).collect()
    };
    let data = blocks(plan.inputs().len(), 1);
    let (mut apart, mut together) = (blocks(plan.outputs().len(), 99), blocks(plan.outputs().len(), 99));
    let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
    let slices = |blocks: &mut Vec<Vec<u8>>, run: &mut dyn FnMut(&mut [&mut [u8]])| {
        run(&mut blocks.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>());
    };
    slices(&mut apart, &mut |outputs| compiled.run(&inputs, outputs).unwrap());
    slices(&mut together, &mut |outputs| {
        let signed = compiled.run_signed(signer, &inputs, outputs).unwrap();
        let sign = |blocks: &[Vec<u8>]| -> Vec<_> {
            blocks.iter().map(|block| signer.sign(block).unwrap()).collect()
        };
        assert_eq!(signed.inputs, sign(&data), "inputs of {what}");
        assert_eq!(signed.outputs, sign(&apart), "outputs of {what}");
    });
    assert!(apart == together, "{what}");
}

fn encode(text: &str) -> Plan {
    text.parse::<Code>().unwrap().encode_plan().unwrap()
}

/// Lengths around symbols, registers, steps and tiles.
fn lengths() -> impl Iterator<Item = usize> {
    let edges = [0, 8, 64, 128, 256, 512, 1024, SIGN_TILE, SIGN_TILE + 512, 2 * SIGN_TILE, 5 * SIGN_TILE];
    edges
        .into_iter()
        .flat_map(|edge| [edge.saturating_sub(8), edge.saturating_sub(1), edge, edge + 1, edge + 16])
}

#[test]
fn equals_run_and_sign_on_every_kernel_set() {
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        let compiled = Engine::with_kernel_set(row, 1).unwrap().compile(&encode("3+2")).unwrap();
        for components in [1, 2, 3] {
            let signer = Signer::tower_with_kernel_set(row, Field::GF8, components).unwrap();
            lengths().for_each(|len| check(&compiled, &signer, len));
        }
        let signer = Signer::independent_with_kernel_set(row).unwrap();
        lengths().for_each(|len| check(&compiled, &signer, len));
    }
}

/// Plans for which the law holds, and plans whose outputs must be read: other fields, other layouts, and added outputs.
#[test]
fn plans_of_every_kind() {
    let add = "4+2".parse::<Code>().unwrap().update_plan(&[1]).unwrap();
    assert_eq!(add.mode(), Mode::Add);
    let words =
        [encode("4+2"), encode("raidz:5+3"), add, encode("4+2:w16"), encode("4+2:w4"), encode("4+2:w64")];
    let packets =
        ["cauchy-good:4+2:w8:packets=24", "cauchy-good:4+2:w8:packets=4096", "cauchy:4+2:w5:packets=7"];
    let engine = Engine::new(1).unwrap();
    for plan in words.into_iter().chain(packets.map(encode)) {
        let compiled = engine.compile(&plan).unwrap();
        for base in [Field::GF8, Field::GF16, Field::GF4] {
            let signer = Signer::tower(base, 2).unwrap();
            for len in lengths() {
                check(&compiled, &signer, len / plan.granule() * plan.granule());
            }
        }
    }
}

/// Outputs that start `offset` bytes after a cache line, each `stagger` bytes further than the previous one.
struct Lines {
    bytes: Vec<u8>,
    first: usize,
    count: usize,
    len: usize,
    stagger: usize,
}

impl Lines {
    fn new(count: usize, len: usize, shift: usize, stagger: usize) -> Lines {
        let bytes = vec![0x77; (count + 2) * Lines::stride(len, stagger)];
        let first = bytes.as_ptr().align_offset(64) + shift;
        Lines { bytes, first, count, len, stagger }
    }

    fn stride(len: usize, stagger: usize) -> usize {
        len.next_multiple_of(64) + 64 + stagger
    }

    fn blocks(&mut self) -> Vec<&mut [u8]> {
        let blocks = self.bytes[self.first..].chunks_mut(Lines::stride(self.len, self.stagger));
        blocks.take(self.count).map(|block| &mut block[..self.len]).collect()
    }
}

/// Machine code of every kernel set that has some: division in the loop for all lengths, below and above the threshold
/// of non-temporal stores, aligned and unaligned.
#[test]
fn code_that_divides_while_it_codes() {
    let mut divided = 0;
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        for text in ["1+1", "2+1", "4+2", "10+4", "17+3", "30+3", "raidz:8+3", "cauchy-isal:12+4", "5+12"] {
            let plan = encode(text);
            let kernel = row.at(Tier::Code).compile(&plan).unwrap();
            let compiled = Compiled { kernel, plan: plan.clone(), threads: Threads::new(1).unwrap().into() };
            let lengths = [0, 100, 511, 512, 2000, 33_000, MIN_DIVIDED_BYTES, 40_961, 300_007];
            for (turn, len) in lengths.into_iter().enumerate() {
                let (points, shift, stagger) =
                    (SignaturePoints::ALL[turn % 3], [0, 0, 16, 3][turn % 4], [0, 0, 0, 0, 5][turn % 5]);
                let signer = match points {
                    SignaturePoints::Independent => Signer::independent_with_kernel_set(row).unwrap(),
                    _ => Signer::tower_with_kernel_set(row, Field::GF8, points.exponents().len()).unwrap(),
                };
                let what = format!("{row:?}, {text}, {len} bytes, {points:?}, at {shift}");
                let data: Vec<Vec<u8>> = (0..plan.inputs().len() as u64).map(|i| painted(len, i)).collect();
                let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
                let mut plain = Lines::new(plan.outputs().len(), len, 0, 0);
                let mut lines = Lines::new(plan.outputs().len(), len, shift, stagger);
                compiled.run(&inputs, &mut plain.blocks()).unwrap();
                let mut outputs = lines.blocks();
                if let Some(quotients) = compiled.kernel.run_dividing(points, 0, &inputs, &mut outputs) {
                    divided += usize::from(quotients.covered + 64 > len);
                    outputs.iter_mut().for_each(|output| output.fill(1));
                }
                let signed = compiled.run_signed(&signer, &inputs, &mut outputs).unwrap();
                let expected = |blocks: &mut dyn Iterator<Item = &[u8]>| -> Vec<Signature> {
                    blocks.map(|block| signer.sign(block).unwrap()).collect()
                };
                assert_eq!(signed.inputs, expected(&mut inputs.iter().copied()), "{what}");
                assert!(plain.blocks() == lines.blocks(), "{what}");
                let made = lines.blocks();
                assert_eq!(signed.outputs, expected(&mut made.iter().map(|block| &**block)), "{what}");
            }
        }
    }
    let wide =
        kernel_sets().iter().filter(|row| row.supported() && row.emits_code() && row.name().contains("512"));
    let narrow =
        kernel_sets().iter().filter(|row| row.supported() && row.emits_code() && !row.name().contains("512"));
    // Nine plans; six lengths have eight iterations of 64 bytes, a seventh has them of 32 bytes.
    assert_eq!(divided, 9 * (6 * wide.count() + 7 * narrow.count()));
}

#[test]
fn any_number_of_threads() {
    for threads in [2, 3, 7] {
        let engine = Engine::new(threads).unwrap();
        for text in ["10+4", "10+4:w16", "cauchy-good:10+4:w8:packets=512", "cauchy:10+4:w5:packets=13"] {
            let plan = encode(text);
            let compiled = engine.compile(&plan).unwrap();
            for len in [30_000, 65_536, 300_001] {
                let len = len / plan.granule() * plan.granule();
                check(&compiled, &Signer::tower(Field::GF8, 2).unwrap(), len);
            }
        }
    }
}

#[test]
fn wrong_buffers_are_refused_without_writing() {
    let compiled = Engine::new(1).unwrap().compile(&encode("2+1")).unwrap();
    let signer = Signer::new(Field::GF8, 1).unwrap();
    let (data, mut redundancy) = ([1; 256], [7; 256]);
    let refused = compiled.run_signed(&signer, &[&data, &data], &mut [&mut redundancy]);
    assert_eq!(refused, Err(Error::BlockTooLong { w: 8, symbols: 256, limit: 255 }));
    assert!(compiled.run_signed(&signer, &[&data], &mut [&mut redundancy]).is_err());
    assert_eq!(redundancy, [7; 256]);
}

#[test]
fn a_plan_without_inputs_writes_zeros() {
    let nothing = Matrix::from_fn(Field::GF8, 1, 0, |_, _| 0).unwrap();
    let plan = Plan::new(nothing, Layout::Words, Mode::Write).unwrap();
    let compiled = Engine::new(1).unwrap().compile(&plan).unwrap();
    let (signer, mut output) = (Signer::tower(Field::GF8, 1).unwrap(), [7; 100]);
    let signed = compiled.run_signed(&signer, &[], &mut [&mut output]).unwrap();
    assert_eq!((output, &signed.outputs[0]), ([0; 100], &signer.sign(&[0; 100]).unwrap()));
}
