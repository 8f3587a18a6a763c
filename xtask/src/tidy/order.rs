//! Order of modules: the tables of the architecture document against the imports in the code.
//!
//! Each crate has a table under a heading `Modules of` with its path, from the bottom up. A top-level module may
//! import the modules of rows above its own, and modules of its own row as long as these do not import each other in
//! a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{self, Part};
use super::{Finding, Source, Tree, numbered};

/// Paths at which the document may lie.
const DOCUMENTS: &[&str] = &["docs/ARCHITECTURE.md", "docs/internals/architecture.md"];

const HEADING: &str = "### Modules of `";

/// Modules are listed in their crate's table, once, and import only what stands below them.
pub(super) fn modules(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.files.iter().find(|file| DOCUMENTS.contains(&file.path.as_str())) else {
        return vec![Finding::new(DOCUMENTS[0], 1, "the document with the order of modules is missing")];
    };
    let (tables, mut findings) = tables(document);
    for root in crates(tree) {
        let modules = declared(tree, &root);
        if modules.len() < 2 {
            continue;
        }
        match tables.get(&root) {
            None => findings.push(Finding::new(
                &document.path,
                1,
                format!("no table `{HEADING}{root}``, so the order of its modules is unknown"),
            )),
            Some(table) => {
                findings.extend(listed(document, &root, table, &modules));
                findings.extend(imported(tree, &root, table, &modules));
            }
        }
    }
    findings
}

/// Rows of a table: module to its row, and the line of the heading.
struct Table {
    line: usize,
    rows: BTreeMap<String, usize>,
}

fn tables(document: &Source) -> (BTreeMap<String, Table>, Vec<Finding>) {
    let (mut tables, mut findings) = (BTreeMap::new(), Vec::new());
    let mut current: Option<(String, Table)> = None;
    for (line, text) in document.lines() {
        if let Some(root) = text.strip_prefix(HEADING).and_then(|rest| rest.strip_suffix('`')) {
            tables.extend(current.take());
            current = Some((root.to_owned(), Table { line, rows: BTreeMap::new() }));
        } else if text.starts_with('#') {
            tables.extend(current.take());
        } else if let (Some((_, table)), Some(cells)) = (&mut current, text.strip_prefix('|')) {
            let cell = cells.split('|').next().unwrap_or_default();
            for module in cell.split('`').skip(1).step_by(2) {
                if table.rows.insert(module.to_owned(), line).is_some() {
                    findings.push(Finding::new(&document.path, line, format!("`{module}` is listed twice")));
                }
            }
        }
    }
    tables.extend(current);
    (tables, findings)
}

/// Directories of packages, `crates/engine` for example.
fn crates(tree: &Tree) -> BTreeSet<String> {
    let roots = tree.rust().filter_map(|file| {
        let root =
            file.path.strip_suffix("/src/lib.rs").or_else(|| file.path.strip_suffix("/src/main.rs"))?;
        Some(root.to_owned())
    });
    roots.collect()
}

/// Modules that the roots of a package declare, without those of tests.
fn declared(tree: &Tree, root: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for file in tree.rust().filter(|file| is_root(&file.path, root)) {
        for line in product_code(file).lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
            let name = line.strip_prefix("mod ").and_then(|rest| rest.trim_end().strip_suffix(';'));
            modules.extend(name.map(str::to_owned));
        }
    }
    modules
}

fn is_root(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest == "/src/lib.rs" || rest == "/src/main.rs")
}

fn listed(document: &Source, root: &str, table: &Table, modules: &BTreeSet<String>) -> Vec<Finding> {
    let missing = modules.iter().filter(|module| !table.rows.contains_key(*module)).map(|module| {
        Finding::new(&document.path, table.line, format!("`{module}` of {root} is not in its table"))
    });
    let unknown = table.rows.iter().filter(|(module, _)| !modules.contains(*module)).map(|(module, line)| {
        Finding::new(&document.path, *line, format!("{root} has no module `{module}`"))
    });
    missing.chain(unknown).collect()
}

