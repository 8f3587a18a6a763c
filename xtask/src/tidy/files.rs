//! Rules about files as such: length, name, white space.

use super::lists::{EMPTY_NAMES, ENDLESS, LONG_FILES, MAX_LINES};
use super::scan::{self, Part};
use super::{Finding, Tree, numbered};

/// No file is longer than the limit, except those in the list, up to their own limit.
pub(super) fn lengths(tree: &Tree) -> Vec<Finding> {
    lengths_with(tree, LONG_FILES)
}

fn lengths_with(tree: &Tree, long_files: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !ENDLESS.contains(&file.path.as_str())) {
        let lines = file.text.lines().count();
        let listed = long_files.iter().find(|(path, _)| *path == file.path).map(|(_, max)| *max);
        let message = match listed {
            None if lines > MAX_LINES => format!("{lines} lines; the limit is {MAX_LINES}"),
            Some(max) if lines > max => format!("{lines} lines; the list allows {max}"),
            Some(_) if lines <= MAX_LINES => format!("{lines} lines; take it off the list"),
            Some(max) if lines < max => format!("{lines} lines; lower the list's {max} to that"),
            _ => continue,
        };
        findings.push(Finding::new(&file.path, 1, message));
    }
    for (path, _) in long_files.iter().filter(|(path, _)| !tree.names.contains(*path)) {
        findings.push(Finding::new(path, 1, "is in the list of long files but does not exist"));
    }
    findings
}

/// A module's file has the module's name.
pub(super) fn mod_rs(tree: &Tree) -> Vec<Finding> {
    let is_mod = |path: &&str| path.rsplit('/').next() == Some("mod.rs");
    let paths = tree.rust().map(|file| file.path.as_str()).filter(is_mod);
    paths.map(|path| Finding::new(path, 1, "name it after its module: foo.rs beside foo/")).collect()
}

/// No tabs, no white space at the end of a line, and a line end at the end of the file.
pub(super) fn white_space(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.ends_with(&[".rs", ".md", ".toml"])) {
        // Not str::lines, which would swallow a carriage return.
        for (index, line) in file.text.split('\n').enumerate() {
            if line.contains('\t') {
                findings.push(Finding::new(&file.path, index + 1, "a tab"));
            }
            if line.ends_with(char::is_whitespace) {
                findings.push(Finding::new(&file.path, index + 1, "white space at the line's end"));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            let last = file.text.lines().count();
            findings.push(Finding::new(&file.path, last, "no line end at the end of the file"));
        }
    }
    findings
}

/// Files, directories and modules have names that say what is in them.
pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in &tree.names {
        let name = path.rsplit('/').next().unwrap_or(path);
        // systemd wants this ending.
        let name = name.strip_suffix(".service").unwrap_or(name);
        if let Some(word) = empty_word(name) {
            findings.push(Finding::new(path, 1, format!("\"{word}\" says nothing as a name")));
        }
    }
    for file in tree.rust() {
        for (line, code) in numbered(&scan::only(&file.text, Part::Code)) {
            let words: Vec<&str> = code.split_whitespace().collect();
            let Some(module) = words.windows(2).find(|pair| pair[0] == "mod") else {
                continue;
            };
            if let Some(word) = empty_word(module[1].trim_end_matches([';', '{'])) {
                let message = format!("\"{word}\" says nothing as a module's name");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// The first part of a name that is one of the empty words, in singular or plural.
fn empty_word(name: &str) -> Option<&str> {
    let empty = |word: &&str| {
        let word = word.to_ascii_lowercase();
        EMPTY_NAMES.contains(&word.as_str())
            || word.strip_suffix('s').is_some_and(|singular| EMPTY_NAMES.contains(&singular))
    };
    name.split(['_', '-', '.']).find(empty)
}

#[cfg(test)]
mod tests {
    use super::super::{Tree, places};
    use super::{lengths, lengths_with, mod_rs, names, white_space};

    #[test]
    fn long_files_are_found() {
        let (fits, long) = ("x\n".repeat(600), "x\n".repeat(601));
        assert_eq!(places(lengths, &[("a.rs", &fits), ("b.rs", &long), ("CHANGELOG.md", &long)]), ["b.rs:1"]);
    }

    #[test]
    fn the_list_of_long_files_only_goes_down() {
        let text = "x\n".repeat(700);
        let tree = Tree::of(&[("a.rs", &text)]);
        let message = |list: &[(&str, usize)]| {
            lengths_with(&tree, list).into_iter().map(|finding| finding.message).next()
        };
        assert_eq!(message(&[("a.rs", 700)]), None);
        assert_eq!(message(&[("a.rs", 699)]).unwrap(), "700 lines; the list allows 699");
        assert_eq!(message(&[("a.rs", 701)]).unwrap(), "700 lines; lower the list's 701 to that");
        let short = Tree::of(&[("a.rs", "x\n")]);
        let findings = lengths_with(&short, &[("a.rs", 700), ("gone.rs", 700)]);
        assert_eq!(findings[0].message, "1 lines; take it off the list");
        assert_eq!(findings[1].path, "gone.rs");
    }

    #[test]
    fn mod_rs_is_found() {
        assert_eq!(places(mod_rs, &[("a/mod.rs", ""), ("a/amod.rs", "")]), ["a/mod.rs:1"]);
    }

    #[test]
    fn tabs_line_ends_and_the_last_line_are_looked_at() {
        let files = [
            ("tab.rs", "a\n\tb\n"),
            ("trailing.md", "a \n"),
            ("carriage.toml", "a\r\n"),
            ("open.rs", "a\nb"),
            ("good.rs", "a\n\nb\n"),
            ("empty.rs", ""),
            ("other.py", "\t"),
        ];
        let expected = ["tab.rs:2", "trailing.md:1", "carriage.toml:1", "open.rs:2"];
        assert_eq!(places(white_space, &files), expected);
    }

    #[test]
    fn empty_names_are_found_in_files_and_modules() {
        let files = [
            ("src/file_utils.rs", ""),
            ("services/a.rs", "mod inner {\n}\npub(crate) mod helper;\n// mod helper;\n"),
            ("src/commonplace.rs", "mod managed;\n"),
            ("unit/a.service", ""),
        ];
        assert_eq!(places(names, &files), ["services:1", "src/file_utils.rs:1", "services/a.rs:3"]);
    }
}
