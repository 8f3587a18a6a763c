//! `--workers` of long-running commands: the same words mean the same for each of them.

use std::str::FromStr;

/// Number of encoding threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workers {
    /// One per processor.
    All,
    /// This many; with none, other processes encode.
    Exactly(usize),
}

impl Workers {
    pub(super) fn threads(self) -> usize {
        match self {
            Workers::All => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
            Workers::Exactly(threads) => threads,
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        match text {
            "all" => Ok(Workers::All),
            _ => text.parse().map(Workers::Exactly).map_err(|_| "write a number, or `all`".to_owned()),
        }
    }
}

/// As [`Workers`], but not 0: a watch that encodes nothing protects nothing.
pub(super) fn at_least_one(text: &str) -> Result<Workers, String> {
    match text.parse()? {
        Workers::Exactly(0) => {
            Err("without workers nothing would be protected: write 1 or more, or `all`".to_owned())
        }
        workers => Ok(workers),
    }
}

#[cfg(test)]
mod tests {
    use super::{Workers, at_least_one};

    #[test]
    fn zero_is_none_and_all_is_all() {
        assert_eq!("0".parse(), Ok(Workers::Exactly(0)));
        assert_eq!("all".parse(), Ok(Workers::All));
        assert!(Workers::All.threads() > 0);
        assert_eq!(at_least_one("2"), Ok(Workers::Exactly(2)));
        for wrong in ["0", "", "-1", "some"] {
            assert!(at_least_one(wrong).is_err(), "{wrong}");
        }
    }
}
