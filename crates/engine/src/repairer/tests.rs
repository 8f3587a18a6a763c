use super::*;
use crate::conformance::TestRng;
use std::iter;

/// Every family, block lengths for direct and planned repair, random losses of data and redundancy, on one and several
/// threads.
#[test]
fn lost_blocks_are_repaired() {
    let (engine, pooled) = (Engine::new(1).unwrap(), Engine::new(3).unwrap());
    let mut random = TestRng(0x7265_7061_6972);
    for code in [
        "subspace:1+3",
        "4+2",
        "5+2",
        "10+4",
        "30+33",
        "40+40",
        "cauchy-isal:16+4",
        "cauchy:7+3",
        "rs-vandermonde:6+3",
        "20+5:w16",
    ] {
        let code: Code = code.parse().unwrap();
        let (k, m) = (code.k(), code.m());
        for len in [0, 2, 130, 4096, 20_002, 300 << 10] {
            let mut stripe = vec![vec![0; len]; code.blocks()];
            stripe[..k].iter_mut().for_each(|block| random.fill(block));
            let (data, redundancy) = stripe.split_at_mut(k);
            let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let mut redundancy: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
            engine.compile(&code.encode_plan().unwrap()).unwrap().run(&data, &mut redundancy).unwrap();
            let (alone, pooled) = (engine.repairer(&code), pooled.repairer(&code));
            for _ in 0..10 {
                let mut columns: Vec<usize> = (0..code.blocks()).collect();
                for i in (1..columns.len()).rev() {
                    columns.swap(i, random.below(i + 1));
                }
                let (missing, _) = columns.split_at(random.below(m + 1));
                let wanted = &missing[..random.below(missing.len() + 1)];
                let there: Vec<Option<&[u8]>> =
                    (0..code.blocks()).map(|c| (!missing.contains(&c)).then_some(&stripe[c][..])).collect();
                // First directly, if possible, then by a new plan, then by the cached plan.
                for repairer in [&pooled].into_iter().chain(iter::repeat_n(&alone, REPEAT_MASK as usize + 3))
                {
                    let mut outputs = vec![vec![0xaa; len]; wanted.len()];
                    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[..]).collect();
                    repairer.repair(&there, wanted, &mut slices).unwrap();
                    for (&column, output) in wanted.iter().zip(&outputs) {
                        assert!(
                            *output == stripe[column],
                            "{code}, {len} bytes: column {column} of {missing:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Threads share a repairer; each repairs stripes with its own or another thread's erasure pattern.
#[test]
fn threads_do_not_use_the_plan_of_another_pattern() {
    let code: Code = "4+2".parse().unwrap();
    let engine = Engine::new(1).unwrap();
    let mut random = TestRng(0x6b65_7074);
    let mut stripe = vec![vec![0; 1000]; 6];
    stripe[..4].iter_mut().for_each(|block| random.fill(block));
    let (data, redundancy) = stripe.split_at_mut(4);
    let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
    let mut redundancy: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
    engine.compile(&code.encode_plan().unwrap()).unwrap().run(&data, &mut redundancy).unwrap();
    let (repairer, stripe) = (engine.repairer(&code), &stripe);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let repairer = &repairer;
            scope.spawn(move || {
                for round in 0..1000 {
                    // Runs of twenty stripes with the same loss.
                    let (first, second) = ((thread / 2 + round / 20) % 6, (round / 20 + 3) % 6);
                    if first == second {
                        continue;
                    }
                    let there: Vec<Option<&[u8]>> =
                        (0..6).map(|c| (c != first && c != second).then_some(&stripe[c][..])).collect();
                    let (mut a, mut b) = (vec![0xaa; 1000], vec![0xaa; 1000]);
                    repairer.repair(&there, &[first, second], &mut [&mut a, &mut b]).unwrap();
                    assert!(a == stripe[first] && b == stripe[second], "{first} and {second} lost");
                }
            });
        }
    });
    let there: Vec<Option<&[u8]>> = (0..6).map(|c| (c != 5).then_some(&stripe[c][..])).collect();
    for _ in 0..REPEAT_MASK + 2 {
        repairer.repair(&there, &[5], &mut [&mut vec![0; 1000][..]]).unwrap();
    }
    let kept = repairer.cached.read().unwrap();
    assert_eq!(kept.as_ref().map(|kept| kept.compiled.plan().outputs()), Some(&[5][..]));
}

#[test]
fn invalid_repairs_are_refused_with_reasons() {
    let code: Code = "4+2".parse().unwrap();
    let repairer = Engine::new(1).unwrap().repairer(&code);
    let block = [7u8; 8];
    let stripe = |there: [bool; 6]| there.map(|there| there.then_some(&block[..]));
    let (mut a, mut b) = ([0; 8], [0; 8]);
    let mut repair = |there, wanted: &[usize]| {
        repairer.repair(&stripe(there), wanted, &mut [&mut a[..], &mut b[..]][..wanted.len()])
    };
    let all = [true; 6];
    assert_eq!(repair(all, &[6]), Err(Error::NoSuchColumn { column: 6, last: 5 }));
    assert_eq!(repair(all, &[300]), Err(Error::NoSuchColumn { column: 300, last: 5 }));
    assert_eq!(repair(all, &[1, 1]), Err(Error::ColumnTwice { column: 1 }));
    let few = [false, false, true, true, true, false];
    assert_eq!(repair(few, &[0]), Err(Error::NotEnoughBlocks { need: 4, have: 3 }));
    assert_eq!(repair(all, &[0, 5]), Ok(()), "blocks of wanted columns are not read");
    let short = repairer.repair(&stripe(all), &[0], &mut [&mut [0; 7]]);
    assert_eq!(short, Err(Error::BufferLength { index: 0, len: 8, want: 7 }));
    let counts = repairer.repair(&stripe(all)[1..], &[0], &mut [&mut [0; 8]]);
    assert!(matches!(counts, Err(Error::BufferCount { .. })));
}
