//! Compiled code compared with the reference: plans of codes, and thousands of random plans.

use super::choose::choose;
use super::target::Target;
use crate::code::Code;
use crate::conformance::TestRng;
use crate::field::Field;
use crate::kernel::{Backend, Kernel, KernelSet, Reference, Tier, kernel_sets};
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use gabion_testkit::rounds;

/// Kernel sets that this CPU supports: some emit code, others interpret.
fn supported_rows() -> Vec<&'static KernelSet> {
    kernel_sets().iter().filter(|row| row.supported()).collect()
}

/// Block lengths in the L1 cache, in L2 and in memory: each has its own loop.
const TOTAL_LENGTHS: [usize; 4] = [0, 8 << 10, 64 << 10, 1 << 30];

const PAGE: usize = 4096;

/// A block that starts `shift` bytes behind the start of a page.
#[derive(Clone)]
struct Block {
    memory: Vec<u8>,
    len: usize,
    shift: usize,
}

impl Block {
    fn random(len: usize, shift: usize, random: &mut TestRng) -> Block {
        let mut block = Block { memory: vec![0; len + shift + PAGE], len, shift };
        random.fill(block.bytes_mut());
        block
    }

    fn first(&self) -> usize {
        self.memory.as_ptr().align_offset(PAGE) + self.shift
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.first()..][..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let first = self.first();
        &mut self.memory[first..][..self.len]
    }

    fn copied_from(&mut self, other: &Block) -> &mut [u8] {
        let bytes = self.bytes_mut();
        bytes.copy_from_slice(other.bytes());
        bytes
    }
}

/// Blocks aligned to cache lines, or all misaligned alike, or each differently; placed like an allocator does, each
/// slightly further; or all at the same page offset.
fn blocks(count: usize, len: usize, random: &mut TestRng) -> Vec<Block> {
    let (places, alike) = (random.below(5), random.below(64));
    let shift = |index: usize, random: &mut TestRng| {
        let line = 64 * random.below(PAGE / 64);
        [line, line + alike, random.below(PAGE), 16 * index % PAGE, alike][places]
    };
    let block = |index| {
        let shift = shift(index, random);
        Block::random(len, shift, random)
    };
    (0..count).map(block).collect()
}

fn check(plan: &Plan, len: usize, random: &mut TestRng) {
    let mut inputs = blocks(plan.inputs().len() + plan.outputs().len(), len, random);
    let before = inputs.split_off(plan.inputs().len());
    let mut outputs = before.clone();
    let mut run = |kernel: &dyn Kernel, total_len: usize| -> Vec<Vec<u8>> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Block::bytes).collect();
        let pairs = outputs.iter_mut().zip(&before);
        let mut slices: Vec<&mut [u8]> = pairs.map(|(output, before)| output.copied_from(before)).collect();
        kernel.run_part(total_len, &inputs, &mut slices).unwrap();
        outputs.iter().map(|output| output.bytes().to_vec()).collect()
    };
    let expected = run(&*Reference.compile(plan).unwrap(), 0);
    for row in supported_rows() {
        let backend = row.at(Tier::Code);
        let kernel = backend.compile(plan).unwrap();
        for total_len in TOTAL_LENGTHS {
            assert!(
                run(&*kernel, total_len) == expected,
                "{} differs: {plan:?}, {len} of {total_len} bytes",
                backend.name()
            );
        }
    }
}

fn random_matrix(random: &mut TestRng, field: Field, rows: usize, columns: usize) -> Matrix {
    let (density, small) = (1 + random.below(4), random.below(3) == 0);
    let entry = |_, _| match random.below(4) < density {
        true if small => random.next_u64() & field.mask() & 3,
        true => random.next_u64() & field.mask(),
        false => 0,
    };
    Matrix::from_fn(field, rows, columns, entry).unwrap()
}

