//! Plans, lengths and addresses decoded from arbitrary bytes, for a fuzzer and for a test with random bytes.
//!
//! Every byte string is valid, including the empty one: missing bytes are 0. Sizes are small, so that runs are short
//! and a fuzzer covers much.

use super::{Buffers, TestRng, same_as_reference, same_as_reference_in_rows, sample};
use crate::code::{Code, Family};
use crate::error::Error;
use crate::field::Field;
use crate::kernel::{Backend, Tier, TieredKernelSet, kernel_sets};
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};

/// Maximum inputs and outputs.
type Most = (usize, usize);

const WORDS: Most = (12, 6);
/// The bit matrix has w · w times as many entries, and compilation takes longer by that factor.
const PACKETS: Most = (4, 3);
/// Most are too large for the compiler and run by transforms; many are stored by their points.
const LARGE: Most = (600, 600);

/// More than two iterations of the widest loop, plus a rest.
const MAX_LEN: usize = 700;
/// More than a tile of a transform plus a rest, except for the widest registers: shorter lengths let a fuzzer cover
/// more.
const MAX_LARGE_LEN: usize = 300;

/// Outputs of a large code that the slow reference computes.
const LARGE_ROWS: usize = 2;

/// Decodes a plan, a length and addresses from `bytes` and compares compiled code of every supported kernel set with
/// the reference. Panics on a difference or a write outside a buffer.
pub fn from_bytes(bytes: &[u8]) {
    let rows: Vec<TieredKernelSet> =
        kernel_sets().iter().filter(|row| row.supported()).map(|row| row.at(Tier::Code)).collect();
    let backends: Vec<&dyn Backend> = rows.iter().map(|row| row as &dyn Backend).collect();
    compare(bytes, &backends);
}

fn compare(bytes: &[u8], backends: &[&dyn Backend]) {
    let mut source = Source(bytes);
    let kind = source.below(5);
    if kind == 4 {
        return compare_large(source, backends);
    }
    // Some bytes decode to an invalid code; nothing is compared then.
    let Ok(plan) = source.plan(kind) else { return };
    let granule = plan.granule();
    let len = match plan.layout() {
        Layout::Words => source.below(MAX_LEN).next_multiple_of(granule),
        Layout::Packets { .. } => source.below(3) * granule,
    };
    let mut random = TestRng(source.number());
    same_as_reference(backends, &plan, len, &mut Fenced(source), &mut random);
}

fn compare_large(mut source: Source, backends: &[&dyn Backend]) {
    let plan = source.large_plan().expect("these families have all of these codes");
    let len = source.below(MAX_LARGE_LEN).next_multiple_of(plan.granule());
    let rows: Vec<usize> = (0..LARGE_ROWS).map(|_| source.below(plan.outputs().len())).collect();
    let mut random = TestRng(source.number());
    same_as_reference_in_rows(backends, &plan, &rows, len, &mut Fenced(source), &mut random);
}

/// Source of choices: the bytes, then zeros.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number below `bound`, which is at most 2^16.
    fn below(&mut self, bound: usize) -> usize {
        let high = if bound > 256 { self.byte() } else { 0 };
        (usize::from(high) << 8 | usize::from(self.byte())) % bound
    }

    fn plan(&mut self, kind: usize) -> Result<Plan, Error> {
        match kind {
            0 => self.matrix_plan(Field::GF8, Layout::Words, WORDS),
            1 => {
                let field = Field::WORDS[self.below(Field::WORDS.len())];
                self.matrix_plan(field, Layout::Words, WORDS)
            }
            2 => {
                let field = self.packet_field()?;
                let layout = self.packets();
                self.matrix_plan(field, layout, PACKETS)
            }
            _ => self.code_plan(),
        }
    }

    fn packet_field(&mut self) -> Result<Field, Error> {
        Field::new(2 + self.below(7) as u32)
    }

    /// Packets of whole registers, which become code, and others.
    fn packets(&mut self) -> Layout {
        let unit = [64, 32, 1][self.below(3)];
        Layout::Packets { bytes: unit * (1 + self.below(5)) }
    }

    fn matrix_plan(&mut self, field: Field, layout: Layout, most: Most) -> Result<Plan, Error> {
        let (outputs, inputs) = (self.below(most.1 + 1), self.below(most.0 + 1));
        let mode = if self.below(2) == 0 { Mode::Write } else { Mode::Add };
        // The compiler treats zeros and ones specially, and they are rare among all elements.
        let kept = [field.mask(), 3, 1][self.below(3)];
        let element_bytes = field.w().div_ceil(8);
        let entry = |_, _| (0..element_bytes).fold(0, |entry, _| entry << 8 | u64::from(self.byte())) & kept;
        Plan::new(Matrix::from_fn(field, outputs, inputs, entry)?, layout, mode)
    }

    fn code_plan(&mut self) -> Result<Plan, Error> {
        let family = Family::ALL[self.below(Family::ALL.len())];
        let (field, layout, most) = match self.below(3) {
            0 => (self.packet_field()?, self.packets(), PACKETS),
            _ => (Field::GF8, Layout::Words, WORDS),
        };
        let (k, m) = (1 + self.below(most.0), 1 + self.below(most.1));
        let code = Code::new(family, field, k, m, layout)?;
        match self.below(4) {
            0 => code.encode_plan(),
            1 => code.update_plan(&[self.below(k)]),
            2 => code.partial_plan(self.below(k)),
            _ => {
                let columns = self.shuffled(k + m);
                let (lost, surviving) = columns.split_at(1 + self.below(m));
                code.repair_plan(lost, surviving)
            }
        }
    }

    /// Codes over GF(2^16) that are stored by their points.
    fn large_plan(&mut self) -> Result<Plan, Error> {
        let family = [Family::Subspace, Family::Cauchy, Family::RsVandermonde][self.below(3)];
        let (k, m) = (1 + self.below(LARGE.0), 1 + self.below(LARGE.1));
        let code = Code::new(family, Field::GF16, k, m, Layout::Words)?;
        // A permutation of all columns would take too many bytes for a fuzzer.
        let mut order = TestRng(self.number());
        match self.below(4) {
            0 => code.encode_plan(),
            1 => code.update_plan(&sample(k, 1 + self.below(k), &mut order)),
            2 => {
                let rows = sample(m, 1 + self.below(m), &mut order);
                code.encode_columns_plan(&rows.iter().map(|row| k + row).collect::<Vec<_>>())
            }
            _ => {
                let lost = sample(k + m, 1 + self.below(m), &mut order);
                let there = |column: &usize| lost.binary_search(column).is_err();
                code.repair_plan(&lost, &(0..k + m).filter(there).collect::<Vec<_>>())
            }
        }
    }

    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for place in (1..count).rev() {
            order.swap(place, self.below(place + 1));
        }
        order
    }
}

