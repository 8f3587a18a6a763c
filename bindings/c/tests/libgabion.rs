//! libgabion as C programs use it: shared and static, with sanitizers, and the header against the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that cargo built beside this test.
fn library(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

fn has_gcc(test: &str) -> bool {
    let found = Command::new("gcc").arg("--version").output().is_ok();
    if !found {
        gabion_testkit::skip(test, "gcc is missing");
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

fn gcc() -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Iinclude", "tests/c/libgabion.c"]);
    gcc.current_dir(env!("CARGO_MANIFEST_DIR"));
    gcc
}

#[test]
fn a_program_with_sanitizers_uses_the_shared_library() {
    if !has_gcc("a_program_with_sanitizers_uses_the_shared_library") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for name in ["libgabion.so", "libgabion.so.1"] {
        std::os::unix::fs::symlink(library("libgabion_c.so"), path.join(name)).unwrap();
    }
    let program = path.join("program");
    let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    run(gcc().args(sanitizers).arg("-o").arg(&program).arg("-L").arg(path).args(["-lgabion", "-lpthread"]));
    assert_eq!(run(Command::new(&program).env("LD_LIBRARY_PATH", path)), "good\n");
}

#[test]
fn a_program_uses_the_static_library() {
    if !has_gcc("a_program_uses_the_static_library") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    let pc = std::fs::read_to_string("gabion.pc").unwrap();
    let private = pc.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    let mut link = gcc();
    link.arg("-o").arg(&program).arg(library("libgabion_c.a")).args(private.split_whitespace());
    run(&mut link);
    assert_eq!(run(&mut Command::new(&program)), "good\n");
}

/// Names that follow a word in a text, up to the next character that is part of no name.
fn names(text: &str, filter: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|word| filter(word)).map(str::to_owned).collect()
}

/// A function of the header: its name, and whether each of its arguments is a pointer.
fn prototypes(header: &str) -> Vec<(String, Vec<bool>)> {
    let code: String = header.split("*/").map(|part| part.split("/*").next().unwrap()).collect();
    let declared = code.split(';').filter_map(|statement| {
        let (head, arguments) = statement.split_once('(')?;
        let name = head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
        let arguments = arguments.trim_end().strip_suffix(')')?;
        let arguments = arguments.split(',').filter(|argument| argument.trim() != "void");
        Some((name.to_owned(), arguments.map(|argument| argument.contains('*')).collect()))
    });
    declared.collect()
}

/// The same of the exported functions in the sources.
fn exported(source: &str) -> Vec<(String, Vec<bool>)> {
    let functions = source.split("extern \"C\" fn ").skip(1).filter_map(|function| {
        let (name, rest) = function.split_once('(')?;
        let arguments = rest.split_once(')')?.0.split(',').filter(|argument| !argument.trim().is_empty());
        Some((
            name.to_owned(),
            arguments.map(|argument| argument.contains("*const") || argument.contains("*mut")).collect(),
        ))
    });
    functions.collect()
}

#[test]
fn the_header_declares_what_the_code_exports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/gabion.h")).unwrap();
    let mut declared = prototypes(&header);
    // Others are members of tables of functions.
    let is_symbol = |(name, _): &(String, Vec<bool>)| name.starts_with("gabion_");
    declared.retain(is_symbol);
    let mut code = Vec::new();
    for module in ["codec", "plan", "raidz", "signature", "status"] {
        code.extend(exported(&std::fs::read_to_string(root.join(format!("src/{module}.rs"))).unwrap()));
    }
    code.retain(is_symbol);
    declared.sort();
    code.sort();
    assert_eq!(declared, code);
    assert!(header.contains(&format!("#define GABION_ABI_VERSION {}\n", gabion_c::status::ABI_VERSION)));

    // Each is explained, at least by name, in the manual page and the reference.
    let page = std::fs::read_to_string(root.join("man/libgabion.3")).unwrap();
    let reference = std::fs::read_to_string(root.join("../../docs/reference/c.md")).unwrap();
    for (place, text) in [("the manual page", page), ("the reference", reference)] {
        let known = names(&text, |word| word.starts_with("gabion_"));
        let missing: Vec<&String> =
            declared.iter().map(|(name, _)| name).filter(|name| !known.contains(*name)).collect();
        assert!(missing.is_empty(), "{place} does not name {missing:?}");
    }
}
