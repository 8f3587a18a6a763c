//! Bytes that look random and are the same everywhere and always.

/// Fills `out` with a stream that depends only on `name`.
///
/// FNV-1a of the name seeds SplitMix64: both are a few lines, public, and need no crate whose next
/// version might draw other numbers, which would change every known answer.
pub(crate) fn fill(name: &str, out: &mut [u8]) {
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    for chunk in out.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn a_name_gives_one_stream_whatever_the_length() {
        let (mut short, mut long) = ([0; 13], [0; 64]);
        fill("case", &mut short);
        fill("case", &mut long);
        assert_eq!(short[..], long[..13]);
        let mut other = [0; 13];
        fill("other case", &mut other);
        assert_ne!(short, other);
    }
}
