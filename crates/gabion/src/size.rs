//! Numbers of bytes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `64KiB`, `10MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub usize);

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no size above 0: write for example 4096, 64KiB or 10MiB")]
pub struct BadSize(String);

const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Size, BadSize> {
        let unit = UNITS.into_iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, bytes)));
        let (digits, unit) = unit.unwrap_or((text, 1));
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let size = digits.parse::<usize>().ok().filter(|_| plain).and_then(|count| count.checked_mul(unit));
        size.filter(|&bytes| bytes > 0).map(Size).ok_or_else(|| BadSize(text.to_owned()))
    }
}

/// In the largest unit that needs no fraction.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&(_, unit): &(&str, usize)| self.0 >= unit && self.0.is_multiple_of(unit);
        let (name, unit) = UNITS.into_iter().find(fits).unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_read_back() {
        for (text, bytes) in [("4KiB", 4096), ("10MiB", 10 << 20), ("100B", 100), ("1GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!("4096".parse(), Ok(Size(4096)));
        assert_eq!(Size(1536).to_string(), "1536B");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "0",
            "0KiB",
            "KiB",
            "-1",
            "+4",
            "4 KiB",
            "4kb",
            "1.5MiB",
            "99999999999999999999",
            "18446744073709551615GiB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
