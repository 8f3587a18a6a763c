//! Transposition between words of symbols and bit rows: w words of 32 bits hold 32 symbols, and a w x w transposition
//! collects bit b of all of them in row b.
//!
//! Stage s = w/2, …, 2, 1 exchanges, in words a and a + s, the bits whose index in a symbol has bit s set with those
//! that have it clear. The order of the symbols in a row does not matter, since the inverse restores it.
//!
//! ```text
//! low  = (low & mask) | (high << s & ~mask)        mask: the places without s
//! high = (low >> s & mask) | (high & ~mask)
//! ```

use super::Dialect;
use super::text::{Text, line};

/// Mask of the bits of a word whose index in a symbol has bit `stage` clear.
const fn mask(stage: usize) -> u32 {
    let mut mask = 0;
    let mut bit = 0;
    while bit < 32 {
        if bit & stage == 0 {
            mask |= 1 << bit;
        }
        bit += 1;
    }
    mask
}

/// Appends the transposition of `words`, which are variables; their number is the width of a symbol, up to 32. Returns
/// the number of instructions. It is its own inverse.
pub(super) fn transpose(text: &mut Text, dialect: Dialect, words: &[String]) -> usize {
    let mut instructions = 0;
    let mut stage = words.len() / 2;
    while stage > 0 {
        for low in (0..words.len()).filter(|word| word & stage == 0) {
            instructions += exchange(text, dialect, stage, &words[low], &words[low + stage]);
        }
        stage /= 2;
    }
    instructions
}

fn exchange(text: &mut Text, dialect: Dialect, stage: usize, low: &str, high: &str) -> usize {
    // Whole bytes and halves are exchanged with one instruction each.
    let places = match stage {
        8 => Some(("0x6240", "0x7351")),
        16 => Some(("0x5410", "0x7632")),
        _ => None,
    };
    if let Some((lower, upper)) = places.filter(|_| dialect.has_byte_permute()) {
        line!(
            text,
            "{{ u32 t = BYTES({low}, {high}, {lower}); {high} = BYTES({low}, {high}, {upper}); {low} = t; }}"
        );
        return 2;
    }
    let mask = mask(stage);
    line!(
        text,
        "{{ u32 t = choose({mask:#x}u, {low}, {high} << {stage}); {high} = choose({mask:#x}u, {low} >> {stage}, {high}); {low} = t; }}"
    );
    4
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::conformance::TestRng;

    /// Executes the transposition of the text.
    fn done(words: &mut [u32]) {
        let mut stage = words.len() / 2;
        while stage > 0 {
            let mask = mask(stage);
            for low in (0..words.len()).filter(|word| word & stage == 0) {
                let (a, b) = (words[low], words[low + stage]);
                words[low] = a & mask | b << stage & !mask;
                words[low + stage] = a >> stage & mask | b & !mask;
            }
            stage /= 2;
        }
    }

    #[test]
    fn rows_hold_one_bit_of_every_symbol() {
        let mut random = TestRng(3);
        for width in [4usize, 8, 16, 32] {
            let words: Vec<u32> = (0..width).map(|_| random.next_u64() as u32).collect();
            let mut rows = words.clone();
            done(&mut rows);
            for (bit, row) in rows.iter().enumerate() {
                for place in 0..32 {
                    // Symbol `place / width` of word `place % width`.
                    let symbol = words[place % width] >> (place - place % width);
                    assert_eq!(row >> place & 1, symbol >> bit & 1, "width {width} bit {bit} place {place}");
                }
            }
            done(&mut rows);
            assert_eq!(rows, words);
        }
    }

    #[test]
    fn instructions_are_counted() {
        let words = |count: usize| (0..count).map(|word| format!("x{word}")).collect::<Vec<_>>();
        let mut text = Text::default();
        assert_eq!(transpose(&mut text, Dialect::OpenCl, &words(8)), 48);
        assert_eq!(transpose(&mut text, Dialect::Cuda, &words(16)), 16 + 3 * 32);
        assert_eq!(text.0.lines().count(), 12 + 32);
    }
}
