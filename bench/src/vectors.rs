//! Known answers for tests, made by other people's libraries alone.
//!
//! None of Gabion's arithmetic takes part, or the answers would prove nothing about it. Each topic
//! checks its library against itself or another one before it writes a byte. The format is
//! described in `vectors/README.md`.

mod isal;
mod jerasure;
mod multiply;
mod vandermonde;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Serialize;

pub(crate) use vandermonde::matrix_of;

/// One known stripe.
#[derive(Serialize)]
struct Case {
    code: String,
    source: String,
    block: usize,
    matrix: Vec<Vec<String>>,
    data: Vec<String>,
    redundancy: Vec<String>,
}

/// Writes every file into `directory`.
pub(crate) fn write_all(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("isal.json", &file(isal::MADE_BY, &isal::cases()?)?)?;
    write("vandermonde.json", &file(vandermonde::MADE_BY, &vandermonde::cases()?)?)?;
    write("jerasure-words.json", &file(jerasure::WORDS_MADE_BY, &jerasure::words()?)?)?;
    write("jerasure-packets.json", &file(jerasure::PACKETS_MADE_BY, &jerasure::packets()?)?)?;
    write("multiply.json", &file(multiply::MADE_BY, &multiply::cases()?)?)?;
    write("raidz.json", &by_script("raidz.py")?)?;
    write("signatures.json", &by_script("signatures.py")?)?;
    write("subspace.json", &by_script("subspace.py")?)
}

/// RAID-Z, signatures and subspace codes have no library to link; scripts do their arithmetic on plain integers.
fn by_script(name: &str) -> anyhow::Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors").join(name);
    let output = Command::new("python3")
        .arg(&script)
        .output()
        .with_context(|| format!("running python3 {}", script.display()))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).context("the script writes ASCII")
}

/// One case per line, so that a difference shows which case it is in.
fn file<C: Serialize>(made_by: &str, cases: &[C]) -> anyhow::Result<String> {
    let mut text = format!("{{\"made_by\": {}, \"cases\": [\n", serde_json::to_string(made_by)?);
    for (index, case) in cases.iter().enumerate() {
        let comma = if index + 1 < cases.len() { "," } else { "" };
        writeln!(text, "{}{comma}", serde_json::to_string(case)?)?;
    }
    text.push_str("]}\n");
    Ok(text)
}

/// Bytes in memory order.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing into a String cannot fail");
    }
    text
}

/// A number of GF(2^w), most significant digit first.
fn symbol(value: u64, w: usize) -> String {
    format!("{value:0digits$x}", digits = w.div_ceil(4))
}

fn hex_blocks(blocks: &[&[u8]]) -> Vec<String> {
    blocks.iter().map(|block| hex(block)).collect()
}

fn hex_matrix<S: Copy + Into<u64>>(rows: &[S], k: usize, w: usize) -> Vec<Vec<String>> {
    rows.chunks_exact(k).map(|row| row.iter().map(|&value| symbol(value.into(), w)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::{by_script, hex, symbol};
    use crate::isal::{Encoder, Path, multiply};

    #[test]
    fn symbols_are_numbers_and_blocks_are_bytes() {
        assert_eq!(hex(&[0x01, 0xf0]), "01f0");
        assert_eq!(symbol(0x1, 3), "1");
        assert_eq!(symbol(0x1d, 8), "1d");
        assert_eq!(symbol(0x5, 11), "005");
        assert_eq!(symbol(0x100b, 32), "0000100b");
    }

    fn strings(value: &serde_json::Value) -> Vec<&str> {
        let array = value.as_array().expect("an array");
        array.iter().map(|entry| entry.as_str().expect("a string")).collect()
    }

    fn bytes(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits"))
            .collect()
    }

    /// The script's arithmetic is its own; ISA-L's must come to the same parity.
    #[test]
    fn isal_agrees_with_the_raidz_script() {
        let file: serde_json::Value =
            serde_json::from_str(&by_script("raidz.py").expect("the script runs")).expect("JSON");
        let cases = file["cases"].as_array().expect("cases");
        assert_eq!(cases.len(), 45);
        let mut methods = std::collections::BTreeSet::new();
        for case in cases {
            let data: Vec<Vec<u8>> = strings(&case["data"]).into_iter().map(bytes).collect();
            let expected: Vec<Vec<u8>> = strings(&case["redundancy"]).into_iter().map(bytes).collect();
            let (k, m, len) = (data.len(), expected.len(), data[0].len());
            let rows: Vec<u8> = [1, 2, 4][..m]
                .iter()
                .flat_map(|&base| {
                    (0..k).map(move |column| (column + 1..k).fold(1, |product, _| multiply(product, base)))
                })
                .collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut out = vec![vec![0; len]; m];
            let mut blocks: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            Encoder::new(Path::Dispatched, k, m, &rows).encode(&data, &mut blocks);
            assert_eq!(out, expected, "{}", case["code"]);

            for entry in case["reconstructions"].as_array().expect("reconstructions") {
                let lost = entry["lost"].as_array().expect("columns");
                let restored = strings(&entry["restored"]);
                let method = entry["method"].as_str().expect("a method");
                assert_eq!((lost.len(), restored.len()), (method.len(), method.len()));
                for (column, restored) in lost.iter().zip(restored) {
                    let column = column.as_u64().expect("a column") as usize;
                    assert_eq!(bytes(restored), data[column], "{}", case["code"]);
                }
                methods.insert(method);
            }
        }
        assert_eq!(methods.len(), 7, "{methods:?}");
    }
}
