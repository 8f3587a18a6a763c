use super::barrett::{Barrett, carryless};
use super::reference;
use super::tables::{FullTable, SplitTables};
use super::*;
use proptest::prelude::*;

fn field() -> impl Strategy<Value = Field> {
    proptest::sample::select(Field::all().collect::<Vec<_>>())
}

/// A field and three of its elements.
fn elements() -> impl Strategy<Value = (Field, u64, u64, u64)> {
    (field(), any::<u64>(), any::<u64>(), any::<u64>())
        .prop_map(|(f, a, b, c)| (f, a & f.mask(), b & f.mask(), c & f.mask()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn laws_of_a_field((f, a, b, c) in elements()) {
        let mul = |a, b| f.mul(a, b);
        prop_assert!(f.contains(mul(a, b)));
        prop_assert_eq!(mul(a, b), mul(b, a));
        prop_assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)));
        prop_assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
        prop_assert_eq!(mul(a, 1), a);
        prop_assert_eq!(mul(a, 0), 0);
        match f.inv(a) {
            None => prop_assert_eq!(a, 0),
            Some(inverse) => {
                prop_assert_eq!(mul(a, inverse), 1);
                prop_assert_eq!(f.div(mul(a, b), a), Some(b));
            }
        }
    }

    #[test]
    fn every_method_gives_the_reference_product((f, a, b, c) in elements()) {
        let want = reference::mul(f, a, b);
        prop_assert_eq!(f.mul(a, b), want);
        prop_assert_eq!(Barrett::new(f).mul(a, b), want);
        prop_assert_eq!(Barrett::of(f).mul(a, b), want);
        prop_assert_eq!(f.product([a, b, c]), reference::mul(f, want, c));
        if let Some(tables) = LogTables::of(f) {
            let inverse = reference::inv(f, c);
            prop_assert_eq!(tables.ratio(a, b, c), inverse.map(|inverse| reference::mul(f, want, inverse)));
        }
        let mut sums = [c, c];
        f.add_multiple(&mut sums, &[a, 0], b);
        prop_assert_eq!(sums, [c ^ want, c]);
        if let Some(split) = SplitTables::new(f, a) {
            prop_assert_eq!(split.mul(b), want);
        }
        prop_assert_eq!(f.inv(a), reference::inv(f, a));
    }

    #[test]
    fn powers_add((f, a, _, _) in elements(), i in 0..1000u64, j in 0..1000u64) {
        prop_assert_eq!(f.mul(f.pow(a, i), f.pow(a, j)), f.pow(a, i + j));
        prop_assert_eq!(f.pow(a, i), reference::pow(f, a, i));
    }

    #[test]
    fn carryless_product_is_schoolbook(a: u64, b: u64) {
        let want = (0..64).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ u128::from(a) << i);
        prop_assert_eq!(carryless(a, b), want);
    }
}

#[test]
fn small_fields_exhaustively() {
    for f in Field::all().filter(|f| f.w() <= 8) {
        let full = FullTable::new(f).unwrap();
        let barrett = Barrett::new(f);
        for a in 0..=f.mask() {
            let split = SplitTables::new(f, a);
            for b in 0..=f.mask() {
                let want = reference::mul(f, a, b);
                assert_eq!(full.mul(a, b), want, "{f:?} {a} {b}");
                assert_eq!(barrett.mul(a, b), want, "{f:?} {a} {b}");
                assert_eq!(f.mul(a, b), want, "{f:?} {a} {b}");
                let mut sum = [1];
                f.add_multiple(&mut sum, &[a], b);
                assert_eq!(sum, [1 ^ want], "{f:?} {a} {b}");
                assert!(split.as_ref().is_none_or(|s| s.mul(b) == want), "{f:?} {a} {b}");
            }
        }
    }
    assert!(FullTable::new(Field::new(9).unwrap()).is_none());
}

/// x is primitive if x^(2^w - 1) = 1 and x^((2^w - 1)/p) != 1 for every prime p of 2^w - 1.
#[test]
fn x_is_primitive_in_every_field() {
    for f in Field::all() {
        assert_eq!(f.exp(f.mask()), 1, "{f:?}");
        for prime in prime_factors(f.mask()) {
            assert_ne!(f.exp(f.mask() / prime), 1, "{f:?}: order divides (2^w-1)/{prime}");
        }
    }
}

fn prime_factors(mut n: u64) -> Vec<u64> {
    let mut primes = Vec::new();
    let mut p = 2;
    while p * p <= n {
        while n.is_multiple_of(p) {
            primes.push(p);
            n /= p;
        }
        p += 1;
    }
    if n > 1 {
        primes.push(n);
    }
    primes
}

#[test]
fn polynomials_match_the_published_ones() {
    let whole = |w: u32| u128::from(Field::new(w).unwrap().polynomial()) | 1u128 << w;
    assert_eq!(whole(4), 0x13);
    assert_eq!(whole(8), 0x11d);
    assert_eq!(whole(16), 0x1100b);
    assert_eq!(whole(32), 0x1_0040_0007);
    assert_eq!(whole(64), 0x1_0000_0000_0000_001b);
}

#[test]
fn unsupported_widths_are_refused() {
    for w in [0, 1, 17, 31, 33, 63, 65, u32::MAX] {
        assert_eq!(Field::new(w), Err(Error::UnknownField { w }));
    }
    for w in [2, 3, 5, 7, 9, 12, 15] {
        assert_eq!(Field::new(w).unwrap().word_bytes(), Err(Error::NoWordsLayout { w }));
    }
}