/// Imports of modules in later rows, and circles within a row.
fn imported(tree: &Tree, root: &str, table: &Table, modules: &BTreeSet<String>) -> Vec<Finding> {
    let exported = exported(tree, root, modules);
    let mut findings = Vec::new();
    let mut beside: BTreeMap<(&str, &str), (&str, usize)> = BTreeMap::new();
    let source = format!("{root}/src/");
    for file in tree.rust() {
        let Some(inside) = file.path.strip_prefix(&source) else { continue };
        let parts: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
        let Some(from) = modules.get(parts[0]) else { continue };
        if parts[1..].iter().any(|part| *part == "tests" || part.ends_with("_tests")) {
            continue;
        }
        for (line, text) in statements(&product_code(file)) {
            for name in names_in(&text, parts.len()) {
                let module = exported.get(name.as_str()).copied().unwrap_or(name.as_str());
                let Some(to) = modules.get(module).filter(|to| *to != from) else { continue };
                let (Some(own), Some(other)) = (table.rows.get(from), table.rows.get(to)) else { continue };
                if other > own {
                    findings.push(Finding::new(
                        &file.path,
                        line,
                        format!("`{from}` imports `{to}`, which stands above it in the table of {root}"),
                    ));
                } else if other == own {
                    beside.entry((from.as_str(), to.as_str())).or_insert((file.path.as_str(), line));
                }
            }
        }
    }
    let edges: Vec<(&str, &str)> = beside.keys().copied().collect();
    for (&(from, to), &(path, line)) in &beside {
        if reaches(&edges, to, from) {
            findings.push(Finding::new(
                path,
                line,
                format!("`{from}` and `{to}` import each other in a circle"),
            ));
        }
    }
    findings
}

fn reaches(edges: &[(&str, &str)], from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            next.extend(edges.iter().filter(|(source, _)| *source == at).map(|(_, target)| *target));
        }
    }
    false
}

/// Items that the root of a package exports under its own name, with their modules: `use crate::Plan` imports `plan`.
fn exported<'a>(tree: &Tree, root: &str, modules: &'a BTreeSet<String>) -> BTreeMap<String, &'a str> {
    let mut exported = BTreeMap::new();
    for file in tree.rust().filter(|file| is_root(&file.path, root)) {
        for (_, text) in statements(&product_code(file)) {
            let text = text.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            let Some(path) = text.strip_prefix("use ") else { continue };
            let first = path.split("::").next().unwrap_or_default().trim();
            let Some(module) = modules.get(first) else { continue };
            let words = path.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            exported
                .extend(words.filter(|word| !word.is_empty()).map(|word| (word.to_owned(), module.as_str())));
        }
    }
    exported.retain(|name, module| name != module && !modules.contains(name));
    exported
}

/// The code of a file up to its unit tests, comments and literals blanked out.
fn product_code(file: &Source) -> String {
    let code = scan::only(&file.text, Part::Code);
    let end = code.find("\n#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    code[..end].to_owned()
}

/// Lines of code, those of one `use` joined, without modules that are only compiled for tests.
fn statements(code: &str) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let (mut open, mut for_tests) = (false, false);
    for (line, text) in numbered(code) {
        let starts = text
            .trim_start()
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ")
            .starts_with("use ");
        match statements.last_mut() {
            Some((_, statement)) if open => {
                statement.push(' ');
                statement.push_str(text.trim());
            }
            _ if for_tests => {}
            _ => {
                statements.push((line, text.to_owned()));
                open = starts;
            }
        }
        open = open && !text.contains(';');
        for_tests = text.trim() == "#[cfg(test)]";
    }
    statements
}

