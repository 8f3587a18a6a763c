//! Tuning: cache sizes of this machine, the thresholds derived from them, and the constants that were chosen by
//! measurement.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Prefetch distance of streamed inputs, in bytes.
pub(crate) const PREFETCH_AHEAD: usize = 512;

/// Prefetch distance of outputs for blocks in the L2 cache, in bytes: two cache lines.
pub(crate) const WRITE_AHEAD: usize = 128;

/// True if prefetching outputs pays: with fewer outputs the loads take most of the time.
pub(crate) const fn prefetching_outputs_pays(inputs: usize, outputs: usize) -> bool {
    inputs <= 3 * outputs
}

/// Sizes of the private caches of one core, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    /// L1 data cache.
    pub l1: usize,
    /// L2 cache.
    pub l2: usize,
}

/// Used if the system does not report caches: the minimum of most cores of the last ten years.
const USUAL: Caches = Caches { l1: 32 << 10, l2: 1 << 20 };

/// Directory in which Linux describes the caches of the first core.
const SYSTEM: &str = "/sys/devices/system/cpu/cpu0/cache";

impl Caches {
    /// Caches described in a directory with the format of Linux; the default size for a missing one.
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

/// Parses `48K`, `2048K` or `2M` to bytes; `None` for zero and for other text.
fn bytes_of(size: &str) -> Option<usize> {
    let (number, unit) = match size.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (size.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// Thresholds of kernels that depend on the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of inputs and outputs together from which outputs are written with non-temporal stores.
    pub stream_bytes: usize,
    /// Bytes of inputs and outputs together below which all blocks stay in L1.
    pub near_bytes: usize,
    /// Bytes of all inputs per tile: the generic kernels compute all groups of outputs for a tile before the next one.
    pub input_tile_bytes: usize,
}

impl Tuning {
    /// Thresholds for a core with these caches.
    ///
    /// Outputs of twice L2 are evicted before the call ends; from there on non-temporal stores were faster in every
    /// measurement. A tile of a quarter of L2 leaves space for outputs and prefetched lines. Blocks that fill all of L1
    /// do not stay there: the stack and the list of blocks need some of it.
    pub const fn for_caches(caches: Caches) -> Tuning {
        Tuning {
            stream_bytes: caches.l2.saturating_mul(2),
            near_bytes: caches.l1 - caches.l1 / 16,
            input_tile_bytes: caches.l2 / 4,
        }
    }

    /// True if outputs are prefetched: the blocks together exceed L1, and are below the size of non-temporal stores.
    pub(crate) fn prefetches_outputs(&self, inputs: usize, outputs: usize, len: usize) -> bool {
        let bytes = len.saturating_mul(inputs + outputs);
        prefetching_outputs_pays(inputs, outputs) && (self.near_bytes..self.stream_bytes).contains(&bytes)
    }

    /// Thresholds of this machine, determined once.
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
        // The machine of the measurements.
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
    fn cache_sizes_are_parsed_or_refused() {
        assert_eq!(bytes_of("48K"), Some(48 << 10));
        assert_eq!(bytes_of("2M"), Some(2 << 20));
        for nonsense in ["", "K", "0K", "48", "-1K", "99999999999999999999K", "48KiB"] {
            assert_eq!(bytes_of(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_cache_directory_is_parsed() {
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
