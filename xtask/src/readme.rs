//! `cargo xtask readme`: the speed tables and pictures of the documents, made from records.
//!
//! No figure in these documents is typed: they stand between two marks, and `cargo xtask test` fails if they are
//! not what the records say. A picture is drawn from the record of the table beside it.

mod picture;
mod vault;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The document with the tables.
const SPEED: &str = "docs/reference/speed.md";

/// The record of `cargo xtask compare --record`.
const COMPARE: &str = "bench/records/compare.jsonl";

/// A part of the document that is made from a record.
struct Section {
    /// The name in its marks.
    name: &'static str,
    record: &'static str,
    tables: fn(&str) -> Result<String>,
}

const SECTIONS: [Section; 3] = [
    Section { name: "speed", record: COMPARE, tables },
    // Written by the bench `vault` with --record.
    Section { name: "vault", record: "bench/records/vault.jsonl", tables: vault::table },
    // Written by the bench `hosts` with --record.
    Section { name: "hosts", record: "bench/records/hosts.jsonl", tables: vault::table },
];

/// A picture that is drawn from a record.
struct Picture {
    path: &'static str,
    record: &'static str,
    draw: fn(&str) -> Result<String>,
}

const PICTURES: [Picture; 1] =
    [Picture { path: "docs/figures/compare.svg", record: COMPARE, draw: picture::beside_libraries }];

