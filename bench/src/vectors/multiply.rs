//! A block times a constant in each field, by GF-Complete.

use anyhow::ensure;
use serde::Serialize;

use super::{hex, symbol};
use crate::blocks::Blocks;
use crate::jerasure::Field;

pub(super) const MADE_BY: &str = "gabion-bench vectors, with GF-Complete 1.0.2 git ea75cdf \
     (Debian 12): gf_init_easy, then multiply_region; every symbol was compared with its single \
     multiplication. Polynomials, checked: 0x13, 0x11d, 0x1100b, 0x100400007, x^64+x^4+x^3+x+1. \
     Symbols are little endian; for w = 4 a byte holds two, the low nibble first";

#[derive(Serialize)]
pub(super) struct Product {
    w: usize,
    constant: String,
    input: String,
    product: String,
}

/// Width, and what x^w reduces to.
const FIELDS: [(usize, u64); 5] = [(4, 0x3), (8, 0x1d), (16, 0x100b), (32, 0x40_0007), (64, 0x1b)];
/// All multiples of the largest symbol; one vector, its neighbours, and several with a tail.
const LENGTHS: [usize; 5] = [8, 56, 64, 72, 264];

pub(super) fn cases() -> anyhow::Result<Vec<Product>> {
    let mut cases = Vec::new();
    for (w, reduction) in FIELDS {
        let mut field = Field::new(w);
        let top = 1_u64 << (w - 1);
        ensure!(field.multiply(2, top) == reduction, "GF-Complete's polynomial for w = {w} is another one");
        for constant in constants(w) {
            for len in LENGTHS {
                let name = format!("multiply/{w}/{constant:x}/{len}");
                let input = Blocks::pseudo_random(&name, 1, len);
                let mut product = Blocks::zeroed(1, len);
                let (input, mut product) = (input.as_slices(), product.as_mut_slices());
                field.multiply_region(constant, input[0], product[0], false);
                check(&mut field, w, constant, input[0], product[0])?;
                cases.push(Product {
                    w,
                    constant: symbol(constant, w),
                    input: hex(input[0]),
                    product: hex(product[0]),
                });
            }
        }
    }
    Ok(cases)
}

/// 0, 1, the generator, the top bit, all ones, and a few without any pattern.
fn constants(w: usize) -> Vec<u64> {
    let all = u64::MAX >> (64 - w);
    let mut constants = vec![0, 1, 2, 1 << (w - 1), all];
    let mut bytes = [0_u8; 24];
    crate::pseudo_random::fill(&format!("constants/{w}"), &mut bytes);
    for word in bytes.chunks_exact(8) {
        constants.push(u64::from_le_bytes(word.try_into().expect("chunks of 8")) & all);
    }
    constants
}

/// The region product agrees, symbol by symbol, with single products, and the symbols lie where
/// this file claims: little endian, low nibble first.
fn check(field: &mut Field, w: usize, constant: u64, input: &[u8], product: &[u8]) -> anyhow::Result<()> {
    for index in 0..input.len() * 8 / w {
        let source = field.symbol(input, index);
        ensure!(source == symbol_at(input, index, w), "w = {w}: symbols lie elsewhere");
        ensure!(
            field.multiply(constant, source) == symbol_at(product, index, w),
            "w = {w}: region and single product differ for {constant:#x} at symbol {index}"
        );
    }
    Ok(())
}

fn symbol_at(block: &[u8], index: usize, w: usize) -> u64 {
    if w == 4 {
        return u64::from(block[index / 2] >> (4 * (index % 2)) & 0xf);
    }
    let bytes = w / 8;
    block[index * bytes..][..bytes].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
