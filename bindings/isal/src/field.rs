//! GF(2^8) with ISA-L's polynomial, 0x11d.

/// Product with x.
const fn double(a: u8) -> u8 {
    (a << 1) ^ (if a & 0x80 == 0 { 0 } else { 0x1d })
}

const fn product(a: u8, b: u8) -> u8 {
    let (mut sum, mut power, mut bits) = (0, a, b);
    while bits != 0 {
        if bits & 1 == 1 {
            sum ^= power;
        }
        power = double(power);
        bits >>= 1;
    }
    sum
}

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        let mut b = 0;
        while b < 256 {
            table[a][b] = product(a as u8, b as u8);
            b += 1;
        }
        a += 1;
    }
    table
}

const fn inverses() -> [u8; 256] {
    let mut table = [0; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while PRODUCTS[a][b] != 1 {
            b += 1;
        }
        table[a] = b as u8;
        a += 1;
    }
    table
}

/// All products.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

static INVERSES: [u8; 256] = inverses();

pub(crate) fn mul(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// The inverse; 0 for 0, as in ISA-L.
pub(crate) fn inv(a: u8) -> u8 {
    INVERSES[usize::from(a)]
}

#[cfg(test)]
mod tests {
    use super::{inv, mul};
    use gabion_engine::Field;

    #[test]
    fn the_field_is_that_of_the_engine() {
        for a in 0..=255 {
            assert_eq!(inv(a), Field::GF8.inv(a.into()).unwrap_or(0) as u8);
            for b in 0..=255 {
                assert_eq!(u64::from(mul(a, b)), Field::GF8.mul(a.into(), b.into()));
            }
        }
    }
}
