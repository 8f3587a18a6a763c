//! Inputs are brought into the device's cache before they are loaded: few threads fit beside so many sums, too few to wait for memory as
//! long as that takes.
//!
//! All threads of a block ask together for four inputs, each for a line of one of their rows. Where a thread's line is waits in shared memory, as all registers
//! are taken, for every distance that four inputs in turn have from each other.

use super::{THREADS, Transformed};
use crate::shape::Shape;
use crate::source::Dialect;
use crate::source::text::line;

/// From as many inputs on it pays.
const MANY_INPUTS: usize = 64;

/// Inputs that are asked for at once.
pub(super) const AT_ONCE: usize = 4;

/// How often inputs of a later tile are asked for at most.
const LATER: usize = 2;

/// Bytes of a line of the device's cache, and how many of them a row of a block of threads has.
const LINE: usize = 128;
const LINES: usize = THREADS * 4 / LINE;

/// Blocks of threads that are on a multiprocessor at once, by their registers.
const BLOCKS: usize = 4;

/// The lines of four inputs from the first on, some apart, one line for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    /// From input to input.
    step: usize,
    /// Of the tile that a block of threads works on once all that are there now are done.
    later: bool,
}

/// What all of a few inputs are apart; 1 where they differ in that.
fn step(inputs: &[usize]) -> usize {
    let apart = |pair: &[usize]| pair[1].checked_sub(pair[0]);
    let first = inputs.windows(2).next().and_then(apart);
    first.filter(|&step| inputs.windows(2).all(|pair| apart(pair) == Some(step))).unwrap_or(1)
}

impl Transformed<'_> {
    /// Words of a packet, where inputs are asked for. Threads side by side have words side by side only in packets that are long enough.
    fn asks_ahead(&self) -> Option<usize> {
        let Shape { inputs, packet_words, w, .. } = *self.writer.shape;
        let lines_at_once = AT_ONCE * w * LINES == THREADS;
        let asks = self.writer.dialect == Dialect::Cuda && inputs >= MANY_INPUTS && lines_at_once;
        packet_words.filter(|words| asks && words.is_multiple_of(THREADS))
    }

    /// Which lines are this thread's to ask for. Past the end, the first tile does no harm.
    pub(super) fn prepare_to_ask(&mut self) {
        let Some(words) = self.asks_ahead() else { return };
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

    /// Brings the [`AT_ONCE`] inputs that are loaded after as many others into the device's cache, of this tile or of the later one.
    pub(super) fn ask_for(&mut self, after: usize, later: bool) {
        let inputs: Vec<usize> = self.order.iter().skip(after).take(AT_ONCE).copied().collect();
        let step = step(&inputs);
        let Some(place) = self.lines.iter().position(|lines| *lines == Lines { step, later }) else { return };
        let Some((last, others)) = inputs.split_last() else { return };
        let per_input = self.writer.shape.w * LINES;
        // How far a thread's input lies from that of its line.
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
        line!(self.writer.text, "{guard}ASK_FOR({line} + (u64)({chosen}{rest}) * in_stride);");
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
