//! Reading Rust just well enough: what is code, what is comment, what is inside quotes.

/// What a byte of a Rust file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Code,
    Comment,
    /// A string or character literal, with its quotes.
    Literal,
}

/// The text with everything but one part blanked out. Lines and columns stay where they were.
pub(super) fn only(text: &str, part: Part) -> String {
    let parts = parts(text);
    let keep = |(byte, of): (u8, &Part)| {
        if *of == part || byte == b'\n' { byte } else { b' ' }
    };
    let bytes: Vec<u8> = text.bytes().zip(&parts).map(keep).collect();
    // A part begins and ends at ASCII bytes, so no character is cut.
    String::from_utf8(bytes).expect("whole characters are blanked")
}

fn parts(text: &str) -> Vec<Part> {
    let bytes = text.as_bytes();
    let mut parts = Vec::with_capacity(bytes.len());
    while parts.len() < bytes.len() {
        let at = parts.len();
        let (part, length) = next(&bytes[at..], at > 0 && is_word(bytes[at - 1]));
        parts.resize((at + length).min(bytes.len()), part);
    }
    parts
}

/// The part that starts here and its length; `in_word` if the byte before belongs to a word.
fn next(rest: &[u8], in_word: bool) -> (Part, usize) {
    match rest[0] {
        b'/' if rest.starts_with(b"//") => {
            (Part::Comment, rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()))
        }
        b'/' if rest.starts_with(b"/*") => (Part::Comment, block_comment(rest)),
        b'"' => (Part::Literal, closed(rest, b'"')),
        b'\'' => match character(rest) {
            Some(length) => (Part::Literal, length),
            None => (Part::Code, 1),
        },
        b'r' | b'b' | b'c' if !in_word => match raw_string(rest) {
            Some(length) => (Part::Literal, length),
            None => (Part::Code, 1),
        },
        _ => (Part::Code, 1),
    }
}

/// Block comments nest in Rust.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of a literal whose quote is the first byte, to the next quote without a backslash.
fn closed(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// `'x'` and `'\n'` are literals, `'static` and `'label:` are not.
fn character(rest: &[u8]) -> Option<usize> {
    let first = std::str::from_utf8(&rest[1..rest.len().min(5)]);
    let width = match (rest.get(1)?, first) {
        (b'\\', _) => return Some(closed(rest, b'\'')),
        (_, Ok(text)) => text.chars().next()?.len_utf8(),
        (_, Err(error)) if error.valid_up_to() > 0 => {
            let valid = std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).ok()?;
            valid.chars().next()?.len_utf8()
        }
        (_, Err(_)) => return None,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// `r"…"`, `r#"…"#`, also after `b` or `c`; anything else, such as `r#type`, is none.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let start = if rest[0] == b'r' { 1 } else { 2 };
    if rest.get(start - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[start..].iter().take_while(|&&b| b == b'#').count();
    let open = start + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = &rest[open + 1..];
    let length = body.windows(end.len()).position(|window| window == end);
    Some(length.map_or(rest.len(), |length| open + 1 + length + end.len()))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// True if `word` stands in the line with no letter, digit or underscore touching it.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    let touched = |byte: Option<&u8>| byte.is_some_and(|&byte| is_word(byte));
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !touched(before) && !touched(bytes.get(at + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::{Part, has_word, only};

    #[test]
    fn code_comment_and_literal_are_told_apart() {
        let text = "let a = \"// b\"; // c \"d\"\n/* e /* f */ g */ h('\"', 'i', '\\'');";
        let code = "let a =       ;         \n                  h(   ,    ,     );";
        assert_eq!(only(text, Part::Code).trim_end(), code.trim_end());
        assert_eq!(only(text, Part::Comment).replace(' ', ""), "//c\"d\"\n/*e/*f*/g*/");
        assert_eq!(only(text, Part::Literal).replace(' ', ""), "\"//b\"\n'\"''i''\\''");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        for text in ["fn f<'a>(x: &'a str) -> &'static str { x }", "r#type + br + r#\nfor"] {
            assert_eq!(only(text, Part::Code), text);
        }
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let text = "f(r#\"a \"b\" // c\"#, br\"\\\", r##\"\"#\"##) // d";
        assert_eq!(only(text, Part::Code).replace(' ', ""), "f(,,)");
        assert_eq!(only(text, Part::Comment).trim(), "// d");
    }

    #[test]
    fn wide_characters_and_open_ends_are_survived() {
        for text in ["'é' + \"…\" // …", "'…", "\"open", "/* open", "r#\"open", "'\\", "\"\\"] {
            assert_eq!(only(text, Part::Code).len(), text.len(), "{text}");
        }
        assert_eq!(only("'é' x", Part::Code).trim(), "x");
        assert_eq!(only("'…' x", Part::Code).trim(), "x");
    }

    #[test]
    fn words_end_where_names_end() {
        assert!(has_word("pub unsafe fn", "unsafe") && has_word("unsafe{", "unsafe"));
        assert!(!has_word("unsafe_code not_unsafe", "unsafe"));
    }
}