#[test]
fn random_matrices() {
    let mut random = TestRng(0x636f_6465);
    for _ in 0..rounds(10_000) {
        let (rows, columns) = (1 + random.below(7), 1 + random.below(15));
        let matrix = random_matrix(&mut random, Field::GF8, rows, columns);
        let mode = if random.below(3) == 0 { Mode::Add } else { Mode::Write };
        let plan = Plan::new(matrix, Layout::Words, mode).unwrap();
        check(&plan, 1 + random.below(600), &mut random);
    }
}

#[test]
fn random_matrices_of_other_words() {
    let mut random = TestRng(0x776f_7264);
    for round in 0..600 {
        let field = [Field::GF4, Field::GF16, Field::GF32, Field::GF64][round % 4];
        let (rows, columns) = (1 + random.below(4), 1 + random.below(7));
        let matrix = random_matrix(&mut random, field, rows, columns);
        let mode = if random.below(3) == 0 { Mode::Add } else { Mode::Write };
        let plan = Plan::new(matrix, Layout::Words, mode).unwrap();
        let len = (1 + random.below(600)).next_multiple_of(plan.granule());
        check(&plan, len, &mut random);
    }
    for code in ["10+4:w16", "30+33:w16", "12+3:w4", "cauchy:9+3:w32", "5+5:w64"] {
        let code: Code = code.parse().unwrap();
        check(&code.encode_plan().unwrap(), 1000, &mut random);
        let lost: Vec<usize> = (0..3).collect();
        let there: Vec<usize> = (3..code.blocks()).collect();
        check(&code.repair_plan(&lost, &there).unwrap(), 1000, &mut random);
    }
}

#[test]
fn random_bit_matrices() {
    let mut random = TestRng(0x6269_7473);
    for _ in 0..rounds(2_000) {
        let field = Field::new(2 + random.below(7) as u32).unwrap();
        let (rows, columns) = (1 + random.below(4), 1 + random.below(8));
        let matrix = random_matrix(&mut random, field, rows, columns);
        let mode = if random.below(3) == 0 { Mode::Add } else { Mode::Write };
        let layout = Layout::Packets { bytes: 64 * (1 + random.below(5)) };
        let plan = Plan::new(matrix, layout, mode).unwrap();
        let len = plan.granule() * (1 + random.below(3));
        check(&plan, len, &mut random);
    }
}

/// More sums than one search takes, more terms than the search of triples takes, more values than registers.
#[test]
fn large_bit_matrices_and_wide_symbols() {
    let mut random = TestRng(0x7769_6465);
    for round in 0..40 {
        let field = Field::new(9 + random.below(8) as u32).unwrap();
        let (rows, columns) = (1 + random.below(6), 1 + random.below(16));
        let matrix = random_matrix(&mut random, field, rows, columns);
        let mode = if round % 3 == 0 { Mode::Add } else { Mode::Write };
        let plan = Plan::new(matrix, Layout::Packets { bytes: 64 }, mode).unwrap();
        check(&plan, plan.granule(), &mut random);
    }
    for code in ["20+8:w8", "16+16:w5", "12+4:w4", "10+4:w8", "6+2:w16"] {
        let code: Code = format!("cauchy-good:{code}:packets=128").parse().unwrap();
        let plan = code.encode_plan().unwrap();
        check(&plan, 2 * plan.granule(), &mut random);
        let total = plan.inputs().len() + plan.outputs().len();
        let lost = [0, total - 1];
        let surviving: Vec<usize> = (1..total - 1).collect();
        let plan = code.repair_plan(&lost, &surviving).unwrap();
        check(&plan, plan.granule(), &mut random);
    }
}

