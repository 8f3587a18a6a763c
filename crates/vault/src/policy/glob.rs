//! Patterns for paths: `*` and `?` within a component, `**` over components, `[a-z]`, `[!a-z]` and `{one,other}`; `\`
//! before a character means itself.
//!
//! The patterns of a rule become one automaton, so that matching takes time proportional to the path, whatever the
//! patterns are.

use std::iter::Peekable;
use std::str::Chars;

/// Character of a path, or a byte of it that is no UTF-8: such bytes follow the last character.
type Unit = u32;

const SLASH: Unit = '/' as Unit;
/// First unit that is no character.
const BYTES: Unit = char::MAX as Unit + 1;

/// Part of a pattern.
#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// One unit.
    One(Test),
    /// Any number of units within a component: `*`.
    Within,
    /// Everything: `**` alone.
    All,
    /// Nothing, or any components with a slash behind: `**/` at the beginning.
    Leading,
    /// A slash, and any components with a slash behind: `/**/`.
    Between,
    /// A slash and anything: `/**` at the end.
    Trailing,
    /// One of several sequences.
    Alternatives(Vec<Vec<Token>>),
}

/// Condition on one unit.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Any,
    NotSlash,
    Is(Unit),
    Class { negated: bool, ranges: Vec<(Unit, Unit)> },
}

impl Test {
    fn accepts(&self, unit: Unit) -> bool {
        match self {
            Test::Any => true,
            Test::NotSlash => unit != SLASH,
            Test::Is(wanted) => unit == *wanted,
            Test::Class { negated, ranges } => {
                ranges.iter().any(|&(first, last)| (first..=last).contains(&unit)) != *negated
            }
        }
    }
}

/// State of the automaton.
#[derive(Debug)]
enum State {
    /// Consumes a unit.
    Unit(Test, usize),
    /// Continues in both.
    Split(usize, usize),
    /// The path matches if it ends here.
    End,
}

/// Patterns of which one must match.
#[derive(Debug)]
pub(super) struct Globs {
    states: Vec<State>,
    starts: Vec<usize>,
}

impl Globs {
    pub(super) fn new() -> Globs {
        Globs { states: vec![State::End], starts: Vec::new() }
    }

    /// Adds a pattern; the error says what is wrong with it.
    pub(super) fn add(&mut self, pattern: &str) -> Result<(), &'static str> {
        let mut tokens = Parser { chars: pattern.chars().peekable(), previous: None, depth: 0 }.sequence()?;
        if tokens == [Token::Leading] {
            tokens = vec![Token::All];
        }
        let start = self.sequence(&tokens, 0);
        self.starts.push(start);
        Ok(())
    }

    fn push(&mut self, state: State) -> usize {
        self.states.push(state);
        self.states.len() - 1
    }

    /// States of `tokens` before the state `next`; the first of them.
    fn sequence(&mut self, tokens: &[Token], next: usize) -> usize {
        tokens.iter().rev().fold(next, |next, token| self.token(token, next))
    }

    fn token(&mut self, token: &Token, next: usize) -> usize {
        match token {
            Token::One(test) => self.push(State::Unit(test.clone(), next)),
            Token::Within => self.repeat(Test::NotSlash, next),
            Token::All => self.repeat(Test::Any, next),
            Token::Leading => {
                let slash = self.push(State::Unit(Test::Is(SLASH), next));
                let components = self.repeat(Test::Any, slash);
                self.push(State::Split(components, next))
            }
            Token::Between => {
                let components = self.token(&Token::Leading, next);
                self.push(State::Unit(Test::Is(SLASH), components))
            }
            Token::Trailing => {
                let rest = self.repeat(Test::Any, next);
                self.push(State::Unit(Test::Is(SLASH), rest))
            }
            Token::Alternatives(sequences) => {
                // An empty alternative does not count.
                let starts = sequences.iter().filter(|sequence| !sequence.is_empty());
                let starts: Vec<usize> = starts.map(|sequence| self.sequence(sequence, next)).collect();
                starts.into_iter().reduce(|all, start| self.push(State::Split(all, start))).unwrap_or(next)
            }
        }
    }

    /// Any number of units that pass a test.
    fn repeat(&mut self, test: Test, next: usize) -> usize {
        let split = self.push(State::Split(next, next));
        let unit = self.push(State::Unit(test, split));
        self.states[split] = State::Split(unit, next);
        split
    }

    pub(super) fn is_match(&self, path: &[u8]) -> bool {
        let mut active = Active::new(self.states.len());
        let mut following = Active::new(self.states.len());
        self.starts.iter().for_each(|&start| active.add(start, &self.states));
        for unit in units(path) {
            following.clear();
            for &state in &active.list {
                if let State::Unit(test, next) = &self.states[state]
                    && test.accepts(unit)
                {
                    following.add(*next, &self.states);
                }
            }
            std::mem::swap(&mut active, &mut following);
            if active.list.is_empty() {
                return false;
            }
        }
        active.list.iter().any(|&state| matches!(self.states[state], State::End))
    }
}

