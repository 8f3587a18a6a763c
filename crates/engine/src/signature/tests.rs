use super::*;
use crate::code::Code;
use crate::kernel::{Backend, Reference, kernel_sets};
use proptest::prelude::*;

/// The definition, term by term, with the reference arithmetic only.
fn by_definition(space: Space, components: usize, block: &[u8]) -> Vec<u64> {
    let mul = |a, b| match space {
        Space::Field(field) => crate::field::reference::mul(field, a, b),
        Space::Tower(tower) => tower.mul(a, b),
    };
    let alpha = match space {
        Space::Field(_) => 2,
        Space::Tower(tower) => tower.times_y(1),
    };
    (1..=components as u64)
        .map(|i| {
            let base = crate::field::reference::pow_by(alpha, i, mul);
            let symbols = block.chunks(space.bytes()).map(little_endian).enumerate();
            symbols.fold(0, |sum, (j, p)| sum ^ mul(p, crate::field::reference::pow_by(base, j as u64, mul)))
        })
        .collect()
}

fn painted(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

/// Every kind of signer, on every supported kernel set.
fn signers(components: usize) -> Vec<(String, Signer)> {
    let mut signers = Vec::new();
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        for field in [Field::GF8, Field::GF16, Field::GF32, Field::GF64] {
            let signer = Signer::with_kernel_set(row, field, components).unwrap();
            signers.push((format!("{} {field:?}", row.name()), signer));
        }
        for base in [Field::GF4, Field::GF8, Field::GF16, Field::GF32] {
            let signer = Signer::tower_with_kernel_set(row, base, components).unwrap();
            signers.push((format!("{} tower over {base:?}", row.name()), signer));
        }
    }
    signers
}

#[test]
fn every_kernel_set_matches_the_definition() {
    for components in [1, 2, 3] {
        for (name, signer) in signers(components) {
            for len in [
                0, 1, 2, 7, 8, 15, 16, 31, 63, 64, 65, 127, 128, 200, 255, 256, 511, 512, 513, 1023, 1024,
                1025, 1500, 2049,
            ] {
                if len as u64 > signer.max_block_bytes() {
                    continue;
                }
                let block = painted(len + 1, len as u64);
                // Misaligned by one byte.
                let block = &block[1..];
                let want = by_definition(signer.space, components, block);
                assert_eq!(signer.sign(block).unwrap().components(), want, "{name}, {len} bytes");
            }
        }
    }
}

/// The points Y and P on every kernel set, by definition and through the law.
#[test]
fn independent_signatures_are_values_at_two_points() {
    let tower = Tower::over(Field::GF8).unwrap();
    let points = [tower.times_y(1), point::POINT];
    for row in kernel_sets().iter().filter(|row| row.supported()) {
        let signer = Signer::independent_with_kernel_set(row).unwrap();
        for len in [0, 1, 7, 8, 9, 63, 64, 128, 200, 256, 511, 512, 513, 1024, 1500, 4097] {
            let block = painted(len, len as u64);
            let symbols = || block.chunks(8).map(little_endian);
            let value = |point| symbols().rev().fold(0, |sum, symbol| tower.mul(sum, point) ^ symbol);
            assert_eq!(signer.sign(&block).unwrap().components(), points.map(value), "{row:?}, {len} bytes");
        }
    }
}

/// The stated properties of P: its polynomial, that it generates all non-zero elements, and the period of P / Y, on
/// which the detection of two changed symbols relies.
#[test]
fn the_second_point_has_its_stated_properties() {
    let tower = Tower::over(Field::GF8).unwrap();
    let (y, p) = (tower.times_y(1), point::POINT);
    let constant = Field::GF8.exp(SignaturePoints::Independent.exponents()[1]);
    assert_eq!(tower.pow(p, 8) ^ tower.pow(p, 7) ^ p ^ constant, 0);
    let primes = [3u64, 5, 17, 257, 641, 65537, 6_700_417];
    let quotient = tower.mul(p, tower.pow(y, u64::MAX - 1));
    for prime in primes {
        assert_ne!(tower.pow(p, u64::MAX / prime), 1, "{prime}");
        assert_eq!(tower.pow(quotient, u64::MAX / prime) == 1, prime == 3, "{prime}");
    }
    // Not a conjugate of Y or Y^-1 over GF(2).
    let inverse = tower.pow(y, u64::MAX - 1);
    assert!((0..64).all(|i| tower.pow(y, 1 << i) != p && tower.pow(inverse, 1 << i) != p));
}

