//! Generic kernel for all plans of a width and layout, with the matrix as data (the design of G-CRS, with shared
//! subsets).
//!
//! As in the specialised kernel, subsets of four rows are summed once for all outputs; here the sums are stored in a
//! table in shared memory, where each thread has its own column, and the matrix is a list of offsets in that table:
//!
//! ```text
//! for every input, for every two fours of its rows:
//!     table[s], table[16 + s] = sums of the subsets s of both fours
//!     for every row of every output of this pass:
//!         a = a + table[low place] + table[16 + high place]
//! ```
//!
//! A word of the matrix holds both byte offsets of a row; all threads read the same word at the same time. A pass
//! computes at most 64 rows of outputs, or one output with more rows. For packets with more than 32 rows, two threads
//! share a table (`partners`).

mod partners;

use super::blocks::{Writer, input_name, sum_name};
use super::text::{Text, line, together};
use super::{Counts, Dialect, Launch, Source};
use crate::shape::Shape;
use gabion_engine::matrix::bits::BitMatrix;

const THREADS: usize = 128;

/// Rows of outputs of short and long passes, unless one output has more.
const SHORT: usize = 32;
const LONG: usize = 64;

/// Sums of the subsets of four rows, including the empty one.
const SUBSETS: usize = 16;

fn is_short(shape: &Shape) -> bool {
    shape.outputs * shape.w <= SHORT
}

/// Words of every row per thread: one for long passes, since registers for two would leave few warps per
/// multiprocessor, unless two threads share the rows.
pub fn lanes(shape: &Shape) -> usize {
    if shape.w <= 8 && is_short(shape) || partners::suits(shape) { 2 } else { 1 }
}

/// Outputs per pass.
fn outputs_per_pass(shape: &Shape) -> usize {
    let rows = if is_short(shape) { SHORT } else { LONG };
    (rows / shape.w).max(1)
}

/// Pairs of groups of four rows of a block.
fn pairs(shape: &Shape) -> usize {
    shape.w.div_ceil(8)
}

/// Words of the matrix per pass, input and pair: four are read at once.
fn words_per_pair(shape: &Shape) -> usize {
    (outputs_per_pass(shape) * shape.w).next_multiple_of(4)
}

/// Bytes from one sum to the next in the table.
fn column(shape: &Shape) -> usize {
    let columns = if partners::suits(shape) { partners::COLUMNS } else { THREADS };
    columns * lanes(shape) * 4
}

/// Work of one thread over all passes, in the units that determine its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Sums of subsets written to the table.
    pub puts: usize,
    /// Rows that read two table entries, and rows that are stored.
    pub rows: usize,
    /// Passes over the inputs.
    pub passes: usize,
}

/// The operations of a plan of this shape.
pub fn operations(shape: &Shape) -> Operations {
    let passes = shape.outputs.div_ceil(outputs_per_pass(shape)).max(1);
    let fours = (0..shape.w).step_by(4).map(|first| (1usize << (shape.w - first).min(4)) - 1);
    let puts = passes * shape.inputs * fours.sum::<usize>();
    let of_outputs = shape.outputs * shape.w;
    Operations { puts, rows: shape.inputs * of_outputs * pairs(shape) + 2 * of_outputs, passes }
}

/// A matrix in the kernel's format: by pass, input, pair of groups, row of the pass.
pub fn places(shape: &Shape, matrix: &BitMatrix) -> Vec<u32> {
    let (per_pass, w) = (outputs_per_pass(shape), shape.w);
    let mut places = Vec::new();
    for first in (0..shape.outputs).step_by(per_pass) {
        for (input, pair) in
            (0..shape.inputs).flat_map(|input| (0..pairs(shape)).map(move |pair| (input, pair)))
        {
            places.extend((0..words_per_pair(shape)).map(|within| {
                let row = first * w + within;
                let exists = within < per_pass * w && row < matrix.rows();
                let is_one = |bit: usize| exists && bit < w && matrix.at(row, input * w + bit);
                let subset = |four: usize| {
                    (0..4)
                        .filter(|place| is_one(8 * pair + 4 * four + place))
                        .map(|place| 1 << place)
                        .sum::<usize>()
                };
                let low = subset(0) * column(shape);
                let high = (SUBSETS + subset(1)) * column(shape);
                (low | high << 16) as u32
            }));
        }
    }
    places
}