/// States that the automaton is in, splits resolved.
struct Active {
    list: Vec<usize>,
    listed: Vec<bool>,
    pending: Vec<usize>,
}

impl Active {
    fn new(states: usize) -> Active {
        Active { list: Vec::new(), listed: vec![false; states], pending: Vec::new() }
    }

    fn clear(&mut self) {
        self.list.clear();
        self.listed.fill(false);
    }

    fn add(&mut self, state: usize, states: &[State]) {
        self.pending.push(state);
        while let Some(state) = self.pending.pop() {
            if std::mem::replace(&mut self.listed[state], true) {
                continue;
            }
            match states[state] {
                State::Split(one, other) => self.pending.extend([other, one]),
                State::Unit(..) | State::End => self.list.push(state),
            }
        }
    }
}

fn units(path: &[u8]) -> impl Iterator<Item = Unit> {
    path.utf8_chunks().flat_map(|chunk| {
        let characters = chunk.valid().chars().map(Unit::from);
        characters.chain(chunk.invalid().iter().map(|&byte| BYTES + Unit::from(byte)))
    })
}

/// Reads a pattern.
struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    /// The character before the current one.
    previous: Option<char>,
    /// Groups that are open.
    depth: usize,
}

impl Parser<'_> {
    /// The whole pattern.
    fn sequence(mut self) -> Result<Vec<Token>, &'static str> {
        let mut tokens = Vec::new();
        match self.tokens(&mut tokens)? {
            None => Ok(tokens),
            Some(_) => Err("a '}' without a '{' before it (write '[}]' for the character)"),
        }
    }

    /// Tokens up to the end, or up to the character that ends an alternative, which is returned.
    fn tokens(&mut self, tokens: &mut Vec<Token>) -> Result<Option<char>, &'static str> {
        while let Some(c) = self.chars.next() {
            let token = match c {
                '}' => return Ok(Some(c)),
                ',' if self.depth > 0 => return Ok(Some(c)),
                '{' => self.alternatives()?,
                '[' => self.class()?,
                '?' => Token::One(Test::NotSlash),
                '*' => self.star(tokens),
                '\\' => {
                    let escaped = self.chars.next().ok_or("a '\\' at the end")?;
                    self.previous = Some(escaped);
                    tokens.push(Token::One(Test::Is(escaped.into())));
                    continue;
                }
                c => Token::One(Test::Is(c.into())),
            };
            // After `**/` the slash is the last character.
            self.previous = Some(if matches!(token, Token::Leading | Token::Between) { '/' } else { c });
            tokens.push(token);
        }
        Ok(None)
    }

    fn alternatives(&mut self) -> Result<Token, &'static str> {
        self.depth += 1;
        let mut all = Vec::new();
        loop {
            let mut tokens = Vec::new();
            self.previous = None;
            let end = self.tokens(&mut tokens)?;
            all.push(tokens);
            match end {
                Some(',') => {}
                Some(_) => break,
                None => return Err("a '{' without a '}' behind it (write '[{]' for the character)"),
            }
        }
        self.depth -= 1;
        Ok(Token::Alternatives(all))
    }

    /// `*`, or `**` where that is a whole component; elsewhere two stars are two times one.
    fn star(&mut self, tokens: &mut Vec<Token>) -> Token {
        let mut after = self.chars.clone();
        if after.next() != Some('*') {
            return Token::Within;
        }
        let (before, after) = (tokens.last(), after.next());
        let ends = after.is_none() || (self.depth > 0 && matches!(after, Some(',' | '}')));
        let token = match (before, after) {
            (None, None | Some('/')) => Token::Leading,
            (Some(_), _) if self.previous != Some('/') => return Token::Within,
            (Some(Token::Leading), _) if ends || after == Some('/') => Token::Leading,
            (Some(_), _) if ends => Token::Trailing,
            (Some(_), Some('/')) => Token::Between,
            _ => return Token::Within,
        };
        // The second star, and the slash that belongs to the token on either side.
        self.chars.next();
        if after == Some('/') {
            self.chars.next();
        }
        tokens.pop();
        token
    }

    fn class(&mut self) -> Result<Token, &'static str> {
        let negated = self.chars.next_if(|c| matches!(c, '!' | '^')).is_some();
        let mut ranges: Vec<(Unit, Unit)> = Vec::new();
        let mut is_range = false;
        let mut first = true;
        loop {
            let c =
                self.chars.next().ok_or("a '[' without a ']' behind it (write '[[]' for the character)")?;
            match (c, ranges.last_mut()) {
                (']', _) if !first => break,
                (c, Some(range)) if is_range => {
                    range.1 = c.into();
                    if range.1 < range.0 {
                        return Err("a range in brackets whose end lies before its beginning");
                    }
                    is_range = false;
                }
                ('-', Some(_)) => is_range = true,
                (c, _) => ranges.push((c.into(), c.into())),
            }
            first = false;
        }
        if is_range {
            ranges.push(('-'.into(), '-'.into()));
        }
        Ok(Token::One(Test::Class { negated, ranges }))
    }
}

