//! Rules about what is written: links, names of files, names of tasks.

use clap::CommandFactory;

use super::scan::{self, Part};
use super::{Finding, Source, Tree, numbered};

/// Links in Markdown that are not addresses lead to a file that exists, and to a heading of it.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for (line, text) in numbered(&prose(&file.text)) {
            for target in targets(text) {
                if let Some(message) = broken(tree, file, target) {
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    findings
}

/// The text with fenced blocks and code spans blanked out, line for line.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            // Every second piece between back quotes is code.
            prose.extend(line.split('`').step_by(2));
        }
        prose.push('\n');
    }
    prose
}

/// What `[text](target)` and `[name]: target` point to, without a title.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let all = inline.chain(named.map(|(_, target)| target));
    let first = |target: &'_ str| target.split_whitespace().next().map(str::len);
    all.filter_map(|target| first(target.trim_start()).map(|n| &target.trim_start()[..n]))
        .map(|target| target.trim_matches(['<', '>']))
        .collect()
}

fn broken(tree: &Tree, from: &Source, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = match target.split_once('#') {
        Some((path, heading)) => (path, Some(heading)),
        None => (target, None),
    };
    let path = match path {
        "" => from.path.clone(),
        _ => match joined(&from.path, path) {
            Some(path) => path,
            None => return Some(format!("{target} leads out of the repository")),
        },
    };
    if !path.is_empty() && !tree.names.contains(&path) {
        return Some(format!("{target}: no {path} here"));
    }
    let page = tree.markdown().find(|file| file.path == path)?;
    let heading = heading?;
    let missing = !page.text.lines().filter_map(anchor).any(|anchor| anchor == heading);
    missing.then(|| format!("{target}: {path} has no such heading"))
}

/// A path relative to a file, from the root; `None` if it climbs out or starts at `/`.
fn joined(from: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchor that a heading's line gets on the common Markdown pages.
fn anchor(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let dashed = |c: char| if c == ' ' { '-' } else { c };
    Some(title.trim().to_lowercase().chars().filter(kept).map(dashed).collect())
}

/// Paths in back quotes, in Markdown and in Rust comments, exist. Only what starts with one of the
/// repository's own directories is taken for a path.
pub(super) fn paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.ends_with(&[".rs", ".md"])) {
        let text = if file.is_rust() { scan::only(&file.text, Part::Comment) } else { file.text.clone() };
        for (line, text) in numbered(&text) {
            for span in text.split('`').skip(1).step_by(2) {
                if names_a_path(tree, span) && !exists(tree, span) {
                    findings.push(Finding::new(&file.path, line, format!("no {span} here")));
                }
            }
        }
    }
    findings
}

fn names_a_path(tree: &Tree, span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-*".contains(c);
    let Some((top, _)) = span.split_once('/') else {
        return false;
    };
    span.chars().all(plain) && tree.names.contains(top)
}

/// A path that exists, or a pattern with one `*` that some path matches.
fn exists(tree: &Tree, span: &str) -> bool {
    let span = span.trim_end_matches('/');
    match span.split_once('*') {
        None => tree.names.contains(span),
        Some((before, after)) => tree.names.iter().any(|name| {
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        }),
    }
}

/// Every `cargo xtask NAME` that is written names a task.
pub(super) fn tasks(tree: &Tree) -> Vec<Finding> {
    let cli = crate::Cli::command();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.ends_with(&[".rs", ".md"])) {
        for (line, text) in file.lines() {
            for rest in text.split("cargo xtask ").skip(1) {
                let name = rest.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
                let name = name.take(1).collect::<String>();
                if !name.is_empty() && cli.find_subcommand(&name).is_none() {
                    let message = format!("there is no task \"{name}\"");
                    findings.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::{anchor, links, paths, tasks};

    #[test]
    fn links_lead_somewhere() {
        let text = "[a](docs/a.md) [b](docs/none.md)\n\
                    [c](https://example.org/x) `[d](none.md)`\n\
                    ```\n[e](none.md)\n```\n\
                    [f]: none.md\n\
                    [g](../out.md) [h](docs/a.md#two-words) [i](docs/a.md#three)\n\
                    ![j](docs \"a title\") [k](#own)\n\
                    # Own\n";
        let page = "# One\n\n## Two words!\n[up](../README.md) [down](b.md)\n";
        let found = places(links, &[("README.md", text), ("docs/a.md", page)]);
        let expected = ["README.md:1", "README.md:6", "README.md:7", "README.md:7", "docs/a.md:4"];
        assert_eq!(found, expected);
    }

    #[test]
    fn headings_become_anchors() {
        assert_eq!(anchor("## A `b`, c-d").as_deref(), Some("a-b-c-d"));
        assert_eq!(anchor("#hash"), None);
        assert_eq!(anchor("text"), None);
    }

    #[test]
    fn paths_in_back_quotes_exist() {
        let text = "// see `docs/a.md` and `docs/b.md`\nlet s = \"`docs/c.md`\";\n";
        let page = "`docs/*.md` `docs/` `docs/*.rs` `none/x` `docs/<name>` `cargo doc docs/x`\n";
        let files = [("src/lib.rs", text), ("docs/a.md", page)];
        assert_eq!(places(paths, &files), ["src/lib.rs:1", "docs/a.md:1"]);
    }

    #[test]
    fn tasks_that_are_written_exist() {
        // The wrong name is put in at run time, or this file would find itself.
        let text = format!(
            "cargo xtask test --full\nrun `cargo xtask {}`\ncargo xtask gpu-check\ncargo xtask {}\n",
            "polish", "gpu-polish"
        );
        assert_eq!(places(tasks, &[("README.md", &text)]), ["README.md:2", "README.md:4"]);
    }
}
