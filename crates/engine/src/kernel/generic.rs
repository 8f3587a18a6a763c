//! The loops of all CPU kernels, written once over [`Vector`].
//!
//! *Words* (matrix times symbols of B bytes): for every step of B registers per input
//!
//! ```text
//! for a group of outputs:  sums = 0
//!     for each input:      planes = bytes 0, 1, … B-1 of its symbols, a register each
//!         for each output: sums[output] += maps[output][input] · planes
//!     store sums as symbols again
//! ```
//!
//! (1) Planes: a map from symbol to symbol is B x B maps from byte to byte; with byte b of all symbols
//!     gathered in one register each of them is one or two instructions. For B = 1 it costs nothing.
//! (2) Groups: as many outputs as registers hold are made in one pass over the inputs.
//! (3) Tiles: where several groups are needed, the passes go over a piece of the inputs that stays in
//!     cache ([`TILE_BYTES`]).
//! (4) Tail: the last bytes travel through a zero-padded buffer; maps are linear, zeros add nothing.
//!
//! *Rows* (bit matrix times packets) is XOR of packets, *Horner* is RAID-Z's scheme, *Sign* the
//! Horner scheme of signatures; all take the same tail (4).

use super::linear::LinearMap;
use super::vector::Vector;

/// Input bytes that one pass over a tile touches: half of a common L2 cache.
const TILE_BYTES: usize = 512 << 10;
/// Bytes of a packet that one pass over the rows touches per packet.
const PACKET_TILE: usize = 2 << 10;
/// The widest register.
const MAX_REGISTER: usize = 64;
/// The largest step: 8 planes of the widest register.
const MAX_STEP: usize = 8 * MAX_REGISTER;

/// Proof that this CPU has an instruction set: a value exists only if [`detect`](Isa::detect) made it.
pub(super) trait Isa: Copy + Send + Sync + 'static {
    /// Its register.
    type V: Vector;
    /// Its name in the kernel table.
    const NAME: &'static str;
    /// What it needs of the CPU, for people.
    const NEEDS: &'static str;

    /// A value, if this CPU has what it takes.
    fn detect() -> Option<Self>;

    /// Does the work with the instruction set switched on.
    fn run(self, work: Work<'_, '_, Self::V>);
}

/// One call of a kernel; buffers were checked: equal lengths, counts as the program has them.
pub(super) enum Work<'a, 'b, V: Vector> {
    /// Matrix times symbols.
    Words(&'a Dense<V>, Buffers<'a, 'b>),
    /// Bit matrix times packets.
    Rows(&'a Rows, Buffers<'a, 'b>),
    /// RAID-Z's P, Q and R.
    Horner(Parities, Buffers<'a, 'b>),
    /// The signature of one block.
    Sign(&'a Weights<V>, &'a [u8], &'a mut [u8]),
}

/// What goes in and what comes out.
pub(super) struct Buffers<'a, 'b> {
    /// Inputs, all of one length.
    pub(super) inputs: &'a [&'a [u8]],
    /// Outputs of the same length.
    pub(super) outputs: &'a mut [&'b mut [u8]],
    /// That length.
    pub(super) len: usize,
    /// Whether results are added to what the outputs hold.
    pub(super) add: bool,
}

impl<V: Vector> Work<'_, '_, V> {
    /// Inlined into the entry point of each instruction set, and so compiled for it.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn execute(self) {
        // SAFETY: the instruction set is there by this function's contract, and the buffers were
        // checked by whoever made the `Work`.
        unsafe {
            match self {
                Work::Words(dense, buffers) => words(dense, buffers),
                Work::Rows(rows, buffers) => xor_rows::<V>(rows, buffers),
                Work::Horner(parities, buffers) => horner::<V>(parities, buffers),
                Work::Sign(weights, block, lanes) => sign(weights, block, lanes),
            }
        }
    }
}

// ---------------------------------------------------------------------------------------- words

/// A matrix prepared for one instruction set.
pub(super) struct Dense<V: Vector> {
    symbol_bytes: usize,
    groups: Vec<Group>,
    /// Group by group, input by input, output by output, output byte by output byte.
    maps: Vec<V::Map>,
    tile: usize,
}

struct Group {
    first: usize,
    count: usize,
    maps: usize,
}

