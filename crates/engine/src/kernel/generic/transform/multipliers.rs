//! Byte maps of products with the constants of a transform.

use crate::bytemap::{LinearMap, MapForm};
use crate::field::Field;

/// The B x B byte maps of a product of symbols of B bytes.
pub(super) type Maps<M, const B: usize> = [[M; B]; B];

/// Provides the maps of every constant of a field with symbols of B bytes.
pub(super) trait Multiply<M, const B: usize>: Copy {
    fn of(self, constant: u16) -> Maps<M, B>;
}

/// Tables for the maps of all constants.
pub(in crate::kernel) enum Multipliers<M: MapForm> {
    /// GF(2^8): the maps of all constants.
    Bytes(&'static [M; 256]),
    /// GF(2^16): the maps of every nibble at every position, which are summed.
    Words(Box<[[Maps<M, 2>; 16]; 4]>),
}

impl<M: MapForm> Multipliers<M> {
    pub(in crate::kernel) fn new(field: Field) -> Multipliers<M> {
        if field == Field::GF8 {
            return Multipliers::Bytes(M::gf8_products());
        }
        let maps = |constant: u64| -> Maps<M, 2> {
            let product = LinearMap::multiplication(field, constant);
            let mut maps = product.prepare();
            let mut next = || maps.next().expect("two bytes to two bytes");
            [[next(), next()], [next(), next()]]
        };
        let place = |place: usize| std::array::from_fn(|nibble| maps((nibble as u64) << (4 * place)));
        Multipliers::Words(Box::new(std::array::from_fn(place)))
    }
}

impl<M: MapForm> Multiply<M, 1> for &[M; 256] {
    #[inline(always)]
    fn of(self, constant: u16) -> Maps<M, 1> {
        [[self[usize::from(constant as u8)]]]
    }
}

impl<M: MapForm> Multiply<M, 2> for &[[Maps<M, 2>; 16]; 4] {
    #[inline(always)]
    fn of(self, constant: u16) -> Maps<M, 2> {
        let nibble = |place: usize| &self[place][(constant >> (4 * place) & 15) as usize];
        let parts = [nibble(0), nibble(1), nibble(2), nibble(3)];
        let mut maps = *parts[0];
        for part in &parts[1..] {
            for from in 0..2 {
                for to in 0..2 {
                    maps[from][to] = maps[from][to].sum(part[from][to]);
                }
            }
        }
        maps
    }
}
