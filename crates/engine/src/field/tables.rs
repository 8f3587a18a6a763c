//! Multiplication by lookup tables: logarithms, the full product table, and tables split by nibbles.

use super::{Field, reference};
use std::sync::OnceLock;

/// Logarithms and powers of x: a · b = exp[log a + log b]. For w <= 16.
#[derive(Debug)]
pub struct LogTables {
    /// log[a] for a != 0; log[0] is unused.
    log: Vec<u32>,
    /// x^i for i in 0..2·(2^w - 1), two periods, so that a sum of two logarithms needs no modulo.
    exp: Vec<u16>,
}

impl LogTables {
    /// The tables of `field`, built on first use and cached; `None` for w > 16.
    pub fn of(field: Field) -> Option<&'static LogTables> {
        static TABLES: [OnceLock<LogTables>; 17] = [const { OnceLock::new() }; 17];
        let slot = TABLES.get(field.w() as usize)?;
        Some(slot.get_or_init(|| LogTables::new(field)))
    }

    fn new(field: Field) -> LogTables {
        let period = field.mask() as usize;
        let (mut log, mut exp) = (vec![0; period + 1], vec![0; 2 * period]);
        let mut power = 1;
        for i in 0..period {
            log[power as usize] = i as u32;
            exp[i] = power as u16;
            exp[i + period] = power as u16;
            power = reference::times_x(field, power);
        }
        LogTables { log, exp }
    }

    /// Product of two elements.
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        if a == 0 || b == 0 {
            return 0;
        }
        u64::from(self.exp[(self.log[a as usize] + self.log[b as usize]) as usize])
    }

    /// Adds `factor`, which must not be 0, times each element of `from` to the element of `to` at the same index.
    pub fn add_multiple(&self, to: &mut [u64], from: &[u64], factor: u64) {
        let powers = &self.exp[self.log[factor as usize] as usize..];
        for (to, &a) in to.iter_mut().zip(from).filter(|&(_, &a)| a != 0) {
            *to ^= u64::from(powers[self.log[a as usize] as usize]);
        }
    }

    /// Product of elements: one lookup each, and one more.
    pub fn product(&self, elements: impl IntoIterator<Item = u64>) -> u64 {
        let mut logarithm = 0;
        for a in elements {
            if a == 0 {
                return 0;
            }
            logarithm += u64::from(self.log[a as usize]);
        }
        u64::from(self.exp[(logarithm % self.period() as u64) as usize])
    }

    /// a · b / c, or `None` for c = 0.
    pub fn ratio(&self, a: u64, b: u64, c: u64) -> Option<u64> {
        if a == 0 || b == 0 || c == 0 {
            return (c != 0).then_some(0);
        }
        let [a, b, c] = [a, b, c].map(|a| self.log[a as usize] as usize);
        let period = self.period();
        let product = if a + b < period { a + b } else { a + b - period };
        Some(u64::from(self.exp[product + period - c]))
    }

    /// The exponent of x that gives `a`, or `None` for zero.
    pub fn log(&self, a: u64) -> Option<u64> {
        (a != 0).then(|| u64::from(self.log[a as usize]))
    }

    /// x to the power `exponent`.
    pub fn exp(&self, exponent: u64) -> u64 {
        u64::from(self.exp[(exponent % self.period() as u64) as usize])
    }

    /// Number of non-zero elements.
    fn period(&self) -> usize {
        self.exp.len() / 2
    }

    /// The inverse, or `None` for zero.
    pub fn inv(&self, a: u64) -> Option<u64> {
        (a != 0).then(|| u64::from(self.exp[self.period() - self.log[a as usize] as usize]))
    }
}

/// Table of all products of two elements, 2^2w bytes. For w <= 8.
#[derive(Debug)]
pub struct FullTable {
    w: u32,
    products: Vec<u8>,
}

impl FullTable {
    /// The table of `field`, or `None` for w > 8.
    pub fn new(field: Field) -> Option<FullTable> {
        let w = field.w();
        (w <= 8).then(|| {
            let side = 0..1u64 << w;
            let products = side
                .clone()
                .flat_map(|a| side.clone().map(move |b| reference::mul(field, a, b) as u8))
                .collect();
            FullTable { w, products }
        })
    }

    /// Product of two elements.
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        u64::from(self.products[(a << self.w | b) as usize])
    }
}

/// Products of one constant with every nibble at every position of a symbol: a product is the sum of w/4 lookups in
/// tables of 16 entries, small enough for a vector register. For w = 4, 8, 16, 32, 64.
#[derive(Debug)]
pub struct SplitTables {
    /// tables[i][v] = constant · v · x^4i
    tables: Vec<[u64; 16]>,
}

impl SplitTables {
    /// The tables of `constant`, or `None` if w is not a multiple of 4.
    pub fn new(field: Field, constant: u64) -> Option<SplitTables> {
        field.w().is_multiple_of(4).then(|| SplitTables {
            tables: (0..field.w() / 4)
                .map(|place| std::array::from_fn(|v| field.mul(constant, (v as u64) << (4 * place))))
                .collect(),
        })
    }

    /// Product of the constant with `a`.
    pub fn mul(&self, a: u64) -> u64 {
        let nibble = |place: usize| (a >> (4 * place) & 15) as usize;
        self.tables.iter().enumerate().fold(0, |sum, (place, table)| sum ^ table[nibble(place)])
    }
}
