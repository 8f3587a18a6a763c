//! Rules about Rust code: rooms for `unsafe`, for the environment and for clocks; leftovers.

use super::lists::{
    CLOCK_ROOMS, ENVIRONMENT_ROOMS, KERNEL_ROW, KERNEL_TABLE, OUTPUT_ROOMS, PROGRAM, UNSAFE_ROOMS,
};
use super::scan::{self, Part, has_word};
use super::{Finding, Source, Tree, is_listed, numbered};

/// `unsafe` is written only in its rooms.
pub(super) fn unsafe_rooms(tree: &Tree) -> Vec<Finding> {
    outside(tree, UNSAFE_ROOMS, "unsafe outside its rooms", |line| has_word(line, "unsafe"))
}

/// Lines of code that match, in files that are not in the list.
fn outside(tree: &Tree, rooms: &[&str], message: &str, matches: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !is_listed(rooms, &file.path)) {
        for (line, code) in numbered(&scan::only(&file.text, Part::Code)) {
            if matches(code) {
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// A crate without a room for `unsafe` forbids it, so that the compiler watches too.
pub(super) fn forbid_unsafe(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let mut findings = Vec::new();
    for manifest in manifests.filter(|file| file.text.contains("[package]")) {
        let home = manifest.path.trim_end_matches("Cargo.toml");
        if UNSAFE_ROOMS.iter().any(|room| room.starts_with(home)) {
            continue;
        }
        for file in tree.rust().filter(|file| is_crate_root(file, home)) {
            if !scan::only(&file.text, Part::Code).contains("#![forbid(unsafe_code)]") {
                findings.push(Finding::new(&file.path, 1, "lacks #![forbid(unsafe_code)]"));
            }
        }
    }
    findings
}

fn is_crate_root(file: &Source, home: &str) -> bool {
    let Some(inner) = file.path.strip_prefix(home) else {
        return false;
    };
    let in_bin = inner.strip_prefix("src/bin/").is_some_and(|name| !name.contains('/'));
    in_bin || ["src/lib.rs", "src/main.rs", "build.rs"].contains(&inner)
}

/// Nothing is left that was meant to be mended before the commit.
pub(super) fn leftovers(tree: &Tree) -> Vec<Finding> {
    // Spelled in halves, or this file would find itself.
    let marks = [concat!("FIX", "ME"), concat!("X", "XX")];
    let mut findings = Vec::new();
    for file in &tree.files {
        for (line, text) in file.lines() {
            if let Some(mark) = marks.iter().find(|mark| has_word(text, mark)) {
                findings.push(Finding::new(&file.path, line, format!("{mark} is left")));
            }
        }
        if !file.is_rust() {
            continue;
        }
        for (line, code) in numbered(&scan::only(&file.text, Part::Code)) {
            if code.contains("dbg!") {
                findings.push(Finding::new(&file.path, line, "dbg! is left"));
            }
            if code.replace(' ', "").contains("#[ignore]") {
                let message = "an ignored test without a reason: #[ignore = \"why\"]";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// Environment variables are read in one place, where they can be found and documented. What cargo
/// tells a build script is no setting.
pub(super) fn environment(tree: &Tree) -> Vec<Finding> {
    let mut findings = outside(tree, ENVIRONMENT_ROOMS, "reads the environment outside its room", |code| {
        code.contains("env::var") || has_word(code, "option_env")
    });
    findings.retain(|finding| finding.path.rsplit('/').next() != Some("build.rs"));
    findings
}

/// The kernel table is defined once; a second list of kernels would drift from it.
pub(super) fn kernel_table(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = 0;
    for file in tree.rust() {
        for (line, code) in numbered(&scan::only(&file.text, Part::Code)) {
            if !defines_rows(code) {
                continue;
            }
            found += usize::from(file.path == KERNEL_TABLE);
            if file.path != KERNEL_TABLE || found > 1 {
                let message = format!("a second list of kernels; the table is in {KERNEL_TABLE}");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    if found == 0 {
        findings.push(Finding::new(KERNEL_TABLE, 1, "the kernel table is not here"));
    }
    findings
}

/// True for `static X: &[KernelSet]`, `pub const X: [KernelSet; 3]`; false for a function that returns rows.
fn defines_rows(code: &str) -> bool {
    let mut first = code.split_whitespace().take(2);
    let rows = [format!("[{KERNEL_ROW}]"), format!("[{KERNEL_ROW};")];
    first.any(|word| word == "static" || word == "const")
        && rows.iter().any(|list| code.contains(list.as_str()))
        && !has_word(code, "fn")
}

/// Results do not depend on the time of day: clocks are read only by what measures.
pub(super) fn clock(tree: &Tree) -> Vec<Finding> {
    outside(tree, CLOCK_ROOMS, "reads a clock outside its room", |code| {
        code.contains("Instant::now") || code.contains("SystemTime::now")
    })
}

/// The program prints through its output module only: the print macros of the standard library panic on a full disk,
/// which would end a repair in the middle. Unit tests at the end of a file may use them.
pub(super) fn output(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with(PROGRAM)) {
        let code = scan::only(&file.text, Part::Code);
        for (line, code) in numbered(&code).take_while(|(_, code)| code.trim() != "#[cfg(test)]") {
            let is_macro =
                ["print!", "println!", "eprint!", "eprintln!"].iter().any(|name| has_macro(code, name));
            let is_handle = code.contains("stdout()") && !is_listed(OUTPUT_ROOMS, &file.path);
            if is_macro || is_handle {
                findings.push(Finding::new(&file.path, line, "prints outside the output module"));
            }
        }
    }
    findings
}

/// JSON is made from types that derive `Serialize`, so that a report has the same keys wherever it is made. Tests write
/// what they expect as they like.
pub(super) fn json(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| is_product(&file.path)) {
        let code = scan::only(&file.text, Part::Code);
        for (line, code) in numbered(&code).take_while(|(_, code)| code.trim() != "#[cfg(test)]") {
            if has_macro(code, "json!") {
                let message = "json! outside of tests: derive Serialize for a type";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// True for source of a crate that is not a module of tests.
fn is_product(path: &str) -> bool {
    let inner = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
    inner.is_some_and(|(_, inner)| !inner.ends_with("tests.rs") && !inner.contains("tests/"))
}

/// True if the macro is called, and not another one whose name ends with the same letters.
fn has_macro(code: &str, name: &str) -> bool {
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
}

#[cfg(test)]
mod tests {
    use super::super::lists::{CLOCK_ROOMS, ENVIRONMENT_ROOMS, KERNEL_TABLE, OUTPUT_ROOMS, UNSAFE_ROOMS};
    use super::super::places;
    use super::{clock, environment, forbid_unsafe, json, kernel_table, leftovers, output, unsafe_rooms};

    /// Every print macro and handle of standard output in the program is found; comments, texts, other macros, unit
    /// tests and other crates are not.
    #[test]
    fn output_outside_its_module_is_found() {
        let text = "// println!()\nlet s = \"print!\";\noutln!(\"a\");\nprintln!(\"a\");\neprintln!(\"a\");\nprint!(\"a\");\neprint!(\"a\");\n\
                    let out = io::stdout().lock();\nchild.stdout(Stdio::piped());\n#[cfg(test)]\nmod tests { fn a() { println!() } }\n";
        let path = "crates/gabion/src/commands/a.rs";
        let files = [(path, text), ("crates/vault/src/a.rs", text)];
        let expected: Vec<String> = (4..=8).map(|line| format!("{path}:{line}")).collect();
        assert_eq!(places(output, &files), expected);
        let room = inside(OUTPUT_ROOMS);
        assert_eq!(places(output, &[(room.as_str(), "io::stdout().flush()\n")]), Vec::<String>::new());
    }

    #[test]
    fn json_written_by_hand_is_found() {
        let text = "// json!({})\nlet a = serde_json::json!({});\nlet b = my_json!({});\n#[cfg(test)]\nmod tests { fn a() { json!([]) } }\n";
        let files = [
            ("crates/a/src/b/tests.rs", text),
            ("crates/a/src/b.rs", text),
            ("crates/a/src/tests/c.rs", text),
            ("crates/a/tests/b.rs", text),
            ("xtask/src/a.rs", text),
        ];
        assert_eq!(places(json, &files), ["crates/a/src/b.rs:2"]);
    }

    /// A file in the first room of a list that names directories or files.
    fn inside(rooms: &[&str]) -> String {
        if rooms[0].ends_with('/') { format!("{}x.rs", rooms[0]) } else { rooms[0].to_owned() }
    }

    #[test]
    fn unsafe_outside_its_rooms_is_found() {
        let text = "// unsafe\nlet s = \"unsafe\";\nunsafe { f() }\n";
        let room = inside(UNSAFE_ROOMS);
        let files = [("crates/a/src/lib.rs", text), (room.as_str(), text)];
        assert_eq!(places(unsafe_rooms, &files), ["crates/a/src/lib.rs:3"]);
    }

    #[test]
    fn a_crate_without_unsafe_forbids_it() {
        let files = [
            ("crates/a/Cargo.toml", "[package]\n"),
            ("crates/a/src/lib.rs", "//! #![forbid(unsafe_code)]\n"),
            ("crates/a/src/other.rs", ""),
            ("crates/b/Cargo.toml", "[package]\n"),
            ("crates/b/src/main.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/b/src/bin/c.rs", ""),
            ("crates/engine/Cargo.toml", "[package]\n"),
            ("crates/engine/src/lib.rs", ""),
        ];
        let expected = ["crates/a/src/lib.rs:1", "crates/b/src/bin/c.rs:1"];
        assert_eq!(places(forbid_unsafe, &files), expected);
    }

    #[test]
    fn leftovers_are_found() {
        let mark = concat!("// FIX", "ME later\n");
        let other = concat!("X", "XX\nmktemp XXXXXX\n");
        let code = "dbg!(x);\n// dbg!(x)\n#[ignore]\n#[ignore = \"needs a disk\"]\n";
        let files = [("a.rs", mark), ("b.md", other), ("c.rs", code)];
        assert_eq!(places(leftovers, &files), ["a.rs:1", "b.md:1", "c.rs:1", "c.rs:3"]);
    }

    #[test]
    fn the_environment_is_read_in_one_room() {
        let text = "let a = env!(\"X\");\nlet b = std::env::var(\"X\");\n// env::var\n";
        let room = inside(ENVIRONMENT_ROOMS);
        let files = [("crates/a/src/lib.rs", text), ("crates/a/build.rs", text), (&room, text)];
        assert_eq!(places(environment, &files), ["crates/a/src/lib.rs:2"]);
    }

    #[test]
    fn the_kernel_table_exists_once() {
        let home = KERNEL_TABLE;
        let table = "static TABLE: &[KernelSet] = &[\n    kernel_set(),\n];\npub fn rows() -> &'static [KernelSet] {\n";
        assert!(places(kernel_table, &[(home, table)]).is_empty());
        assert_eq!(places(kernel_table, &[(home, "// static T: &[KernelSet]")]), [format!("{home}:1")]);
        let second = "//! Ours.\npub const OURS: [KernelSet; 2] = [a(), b()];\n";
        assert_eq!(places(kernel_table, &[(home, table), ("a.rs", second)]), ["a.rs:2"]);
        assert_eq!(places(kernel_table, &[(home, &table.repeat(2))]), [format!("{home}:5")]);
    }

    #[test]
    fn clocks_are_read_only_by_what_measures() {
        let text = "let began = Instant::now();\n";
        let room = inside(CLOCK_ROOMS);
        assert_eq!(places(clock, &[("a.rs", text), (&room, text)]), ["a.rs:1"]);
    }
}