/// Writes the kernel. The numbers of inputs and outputs in `shape` affect only the launch and the length of passes.
pub fn source(dialect: Dialect, shape: &Shape) -> Source {
    if partners::suits(shape) {
        return partners::source(dialect, shape);
    }
    let (lanes, per_pass, w) = (lanes(shape), outputs_per_pass(shape), shape.w);
    let passes = shape.outputs.div_ceil(per_pass);
    let launch = Launch { threads: THREADS, passes, bytes_per_thread: w * 4 * lanes };
    let text = head(dialect, launch);
    let mut writer = Writer { dialect, shape, lanes, threads: THREADS, text, counts: Counts::default() };
    line!(writer.text, "SHARED u64 table[{}];", 2 * SUBSETS * column(shape) / 8);
    line!(writer.text, "SHARED_POINTER byte* const sums = (SHARED_POINTER byte*)table;");
    line!(writer.text, "const u32 mine = LOCAL_X * {}u;", lanes * 4);
    writer.position();
    begin_sums(&mut writer, per_pass * w);
    let nothing = vec!["0u".to_owned(); lanes];
    for empty in [0, SUBSETS] {
        let place = format!("sums + {} + mine", empty * column(shape));
        line!(writer.text, "{}", together("PUT", &place, &nothing));
    }
    let pair_bytes = words_per_pair(shape) * 4;
    line!(writer.text, "const u32 here = outputs - PASS * {per_pass}u;");
    line!(
        writer.text,
        "GLOBAL const byte* place = matrix + (u64)PASS * inputs * {}u;",
        pairs(shape) * pair_bytes
    );
    line!(writer.text, "for (u32 input = 0; input < inputs; input++) {{");
    writer.load(0, "input");
    if shape.packet_words.is_none() {
        writer.transpose_input(0);
    }
    for pair in 0..pairs(shape) {
        for (four, first) in [8 * pair, 8 * pair + 4].into_iter().enumerate() {
            let rows = (first..w.min(first + 4)).map(|row| writer.place_of_row(row));
            let rows: Vec<usize> = rows.collect();
            put_subsets(&mut writer, &rows, &format!("sums + {} + mine", four * SUBSETS * column(shape)));
        }
        for output in 0..per_pass {
            line!(writer.text, "if ({output}u < here) {{");
            add_rows(&mut writer, pair * pair_bytes, output * w..(output + 1) * w);
            line!(writer.text, "}}");
        }
    }
    line!(writer.text, "place += {}u;", pairs(shape) * pair_bytes);
    line!(writer.text, "}}");
    for within in 0..per_pass {
        line!(writer.text, "if ({within}u < here) {{");
        writer.store(within, &format!("(PASS * {per_pass}u + {within}u)"));
        line!(writer.text, "}}");
    }
    line!(writer.text, "}}");
    Source { text: writer.text.0, launch, counts: writer.counts }
}

fn head(dialect: Dialect, launch: Launch) -> Text {
    let global = if dialect == Dialect::OpenCl { "__global " } else { "" };
    let more = format!(", {global}const byte* matrix, u32 inputs, u32 outputs");
    Text(dialect.prelude() + &dialect.head(launch, 1, &more))
}

/// Declares the sums, initialised with zero.
fn begin_sums(writer: &mut Writer<'_>, rows: usize) {
    writer.declare_sums(rows);
    for lane in 0..writer.lanes {
        let zeros: Vec<String> = (0..rows).map(|row| format!("{} = 0u;", sum_name(lane, row))).collect();
        line!(writer.text, "{}", zeros.join(" "));
    }
}