impl<V: Vector> Dense<V> {
    /// `map(output, input)` for all of them, on symbols of `symbol_bytes`.
    pub(super) fn new(
        symbol_bytes: usize,
        inputs: usize,
        outputs: usize,
        map: impl Fn(usize, usize) -> LinearMap,
    ) -> Dense<V> {
        let largest = match symbol_bytes {
            1 => V::GROUP,
            2 => 3,
            4 => 2,
            _ => 1,
        };
        let passes = outputs.div_ceil(largest);
        let (mut groups, mut maps) = (Vec::new(), Vec::new());
        for pass in 0..passes {
            // Passes of nearly equal size: 5 outputs in groups of at most 4 are 3 + 2.
            let (first, end) = (pass * outputs / passes, (pass + 1) * outputs / passes);
            groups.push(Group { first, count: end - first, maps: maps.len() });
            for input in 0..inputs {
                for output in first..end {
                    let map = map(output, input);
                    for to in 0..symbol_bytes {
                        for from in 0..symbol_bytes {
                            maps.push(V::prepare(map.byte_map(to, from)));
                        }
                    }
                }
            }
        }
        let tile = match passes {
            0 | 1 => usize::MAX,
            _ => (TILE_BYTES / inputs.max(1)).next_multiple_of(4096),
        };
        Dense { symbol_bytes, groups, maps, tile }
    }
}

#[inline(always)]
unsafe fn words<V: Vector>(dense: &Dense<V>, buffers: Buffers<'_, '_>) {
    let Buffers { inputs, outputs, len, add } = buffers;
    let mut start = 0;
    while start < len {
        let end = start.saturating_add(dense.tile).min(len);
        for group in &dense.groups {
            let pass = Pass {
                maps: &dense.maps[group.maps..],
                inputs,
                outputs: &mut outputs[group.first..][..group.count],
                start,
                end,
                add,
            };
            // SAFETY: start <= end <= len, the length of every buffer; maps holds
            // inputs x count x B x B maps from here on, as Dense::new laid them out.
            unsafe {
                match (dense.symbol_bytes, group.count) {
                    (1, 1) => bytes::<V, 1>(pass),
                    (1, 2) => bytes::<V, 2>(pass),
                    (1, 3) => bytes::<V, 3>(pass),
                    (1, 4) => bytes::<V, 4>(pass),
                    (1, 5) => bytes::<V, 5>(pass),
                    (1, 6) => bytes::<V, 6>(pass),
                    (2, 1) => dense_pass::<V, 2, 1, 1>(pass),
                    (2, 2) => dense_pass::<V, 2, 2, 1>(pass),
                    (2, 3) => dense_pass::<V, 2, 3, 1>(pass),
                    (4, 1) => dense_pass::<V, 4, 1, 1>(pass),
                    (4, 2) => dense_pass::<V, 4, 2, 1>(pass),
                    (8, 1) => dense_pass::<V, 8, 1, 1>(pass),
                    (bytes, count) => unreachable!("no pass of {count} outputs of {bytes} bytes"),
                }
            }
        }
        start = end;
    }
}

struct Pass<'a, 'b, M> {
    maps: &'a [M],
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
    start: usize,
    end: usize,
    add: bool,
}

/// Symbols of one byte leave registers free: several per input are in flight.
#[inline(always)]
unsafe fn bytes<V: Vector, const G: usize>(pass: Pass<'_, '_, V::Map>) {
    // SAFETY: passed on unchanged.
    unsafe {
        match V::UNROLL {
            4 => dense_pass::<V, 1, G, 4>(pass),
            2 => dense_pass::<V, 1, G, 2>(pass),
            _ => dense_pass::<V, 1, G, 1>(pass),
        }
    }
}

#[inline(always)]
unsafe fn dense_pass<V: Vector, const B: usize, const G: usize, const U: usize>(
    mut pass: Pass<'_, '_, V::Map>,
) {
    let step = B * V::BYTES;
    let (mut at, end) = (pass.start, pass.end);
    // SAFETY: each step reads and writes [at, at + what it is given), and that is <= end, within
    // every buffer.
    unsafe {
        while U > 1 && end - at >= U * step {
            dense_step::<V, B, G, U>(&mut pass, at, U * step);
            at += U * step;
        }
        while end - at >= step {
            dense_step::<V, B, G, 1>(&mut pass, at, step);
            at += step;
        }
        if at < end {
            dense_step::<V, B, G, 1>(&mut pass, at, end - at);
        }
    }
}

