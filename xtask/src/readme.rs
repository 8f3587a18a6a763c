//! `cargo xtask readme`: the speed tables of the README, made from records.
//!
//! No figure in the README is typed: they stand between two marks, and `cargo xtask test` fails if they are
//! not what the records say.

mod vault;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const README: &str = "README.md";

/// A part of the README that is made of a record.
struct Section {
    /// What stands in its marks.
    name: &'static str,
    record: &'static str,
    tables: fn(&str) -> Result<String>,
}

const SECTIONS: [Section; 2] = [
    // Written by `cargo xtask compare --record`.
    Section { name: "speed", record: "bench/records/compare.jsonl", tables },
    // Written by `gabion-bench vault --record`.
    Section { name: "vault", record: "bench/records/vault.jsonl", tables: vault::table },
];

/// Write the README's speed tables from the records of the benches
///
/// `cargo xtask compare --record bench/records/compare.jsonl --date YYYY-MM-DD` makes a new record of the comparison with
/// other libraries, `cargo run --release -p gabion-bench -- vault --record bench/records/vault.jsonl --date YYYY-MM-DD` one of the protector.
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
        let (readme, wanted) = both()?;
        if readme != wanted {
            fs::write(README, wanted).with_context(|| format!("writing {README}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails where the README does not say what the records say.
pub(crate) fn check() -> Result<()> {
    let (readme, wanted) = both()?;
    ensure!(readme == wanted, "{README} does not show the records: run `cargo xtask readme`");
    Ok(())
}

/// The README as it is and as it should be.
fn both() -> Result<(String, String)> {
    let read = |path| fs::read_to_string(path).with_context(|| format!("reading {path}"));
    let readme = read(README)?;
    let mut wanted = readme.clone();
    for Section { name, record, tables } in SECTIONS {
        let tables = tables(&read(record)?).with_context(|| format!("in {record}"))?;
        wanted = spliced(&wanted, name, &tables).with_context(|| format!("in {README}"))?;
    }
    Ok((readme, wanted))
}

/// `readme` with `tables` between the marks of a section.
fn spliced(readme: &str, name: &str, tables: &str) -> Result<String> {
    let begin = format!("<!-- {name}: begin, written by `cargo xtask readme` -->\n");
    let end = format!("<!-- {name}: end -->");
    let (before, rest) =
        readme.split_once(&begin).with_context(|| format!("the opening mark of {name} is missing"))?;
    let (_, after) =
        rest.split_once(&end).with_context(|| format!("the closing mark of {name} is missing"))?;
    Ok(format!("{before}{begin}{tables}{end}{after}"))
}

/// Shapes in the order of the record, each with (size, reference) to (ours, theirs).
type Encodes = Vec<(String, BTreeMap<(String, String), (f64, f64)>)>;

fn tables(record: &str) -> Result<String> {
    let mut lines = record.lines().map(serde_json::from_str::<Value>);
    let machine = lines.next().context("it is empty")??;
    let text = |key: &str| machine[key].as_str().with_context(|| format!("no \"{key}\" in its first line"));
    let mut encodes: Encodes = Vec::new();
    for line in lines {
        let line = line?;
        let case = line["case"].as_str().context("a line without \"case\"")?;
        let words: Vec<&str> = case.split(' ').collect();
        // Cases with options (threads, layouts) are in the record, not in this table.
        let ["encode", shape, size] = words[..] else { continue };
        let against = line["against"].as_str().context("a line without \"against\"")?;
        // Limits of the machine are no libraries.
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
    let mut out = format!(
        "Encoding, one thread, GB/s of data (and times ISA-L's speed in the same interleaved run):\n\n{}\n\
         The same beside other libraries, blocks of 64 KiB, GB/s:\n\n{}\n",
        against_isal(&encodes)?,
        against_all(&encodes)?
    );
    let libraries = machine["libraries"].as_array().context("no \"libraries\" in its first line")?;
    let libraries: Vec<&str> = libraries.iter().filter_map(Value::as_str).collect();
    let (date, cpu, kernel) = (text("date")?, text("cpu")?, text("kernel")?);
    writeln!(out, "Measured {date} on {cpu}, kernel `{kernel}`, with {}.", libraries.join(", "))?;
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

fn against_all(encodes: &Encodes) -> Result<String> {
    let size = "64KiB";
    let mut names: Vec<&str> = Vec::new();
    for (_, cells) in encodes {
        for (cell_size, against) in cells.keys() {
            if cell_size == size && !names.contains(&against.as_str()) {
                names.push(against);
            }
        }
    }
    let mut table =
        format!("| code | Gabion | {} |\n| --- |{}\n", names.join(" | "), " --- |".repeat(1 + names.len()));
    for (shape, cells) in encodes {
        let theirs = |name: &str| cells.get(&(size.to_owned(), name.to_owned()));
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
        assert!(text.contains("2026-01-02 on Test CPU, kernel `wide`, with A 1, B 2."), "{text}");
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
