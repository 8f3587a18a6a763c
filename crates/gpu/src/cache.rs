//! Compiled kernels on disk: one file per kernel, named by everything that decides its bytes.
//!
//! A file is a hash of its contents and the contents. What is damaged is as good as absent, and so is a directory
//! that cannot be written: the kernel is compiled then.

use crate::error::GpuError;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A directory of compiled kernels.
#[derive(Debug, Clone)]
pub(crate) struct DiskCache {
    directory: PathBuf,
    /// Device, driver and compiler, which the kernels belong to.
    machine: String,
}

const HASH_BYTES: usize = blake3::OUT_LEN;

impl DiskCache {
    /// The cache in `directory` for kernels of `machine`, a text that names device, driver and compiler.
    pub(crate) fn new(directory: &Path, machine: &str) -> DiskCache {
        DiskCache { directory: directory.to_owned(), machine: machine.to_owned() }
    }

    fn file(&self, text: &str) -> PathBuf {
        let mut hash = blake3::Hasher::new();
        for part in [self.machine.as_str(), text] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        self.directory.join(format!("{}.kernel", hash.finalize().to_hex()))
    }

    /// The compiled form of a kernel's text.
    pub(crate) fn get(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.file(text)).ok()?;
        let (hash, contents) = bytes.split_at_checked(HASH_BYTES)?;
        (blake3::hash(contents).as_bytes() == hash).then(|| contents.to_vec())
    }

    /// Keeps the compiled form of a kernel's text.
    ///
    /// # Errors
    /// What the file system said; whoever compiled the kernel has it all the same.
    pub(crate) fn put(&self, text: &str, contents: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let file = self.file(text);
        // Written beside and renamed, so that nobody reads half a file. Two who write the same kernel at once write the
        // same bytes.
        let beside = file.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
        let mut out = std::fs::File::create(&beside)?;
        out.write_all(blake3::hash(contents).as_bytes())?;
        out.write_all(contents)?;
        drop(out);
        std::fs::rename(&beside, &file)
    }
}

/// Compiled kernels of one device: in memory, on disk, or compiled now.
pub(crate) struct KernelCache<T> {
    disk: Option<DiskCache>,
    /// By the hash of their texts.
    loaded: Mutex<HashMap<blake3::Hash, T>>,
    compiled: AtomicU64,
    from_disk: AtomicU64,
}

/// Most kernels that stay loaded. When there are more, all are forgotten: those in use live on with their users.
const MOST_LOADED: usize = 512;

impl<T: Clone> KernelCache<T> {
    /// For kernels of `machine`, kept in `directory` if there is one.
    pub(crate) fn new(directory: Option<&Path>, machine: &str) -> KernelCache<T> {
        let disk = directory.map(|directory| DiskCache::new(directory, machine));
        let (compiled, from_disk) = (AtomicU64::new(0), AtomicU64::new(0));
        KernelCache { disk, loaded: Mutex::default(), compiled, from_disk }
    }

    /// Kernels compiled so far, and kernels taken from the disk.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.compiled.load(Ordering::Relaxed), self.from_disk.load(Ordering::Relaxed))
    }

    /// The kernel of a text. `load` takes what the disk has, if the driver takes it; `compile` makes the kernel and, if the
    /// driver gives it, what goes to the disk.
    pub(crate) fn get(
        &self,
        text: &str,
        load: impl FnOnce(Vec<u8>) -> Option<T>,
        compile: impl FnOnce() -> Result<(T, Option<Vec<u8>>), GpuError>,
    ) -> Result<T, GpuError> {
        let key = blake3::hash(text.as_bytes());
        let loaded = || self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded().get(&key) {
            return Ok(kernel.clone());
        }
        // Nobody waits for another kernel's compilation; two who want the same one may compile it twice.
        let kept = self.disk.as_ref().and_then(|disk| disk.get(text)).and_then(load);
        let kernel = match kept {
            Some(kernel) => {
                self.from_disk.fetch_add(1, Ordering::Relaxed);
                kernel
            }
            None => {
                let (kernel, binary) = compile()?;
                self.compiled.fetch_add(1, Ordering::Relaxed);
                if let (Some(disk), Some(binary)) = (&self.disk, binary) {
                    // A full or read-only disk costs the next process a compilation and nothing else.
                    let _ = disk.put(text, &binary);
                }
                kernel
            }
        };
        let mut loaded = loaded();
        if loaded.len() >= MOST_LOADED {
            loaded.clear();
        }
        loaded.insert(key, kernel.clone());
        Ok(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_come_back_for_the_same_machine_only_and_damage_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(directory.path(), "a device, a driver");
        assert_eq!(cache.get("text"), None);
        cache.put("text", b"compiled").unwrap();
        assert_eq!(cache.get("text").as_deref(), Some(&b"compiled"[..]));
        assert_eq!(cache.get("other text"), None);
        assert_eq!(DiskCache::new(directory.path(), "a device, another driver").get("text"), None);
        let file = cache.file("text");
        let mut bytes = std::fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(cache.get("text"), None);
        std::fs::write(&file, &bytes[..7]).unwrap();
        assert_eq!(cache.get("text"), None);
    }

    #[test]
    fn kernels_are_compiled_once() {
        let directory = tempfile::tempdir().unwrap();
        let cache = || KernelCache::<String>::new(Some(directory.path()), "a device");
        let load = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
        let compile = || Ok(("kernel".to_owned(), Some(b"kernel".to_vec())));
        let first = cache();
        assert_eq!(first.get("text", load, compile).unwrap(), "kernel");
        assert_eq!(first.get("text", load, || panic!("compiled again")).unwrap(), "kernel");
        assert_eq!(first.counts(), (1, 0));
        let second = cache();
        assert_eq!(second.get("text", load, || panic!("compiled again")).unwrap(), "kernel");
        assert_eq!(second.counts(), (0, 1));
        // What the driver does not take is compiled.
        assert_eq!(cache().get("text", |_| None, compile).unwrap(), "kernel");
    }
}