/// One step: `len` bytes of every buffer from `at` on; U whole steps, or one that is cut short.
#[inline(always)]
unsafe fn dense_step<V: Vector, const B: usize, const G: usize, const U: usize>(
    pass: &mut Pass<'_, '_, V::Map>,
    at: usize,
    len: usize,
) {
    let step = B * V::BYTES;
    let whole = len == U * step;
    // SAFETY: at + len is within every buffer by contract; the maps are indexed below
    // inputs x G x B x B, which Dense::new has laid out.
    unsafe {
        let mut sums = [[[V::zero(); B]; G]; U];
        let mut maps = pass.maps.as_ptr();
        for input in pass.inputs {
            let from = input.as_ptr().add(at);
            let mut operands = [[V::zero().operand(); B]; U];
            for u in 0..U {
                let planes = if whole {
                    load_planes::<V, B>(from.add(u * step))
                } else {
                    load_planes_partial::<V, B>(from, len)
                };
                for b in 0..B {
                    operands[u][b] = planes[b].operand();
                }
            }
            for g in 0..G {
                for to in 0..B {
                    for from in 0..B {
                        let map = &*maps;
                        maps = maps.add(1);
                        for u in 0..U {
                            sums[u][g][to] = sums[u][g][to].add_mapped(operands[u][from], map);
                        }
                    }
                }
            }
        }
        for g in 0..G {
            let to = pass.outputs.get_unchecked_mut(g).as_mut_ptr().add(at);
            for u in 0..U {
                if whole {
                    store_planes::<V, B>(sums[u][g], to.add(u * step), pass.add);
                } else {
                    store_planes_partial::<V, B>(sums[u][g], to, len, pass.add);
                }
            }
        }
    }
}

/// Reads B registers and gathers byte b of all symbols in register b.
#[inline(always)]
unsafe fn load_planes<V: Vector, const B: usize>(from: *const u8) -> [V; B] {
    // SAFETY: the caller gives B registers of readable bytes.
    unsafe {
        let mut v = [V::zero(); B];
        for b in 0..B {
            v[b] = V::load(from.add(b * V::BYTES));
        }
        // Each stage parts even from odd bytes: the halves hold bytes 0, 2, 4, … and 1, 3, 5, …
        let mut size = B;
        while size > 1 {
            let source = v;
            for block in 0..B / size {
                for i in 0..size / 2 {
                    let base = block * size;
                    let (even, odd) = V::unzip(source[base + 2 * i], source[base + 2 * i + 1]);
                    v[base + i] = even;
                    v[base + size / 2 + i] = odd;
                }
            }
            size /= 2;
        }
        let mut planes = v;
        for b in 0..B {
            planes[reversed::<B>(b)] = v[b];
        }
        planes
    }
}

/// Undoes [`load_planes`] and writes, or adds to, B registers of symbols.
#[inline(always)]
unsafe fn store_planes<V: Vector, const B: usize>(planes: [V; B], to: *mut u8, add: bool) {
    // SAFETY: the caller gives B registers of writable bytes.
    unsafe {
        let mut v = planes;
        for b in 0..B {
            v[b] = planes[reversed::<B>(b)];
        }
        let mut size = 2;
        while size <= B {
            let source = v;
            for block in 0..B / size {
                for i in 0..size / 2 {
                    let base = block * size;
                    let (first, second) = V::zip(source[base + i], source[base + size / 2 + i]);
                    v[base + 2 * i] = first;
                    v[base + 2 * i + 1] = second;
                }
            }
            size *= 2;
        }
        for b in 0..B {
            let to = to.add(b * V::BYTES);
            let value = if add { v[b].xor(V::load(to)) } else { v[b] };
            value.store(to);
        }
    }
}

/// The stages of [`load_planes`] leave byte b at the place whose binary digits are b's, reversed.
#[inline(always)]
const fn reversed<const B: usize>(b: usize) -> usize {
    match B {
        1 => b,
        _ => b.reverse_bits() >> (usize::BITS - B.trailing_zeros()),
    }
}

#[inline(always)]
unsafe fn load_planes_partial<V: Vector, const B: usize>(from: *const u8, len: usize) -> [V; B] {
    let mut padded = [0u8; MAX_STEP];
    // SAFETY: len < B x V::BYTES <= MAX_STEP; the caller gives len readable bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(from, padded.as_mut_ptr(), len);
        load_planes::<V, B>(padded.as_ptr())
    }
}

#[inline(always)]
unsafe fn store_planes_partial<V: Vector, const B: usize>(
    planes: [V; B],
    to: *mut u8,
    len: usize,
    add: bool,
) {
    let mut padded = [0u8; MAX_STEP];
    // SAFETY: len < B x V::BYTES <= MAX_STEP; the caller gives len writable bytes.
    unsafe {
        if add {
            std::ptr::copy_nonoverlapping(to, padded.as_mut_ptr(), len);
        }
        store_planes::<V, B>(planes, padded.as_mut_ptr(), add);
        std::ptr::copy_nonoverlapping(padded.as_ptr(), to, len);
    }
}

// ----------------------------------------------------------------------------------------- rows

