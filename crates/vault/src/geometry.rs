//! How a file is cut into stripes. One rule serves both kinds of storage.
//!
//! A file is cut into *segments*, a segment into k *columns* that each lie in one piece, and a column into *rows*
//! of one block. Stripe s is row s of its segment: one block from every column.
//!
//! ```text
//! file      | segment 0                                   | segment 1 ...
//!           | column 0      | column 1      | column 2    |
//! rows      | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3
//! stripe 1        *               *               *
//! ```
//!
//! With many rows, whatever destroys neighbouring bytes (an overwritten region, a torn write, a truncation) hits few
//! columns of many stripes rather than all columns of a few, so m of k columns of a segment can go. With one row the
//! columns are what a file striped over k targets has on each of them. A file that grows keeps its full segments.

use std::ops::Range;

/// Blocks are multiples of this many bytes, and of what the code asks for.
pub const BLOCK_UNIT: u64 = 64;

/// Largest block.
pub const MAX_BLOCK: u64 = 1 << 26;

/// Largest file: offsets are signed in the operating system.
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// Most rows of a segment.
pub const MAX_ROWS: u64 = 1 << 20;

/// How the last, unfilled segment is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// Its columns have equal lengths, so a small file has small blocks in all columns.
    Balanced,
    /// Blocks go round the columns as everywhere before, for files that lie on targets so. Segments have one row.
    Striped,
}

/// The rule by which a file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    k: u64,
    block: u64,
    rows: u64,
    tail: Tail,
    unit: u64,
}

/// A rule that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A block size of zero, too large, or no multiple of the unit.
    #[error("a block of {block} bytes: it has to be a multiple of {unit}, from {unit} to {MAX_BLOCK}")]
    Block {
        /// The size that was asked for.
        block: u64,
        /// What it must be a multiple of.
        unit: u64,
    },
    /// No columns, or more than a stripe can have.
    #[error("{0} columns are not between 1 and 65536")]
    Columns(u64),
    /// No rows, too many, or more than one in a striped file.
    #[error("{0} rows in a segment are not between 1 and {MAX_ROWS} (1 in striped files)")]
    Rows(u64),
}

impl Geometry {
    /// A rule for `k` columns of blocks of `block` bytes, `rows` in a segment. `granule` is the code's.
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn new(k: u64, block: u64, rows: u64, tail: Tail, granule: u64) -> Result<Geometry, GeometryError> {
        let unit = unit(granule);
        if k == 0 || k > 1 << 16 {
            return Err(GeometryError::Columns(k));
        }
        if block == 0 || block > MAX_BLOCK || !block.is_multiple_of(unit) {
            return Err(GeometryError::Block { block, unit });
        }
        if rows == 0 || rows > MAX_ROWS || (tail == Tail::Striped && rows != 1) {
            return Err(GeometryError::Rows(rows));
        }
        Ok(Geometry { k, block, rows, tail, unit })
    }

    /// Data columns.
    pub fn k(&self) -> usize {
        self.k as usize
    }

    /// Bytes of a block in every full segment.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Rows of a full segment.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How the last segment is cut.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Bytes of a full segment.
    fn segment(&self) -> u64 {
        self.k * self.rows * self.block
    }

    /// The cut of a file of `size` bytes.
    pub fn cut(&self, size: u64) -> Cut {
        let full = size / self.segment();
        let rest = size % self.segment();
        let (tail_rows, tail_block) = match self.tail {
            _ if rest == 0 => (0, 0),
            Tail::Striped => (1, round_up(rest.min(self.block), self.unit)),
            Tail::Balanced => {
                let rows = rest.div_ceil(self.k * self.block);
                (rows, round_up(rest.div_ceil(self.k * rows), self.unit))
            }
        };
        Cut { geometry: *self, size, full_stripes: full * self.rows, tail_rows, tail_block }
    }
}

/// Smallest block that a file is cut into for the sake of more rows: what a disk loses at once.
const SMALLEST_CUT: u64 = 4 << 10;

/// Bytes of a block that give a file of `size` bytes so many rows, where blocks of up to `largest` are allowed.
///
/// Damage in one piece hits a block that it only touches as if all of it were gone. Of a file with one row, whatever is longer than m - 1
/// columns may reach into m + 1 of them and is lost; with n rows that needs m columns less one n-th. So small files have smaller blocks, but
/// none for which signatures, 16 (k + 1) bytes for each block of redundancy, would take more than a thirtieth of it.
pub fn block_for(size: u64, k: u64, rows: u64, largest: u64, granule: u64) -> u64 {
    let unit = unit(granule);
    let smallest = round_up(SMALLEST_CUT.max(512 * k), unit);
    round_up(size.div_ceil(rows * k), unit).max(smallest).min(largest)
}

