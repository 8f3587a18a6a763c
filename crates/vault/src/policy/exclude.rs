//! Rules that leave files out, added to the text of a policy.

use super::{Policy, PolicyError};
use gabion_engine::Code;

/// Name of the rule for a pattern.
fn rule_name(pattern: &str) -> String {
    format!("exclude {pattern}")
}

/// Patterns of a rule: a pattern without a slash means this name everywhere, one with a slash a path in the tree; both
/// with all that is below.
fn paths(pattern: &str) -> Vec<String> {
    let plain = pattern.trim_end_matches('/');
    match plain.contains('/') {
        true => {
            vec![plain.trim_start_matches('/').to_owned(), format!("{}/**", plain.trim_start_matches('/'))]
        }
        false => vec![format!("**/{plain}"), format!("**/{plain}/**")],
    }
}

/// Text of a policy with a rule for each pattern before all others. A pattern that has its rule already is left alone.
///
/// # Errors
/// See [`PolicyError`]: a pattern is invalid, or the text is not a policy. The empty pattern, which an unset variable
/// of a shell gives, and `/` would exclude everything; those with `.` or `..` would match nothing.
pub fn exclude(
    text: &str,
    patterns: &[String],
    code: &Code,
    identity: &dyn Fn(&'static str, &str) -> Option<u32>,
) -> Result<String, PolicyError> {
    let known: Vec<String> = names(&Policy::parse(text, code.clone(), identity)?);
    let mut added = Vec::new();
    let mut rules = String::new();
    for pattern in patterns {
        let inside = pattern.strip_prefix('/').unwrap_or(pattern);
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        if inside.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(PolicyError::Exclusion(pattern.clone()));
        }
        let name = rule_name(pattern);
        if known.contains(&name) || added.contains(&name) {
            continue;
        }
        let paths: Vec<String> = paths(pattern).iter().map(|path| quoted(path)).collect();
        rules += &format!(
            "[[rule]]\nname = {}\npaths = [{}]\nprotect = false\n\n",
            quoted(&name),
            paths.join(", ")
        );
        added.push(name);
    }
    // The first rule that matches decides, so these are before all others.
    let lines = text.split_inclusive('\n');
    let at: usize = lines.take_while(|line| !line.trim_start().starts_with("[[rule")).map(str::len).sum();
    let (before, after) = text.split_at(at);
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let changed = format!("{before}{gap}{rules}{after}");
    // What looked like the first rule may be within a text of several lines.
    let now = names(&Policy::parse(&changed, code.clone(), identity)?);
    match now == [added, known].concat() {
        true => Ok(changed),
        false => Err(PolicyError::Order),
    }
}

fn names(policy: &Policy) -> Vec<String> {
    policy.rules().map(|(name, _)| name.to_owned()).collect()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted += &format!("\\u{:04X}", u32::from(letter)),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::exclude;
    use crate::policy::Policy;
    use gabion_engine::Code;
    use proptest::prelude::*;

    fn code() -> Code {
        "8+2".parse().unwrap()
    }

    fn excluded(text: &str, patterns: &[&str]) -> String {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        exclude(text, &patterns, &code(), &|_, _| None).unwrap()
    }

    fn rules(text: &str) -> Vec<String> {
        let policy = Policy::parse(text, code(), &|_, _| None).unwrap();
        policy.rules().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn rules_are_added_before_others_and_once() {
        let text = excluded("", &["*.tmp", "scratch/"]);
        assert_eq!(rules(&text), ["exclude *.tmp", "exclude scratch/"]);
        assert!(text.contains("paths = [\"**/*.tmp\", \"**/*.tmp/**\"]"), "{text}");
        assert_eq!(excluded(&text, &["*.tmp"]), text);
        let own = "[default]\ncode = \"4+2\" # mine\n\n[[rule]]\nname = \"a\"\npaths = [\"x\"]\n\n[guard]\nremoved = \"7%\"";
        let text = excluded(own, &["/a/b", "a\"\\b"]);
        assert_eq!(rules(&text), ["exclude /a/b", "exclude a\"\\b", "a"]);
        assert!(text.contains("# mine") && text.contains("paths = [\"a/b\", \"a/b/**\"]"), "{text}");
        // Without a rule, behind other sections.
        assert_eq!(rules(&excluded("[guard]\nremoved = \"7%\"", &["x"])), ["exclude x"]);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        let invalid = exclude("", &["[".to_owned()], &code(), &|_, _| None);
        assert!(invalid.unwrap_err().to_string().contains("pattern"), "an error names the pattern");
    }

    proptest! {
        /// Whatever the pattern is: an error, or a policy that can be read and has one more rule.
        #[test]
        fn any_pattern_is_safe(pattern in ".{1,12}") {
            if let Ok(text) = exclude("[default]\ncode = \"4+2\"", std::slice::from_ref(&pattern), &code(), &|_, _| None) {
                prop_assert_eq!(rules(&text), [format!("exclude {pattern}")]);
            }
        }
    }
}