/// Words that all differ by the same value, as when a driver or a cable inverts the same bits in several words: at Y
/// and Y² the second component is the square of the first up to a factor, so such changes were undetected with
/// probability 2^-64, not 2^-128. Checked on patterns: wherever the first component agrees, so does the second; at
/// independent points it does not.
#[test]
fn equal_differences_have_two_independent_components() {
    let tower = Tower::over(Field::GF8).unwrap();
    let (old, new) = (Signer::tower(Field::GF8, 2).unwrap(), Signer::independent().unwrap());
    let difference = 0x8000_0000_0001_0040_u64;
    let inverse = tower.pow(difference, u64::MAX - 1);
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let mut free = 0;
    for _ in 0..200 {
        let mut block = vec![0; 1 << 12];
        for _ in 0..5 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (chance >> 55) as usize * 8;
            block[at..at + 8].copy_from_slice(&difference.to_le_bytes());
        }
        let follows = |signer: &Signer| {
            let signature = signer.sign(&block).unwrap();
            let [first, second] = [0, 1].map(|i| tower.mul(signature.components()[i], inverse));
            tower.mul(first, first) == second
        };
        assert!(follows(&old));
        free += usize::from(!follows(&new));
    }
    assert_eq!(free, 200);
    // A sum of differences that the first point does not detect: a multiple of the minimal polynomial of Y over GF(2).
    let mut block = vec![0; 65 * 8];
    let mut powers = vec![];
    let mut power = 1u64;
    for _ in 0..65 {
        powers.push(power);
        power = tower.times_y(power);
    }
    for place in relation(&powers) {
        block[place * 8..place * 8 + 8].copy_from_slice(&difference.to_le_bytes());
    }
    assert_eq!(
        old.sign(&block).unwrap().components(),
        [0, 0],
        "a change that signatures at Y and Y² do not detect"
    );
    let signature = new.sign(&block).unwrap();
    assert!(signature.components()[0] == 0 && signature.components()[1] != 0);
}

/// Indices of elements that sum to zero; there are more elements than bits.
fn relation(elements: &[u64]) -> Vec<usize> {
    let mut rows: Vec<(u64, u128)> = Vec::new();
    for (place, &element) in elements.iter().enumerate() {
        let (mut sum, mut of) = (element, 1u128 << place);
        for &(row, places) in &rows {
            if sum & (1 << row.ilog2()) != 0 {
                sum ^= row;
                of ^= places;
            }
        }
        if sum == 0 {
            return (0..elements.len()).filter(|place| of >> place & 1 == 1).collect();
        }
        rows.push((sum, of));
    }
    unreachable!("{} elements of 64 bits are independent", elements.len())
}

#[test]
fn blocks_beyond_the_period_are_refused() {
    let signer = Signer::new(Field::GF8, 4).unwrap();
    assert!(signer.sign(&[1; 255]).is_ok());
    let refused = Error::BlockTooLong { w: 8, symbols: 256, limit: 255 };
    assert_eq!(signer.sign(&[1; 256]), Err(refused));
    let signer = Signer::new(Field::GF16, 1).unwrap();
    assert!(signer.sign(&vec![1; 131_070]).is_ok());
    let refused = Error::BlockTooLong { w: 16, symbols: 65_536, limit: 65_535 };
    assert_eq!(signer.sign(&vec![1; 131_071]), Err(refused));
    let out_of_range = |components| Error::ComponentsOutOfRange { components, limit: 16 };
    assert_eq!(Signer::new(Field::GF8, 0).unwrap_err(), out_of_range(0));
    assert_eq!(Signer::new(Field::GF8, 17).unwrap_err(), out_of_range(17));
    assert_eq!(
        Signer::new(Field::GF4, 1).unwrap_err(),
        Error::NoSignatures { widths: "8, 16, 32 or 64", w: 4 }
    );
}