/// Buffers at the decoded addresses, between fences that must not be written.
struct Fenced<'a>(Source<'a>);

/// As wide as the widest register, the largest single stray write.
const FENCE: usize = 64;
const PAINT: u8 = 0xa5;

impl Buffers for Fenced<'_> {
    type Block = FencedBlock;

    fn block(&mut self, len: usize) -> FencedBlock {
        // Space for a fence before, alignment, the requested offset, and a fence after.
        let bytes = vec![PAINT; len + 4 * FENCE];
        let to_aligned = FENCE - bytes.as_ptr().addr() % FENCE;
        FencedBlock { bytes, start: FENCE + to_aligned + self.0.below(FENCE), len }
    }
}

struct FencedBlock {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for FencedBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl AsMut<[u8]> for FencedBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

impl Drop for FencedBlock {
    fn drop(&mut self) {
        let fences = self.bytes[..self.start].iter().chain(&self.bytes[self.start + self.len..]);
        let intact = fences.copied().all(|byte| byte == PAINT);
        // A second panic would hide the first.
        assert!(
            intact || std::thread::panicking(),
            "a byte outside of a buffer of {} bytes changed",
            self.len
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::is_considered;
    use crate::kernel::{Kernel, Reference};

    /// The fuzz target on random inputs, for the duration of a test.
    #[test]
    fn random_strings() {
        let mut random = TestRng(0x6675_7a7a);
        for _ in 0..gabion_testkit::fuzz_inputs(gabion_testkit::rounds(2000)) {
            let mut bytes = vec![0; random.below(200)];
            random.fill(&mut bytes);
            from_bytes(&bytes);
        }
    }

    #[test]
    fn every_truncation_is_a_plan() {
        for kind in 0..5 {
            (0..40).for_each(|len| from_bytes(&vec![kind; len]));
        }
    }

    /// The reference with a wrong last byte.
    struct Nearly;

    struct NearlyKernel(Box<dyn Kernel>);

    impl Backend for Nearly {
        fn name(&self) -> &str {
            "nearly"
        }

        fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
            Ok(Box::new(NearlyKernel(Reference.compile(plan)?)))
        }
    }

    impl Kernel for NearlyKernel {
        fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
            self.0.run(inputs, outputs)?;
            let last = outputs.last_mut().and_then(|output| output.last_mut());
            last.into_iter().for_each(|byte| *byte ^= 1);
            Ok(())
        }
    }

    #[test]
    #[should_panic(expected = "nearly: output 0 of 300 bytes")]
    fn a_wrong_byte_is_detected() {
        // A matrix of one row and two columns, written, all elements; 5 and 7; 300 bytes.
        compare(&[0, 1, 2, 0, 0, 5, 7, 1, 44], &[&Nearly]);
    }

    #[test]
    #[should_panic(expected = "nearly: output 19 of 100 bytes")]
    fn a_wrong_byte_of_a_large_code_is_detected() {
        // subspace, 300+20, no order, encode; 100 bytes; the rows 19 and 0.
        compare(&[4, 0, 1, 43, 0, 19, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 19, 0], &[&Nearly]);
    }

    #[test]
    fn random_large_plans_exceed_the_compiler() {
        let mut random = TestRng(0x6c61_7267);
        let mut plan = || {
            let mut bytes = [0; 32];
            random.fill(&mut bytes);
            Source(&bytes).large_plan().unwrap()
        };
        let plans: Vec<Plan> = (0..100).map(|_| plan()).collect();
        let considered = |plan: &&Plan| is_considered(plan.outputs().len(), plan.inputs().len());
        let refused = plans.iter().filter(|plan| !considered(plan)).count();
        let repairs =
            plans.iter().filter(|plan| plan.structure().is_some_and(|factors| factors.solve.is_some()));
        assert!(refused > 50, "{refused} of 100");
        assert!(repairs.count() > 5);
    }

    #[test]
    #[should_panic(expected = "a byte outside of a buffer of 10 bytes changed")]
    fn a_write_past_the_end_is_detected() {
        let mut block = Fenced(Source(&[63])).block(10);
        let past = block.start + block.len;
        block.bytes[past] ^= 1;
    }
}