/// A bit matrix as lists of packets to sum.
pub(super) struct Rows {
    /// Packets in a group, the w of the field.
    w: usize,
    /// Bytes of a packet.
    packet: usize,
    /// For every output packet, output by output, where its sources end in `sources`.
    ends: Vec<usize>,
    /// (input, packet in the group).
    sources: Vec<(u32, u32)>,
}

impl Rows {
    pub(super) fn new(bits: &crate::matrix::bits::BitMatrix, w: usize, packet: usize) -> Rows {
        let (mut ends, mut sources) = (Vec::new(), Vec::new());
        for row in 0..bits.rows() {
            let ones = bits.ones_in_row(row).map(|column| ((column / w) as u32, (column % w) as u32));
            sources.extend(ones);
            ends.push(sources.len());
        }
        Rows { w, packet, ends, sources }
    }
}

#[inline(always)]
unsafe fn xor_rows<V: Vector>(rows: &Rows, buffers: Buffers<'_, '_>) {
    let Buffers { inputs, outputs, len, add } = buffers;
    let (w, packet) = (rows.w, rows.packet);
    for group in (0..len).step_by(w * packet) {
        for tile in (0..packet).step_by(PACKET_TILE) {
            let size = PACKET_TILE.min(packet - tile);
            let mut start = 0;
            for (row, &end) in rows.ends.iter().enumerate() {
                let sources = &rows.sources[start..end];
                start = end;
                let at = group + row % w * packet + tile;
                let output = &mut outputs[row / w][at..][..size];
                // SAFETY: output has `size` bytes; a source lies at group + packet number x packet
                // + tile, and `size` bytes further is still within its packet, and so in its input.
                unsafe { xor_row::<V>(sources, inputs, group + tile, packet, output, add) }
            }
        }
    }
}

#[inline(always)]
unsafe fn xor_row<V: Vector>(
    sources: &[(u32, u32)],
    inputs: &[&[u8]],
    base: usize,
    packet: usize,
    output: &mut [u8],
    add: bool,
) {
    const U: usize = 4;
    let (to, len) = (output.as_mut_ptr(), output.len());
    let mut at = 0;
    // SAFETY: [at, at + step) is within `output` and, by contract, within every source packet.
    unsafe {
        while len - at >= U * V::BYTES {
            let mut sums = [V::zero(); U];
            for &(input, place) in sources {
                let from = inputs.get_unchecked(input as usize).as_ptr();
                let from = from.add(base + place as usize * packet + at);
                for (u, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.xor(V::load(from.add(u * V::BYTES)));
                }
            }
            for (u, &sum) in sums.iter().enumerate() {
                store_planes::<V, 1>([sum], to.add(at + u * V::BYTES), add);
            }
            at += U * V::BYTES;
        }
        while at < len {
            let size = V::BYTES.min(len - at);
            let mut sum = V::zero();
            for &(input, place) in sources {
                let from = inputs.get_unchecked(input as usize).as_ptr();
                let from = from.add(base + place as usize * packet + at);
                sum = sum.xor(load_planes_partial::<V, 1>(from, size)[0]);
            }
            store_planes_partial::<V, 1>([sum], to.add(at), size, add);
            at += size;
        }
    }
}

// --------------------------------------------------------------------------------------- Horner

/// Which of P, Q and R to make, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parities {
    pub(super) p: bool,
    pub(super) q: bool,
    pub(super) r: bool,
}

#[inline(always)]
unsafe fn horner<V: Vector>(parities: Parities, buffers: Buffers<'_, '_>) {
    // SAFETY: passed on unchanged.
    unsafe {
        match parities {
            Parities { p: true, q: false, r: false } => horner_pass::<V, 1, true, false>(buffers),
            Parities { p: true, q: true, r: false } => horner_pass::<V, 2, true, true>(buffers),
            Parities { p: true, q: false, r: true } => horner_pass::<V, 2, true, false>(buffers),
            Parities { p: true, q: true, r: true } => horner_pass::<V, 3, true, true>(buffers),
            Parities { p: false, q: true, r: false } => horner_pass::<V, 1, false, true>(buffers),
            Parities { p: false, q: false, r: true } => horner_pass::<V, 1, false, false>(buffers),
            Parities { p: false, q: true, r: true } => horner_pass::<V, 2, false, true>(buffers),
            Parities { p: false, q: false, r: false } => {}
        }
    }
}