/// The law (2.37) for every family and field in the words layout, with plain signatures and towers.
#[test]
fn signatures_of_redundancy_are_the_code_of_signatures() {
    for text in [
        "subspace:6+3:w8",
        "subspace:5+2:w16",
        "subspace:4+2:w32",
        "subspace:3+2:w64",
        "subspace:6+3:w4",
        "rs-vandermonde:6+3:w8",
        "rs-isal:6+3",
        "cauchy:6+3:w8",
        "cauchy-isal:6+3",
        "cauchy-good:6+3:w8",
        "raidz:6+3",
        "rs-vandermonde:5+2:w16",
        "cauchy:5+2:w16",
        "cauchy-good:4+2:w16",
        "cauchy:4+2:w32",
        "rs-vandermonde:4+2:w32",
        "cauchy:4+2:w64",
        "rs-vandermonde:3+2:w64",
        "cauchy:6+3:w4",
        "rs-vandermonde:6+3:w4",
    ] {
        let code: Code = text.parse().unwrap();
        let plain = Signer::new(code.field(), 2).ok();
        let tower = Signer::tower(code.field(), 2).ok();
        let independent = Signer::independent().ok().filter(|_| code.field() == Field::GF8);
        assert!(plain.is_some() || tower.is_some(), "{text}");
        for signer in plain.iter().chain(&tower).chain(&independent) {
            let len = 240;
            let data: Vec<Vec<u8>> = (0..code.k()).map(|i| painted(len, i as u64)).collect();
            let mut redundancy = vec![vec![0; len]; code.m()];
            let plan = code.encode_plan().unwrap();
            let kernel = Reference.compile(&plan).unwrap();
            let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|b| &mut b[..]).collect();
            kernel.run(&inputs, &mut outputs).unwrap();
            let sign = |blocks: &[Vec<u8>]| -> Vec<Signature> {
                blocks.iter().map(|block| signer.sign(block).unwrap()).collect()
            };
            let transformed = signer.transform(plan.matrix().unwrap(), &sign(&data)).unwrap();
            assert_eq!(transformed, sign(&redundancy), "{text} {signer:?}");
        }
    }
}

#[test]
fn the_law_is_refused_across_fields() {
    let code: Code = "6+3:w16".parse().unwrap();
    let signer = Signer::tower(Field::GF8, 1).unwrap();
    let refused = signer.transform(code.redundancy().unwrap(), &vec![Signature(vec![0]); 6]);
    assert!(matches!(refused, Err(Error::WrongField { defined: 8, w: 16, .. })));
    let code: Code = "6+3".parse().unwrap();
    let refused = signer.transform(code.redundancy().unwrap(), &vec![Signature(vec![0]); 5]);
    assert_eq!(refused, Err(Error::SizeMismatch { left: 6, right: 5 }));
}

proptest! {
    #[test]
    fn linear(seed: u64, constant: u64, len in 0..255usize) {
        for (_, signer) in signers(2) {
            let field = signer.space.code_field();
            let constant = constant & field.mask();
            let len = len / 8 * 8;
            let (x, y) = (painted(len, seed), painted(len, !seed));
            let sum: Vec<u8> = x.iter().zip(&y).map(|(a, b)| a ^ b).collect();
            let of = |block: &[u8]| signer.sign(block).unwrap();
            let matrix = Matrix::from_fn(field, 1, 2, |_, j| if j == 0 { constant } else { 1 }).unwrap();
            let plan = crate::Plan::new(matrix.clone(), crate::Layout::Words, crate::Mode::Write).unwrap();
            let mut mixed = vec![0; len];
            Reference.compile(&plan).unwrap().run(&[&x, &y], &mut [&mut mixed]).unwrap();
            prop_assert_eq!(signer.transform(&matrix, &[of(&x), of(&y)]).unwrap(), vec![of(&mixed)]);
            let added: Vec<u64> = of(&x).0.iter().zip(&of(&y).0).map(|(a, b)| a ^ b).collect();
            prop_assert_eq!(of(&sum).0, added);
        }
    }

    /// n components detect every change of up to n symbols.
    #[test]
    fn changes_of_up_to_n_symbols_are_detected(
        block in proptest::collection::vec(any::<u8>(), 1..255),
        changes in proptest::collection::vec((any::<usize>(), 1..=255u8), 1..=3),
    ) {
        let signer = Signer::new(Field::GF8, 3).unwrap();
        let mut changed = block.clone();
        for (at, by) in changes {
            let at = at % block.len();
            changed[at] ^= by;
        }
        prop_assert_eq!(changed == block, signer.sign(&changed).unwrap() == signer.sign(&block).unwrap());
    }
}

/// Signatures are read from files, so their components may be any numbers.
#[test]
fn components_outside_the_field_are_refused() {
    let matrix = Matrix::from_fn(Field::GF16, 1, 1, |_, _| 7).unwrap();
    let signer = Signer::new(Field::GF16, 1).unwrap();
    let refused = signer.transform(&matrix, &[Signature::from_components(vec![1 << 16])]).unwrap_err();
    assert_eq!(refused, Error::NotAnElement { value: 1 << 16, w: 16 });
    let refused = Signer::tower(Field::GF64, 1).unwrap_err();
    assert_eq!(refused.to_string(), "signatures of this kind have w = 4, 8, 16 or 32, not 64");
}
