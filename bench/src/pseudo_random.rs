//! Bytes that look random and are the same everywhere and always.

use gabion_engine::conformance::TestRng;

/// Fills `out` with a stream that depends only on `name`.
///
/// FNV-1a of the name seeds SplitMix64: neither needs a crate whose next version might draw other numbers,
/// which would change every known answer.
pub(crate) fn fill(name: &str, out: &mut [u8]) {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    TestRng(seed).fill(out);
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