/// N outputs: P if there is one, then Q if there is one, then R if outputs are left.
#[inline(always)]
unsafe fn horner_pass<V: Vector, const N: usize, const P: bool, const Q: bool>(buffers: Buffers<'_, '_>) {
    const U: usize = 4;
    let Buffers { inputs, outputs, len, add } = buffers;
    let mut at = 0;
    // SAFETY: [at, at + size) is within every buffer, and there are N outputs.
    unsafe {
        while at < len {
            let unrolled = len - at >= U * V::BYTES;
            let size = if unrolled { U * V::BYTES } else { V::BYTES.min(len - at) };
            let mut sums = [[V::zero(); N]; U];
            for input in inputs {
                let from = input.as_ptr().add(at);
                for (u, sums) in sums.iter_mut().enumerate() {
                    if u > 0 && !unrolled {
                        break;
                    }
                    let d = if size < V::BYTES {
                        load_planes_partial::<V, 1>(from, size)[0]
                    } else {
                        V::load(from.add(u * V::BYTES))
                    };
                    for (n, sum) in sums.iter_mut().enumerate() {
                        let shifted = match n {
                            0 if P => *sum,
                            n if Q && n == P as usize => sum.double(),
                            _ => sum.double().double(),
                        };
                        *sum = shifted.xor(d);
                    }
                }
            }
            for n in 0..N {
                let to = outputs.get_unchecked_mut(n).as_mut_ptr().add(at);
                if size < V::BYTES {
                    store_planes_partial::<V, 1>([sums[0][n]], to, size, add);
                    continue;
                }
                for u in 0..size / V::BYTES {
                    store_planes::<V, 1>([sums[u][n]], to.add(u * V::BYTES), add);
                }
            }
            at += size;
        }
    }
}

// ----------------------------------------------------------------------------------------- sign

/// The weights of a signature, prepared: for every component the map that multiplies by α^s, s
/// the number of symbols in a step.
pub(super) struct Weights<V: Vector> {
    symbol_bytes: usize,
    components: usize,
    maps: Vec<V::Map>,
}

impl<V: Vector> Weights<V> {
    /// `maps[i]` multiplies component i by α_i^`V::BYTES`: a step has that many symbols.
    pub(super) fn new(maps: &[LinearMap]) -> Weights<V> {
        let symbol_bytes = maps.first().map_or(1, LinearMap::bytes);
        let prepare = |map: &LinearMap| {
            let mut bytes = Vec::new();
            for to in 0..symbol_bytes {
                for from in 0..symbol_bytes {
                    bytes.push(V::prepare(map.byte_map(to, from)));
                }
            }
            bytes
        };
        Weights { symbol_bytes, components: maps.len(), maps: maps.iter().flat_map(prepare).collect() }
    }

    /// Bytes that [`Work::Sign`] writes: per component one step of symbols.
    pub(super) fn lane_bytes(&self) -> usize {
        self.components * self.symbol_bytes * V::BYTES
    }
}

/// Horner over steps, from the last to the first: lanes = lanes · α^s + step. Lane i of the result is
/// the sum of the symbols i, i+s, i+2s, … with weights 1, α^s, α^2s, …
#[inline(always)]
unsafe fn sign<V: Vector>(weights: &Weights<V>, block: &[u8], lanes: &mut [u8]) {
    assert_eq!(lanes.len(), weights.lane_bytes());
    // SAFETY: lanes has room for the components, checked above.
    unsafe {
        match weights.symbol_bytes {
            1 => sign_symbols::<V, 1>(weights, block, lanes),
            2 => sign_symbols::<V, 2>(weights, block, lanes),
            4 => sign_symbols::<V, 4>(weights, block, lanes),
            _ => sign_symbols::<V, 8>(weights, block, lanes),
        }
    }
}

#[inline(always)]
unsafe fn sign_symbols<V: Vector, const B: usize>(weights: &Weights<V>, block: &[u8], lanes: &mut [u8]) {
    let step = B * V::BYTES;
    for component in 0..weights.components {
        let maps = &weights.maps[component * B * B..][..B * B];
        // SAFETY: every step starts below block.len() and its length is cut to what is left;
        // lanes holds `components` steps.
        unsafe {
            let mut sums = [V::zero(); B];
            let mut at = block.len().next_multiple_of(step);
            while at > 0 {
                at -= step;
                let from = block.as_ptr().add(at);
                let mut next = if block.len() - at < step {
                    load_planes_partial::<V, B>(from, block.len() - at)
                } else {
                    load_planes::<V, B>(from)
                };
                for from in 0..B {
                    let operand = sums[from].operand();
                    for to in 0..B {
                        next[to] = next[to].add_mapped(operand, maps.get_unchecked(to * B + from));
                    }
                }
                sums = next;
            }
            store_planes::<V, B>(sums, lanes.as_mut_ptr().add(component * step), false);
        }
    }
}
