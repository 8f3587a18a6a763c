use super::*;
use crate::code::Code;
use crate::conformance::Random;
use crate::field::Field;
use crate::kernel::table::NoSimd;
#[cfg(target_arch = "x86_64")]
use crate::kernel::x86::{Avx2, Avx512, GfniAvx2, GfniAvx512, Ssse3};

/// Runs a plan by transforms, whatever its size, on every instruction set of this CPU, and compares with its matrix.
fn same_as_matrix(plan: &Plan, len: usize, random: &mut Random) {
    let mut filled = |count: usize| -> Vec<Vec<u8>> {
        let block = |_| {
            let mut block = vec![0; len];
            random.fill(&mut block);
            block
        };
        (0..count).map(block).collect()
    };
    let (inputs, painted) = (filled(plan.inputs().len()), filled(plan.outputs().len()));
    let mut want = painted.clone();
    by_matrix(plan, &inputs, &mut want);
    let check = |name: &str, kernel: &dyn Kernel| {
        let mut outputs = painted.clone();
        run(kernel, &inputs, &mut outputs);
        assert!(outputs == want, "{name}, {len} bytes: {plan:?}");
    };
    fn forced<I: Isa>(plan: &Plan, check: &dyn Fn(&str, &dyn Kernel)) {
        let Some(isa) = I::detect() else { return };
        for (products, way) in Way::all(plan) {
            let name = format!("{}, {products} products", I::NAME);
            check(&name, &TransformedPlan::new(isa, plan, way).unwrap());
        }
    }
    forced::<NoSimd>(plan, &check);
    #[cfg(target_arch = "x86_64")]
    {
        forced::<Ssse3>(plan, &check);
        forced::<Avx2>(plan, &check);
        forced::<GfniAvx2>(plan, &check);
        forced::<Avx512>(plan, &check);
        forced::<GfniAvx512>(plan, &check);
    }
    #[cfg(target_arch = "aarch64")]
    forced::<crate::kernel::neon::Neon>(plan, &check);
}

fn run(kernel: &dyn Kernel, inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
    let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[..]).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
    kernel.run(&inputs, &mut outputs).unwrap();
}

/// Symbol by symbol, with the products of [`Field`].
fn by_matrix(plan: &Plan, inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
    for (row, output) in outputs.iter_mut().enumerate() {
        if plan.mode() == Mode::Write {
            output.fill(0);
        }
        for (column, input) in inputs.iter().enumerate() {
            let coefficient = plan.coefficient(row, column);
            for (to, from) in output.chunks_exact_mut(2).zip(input.chunks_exact(2)) {
                let symbol = u64::from(u16::from_le_bytes([from[0], from[1]]));
                let product = (Field::GF16.mul(coefficient, symbol) as u16).to_le_bytes();
                to.iter_mut().zip(product).for_each(|(to, product)| *to ^= product);
            }
        }
    }
}

/// Some columns of a code, `count` of them, in any order.
fn some(code: &Code, count: usize, random: &mut Random) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..code.blocks()).collect();
    for i in 0..count {
        columns.swap(i, i + random.below(code.blocks() - i));
    }
    columns.truncate(count);
    columns
}

/// Encoding, updates, partial products and repairs of shapes on both sides of every power of two, with points in one coset, in several and all over
/// the field.
#[test]
fn every_kind_of_plan_of_small_codes_runs_by_transforms() {
    let mut random = Random(31);
    for round in 0..60 {
        let family = ["subspace", "cauchy", "rs-vandermonde"][round % 3];
        let (k, m) = (1 + random.below(70), 1 + random.below(70));
        let code: Code = format!("{family}:{k}+{m}:w16").parse().unwrap();
        let len = 2 * random.below(200);
        same_as_matrix(&code.encode_plan().unwrap(), len, &mut random);
        let changed = random.below(k);
        same_as_matrix(&code.update_plan(&[changed]).unwrap(), len, &mut random);
        same_as_matrix(&code.partial_plan(changed).unwrap(), len, &mut random);
        let lost_count = 1 + random.below(m);
        let lost = some(&code, lost_count, &mut random);
        let there: Vec<usize> = (0..code.blocks()).filter(|column| !lost.contains(column)).collect();
        same_as_matrix(&code.repair_plan(&lost, &there).unwrap(), len, &mut random);
    }
}