#[cfg(test)]
mod tests {
    use super::Globs;
    use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

    fn matches(pattern: &str, path: &str) -> bool {
        let mut globs = Globs::new();
        globs.add(pattern).unwrap();
        globs.is_match(path.as_bytes())
    }

    #[test]
    fn patterns_match_components() {
        for (pattern, good, bad) in [
            ("*.txt", &["a.txt", ".txt"][..], &["a/b.txt", "a.txt2"][..]),
            ("a/*/c", &["a/b/c", "a//c"], &["a/c", "a/b/b/c"]),
            ("**", &["", "a", "a/b"], &[]),
            ("**/x", &["x", "a/x", "a/b/x"], &["ax", "x/a"]),
            ("a/**", &["a/", "a/b", "a/b/c"], &["a", "b/a/c"]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab", "a/bb", "a/xb"]),
            ("a**", &["a", "abc"], &["a/b"]),
            ("?.{jpg,jp{e,}g}", &["a.jpg", "ä.jpeg"], &["ab.jpg", "/.jpg", "a.jpgg"]),
            ("[a-c!]x", &["ax", "cx", "!x"], &["dx", "x"]),
            ("[!a-c]x", &["dx", "öx"], &["ax", "x"]),
            ("[]-]", &["]", "-"], &["[]-]"]),
            (r"\*{a,b\,}", &["*a", "*b,"], &["xa", "*b"]),
            ("{**/a,b}/c", &["a/c", "x/y/a/c", "b/c"], &["x/b/c"]),
        ] {
            for path in good {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in bad {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        }
        assert!(!matches("", "a") && matches("", ""));
    }

    /// Names need not be UTF-8: a byte that is none counts as one character.
    #[test]
    fn bytes_that_are_no_characters_match_like_characters() {
        let mut globs = Globs::new();
        globs.add("a?[!x]").unwrap();
        assert!(globs.is_match(b"a\xff\xfe") && !globs.is_match(b"a\xff"));
        let mut globs = Globs::new();
        globs.add("a*").unwrap();
        assert!(globs.is_match(b"a\xff\xc3"));
    }

    #[test]
    fn one_of_several_patterns_suffices() {
        let mut globs = Globs::new();
        assert!(!globs.is_match(b"a"));
        globs.add("a").unwrap();
        globs.add("b/*").unwrap();
        assert!(globs.is_match(b"a") && globs.is_match(b"b/c") && !globs.is_match(b"c"));
    }

    #[test]
    fn errors_name_the_character() {
        for (pattern, word) in [
            ("[a", "'['"),
            ("{a", "'{'"),
            ("a}", "'}'"),
            ("a\\", "'\\'"),
            ("[z-a]", "range"),
            ("{a,{b}", "'{'"),
        ] {
            let error = Globs::new().add(pattern).unwrap_err();
            assert!(error.contains(word), "{pattern}: {error}");
        }
    }

    /// A pattern that defeats matchers that try one choice after the other.
    #[test]
    fn time_does_not_depend_on_choices() {
        let pattern = format!("{}b", "a*".repeat(40));
        assert!(!matches(&pattern, &"a".repeat(2000)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        /// The crate globset, which policies used before, gives the same answers.
        #[test]
        fn globset_agrees(pattern in r"[ab/*?{},\[\]!\\-]{0,12}|([ab]|\*|\*\*|/|\?|\{a,|,b\}){0,8}", path in "[ab/-]{0,8}") {
            let other = globset::GlobBuilder::new(&pattern).literal_separator(true).build();
            let mut ours = Globs::new();
            let added = ours.add(&pattern);
            prop_assert_eq!(added.is_err(), other.is_err(), "{:?}", pattern);
            if let Ok(other) = other {
                let other = other.compile_matcher().is_match(&path);
                prop_assert_eq!(ours.is_match(path.as_bytes()), other, "{:?} {:?}", pattern, path);
            }
        }
    }
}
