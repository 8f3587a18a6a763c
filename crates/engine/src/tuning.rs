//! Thresholds that follow from the caches of the machine. All of them are here.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// How far ahead of their use streamed inputs are asked for, in bytes.
pub(crate) const PREFETCH_AHEAD: usize = 512;

/// How far ahead of their stores outputs are asked for, in bytes, where blocks lie in the L2 cache: two cache lines.
pub(crate) const WRITE_AHEAD: usize = 128;

/// Whether that pays: with fewer outputs, loads are what takes the time.
pub(crate) const fn prefetching_outputs_pays(inputs: usize, outputs: usize) -> bool {
    inputs <= 3 * outputs
}

/// Bytes of the caches that one core has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    /// L1 for data.
    pub l1: usize,
    /// L2.
    pub l2: usize,
}

/// Where the system does not tell: what most cores of the last ten years have at least.
const USUAL: Caches = Caches { l1: 32 << 10, l2: 1 << 20 };

/// Where Linux describes the caches of the first core.
const SYSTEM: &str = "/sys/devices/system/cpu/cpu0/cache";

impl Caches {
    /// The caches that a directory like Linux's describes; the usual size for one that is not described.
    fn described_in(directory: &Path) -> Caches {
        let mut caches = USUAL;
        for index in 0..8 {
            let read = |name: &str| {
                let text = fs::read_to_string(directory.join(format!("index{index}")).join(name)).ok()?;
                Some(text.trim().to_owned())
            };
            let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else {
                continue;
            };
            match (level.as_str(), kind.as_str(), bytes_of(&size)) {
                ("1", "Data" | "Unified", Some(bytes)) => caches.l1 = bytes,
                ("2", "Data" | "Unified", Some(bytes)) => caches.l2 = bytes,
                _ => {}
            }
        }
        caches
    }
}

/// `48K`, `2048K` or `2M` in bytes; none for zero and for what is no size.
fn bytes_of(size: &str) -> Option<usize> {
    let (number, unit) = match size.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (size.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// What kernels do differently on machines with other caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Inputs and outputs together, in bytes, from which outputs are stored past the caches.
    pub stream_bytes: usize,
    /// Inputs and outputs together, in bytes, below which they all stay in L1.
    pub near_bytes: usize,
    /// Bytes of all inputs that the generic kernels work on before the next outputs have their turn.
    pub input_tile_bytes: usize,
}

impl Tuning {
    /// For a core with these caches.
    ///
    /// Outputs of twice L2 would not be there any more when the call ends: from there on storing past the caches paid for sure
    /// where it was measured. A quarter of L2 leaves room for outputs and for what reads ahead. Blocks that fill L1 to the last line do not stay
    /// there: the caller's stack and the list of blocks want some of it.
    pub const fn for_caches(caches: Caches) -> Tuning {
        Tuning {
            stream_bytes: caches.l2.saturating_mul(2),
            near_bytes: caches.l1 - caches.l1 / 16,
            input_tile_bytes: caches.l2 / 4,
        }
    }

    /// Whether outputs are asked for ahead of their stores: all blocks together leave L1, and are not so many that stores go past the caches.
    pub(crate) fn prefetches_outputs(&self, inputs: usize, outputs: usize, len: usize) -> bool {
        let bytes = len.saturating_mul(inputs + outputs);
        prefetching_outputs_pays(inputs, outputs) && (self.near_bytes..self.stream_bytes).contains(&bytes)
    }

    /// For this machine; looked at once.
    pub fn of_machine() -> &'static Tuning {
        static TUNING: OnceLock<Tuning> = OnceLock::new();
        TUNING.get_or_init(|| Tuning::for_caches(Caches::described_in(Path::new(SYSTEM))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_follow_the_caches() {
        // The machine that they were measured on.
        let measured = Tuning::for_caches(Caches { l1: 48 << 10, l2: 2 << 20 });
        let wanted = Tuning { stream_bytes: 4 << 20, near_bytes: 45 << 10, input_tile_bytes: 512 << 10 };
        assert_eq!(measured, wanted);
        let small = Tuning::for_caches(Caches { l1: 16 << 10, l2: 256 << 10 });
        let wanted = Tuning { stream_bytes: 512 << 10, near_bytes: 15 << 10, input_tile_bytes: 64 << 10 };
        assert_eq!(small, wanted);
        let large = Tuning::for_caches(Caches { l1: 128 << 10, l2: 16 << 20 });
        assert_eq!(large.stream_bytes, 32 << 20);
    }

    #[test]
    fn sizes_are_read_and_nonsense_is_not() {
        assert_eq!(bytes_of("48K"), Some(48 << 10));
        assert_eq!(bytes_of("2M"), Some(2 << 20));
        for nonsense in ["", "K", "0K", "48", "-1K", "99999999999999999999K", "48KiB"] {
            assert_eq!(bytes_of(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_made_up_machine_is_read() {
        let directory = std::env::temp_dir().join(format!("gabion-caches-{}", std::process::id()));
        for (index, (level, kind, size)) in [
            ("1", "Data", "64K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "512K"),
            ("3", "Unified", "8M"),
        ]
        .into_iter()
        .enumerate()
        {
            let cache = directory.join(format!("index{index}"));
            fs::create_dir_all(&cache).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(cache.join(name), format!("{text}\n")).unwrap();
            }
        }
        let found = Caches::described_in(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found, Caches { l1: 64 << 10, l2: 512 << 10 });
        assert_eq!(Caches::described_in(&directory), USUAL, "nothing is described there any more");
    }
}
