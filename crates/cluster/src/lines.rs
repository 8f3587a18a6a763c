//! Reading of line-based text that other programs print.

/// The parts before and after the first colon, without white space around them.
pub fn key_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    Some((key.trim(), value.trim()))
}

/// A number, decimal or hexadecimal with `0x`.
pub fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        // `from_str_radix` accepts a sign.
        Some(digits) if digits.starts_with(|letter: char| letter.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => text.starts_with(|letter: char| letter.is_ascii_digit()).then(|| text.parse().ok())?,
    }
}

/// A number with a binary unit, as in `512K`, `1M` or `1024`.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    let count = number(digits)?;
    count.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::{key_value, number, size};

    #[test]
    fn numbers_and_sizes() {
        assert_eq!(number(" 42 "), Some(42));
        assert_eq!(number("0x2a"), Some(42));
        for bad in ["", "-1", "+1", "0x", "0x+1", "1e3", "18446744073709551616", "four"] {
            assert_eq!(number(bad), None, "{bad}");
        }
        assert_eq!(size("512K"), Some(512 << 10));
        assert_eq!(size("1MiB"), Some(1 << 20));
        assert_eq!(size("1048576"), Some(1 << 20));
        for bad in ["", "K", "1.5M", "99999999999999T", "1X", "é"] {
            assert_eq!(size(bad), None, "{bad}");
        }
        assert_eq!(key_value("  a b : c : d "), Some(("a b", "c : d")));
        assert_eq!(key_value("none"), None);
    }
}
