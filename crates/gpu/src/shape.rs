//! Shape of a plan without its matrix, and the layout of blocks on the device.

use gabion_engine::{Layout, Mode, Plan};

/// Alignment of packets and blocks on the device, so that every load has 16 bytes.
const ALIGNMENT: usize = 16;

/// Number and layout of a plan's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Bits of a symbol, which is also the number of rows of a block.
    pub w: usize,
    /// Input blocks.
    pub inputs: usize,
    /// Output blocks.
    pub outputs: usize,
    /// Treatment of outputs.
    pub mode: Mode,
    /// Words of 32 bits of one packet on the device; `None` is the words layout.
    pub packet_words: Option<usize>,
    /// Bytes of a packet on the host; on the device it may be padded.
    packet_bytes: usize,
}

impl Shape {
    /// The shape of a plan.
    pub fn of(plan: &Plan) -> Shape {
        let packet_bytes = match plan.layout() {
            Layout::Words => 0,
            Layout::Packets { bytes } => bytes,
        };
        Shape {
            w: plan.field().w() as usize,
            inputs: plan.inputs().len(),
            outputs: plan.outputs().len(),
            mode: plan.mode(),
            packet_words: (packet_bytes > 0).then(|| packet_bytes.next_multiple_of(ALIGNMENT) / 4),
            packet_bytes,
        }
    }

    /// Copy parameters of a block of `len` bytes.
    pub fn copy(&self, len: usize) -> BlockCopy {
        match self.packet_words {
            None => BlockCopy::whole(len),
            Some(words) if words * 4 == self.packet_bytes => BlockCopy::whole(len),
            Some(words) => {
                let rows = len / self.packet_bytes;
                BlockCopy { width: self.packet_bytes, host_pitch: self.packet_bytes, pitch: words * 4, rows }
            }
        }
    }

    /// Bytes from block to block on the device, for blocks of `len` bytes on the host and tiles of `tile` bytes: whole
    /// tiles, since the kernels of the words layout do not check for an end within one; whole packets in their padded
    /// form.
    pub fn stride(&self, len: usize, tile: usize) -> usize {
        let bytes = self.copy(len).device_bytes();
        match self.packet_words {
            None => bytes.next_multiple_of(tile),
            Some(_) => bytes,
        }
    }

    /// Threads for a block of `len` bytes on the host if each covers `bytes_per_thread` on the device.
    pub fn threads(&self, len: usize, bytes_per_thread: usize) -> usize {
        self.copy(len).device_bytes().div_ceil(bytes_per_thread)
    }
}

/// A two-dimensional copy: rows with different pitches on host and device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// Bytes of a row.
    pub width: usize,
    /// Distance of rows on the host.
    pub host_pitch: usize,
    /// Distance of rows on the device.
    pub pitch: usize,
    /// Number of rows.
    pub rows: usize,
}

impl BlockCopy {
    /// A contiguous copy.
    pub const fn whole(bytes: usize) -> BlockCopy {
        BlockCopy { width: bytes, host_pitch: bytes, pitch: bytes, rows: 1 }
    }

    /// Bytes on the device.
    pub fn device_bytes(&self) -> usize {
        self.pitch * self.rows
    }

    /// The copies from the host's layout to the device's, both in host memory.
    pub(crate) fn spread<'a>(
        self,
        device: &'a mut [u8],
        host: &'a [u8],
    ) -> impl Iterator<Item = (&'a mut [u8], &'a [u8])> {
        let rows = device.chunks_mut(self.pitch.max(1)).zip(host.chunks(self.width.max(1)));
        rows.map(|(to, from)| (&mut to[..from.len()], from))
    }

    /// The reverse copies.
    pub(crate) fn gather<'a>(
        self,
        host: &'a mut [u8],
        device: &'a [u8],
    ) -> impl Iterator<Item = (&'a mut [u8], &'a [u8])> {
        let rows = host.chunks_mut(self.width.max(1)).zip(device.chunks(self.pitch.max(1)));
        rows.map(|(to, from)| {
            let width = to.len();
            (to, &from[..width])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    fn shape(code: &str) -> Shape {
        Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap())
    }

    #[test]
    fn packets_are_padded_on_the_device_only() {
        let odd = shape("cauchy:4+2:w5:packets=17");
        assert_eq!(odd.packet_words, Some(8));
        assert_eq!(odd.copy(170), BlockCopy { width: 17, host_pitch: 17, pitch: 32, rows: 10 });
        // Two groups of 5 packets; a thread takes 4 bytes of each packet.
        assert_eq!(odd.threads(170, 5 * 4), 16);
        let whole = shape("cauchy:4+2:w5:packets=32");
        assert_eq!(whole.copy(320), BlockCopy::whole(320));
        assert_eq!(whole.threads(320, 5 * 4), 16);
    }

    #[test]
    fn rows_are_spread_and_gathered() {
        let copy = BlockCopy { width: 3, host_pitch: 3, pitch: 4, rows: 2 };
        let mut device = [0u8; 8];
        copy.spread(&mut device, &[1, 2, 3, 4, 5, 6]).for_each(|(to, from)| to.copy_from_slice(from));
        assert_eq!(device, [1, 2, 3, 0, 4, 5, 6, 0]);
        let mut host = [0u8; 6];
        copy.gather(&mut host, &device).for_each(|(to, from)| to.copy_from_slice(from));
        assert_eq!(host, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn words_are_copied_as_they_are() {
        let words = shape("4+2");
        assert_eq!(words.copy(33), BlockCopy::whole(33));
        assert_eq!(words.threads(33, 32), 2);
    }
}