#[test]
fn codes_and_their_repairs() {
    let mut random = TestRng(0x7265_7061_6972);
    for round in 0..rounds(400) {
        let family = ["subspace", "cauchy-isal", "cauchy", "rs-vandermonde"][random.below(4)];
        let largest = if round % 20 == 0 { 60 } else { 20 };
        let (k, m) = (1 + random.below(largest), 1 + random.below(largest.min(18)));
        let code: Code = format!("{family}:{k}+{m}").parse().unwrap();
        check(&code.encode_plan().unwrap(), 1 + random.below(600), &mut random);
        let mut columns: Vec<usize> = (0..k + m).collect();
        for i in (1..columns.len()).rev() {
            columns.swap(i, random.below(i + 1));
        }
        let (lost, surviving) = columns.split_at(1 + random.below(m));
        let plan = code.repair_plan(lost, surviving).unwrap();
        check(&plan, 1 + random.below(600), &mut random);
        check(&code.update_plan(&[random.below(k)]).unwrap(), 1 + random.below(300), &mut random);
    }
}

/// Few inputs and many outputs: two passes for stores to L2, or if blocks alias or conflict.
#[test]
fn halves_of_many_outputs() {
    let mut random = TestRng(0x6861_6c66);
    let passes = |shape: &str| {
        let plan = shape.parse::<Code>().unwrap().encode_plan().unwrap();
        choose(&plan, Target::GFNI_AVX512, &mut |_| ()).unwrap().passes.len()
    };
    let two = if Target::GFNI_AVX512.native { 2 } else { 0 };
    assert_eq!(["2+9", "4+13", "5+12", "16+14"].map(passes), [two; 4]);
    assert_eq!(["2+8", "9+13", "17+14", "4+3:w4:packets=64"].map(passes), [0; 4]);
    for shape in ["1+12", "2+9", "4+13", "cauchy-isal:3+16", "4+40", "5+12", "cauchy-isal:16+14"] {
        for len in [1, 63, 64, 333, 1000] {
            check(&shape.parse::<Code>().unwrap().encode_plan().unwrap(), len, &mut random);
        }
    }
}

/// Shapes of both orientations, including cosets that wrap around.
#[test]
fn the_largest_shapes() {
    let mut random = TestRng(0x006c_6172_6765);
    for shape in ["253+3", "128+32", "3+100", "30+33", "64+64", "1+40", "40+1", "128+128", "129+65:w16"] {
        check(&shape.parse::<Code>().unwrap().encode_plan().unwrap(), 334, &mut random);
    }
}

/// Codes over GF(2^8) with large matrices become programs of few products, also for the loss of all redundancy; a large
/// matrix without factors stays with the generic kernels, as does a program that would not have fewer products.
#[test]
fn large_matrices_are_compiled_where_they_factor() {
    let products = |plan: Plan| {
        let mut products = None;
        choose(&plan, Target::GFNI_AVX512, &mut |stage| products = Some(stage.products))?;
        products
    };
    let of = |code: &str| products(code.parse::<Code>().unwrap().encode_plan().unwrap());
    for (code, most) in
        [("64+65", 500), ("128+64", 600), ("128+128", 900), ("56+200", 1300), ("200+56", 1300)]
    {
        assert!(of(code).is_some_and(|products| products <= most), "{code}: {:?}", of(code));
    }
    assert_eq!(["cauchy-good:128+64", "raidz:253+3"].map(|code| of(code).is_some()), [false, true]);
    assert_eq!(["1000+200:w16", "cauchy:65000+16:w16", "200+56:w8:packets=64"].map(of), [None; 3]);

    let code: Code = "128+128".parse().unwrap();
    let (data, redundancy): (Vec<usize>, Vec<usize>) = ((0..128).collect(), (128..256).collect());
    assert!(products(code.repair_plan(&redundancy, &data).unwrap()).is_some_and(|products| products <= 900));
    // A random pattern has only the dense matrix, which is too large.
    let mut blocks: Vec<usize> = (0..256).collect();
    let mut random = TestRng(0x6861_6c76_6573);
    (1..256).for_each(|i| blocks.swap(i, random.below(i + 1)));
    let (lost, there) = blocks.split_at(128);
    assert_eq!(products(code.repair_plan(lost, there).unwrap()), None);
}
