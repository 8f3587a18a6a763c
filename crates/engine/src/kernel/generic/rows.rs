//! Bit matrix times packets: every output packet is the XOR of some input packets.

use super::Buffers;
use super::planes::{load_partial, store, store_partial};
use crate::kernel::vector::Vector;
use crate::matrix::bits::BitMatrix;
use crate::tuning::PACKET_TILE;

/// A bit matrix as lists of packets to sum.
pub(in crate::kernel) struct Rows {
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
    pub(in crate::kernel) fn new(bits: &BitMatrix, w: usize, packet: usize) -> Rows {
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
pub(super) unsafe fn run<V: Vector>(rows: &Rows, buffers: Buffers<'_, '_>) {
    let Buffers { inputs, outputs, len, add, .. } = buffers;
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
                store::<V, 1>([sum], to.add(at + u * V::BYTES), add);
            }
            at += U * V::BYTES;
        }
        while at < len {
            let size = V::BYTES.min(len - at);
            let mut sum = V::zero();
            for &(input, place) in sources {
                let from = inputs.get_unchecked(input as usize).as_ptr();
                let from = from.add(base + place as usize * packet + at);
                sum = sum.xor(load_partial::<V, 1>(from, size)[0]);
            }
            store_partial::<V, 1>([sum], to.add(at), size, add);
            at += size;
        }
    }
}