/// Blocks are multiples of this for a code with the given granule.
fn unit(granule: u64) -> u64 {
    let (mut divisor, mut rest) = (granule.max(1), BLOCK_UNIT);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    granule.max(1) / divisor * BLOCK_UNIT
}

fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit) * unit
}

/// A file of one size, cut by a [`Geometry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    geometry: Geometry,
    size: u64,
    full_stripes: u64,
    tail_rows: u64,
    tail_block: u64,
}

/// Stripes that lie in a row: in each column, their blocks are one piece of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First stripe.
    pub first: u64,
    /// Number of stripes.
    pub count: u64,
    /// Bytes of a block.
    pub block: u64,
    /// Where in the file the piece of column 0 begins.
    start: u64,
    /// From one column's piece to the next one's.
    stride: u64,
    /// Bytes of the file.
    size: u64,
}

impl Run {
    /// Bytes of the file that the run has of `column`; less than count × block where the file ends.
    pub fn piece(&self, column: usize) -> Range<u64> {
        let start = (self.start + column as u64 * self.stride).min(self.size);
        start..(start + self.count * self.block).min(self.size)
    }

    /// Row `row` alone.
    pub fn row(&self, row: u64) -> Run {
        Run { first: self.first + row, count: 1, start: self.start + row * self.block, ..*self }
    }

    /// Bytes of the file in block `column` of stripe `first + row`.
    pub fn cell(&self, row: u64, column: usize) -> Range<u64> {
        let start = (self.start + column as u64 * self.stride + row * self.block).min(self.size);
        start..(start + self.block).min(self.size)
    }

    /// Bytes of the file in the first `columns` blocks of stripe `first + row`, if these blocks are adjacent in the file.
    pub fn stripe(&self, row: u64, columns: usize) -> Option<Range<u64>> {
        let start = self.cell(row, 0).start;
        (self.stride == self.block).then(|| start..(start + columns as u64 * self.block).min(self.size))
    }

    /// Bytes of a column's piece, with the zeros that fill it up.
    pub fn bytes(&self) -> u64 {
        self.count * self.block
    }
}

impl Cut {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.full_stripes + self.tail_rows
    }

    /// Stripes in full segments, whose cut does not change while the file grows.
    pub fn full_stripes(&self) -> u64 {
        self.full_stripes
    }

    /// Bytes of a block of `stripe`.
    pub fn block(&self, stripe: u64) -> u64 {
        if stripe < self.full_stripes { self.geometry.block } else { self.tail_block }
    }

    /// The run that begins with `stripe`: at most `limit` stripes (at least one), all in one segment.
    pub fn run(&self, stripe: u64, limit: u64) -> Run {
        let Geometry { rows, block, tail, .. } = self.geometry;
        let segment = stripe.min(self.full_stripes) / rows;
        let row = stripe - segment * rows;
        let (rows, block) =
            if stripe < self.full_stripes { (rows, block) } else { (self.tail_rows, self.tail_block) };
        let stride = if tail == Tail::Striped { self.geometry.block } else { rows * block };
        let start = segment * self.geometry.segment() + row * block;
        Run { first: stripe, count: limit.clamp(1, rows - row), block, start, stride, size: self.size }
    }

    /// All runs, at most `limit` stripes each.
    pub fn runs(&self, limit: u64) -> impl Iterator<Item = Run> + use<> {
        let (cut, mut next) = (*self, 0);
        std::iter::from_fn(move || {
            let run = (next < cut.stripes()).then(|| cut.run(next, limit))?;
            next += run.count;
            Some(run)
        })
    }

    /// Stripe and column of the block that has the byte at `offset` of the file.
    pub fn locate(&self, offset: u64) -> (u64, usize) {
        let segment = offset / self.geometry.segment();
        let first = segment * self.geometry.rows;
        let run = self.run(first, MAX_ROWS);
        let column = ((offset - segment * self.geometry.segment()) / run.stride) as usize;
        let row = (offset - run.piece(column).start) / run.block;
        (first + row, column)
    }

    /// The stripes that hold any byte of `range`.
    pub fn stripes_of(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let end = range.end.min(self.size);
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < end {
            let segment = at / self.geometry.segment();
            let base = segment * self.geometry.segment();
            let first = segment * self.geometry.rows;
            let run = self.run(first, MAX_ROWS);
            let column = (at - base) / run.stride;
            let piece = run.piece(column as usize);
            let until = end.min(piece.end).max(at + 1);
            let rows = (at - piece.start) / run.block..(until - piece.start).div_ceil(run.block);
            found.push(first + rows.start..first + rows.end.min(run.count));
            at = until;
        }
        merge(found)
    }
}

/// Sorted, disjoint ranges that cover the same numbers.
pub fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
