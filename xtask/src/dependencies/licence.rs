//! Licence expressions (SPDX): `(MIT OR Apache-2.0) AND Unicode-3.0`.

use std::collections::BTreeSet;

/// True if the expression can be satisfied with the allowed licences alone; false for one that cannot be read.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // A slash is the older way to write OR.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let result = words.any_of();
    result.is_some_and(|result| result && words.at == words.words.len())
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a BTreeSet<String>,
}

impl Words<'_> {
    fn skip(&mut self, word: &str) -> bool {
        let found = self.words.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }

    fn any_of(&mut self) -> Option<bool> {
        let mut result = self.all_of()?;
        while self.skip("OR") {
            result |= self.all_of()?;
        }
        Some(result)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut result = self.one()?;
        while self.skip("AND") {
            result &= self.one()?;
        }
        Some(result)
    }

    fn one(&mut self) -> Option<bool> {
        if self.skip("(") {
            let result = self.any_of()?;
            return self.skip(")").then_some(result);
        }
        let name = *self.words.get(self.at)?;
        self.at += 1;
        if self.skip("WITH") {
            // An exception only adds permissions, but is a licence of its own in the list.
            let exception = *self.words.get(self.at)?;
            self.at += 1;
            return Some(self.allowed.contains(&format!("{name} WITH {exception}")));
        }
        Some(self.allowed.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn expressions_are_satisfied_or_not() {
        let allowed = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 OR MIT AND Unicode-3.0",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT OR", "Apache-2.0", "MIT MIT"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