/// Writes the sums of all subsets of at most four rows of the input, each with one addition to a smaller one; the empty
/// one is at `place`.
fn put_subsets(writer: &mut Writer<'_>, rows: &[usize], place: &str) {
    let lanes = writer.lanes;
    line!(writer.text, "{{");
    for subset in 1..1usize << rows.len() {
        let top = subset.ilog2() as usize;
        let rest = subset ^ (1 << top);
        let names: Vec<String> = (0..lanes).map(|lane| format!("c{lane}_{subset}")).collect();
        for (lane, name) in names.iter().enumerate() {
            let row = input_name(0, lane, rows[top]);
            let sum = if rest == 0 { row } else { format!("c{lane}_{rest} ^ {row}") };
            line!(writer.text, "const u32 {name} = {sum};");
            writer.counts.additions += usize::from(rest != 0);
        }
        let place = format!("{place} + {}", subset * column(writer.shape));
        line!(writer.text, "{}", together("PUT", &place, &names));
    }
    line!(writer.text, "}}");
}

/// Adds a pair's sums to the rows of one output, whose matrix words start `pair_bytes` after the pointer.
fn add_rows(writer: &mut Writer<'_>, pair_bytes: usize, rows: std::ops::Range<usize>) {
    let lanes = writer.lanes;
    let (first, last) = (rows.start / 4 * 4, rows.end);
    for four in (first..last).step_by(4) {
        line!(
            writer.text,
            "{{ u32 p0, p1, p2, p3; READ4(place + {}, p0, p1, p2, p3);",
            pair_bytes + four * 4
        );
        for row in (four..four + 4).filter(|row| rows.contains(row)) {
            let word = format!("p{}", row - four);
            let low: Vec<String> = (0..lanes).map(|lane| format!("l{lane}")).collect();
            let high: Vec<String> = (0..lanes).map(|lane| format!("h{lane}")).collect();
            line!(writer.text, "{{ u32 {}, {};", low.join(", "), high.join(", "));
            line!(writer.text, "{}", together("GET", &format!("sums + (({word} & 0xffffu) | mine)"), &low));
            line!(writer.text, "{}", together("GET", &format!("sums + (({word} >> 16) + mine)"), &high));
            for lane in 0..lanes {
                let sum = sum_name(lane, row);
                line!(writer.text, "{sum} = x3({sum}, l{lane}, h{lane});");
                writer.counts.additions += 1;
            }
            line!(writer.text, "}}");
        }
        line!(writer.text, "}}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    #[test]
    fn places_of_the_matrix_lie_in_the_table() {
        for code in
            ["10+4", "10+9", "10+9:packets=16", "3+2:w16", "cauchy:5+3:w7:packets=16", "cauchy:3+2:w64"]
        {
            let plan = code.parse::<Code>().unwrap().encode_plan().unwrap();
            let shape = Shape::of(&plan);
            let places = places(&shape, &BitMatrix::expand(plan.matrix().unwrap()).unwrap());
            let passes = source(Dialect::OpenCl, &shape).launch.passes;
            assert_eq!(
                places.len(),
                passes * shape.inputs * pairs(&shape) * words_per_pair(&shape),
                "{code}"
            );
            for place in places {
                let (low, high) = (place as usize & 0xffff, place as usize >> 16);
                assert!(low < SUBSETS * column(&shape) && low.is_multiple_of(column(&shape)), "{code}");
                assert!((SUBSETS * column(&shape)..2 * SUBSETS * column(&shape)).contains(&high), "{code}");
            }
        }
    }

    #[test]
    fn operations_are_counted() {
        let of = |code: &str| operations(&Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap()));
        assert_eq!(of("10+4"), Operations { puts: 10 * 30, rows: 10 * 32 + 64, passes: 1 });
        assert_eq!(of("10+9").passes, 2);
        assert_eq!(of("cauchy:5+2:w5:packets=16"), Operations { puts: 5 * 16, rows: 5 * 10 + 20, passes: 1 });
    }

    #[test]
    fn one_text_serves_all_plans_of_a_width_and_layout() {
        let text = |code: &str| {
            source(Dialect::Cuda, &Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap())).text
        };
        assert_eq!(text("10+4"), text("64+2"));
        assert_eq!(text("10+8"), text("30+33"));
        assert_eq!(text("10+8:packets=64"), text("64+16:packets=64"));
        assert_ne!(text("10+4:packets=64"), text("10+8:packets=64"));
        assert_ne!(text("10+4"), text("10+4:w16"));
    }
}
