//! Prefetching: inputs are prefetched into the L2 cache, because the registers of so many sums leave too few threads to
//! hide memory latency.
//!
//! All threads of a block together prefetch four inputs, each thread a line of one of their rows. The offset of a
//! thread's line is kept in shared memory, since all registers are in use, for every distance between four consecutive
//! inputs.

use super::{THREADS, Transformed};
use crate::shape::Shape;
use crate::source::Dialect;
use crate::source::text::line;

/// Minimum inputs for which prefetching pays.
const MANY_INPUTS: usize = 64;

/// Inputs that are prefetched at once.
pub(super) const AT_ONCE: usize = 4;

/// Maximum prefetches of inputs of a later tile.
const LATER: usize = 2;

/// Bytes of a cache line of the device, and lines per row of a block of threads.
const LINE: usize = 128;
const LINES: usize = THREADS * 4 / LINE;

/// Resident blocks per multiprocessor, by their registers.
const BLOCKS: usize = 4;

/// The lines of four inputs at a constant distance, one line per thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    /// Distance of inputs.
    step: usize,
    /// True for the tile that follows the resident ones.
    later: bool,
}

/// The common distance of a few inputs; 1 if distances differ.
fn step(inputs: &[usize]) -> usize {
    let apart = |pair: &[usize]| pair[1].checked_sub(pair[0]);
    let first = inputs.windows(2).next().and_then(apart);
    first.filter(|&step| inputs.windows(2).all(|pair| apart(pair) == Some(step))).unwrap_or(1)
}

impl Transformed<'_> {
    /// Words of a packet, if inputs are prefetched. Adjacent threads have adjacent words only in long enough packets.
    fn prefetched_words(&self) -> Option<usize> {
        let Shape { inputs, packet_words, w, .. } = *self.writer.shape;
        let lines_at_once = AT_ONCE * w * LINES == THREADS;
        let asks = self.writer.dialect == Dialect::Cuda && inputs >= MANY_INPUTS && lines_at_once;
        packet_words.filter(|words| asks && words.is_multiple_of(THREADS))
    }

    /// Computes the lines that this thread prefetches. Past the end it uses the first tile, which is harmless.
    pub(super) fn prepare_prefetch(&mut self) {
        let Some(words) = self.prefetched_words() else { return };
        let all = || self.order.chunks(AT_ONCE).map(step);
        let later = all().take(LATER).map(|step| Lines { step, later: true });
        for lines in later.chain(all().skip(1).map(|step| Lines { step, later: false })) {
            if !self.lines.contains(&lines) {
                self.lines.push(lines);
            }
        }
        let (text, w) = (&mut self.writer.text, self.writer.shape.w);
        let (row, group) = (words * 4, w * words * 4);
        line!(text, "SHARED u64 lines[{}];", self.lines.len() * THREADS);
        for (place, Lines { step, later }) in self.lines.iter().enumerate() {
            let ahead = if *later { format!("MULTIPROCESSORS * {BLOCKS}u") } else { "0u".to_owned() };
            line!(text, "{{ u32 t0 = (TILE + {ahead}) * {THREADS}u;");
            line!(text, "if (t0 + {THREADS}u > total) t0 = 0u;");
            line!(text, "const u64 there = (u64)(t0 / {words}u) * {group}u + t0 % {words}u * 4u;");
            line!(
                text,
                "const u64 mine = LOCAL_X / {LINES}u % {w}u * {row}u + LOCAL_X % {LINES}u * {LINE}u;"
            );
            line!(text, "const u64 first = (u64)in + (u64)(LOCAL_X / {}u * {step}u) * in_stride;", w * LINES);
            let to = format!("lines + {}u + LOCAL_X", place * THREADS);
            line!(text, "*(volatile u64*)({to}) = first + there + mine; }}");
        }
    }

    /// Prefetches the [`AT_ONCE`] inputs that are loaded after as many others, of this tile or of the later one.
    pub(super) fn prefetch(&mut self, after: usize, later: bool) {
        let inputs: Vec<usize> = self.order.iter().skip(after).take(AT_ONCE).copied().collect();
        let step = step(&inputs);
        let Some(place) = self.lines.iter().position(|lines| *lines == Lines { step, later }) else { return };
        let Some((last, others)) = inputs.split_last() else { return };
        let per_input = self.writer.shape.w * LINES;
        // Distance of a thread's input from that of its line.
        let distance = |of_four: usize, input: usize| input as i64 - (of_four * step) as i64;
        let rest = distance(others.len(), *last);
        let mut chosen = String::new();
        for (of_four, &input) in
            others.iter().enumerate().filter(|(of_four, input)| distance(*of_four, **input) != rest)
        {
            chosen += &format!("LOCAL_X < {}u ? {} : ", (of_four + 1) * per_input, distance(of_four, input));
        }
        let whole = inputs.len() == AT_ONCE;
        let guard =
            if whole { String::new() } else { format!("if (LOCAL_X < {}u) ", inputs.len() * per_input) };
        let line = format!("*(volatile u64*)(lines + {}u + LOCAL_X)", place * THREADS);
        line!(self.writer.text, "{guard}PREFETCH({line} + (u64)({chosen}{rest}) * in_stride);");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_even_or_one() {
        assert_eq!(
            [&[4, 5, 6, 7][..], &[1, 4, 7, 10], &[1, 4, 7, 9], &[9, 5, 1], &[3]].map(step),
            [1, 3, 1, 1, 1]
        );
    }
}
