//! Byte sizes of options, above 0. They are parsed and printed as those of policies ([`policy::Size`]): options,
//! policies and the daemon's configuration have the same words for sizes, rates and times.

use gabion_vault::policy;
use std::fmt;
use std::str::FromStr;

/// A number of bytes above 0: `4096`, `64KiB`, `10MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub usize);

/// Text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size above 0: write 65536, 64KiB, 1GiB")]
pub struct BadSize(String);

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Size, BadSize> {
        let size = text.parse::<policy::Size>().ok().and_then(|size| usize::try_from(size.0).ok());
        size.filter(|&bytes| bytes > 0).map(Size).ok_or_else(|| BadSize(text.to_owned()))
    }
}

/// In the largest unit that needs no fraction.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        policy::Size(self.0 as u64).fmt(f)
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
    fn other_texts_are_refused() {
        for text in [
            "",
            "0",
            "0KiB",
            "KiB",
            "-1",
            "+4",
            "4kb",
            "64K",
            "1.5MiB",
            "1é",
            "99999999999999999999",
            "18446744073709551615KiB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