/// Where the cosets of a subspace run out, inputs share the coset of the outputs: the whole of GF(2^16) is in use.
#[test]
fn points_that_are_left_over_are_differentiated() {
    let mut random = Random(32);
    for (text, columns) in [("65533+3:w16", 3), ("3+65533:w16", 65_533), ("65000+536:w16", 536)] {
        let code: Code = text.parse().unwrap();
        let outputs: Vec<usize> = (code.k()..).take(columns).collect();
        let plan = code.encode_columns_plan(&outputs).unwrap();
        assert!(Transform::new(plan.points().unwrap()).differentiates(), "{text}");
        same_as_matrix(&plan, 6, &mut random);
    }
}

/// A code that no matrix holds: what was encoded comes back, whatever was lost, and every output is what the points say.
fn survives(text: &str, len: usize, random: &mut Random) {
    let code: Code = text.parse().unwrap();
    let (k, m) = (code.k(), code.m());
    let mut stripe: Vec<Vec<u8>> = vec![vec![0; len]; k + m];
    stripe[..k].iter_mut().for_each(|block| random.fill(block));
    let compiled = |plan: &Plan| crate::engine::Engine::new(2).unwrap().compile(plan).unwrap();
    let apply = |plan: &Plan, stripe: &[Vec<u8>], outputs: &mut [Vec<u8>]| {
        let inputs: Vec<&[u8]> = plan.inputs().iter().map(|&column| &stripe[column][..]).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
        compiled(plan).run(&inputs, &mut outputs).unwrap();
    };
    let encode = code.encode_plan().unwrap();
    let mut redundancy = vec![vec![0xa5; len]; m];
    apply(&encode, &stripe, &mut redundancy);
    // Some rows, symbol by symbol.
    for row in (0..m.min(3)).map(|_| random.below(m)) {
        let some = code.encode_columns_plan(&[k + row]).unwrap();
        let mut want = vec![vec![0; len]];
        by_matrix(&some, &stripe[..k], &mut want);
        assert!(redundancy[row] == want[0], "{text}: row {row}");
    }
    redundancy.into_iter().zip(&mut stripe[k..]).for_each(|(made, block)| *block = made);
    for count in [m, m.min(2), m.min(40)].into_iter().filter(|&count| count > 0) {
        let lost = some(&code, count, random);
        let mut is_lost = vec![false; k + m];
        lost.iter().for_each(|&column| is_lost[column] = true);
        let there: Vec<usize> = (0..k + m).filter(|&column| !is_lost[column]).collect();
        let repair = code.repair_plan(&lost, &there).unwrap();
        let mut outputs = vec![vec![0x5a; len]; count];
        apply(&repair, &stripe, &mut outputs);
        let whole = lost.iter().zip(&outputs).all(|(&column, output)| *output == stripe[column]);
        assert!(whole, "{text}: {count} lost");
    }
    // A changed block, by its difference alone.
    if m > 0 {
        let (changed, mut difference) = (random.below(k), vec![0; len]);
        random.fill(&mut difference);
        let mut updated = stripe[k..].to_vec();
        let update = code.update_plan(&[changed]).unwrap();
        let mut outputs: Vec<&mut [u8]> = updated.iter_mut().map(|output| &mut output[..]).collect();
        compiled(&update).run(&[&difference], &mut outputs).unwrap();
        stripe[changed].iter_mut().zip(&difference).for_each(|(a, b)| *a ^= b);
        let mut again = vec![vec![0; len]; m];
        apply(&encode, &stripe, &mut again);
        assert!(updated == again, "{text}: update of {changed}");
    }
}

#[test]
fn the_largest_codes_survive_what_they_promise() {
    let mut random = Random(33);
    for (text, len) in [
        ("60000+5536:w16", 10),
        ("32768+32768:w16", 2),
        ("65535+1:w16", 64),
        ("1+65535:w16", 30),
        ("65536+0:w16", 2),
        ("5536+60000:w16", 4),
        ("cauchy:30000+30000:w16", 6),
        ("rs-vandermonde:60000+5000:w16", 4),
        ("4096+4096:w16", 300),
        ("3000+500:w16", 1026),
    ] {
        survives(text, len, &mut random);
    }
}