/// Write the speed tables and pictures of the documents from the records of the benches
///
/// `cargo xtask compare --record bench/records/compare.jsonl --date YYYY-MM-DD` makes a new record of the comparison
/// with other libraries, the bench `vault` with --record bench/records/vault.jsonl --date YYYY-MM-DD one of the
/// protector, and `hosts` with --record bench/records/hosts.jsonl one of several hosts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that they are up to date
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.check {
        check()?;
    } else {
        for (path, content) in outdated()? {
            fs::write(path, content).with_context(|| format!("writing {path}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if a document or picture differs from what the records give.
pub(crate) fn check() -> Result<()> {
    let paths: Vec<&str> = outdated()?.into_iter().map(|(path, _)| path).collect();
    ensure!(paths.is_empty(), "{} does not show the records: run `cargo xtask readme`", paths.join(", "));
    Ok(())
}

/// Documents and pictures that differ from what the records give, with the content that they should have.
fn outdated() -> Result<Vec<(&'static str, String)>> {
    let read = |path| fs::read_to_string(path).with_context(|| format!("reading {path}"));
    let mut speed = read(SPEED)?;
    for Section { name, record, tables } in SECTIONS {
        let tables = tables(&read(record)?).with_context(|| format!("in {record}"))?;
        speed = spliced(&speed, name, &tables).with_context(|| format!("in {SPEED}"))?;
    }
    let mut all = vec![(SPEED, speed)];
    for Picture { path, record, draw } in PICTURES {
        all.push((path, draw(&read(record)?).with_context(|| format!("in {record}"))?));
    }
    // A picture that is missing is outdated as well.
    all.retain(|(path, content)| fs::read_to_string(path).ok().as_ref() != Some(content));
    Ok(all)
}

/// `text` with `tables` between the marks of a section.
fn spliced(text: &str, name: &str, tables: &str) -> Result<String> {
    let begin = format!("<!-- {name}: begin, written by `cargo xtask readme` -->\n");
    let end = format!("<!-- {name}: end -->");
    let (before, rest) =
        text.split_once(&begin).with_context(|| format!("the opening mark of {name} is missing"))?;
    let (_, after) =
        rest.split_once(&end).with_context(|| format!("the closing mark of {name} is missing"))?;
    Ok(format!("{before}{begin}{tables}{end}{after}"))
}

/// Shapes in the order of the record, each with (size, reference) to (ours, theirs).
type Encodes = Vec<(String, BTreeMap<(String, String), (f64, f64)>)>;

/// The first line of a record and its encode cases without options.
fn cases(record: &str) -> Result<(Value, Encodes)> {
    let mut lines = record.lines().map(serde_json::from_str::<Value>);
    let machine = lines.next().context("it is empty")??;
    let mut encodes: Encodes = Vec::new();
    for line in lines {
        let line = line?;
        let case = line["case"].as_str().context("a line without \"case\"")?;
        let words: Vec<&str> = case.split(' ').collect();
        // Cases with options (threads, layouts) are left out.
        let ["encode", shape, size] = words[..] else { continue };
        let against = line["against"].as_str().context("a line without \"against\"")?;
        // `roof` and `stream` are limits of the machine, not libraries.
        if ["roof", "stream"].contains(&against) {
            continue;
        }
        let (ours, theirs) = (number(&line, "value")?, number(&line, "reference")?);
        let row = encodes.iter().position(|(known, _)| known == shape).unwrap_or_else(|| {
            encodes.push((shape.to_owned(), BTreeMap::new()));
            encodes.len() - 1
        });
        let (_, cells) = &mut encodes[row];
        cells.insert((size.to_owned(), against.to_owned()), (ours, theirs));
    }
    ensure!(!encodes.is_empty(), "no encode cases");
    Ok((machine, encodes))
}

fn tables(record: &str) -> Result<String> {
    let (machine, encodes) = cases(record)?;
    let text = |key: &str| machine[key].as_str().with_context(|| format!("no \"{key}\" in its first line"));
    let mut out = format!(
        "Encoding, one thread, GB/s of data (and times ISA-L's speed in the same interleaved run):\n\n{}\n\
         The same beside other libraries, blocks of 64 KiB, GB/s:\n\n{}\n",
        against_isal(&encodes)?,
        against_all(&encodes)?
    );
    let libraries = machine["libraries"].as_array().context("no \"libraries\" in its first line")?;
    let libraries: Vec<&str> = libraries.iter().filter_map(Value::as_str).collect();
    let (date, cpu, kernel) = (text("date")?, text("cpu")?, text("kernel")?);
    writeln!(out, "Measured {date} on {cpu}, kernel set `{kernel}`, with:\n")?;
    for library in libraries {
        writeln!(out, "- {library}")?;
    }
    Ok(out)
}

fn number(line: &Value, key: &str) -> Result<f64> {
    line[key].as_f64().with_context(|| format!("a line without \"{key}\": {line}"))
}

fn against_isal(encodes: &Encodes) -> Result<String> {
    let sizes = ["4KiB", "64KiB", "10MiB"];
    let mut table = String::from("| code | 4 KiB blocks | 64 KiB | 10 MiB |\n| --- | --- | --- | --- |\n");
    for (shape, cells) in encodes {
        write!(table, "| {shape} |")?;
        for size in sizes {
            match cells.get(&(size.to_owned(), "isal".to_owned())) {
                Some((ours, theirs)) => write!(table, " {ours:.1} ({:.2} ×) |", ours / theirs)?,
                None => write!(table, " – |")?,
            }
        }
        table.push('\n');
    }
    Ok(table)
}

/// The size of blocks with which other libraries are compared.
const SIZE: &str = "64KiB";

/// The libraries with cases of that size.
fn libraries(encodes: &Encodes) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (_, cells) in encodes {
        for (size, against) in cells.keys() {
            if size == SIZE && !names.contains(&against.as_str()) {
                names.push(against);
            }
        }
    }
    names
}

fn against_all(encodes: &Encodes) -> Result<String> {
    let names = libraries(encodes);
    let mut table =
        format!("| code | Gabion | {} |\n| --- |{}\n", names.join(" | "), " --- |".repeat(1 + names.len()));
    for (shape, cells) in encodes {
        let theirs = |name: &str| cells.get(&(SIZE.to_owned(), name.to_owned()));
        let Some((ours, _)) = names.iter().find_map(|name| theirs(name)) else { continue };
        write!(table, "| {shape} | {ours:.1} |")?;
        for name in &names {
            match theirs(name) {
                Some((_, speed)) => write!(table, " {speed:.1} |")?,
                None => write!(table, " – |")?,
            }
        }
        table.push('\n');
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::{spliced, tables};

    const RECORD: &str = r#"{"bench":"machine","date":"2026-01-02","cpu":"Test CPU","kernel":"wide","libraries":["A 1","B 2"]}
{"bench":"compare","case":"encode 4+2 4KiB","value":60.0,"unit":"GB/s","against":"isal","reference":50.0,"ratio":1.2}
{"bench":"compare","case":"encode 8+3 4KiB","value":50.0,"unit":"GB/s","against":"isal","reference":50.0,"ratio":1.0}
{"bench":"compare","case":"encode 4+2 64KiB","value":44.0,"unit":"GB/s","against":"isal","reference":40.0,"ratio":1.1}
{"bench":"compare","case":"encode 4+2 64KiB","value":44.0,"unit":"GB/s","against":"other","reference":11.0,"ratio":4.0}
{"bench":"compare","case":"encode 4+2 64KiB","value":44.0,"unit":"GB/s","against":"roof","reference":60.0,"ratio":0.7,"bar":0.85}
{"bench":"compare","case":"encode 4+2 64KiB 2threads","value":1.0,"unit":"GB/s","against":"isal","reference":1.0,"ratio":1.0}
"#;

    #[test]
    fn figures_come_from_the_record() {
        let text = tables(RECORD).unwrap();
        assert!(text.contains("| 4+2 | 60.0 (1.20 ×) | 44.0 (1.10 ×) | – |"), "{text}");
        assert!(text.contains("| code | Gabion | isal | other |"), "{text}");
        assert!(text.contains("| 4+2 | 44.0 | 40.0 | 11.0 |"), "{text}");
        assert!(
            text.contains("2026-01-02 on Test CPU, kernel set `wide`, with:\n\n- A 1\n- B 2\n"),
            "{text}"
        );
        assert!(tables("").is_err() && tables("{}\n").is_err());
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let with = |text: &str| {
            format!(
                "top\n<!-- x: begin, written by `cargo xtask readme` -->\n{text}<!-- x: end -->\nbottom\n"
            )
        };
        assert_eq!(spliced(&with("old\n"), "x", "new\n").unwrap(), with("new\n"));
        assert!(spliced(&with("old\n"), "y", "new").is_err() && spliced("no marks", "x", "new").is_err());
    }
}
