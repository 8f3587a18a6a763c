//! Expanded tables: 32 bytes per coefficient, in one of ISA-L's two forms.
//!
//! *Products*: the products with 0, 1, … 15, then those with 0, 16, … 240. All functions of this library write them.
//! *Bit matrix*: the 8 x 8 matrix of the multiplication, four times; ISA-L 2.32 writes it where the CPU has GFNI. Both
//! forms are read everywhere. They cannot be confused: products begin with a zero, which no row of the matrix of a
//! coefficient other than 0 is, and 0 is 32 zero bytes in both.

use crate::field::mul;

/// Bytes of a coefficient.
pub(crate) const BYTES: usize = 32;

/// The table of a coefficient, as products.
pub(crate) fn products(coefficient: u8) -> [u8; BYTES] {
    std::array::from_fn(|i| mul(coefficient, if i < 16 { i as u8 } else { (i as u8 - 16) << 4 }))
}

/// The table of a coefficient, as a bit matrix. Row i, counted from the last byte, has the bits of the operand whose
/// sum is bit i of the product.
pub(crate) fn bit_matrix(coefficient: u8) -> [u8; BYTES] {
    let row = |bit: usize| (0..8).fold(0, |row, j| row | (mul(coefficient, 1 << j) >> bit & 1) << j);
    std::array::from_fn(|i| row(7 - i % 8))
}

/// The coefficient of a table; `None` if it is not the table of any.
pub(crate) fn coefficient(table: &[u8; BYTES]) -> Option<u8> {
    if table[0] == 0 {
        return Some(table[1]).filter(|&c| products(c) == *table);
    }
    // The first column of the matrix is the coefficient itself.
    let c = (0..8).fold(0, |c, bit| c | (table[7 - bit] & 1) << bit);
    Some(c).filter(|&c| bit_matrix(c) == *table)
}

/// The coefficients of consecutive tables; `None` if one is not the table of any.
pub(crate) fn coefficients(tables: &[u8]) -> Option<Vec<u8>> {
    let (tables, rest) = tables.as_chunks::<BYTES>();
    if rest.is_empty() { tables.iter().map(coefficient).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, bit_matrix, coefficient, products};

    #[test]
    fn both_forms_of_every_coefficient_are_read() {
        for c in 0..=255 {
            assert_eq!(coefficient(&products(c)), Some(c));
            assert_eq!(coefficient(&bit_matrix(c)), Some(c));
        }
        assert_eq!(products(2)[..4], [0, 2, 4, 6]);
        // `vgf2p8affineqb` maps every byte to itself with this matrix.
        assert_eq!(bit_matrix(1)[..8], 0x0102_0408_1020_4080_u64.to_le_bytes());
    }

    #[test]
    fn a_changed_table_is_not_read() {
        for c in [0, 1, 2, 0x8e, 255] {
            for (table, at) in [(products(c), 0..BYTES), (bit_matrix(c), 0..BYTES)] {
                for byte in at {
                    let mut changed = table;
                    changed[byte] ^= 1;
                    assert_eq!(coefficient(&changed), None, "coefficient {c}, byte {byte}");
                }
            }
        }
    }
}
