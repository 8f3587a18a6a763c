//! `cargo xtask tidy`: style as a test, for what clippy cannot see.
//!
//! A rule is a function from the tree of files to findings. Every rule has a unit test beside it
//! that shows that it can fail; the lists of exceptions are all in `tidy/lists.rs`.

mod code;
mod columns;
mod docs;
mod files;
mod lists;
mod order;
mod scan;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

/// Check the style that clippy cannot see: modules with unsafe, file lengths, wide lines, links, names
///
/// Prints every finding as file:line: rule: message and fails if there is one. Exceptions are
/// listed in xtask/src/tidy/lists.rs; the allowed lengths there only go down.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    check().map(|()| ExitCode::SUCCESS)
}

/// All rules over the repository; findings are printed, and their number is the error.
pub(crate) fn check() -> Result<()> {
    let tree = Tree::read(crate::root())?;
    let findings: Vec<(&str, Finding)> = RULES
        .iter()
        .flat_map(|(name, rule)| rule(&tree).into_iter().map(move |finding| (*name, finding)))
        .collect();
    for (name, Finding { path, line, message }) in &findings {
        println!("{path}:{line}: {name}: {message}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    println!("    {} files, {} rules, no findings", tree.files.len(), RULES.len());
    Ok(())
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[(&str, Rule)] = &[
    ("length", files::lengths),
    ("mod-rs", files::mod_rs),
    ("white-space", files::white_space),
    ("names", files::names),
    ("unsafe-room", code::unsafe_rooms),
    ("forbid-unsafe", code::forbid_unsafe),
    ("leftover", code::leftovers),
    ("environment", code::environment),
    ("kernel-table", code::kernel_table),
    ("clock", code::clock),
    ("output", code::output),
    ("json", code::json),
    ("module-order", order::modules),
    ("link", docs::links),
    ("path", docs::paths),
    ("task", docs::tasks),
    ("columns", columns::columns),
];

/// One violation of one rule. Line 1 stands for the file as a whole.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

/// A text file, named relative to the root and with `/` between the parts.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn ends_with(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }

    fn is_rust(&self) -> bool {
        self.ends_with(&[".rs"])
    }

    /// The lines with their numbers, counted from one.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(&self.text)
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// What the rules look at.
struct Tree {
    /// The text files the rules read, in order of their names.
    files: Vec<Source>,
    /// Every file and directory, for rules that ask whether something exists.
    names: BTreeSet<String>,
}

impl Tree {
    fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree { files: Vec::new(), names: BTreeSet::new() };
        tree.walk(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn walk(&mut self, root: &Path, below: &str) -> Result<()> {
        let dir = root.join(below);
        for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                bail!("{}: the name is not UTF-8", entry.path().display());
            };
            let path = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if lists::NOT_OURS.contains(&path.as_str()) || name.ends_with(".tmp") {
                continue;
            }
            self.names.insert(path.clone());
            if entry.file_type()?.is_dir() {
                self.walk(root, &path)?;
            } else if lists::TEXT.iter().any(|ending| name.ends_with(ending)) {
                let text = fs::read_to_string(entry.path()).with_context(|| path.clone())?;
                self.files.push(Source { path, text });
            }
        }
        Ok(())
    }

    fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.is_rust())
    }

    fn markdown(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.ends_with(&[".md"]))
    }

    /// A tree of the given files, with the directories that their names imply.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Tree {
        let mut names = BTreeSet::new();
        for (path, _) in files {
            names.insert((*path).to_owned());
            for (slash, _) in path.match_indices('/') {
                names.insert(path[..slash].to_owned());
            }
        }
        let file =
            |(path, text): &(&str, &str)| Source { path: (*path).to_owned(), text: (*text).to_owned() };
        Tree { files: files.iter().map(file).collect(), names }
    }
}

/// What a rule finds in the given files, as `path:line`.
#[cfg(test)]
fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let place = |finding: Finding| format!("{}:{}", finding.path, finding.line);
    rule(&Tree::of(files)).into_iter().map(place).collect()
}

/// True if `path` is one of the entries, or lies below one that ends in `/`.
fn is_listed(list: &[&str], path: &str) -> bool {
    list.iter().any(|entry| path == *entry || (entry.ends_with('/') && path.starts_with(entry)))
}

#[cfg(test)]
mod tests {
    use super::{Tree, is_listed};

    #[test]
    fn lists_hold_files_and_directories() {
        assert!(is_listed(&["a/b.rs"], "a/b.rs") && is_listed(&["a/"], "a/b/c.rs"));
        assert!(!is_listed(&["a/b.rs"], "a/b.rs.md") && !is_listed(&["a"], "a/b"));
    }

    #[test]
    fn the_walk_sees_this_file_and_not_the_build() {
        let tree = Tree::read(crate::root()).unwrap();
        assert!(tree.files.iter().any(|file| file.path == "xtask/src/tidy.rs"));
        assert!(tree.names.contains("xtask/src/tidy"));
        assert!(!tree.names.iter().any(|name| name.starts_with("target/")));
    }
}
