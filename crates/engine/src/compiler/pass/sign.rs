//! Signatures in the coding pass: adds a division of each input to a program.
//!
//! The signature is the value at Y of a block over the tower of GF(2^8); see `divide` in the generic kernels. Loops
//! ascend, and so does this division: with n symbols per iteration, W = Y^-n and c = 2^n,
//!
//! ```text
//! c·W^8 + W^7 + W + 1 = 0
//! v_t = (d_t + v_(t-1) + v_(t-7) + v_(t-8)) / c
//! ```
//!
//! for the bytes d_t of iteration t. Other points have polynomials with another constant term 2^e, so c = 2^(e n)
//! there. The last eight v determine the remainder and so the signature ([`Signer`]). Per register that is one map, one
//! sum of three and one of two; an input is loaded once for division and coding.
//!
//! [`Signer`]: crate::signature::Signer

use crate::bytemap::ByteMap;
use crate::compiler::program::{Age, Location, Op, Program, Value};
use crate::division::SignaturePoints;
use crate::field::Field;

/// The program with a division per point of each of the first `inputs` blocks, with `symbols` symbols of 64 bits per
/// iteration. Divisions follow the first load of the block, while it is in a register; division i · n + j is component
/// j of n of input i.
pub(in crate::compiler) fn sign(
    program: &Program,
    inputs: usize,
    points: SignaturePoints,
    symbols: usize,
) -> Program {
    let (exponents, components) = (points.exponents(), points.exponents().len());
    let inverse = |component: usize| {
        let exponent = exponents[component] * symbols as u64 % 255;
        ByteMap::multiplication(Field::GF8, Field::GF8.exp(255 - exponent))
    };
    let divide_all = |signed: &mut Program, value: Value, input: usize| {
        for component in 0..components {
            divide(signed, value, input * components + component, inverse(component));
        }
    };
    let mut signed = Program::default();
    let mut renamed: Vec<Value> = Vec::with_capacity(program.ops().len());
    let mut divided = vec![false; inputs];
    for op in program.ops() {
        let value = signed.make(op.rename(|value| renamed[value.index()]));
        renamed.push(value);
        if let Op::Load(place) = op
            && let Some(done) = divided.get_mut(place.block as usize)
            && !std::mem::replace(done, true)
        {
            divide_all(&mut signed, value, place.block as usize);
        }
    }
    // An input that no output uses is signed too.
    for input in (0..inputs).filter(|&input| !divided[input]) {
        let value = signed.load(input, 0);
        divide_all(&mut signed, value, input);
    }
    signed.store_renamed(program, |value| renamed[value.index()]);
    signed
}

fn divide(program: &mut Program, value: Value, division: usize, inverse: ByteMap) {
    // The newest last: it was stored most recently and has the longest latency.
    let before = [Age::Eighth, Age::Seventh, Age::Last]
        .map(|age| program.make(Op::Load(Location::remainder(division, age))));
    let sum = program.make(Op::Sum([value].into_iter().chain(before).collect()));
    let quotient = program.map(sum, inverse);
    program.store(Location::remainder(division, Age::Eighth), quotient);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// One byte of a block per iteration: the quotients follow the formula, and outputs are unchanged.
    #[test]
    fn quotients_follow_their_definition() {
        let field = Field::GF8;
        let mut program = Program::default();
        let [a, b]: [Value; 2] = std::array::from_fn(|input| program.load(input, 0));
        let sum = program.sum([a, b]);
        program.store(Location { block: 3, packet: 0 }, sum);
        // Input 2 is not part of the program.
        let points = SignaturePoints::Independent;
        let signed = sign(&program, 3, points, 8);
        let load = |place: Location| match place.as_remainder() {
            None => 0x11 << place.block,
            Some((division, age)) => 1 + division as u8 + 16 * age as u8,
        };
        let found: HashMap<Location, u8> = signed.evaluate(load).into_iter().collect();
        assert_eq!(found[&Location { block: 3, packet: 0 }], 0x33);
        for (input, component) in (0..3).flat_map(|input| [(input, 0), (input, 1)]) {
            let place = |age| Location::remainder(2 * input + component, age);
            let before = [Age::Eighth, Age::Seventh, Age::Last].map(|age| load(place(age)));
            let sum =
                before.into_iter().fold(load(Location { block: input as u32, packet: 0 }), |a, b| a ^ b);
            let (quotient, c) = (found[&place(Age::Eighth)], field.exp(8 * points.exponents()[component]));
            assert_eq!(field.mul(u64::from(quotient), c), u64::from(sum), "input {input}, {component}");
        }
        assert_eq!(found.len(), 7);
    }
}