/// First names behind `crate::`, and behind as many `super::` as lead from a file to the root of its crate.
fn names_in(text: &str, depth: usize) -> Vec<String> {
    let supers = "super::".repeat(depth);
    let mut names = Vec::new();
    for prefix in ["crate::", supers.as_str()] {
        for (at, _) in text.match_indices(prefix) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            let rest = &text[at + prefix.len()..];
            if rest.starts_with("super::") {
                continue;
            }
            match rest.strip_prefix('{') {
                Some(group) => names.extend(first_names(group)),
                None => names.extend(word(rest)),
            }
        }
    }
    names
}

/// First names of the paths in a group, up to its closing brace.
fn first_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut begins) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if c.is_whitespace() => {}
            _ if begins => {
                begins = false;
                names.extend(word(&group[at..]));
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> Option<String> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::modules;
    use crate::tidy::places;

    const TABLE: &str = "### Modules of `crates/a`\n\n| module | holds |\n| --- | --- |\n\
        | `low` | x |\n| `mid`, `side` | x |\n| `top` | x |\n\n## Next\n\n| `not`, | a module |\n";
    const ROOT: &str = "mod low;\npub mod mid;\nmod side;\npub(crate) mod top;\npub use top::{Thing, other};\n\n#[cfg(test)]\nmod tests {\n}\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let fixed = [("docs/ARCHITECTURE.md", TABLE), ("crates/a/src/lib.rs", ROOT)];
        places(modules, &[&fixed[..], files].concat())
    }

    #[test]
    fn imports_of_lower_modules_are_fine() {
        let top = "use crate::{low::A, mid};\nuse super::side::B;\n// crate::top\nconst C: &str = \"crate::top\";\n";
        let mid = "use crate::low;\nuse crate::side;\nuse std::fs;\n\n#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n";
        assert_eq!(found(&[("crates/a/src/top.rs", top), ("crates/a/src/mid/deep.rs", mid)]), [""; 0]);
        assert_eq!(found(&[("crates/a/src/low/tests.rs", "use crate::top;\n")]), [""; 0]);
    }

    #[test]
    fn imports_of_higher_modules_are_found() {
        for text in [
            "use crate::top::X;\n",
            "use crate::{\n    low,\n    top::{X, Y},\n};\n",
            "fn f() { crate::top::f() }\n",
            "use crate::Thing;\n",
        ] {
            assert_eq!(
                found(&[("crates/a/src/mid/deep.rs", text)]),
                ["crates/a/src/mid/deep.rs:1"],
                "{text}"
            );
        }
        let supers = [
            ("crates/a/src/mid.rs", "use super::top;\n"),
            ("crates/a/src/mid/x.rs", "use super::super::top;\n"),
        ];
        assert_eq!(found(&supers), ["crates/a/src/mid.rs:1", "crates/a/src/mid/x.rs:1"]);
        assert_eq!(found(&[("crates/a/src/mid/x.rs", "use super::top;\n")]), [""; 0], "`mid::top`");
    }

    #[test]
    fn circles_within_a_row_are_found() {
        let circle =
            [("crates/a/src/mid.rs", "use crate::side;\n"), ("crates/a/src/side.rs", "use crate::mid;\n")];
        assert_eq!(found(&circle), ["crates/a/src/mid.rs:1", "crates/a/src/side.rs:1"]);
    }

    #[test]
    fn tables_name_each_module_once() {
        let root = ROOT.replace("mod side;\n", "mod new;\n");
        let table = TABLE.replace("`top`", "`top`, `low`");
        let files = [("docs/ARCHITECTURE.md", table.as_str()), ("crates/a/src/lib.rs", root.as_str())];
        // `low` stands twice, `new` is missing, `side` does not exist.
        let document = "docs/ARCHITECTURE.md";
        let lines = [7, 1, 6].map(|line| format!("{document}:{line}"));
        assert_eq!(places(modules, &files), lines);
        let none = [(document, ""), ("crates/a/src/lib.rs", ROOT)];
        assert_eq!(places(modules, &none), [format!("{document}:1")]);
    }
}
