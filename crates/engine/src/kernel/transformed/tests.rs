use super::*;
use crate::code::Code;
use crate::conformance::TestRng;
use crate::kernel::table::NoSimd;
#[cfg(target_arch = "x86_64")]
use crate::kernel::x86::{Avx2, Avx512, GfniAvx2, GfniAvx512, Ssse3};

/// Runs a plan of any size by transforms on every instruction set of this CPU, and compares with its matrix.
fn same_as_matrix(plan: &Plan, len: usize, random: &mut TestRng) {
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
        for (price, way) in Way::all(plan) {
            let name = format!("{}, price {price}", I::NAME);
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

/// Every block has a different misalignment.
fn run(kernel: &dyn Kernel, inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
    let shifted = |(index, block): (usize, &Vec<u8>)| [vec![0; index % 67], block.clone()].concat();
    let sources: Vec<Vec<u8>> = inputs.iter().enumerate().map(shifted).collect();
    let mut targets: Vec<Vec<u8>> = outputs.iter().enumerate().map(shifted).collect();
    let inputs: Vec<&[u8]> = sources.iter().enumerate().map(|(index, block)| &block[index % 67..]).collect();
    let mut parts: Vec<&mut [u8]> =
        targets.iter_mut().enumerate().map(|(index, block)| &mut block[index % 67..]).collect();
    kernel.run(&inputs, &mut parts).unwrap();
    for (index, (output, target)) in outputs.iter_mut().zip(targets).enumerate() {
        assert!(target[..index % 67].iter().all(|&byte| byte == 0), "nothing is written before a block");
        output.copy_from_slice(&target[index % 67..]);
    }
}

/// Symbol by symbol, with the products of [`Field`].
fn by_matrix(plan: &Plan, inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
    for (row, output) in outputs.iter_mut().enumerate() {
        if plan.mode() == Mode::Write {
            output.fill(0);
        }
        for (column, input) in inputs.iter().enumerate() {
            let coefficient = plan.coefficient(row, column);
            let bytes = plan.granule();
            for (to, from) in output.chunks_exact_mut(bytes).zip(input.chunks_exact(bytes)) {
                let symbol = from.iter().rev().fold(0, |symbol, &byte| symbol << 8 | u64::from(byte));
                let product = plan.field().mul(coefficient, symbol).to_le_bytes();
                to.iter_mut().zip(product).for_each(|(to, product)| *to ^= product);
            }
        }
    }
}

/// Some columns of a code, `count` of them, in any order.
fn some(code: &Code, count: usize, random: &mut TestRng) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..code.blocks()).collect();
    for i in 0..count {
        columns.swap(i, i + random.below(code.blocks() - i));
    }
    columns.truncate(count);
    columns
}

/// Encoding, updates, partial products and repairs of shapes on both sides of every power of two, with points in one
/// coset, in several and across the field.
#[test]
fn every_kind_of_plan_of_small_codes_runs_by_transforms() {
    let mut random = TestRng(31);
    for round in 0..120 {
        let family = ["subspace", "cauchy", "rs-vandermonde"][round % 3];
        let (code, len) = if round % 2 == 0 {
            let (k, m) = (1 + random.below(70), 1 + random.below(70));
            (format!("{family}:{k}+{m}:w16"), 2 * random.below(200))
        } else {
            // All points of GF(2^8) as often as few of them.
            let blocks = 2 + random.below(if round % 4 == 1 { 80 } else { 255 });
            let k = 1 + random.below(blocks - 1);
            (format!("{family}:{k}+{}:w8", blocks - k), random.below(1200))
        };
        let code: Code = code.parse().unwrap();
        let (k, m) = (code.k(), code.m());
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

/// When the cosets of a subspace run out, inputs share the coset of the outputs: the whole field is in use. Few of them
/// are strays.
#[test]
fn inputs_in_the_coset_of_outputs_are_differentiated_or_strays() {
    let mut random = TestRng(32);
    for (text, columns, strays) in [
        ("65533+3:w16", 3, 1),
        ("3+65533:w16", 65_533, 0),
        ("65000+536:w16", 536, 0),
        ("200+56", 56, 0),
        ("126+130", 130, 0),
        ("253+3", 3, 1),
    ] {
        let code: Code = text.parse().unwrap();
        let outputs: Vec<usize> = (code.k()..).take(columns).collect();
        let plan = code.encode_columns_plan(&outputs).unwrap();
        let transform = Transform::new(plan.field(), plan.points().unwrap());
        assert_eq!((transform.differentiates(), transform.strays.len()), (strays == 0, strays), "{text}");
        same_as_matrix(&plan, 6, &mut random);
    }
}

/// The loss of all data of 30+33, where one source is separate from the others, and losses with points among the
/// sources.
#[test]
fn uncompiled_repairs_over_bytes_use_transforms_if_cheaper() {
    let mut random = TestRng(34);
    for (text, lost, transformed) in [
        ("30+33", 30, true),
        ("64+64", 64, true),
        ("16+16", 16, true),
        ("128+32", 32, true),
        ("20+6", 6, false),
        ("10+4", 4, false),
    ] {
        let code: Code = text.parse().unwrap();
        let lost: Vec<usize> = (0..lost).collect();
        let mut there: Vec<usize> = (lost.len()..code.blocks()).collect();
        while there.len() > code.k() {
            there.swap_remove(random.below(there.len()));
        }
        let plan = code.repair_plan(&lost, &there).unwrap();
        assert_eq!(Way::without_code(&plan).is_some(), transformed, "{text}");
        same_as_matrix(&plan, 1000 + random.below(200), &mut random);
    }
    let code: Code = "30+33".parse().unwrap();
    let there: Vec<usize> = (30..59).chain([62]).collect();
    let plan = code.repair_plan(&(0..30).collect::<Vec<_>>(), &there).unwrap();
    let Some(Way::Whole(transform)) = Way::without_code(&plan) else { panic!("one matrix") };
    assert_eq!((transform.strays.len(), transform.inputs.cosets.len()), (1, 1));
    assert!(transform.products() <= 250, "{} products", transform.products());
}

/// A code without a stored matrix: lost blocks are repaired, and every output matches the points.
fn survives(text: &str, len: usize, random: &mut TestRng) {
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
    // An update by the difference of a block.
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
fn the_largest_codes_survive_m_losses() {
    let mut random = TestRng(33);
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
