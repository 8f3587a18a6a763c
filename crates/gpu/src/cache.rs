//! Cache of compiled kernels, in memory and on disk. Files are named by a hash of the kernel's text, device, driver and
//! compiler.
//!
//! A file consists of a hash of its contents and the contents. Damaged files and unwritable directories are ignored:
//! the kernel is compiled then.
//!
//! A loaded kernel determines the data that this process writes. So directory and file must belong to the user of the
//! process or to root, and must not be writable by others; otherwise they are ignored as well.

use crate::error::GpuError;
use std::collections::HashMap;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A directory of compiled kernels.
#[derive(Debug, Clone)]
pub(crate) struct DiskCache {
    directory: PathBuf,
    /// Device, driver and compiler of the kernels.
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

    /// Loads the compiled form of a kernel's text.
    pub(crate) fn get(&self, text: &str) -> Option<Vec<u8>> {
        is_ours(&std::fs::metadata(&self.directory).ok()?).then_some(())?;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(self.file(text))
            .ok()?;
        let found = file.metadata().ok()?;
        (found.is_file() && is_ours(&found) && found.len() <= MAX_BYTES).then_some(())?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        let (hash, contents) = bytes.split_at_checked(HASH_BYTES)?;
        (blake3::hash(contents).as_bytes() == hash).then(|| contents.to_vec())
    }

    /// Stores the compiled form of a kernel's text.
    ///
    /// # Errors
    /// File system errors; the caller still has the compiled kernel.
    pub(crate) fn put(&self, text: &str, contents: &[u8]) -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        if !is_ours(&std::fs::metadata(&self.directory)?) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let file = self.file(text);
        // Written to a temporary file and renamed, so that no process reads a partial file. Concurrent writers of the
        // same kernel write the same bytes.
        let beside = file.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
        // Left by a dead process with the same process id.
        let _ = std::fs::remove_file(&beside);
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        out.write_all(blake3::hash(contents).as_bytes())?;
        out.write_all(contents)?;
        drop(out);
        std::fs::rename(&beside, &file)
    }
}

/// Largest kernel file, in bytes; real ones have some hundred thousand.
const MAX_BYTES: u64 = 256 << 20;

/// True if no other user can modify the file.
fn is_ours(found: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    (found.uid() == user || found.uid() == 0) && found.mode() & 0o022 == 0
}

/// Compiled kernels of one device: in memory, on disk, or compiled now.
pub(crate) struct KernelCache<T> {
    disk: Option<DiskCache>,
    /// By the hash of their texts.
    loaded: Mutex<HashMap<blake3::Hash, T>>,
    compiled: AtomicU64,
    from_disk: AtomicU64,
}

/// Capacity in memory. When it is full, all entries are dropped; kernels in use stay alive through their owners.
const MOST_LOADED: usize = 512;

impl<T: Clone> KernelCache<T> {
    /// A cache for kernels of `machine`, on disk in `directory` if given.
    pub(crate) fn new(directory: Option<&Path>, machine: &str) -> KernelCache<T> {
        let disk = directory.map(|directory| DiskCache::new(directory, machine));
        let (compiled, from_disk) = (AtomicU64::new(0), AtomicU64::new(0));
        KernelCache { disk, loaded: Mutex::default(), compiled, from_disk }
    }

    /// Numbers of kernels compiled and loaded from disk.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.compiled.load(Ordering::Relaxed), self.from_disk.load(Ordering::Relaxed))
    }

    /// The kernel of a text. `load` passes a cached binary to the driver, which may reject it; `compile` returns the
    /// kernel and, if the driver provides it, the binary to store.
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
        // The lock is not held during compilation; two threads may compile the same kernel.
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
    fn kernels_are_loaded_for_the_same_machine_only_and_damage_is_detected() {
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

    /// A user who can write to the cache directory could run his own kernel in a process of root.
    #[test]
    fn files_that_other_users_can_write_are_ignored() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("cache");
        let cache = DiskCache::new(&directory, "a device");
        cache.put("text", b"compiled").unwrap();
        let file = cache.file("text");
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let own = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((own(&directory), own(&file)), (0o700, 0o600));
        for (path, others, ours) in
            [(&directory, 0o1777, 0o700), (&directory, 0o770, 0o700), (&file, 0o666, 0o600)]
        {
            mode(path, others);
            assert_eq!(cache.get("text"), None, "{} {others:o}", path.display());
            assert_eq!(cache.put("text", b"compiled").is_ok(), path == &file);
            mode(path, ours);
            assert!(cache.get("text").is_some());
        }
        if rustix::process::geteuid().is_root() {
            for path in [&directory, &file] {
                chown(path, Some(65_534), None).unwrap();
                assert_eq!(cache.get("text"), None, "{}", path.display());
                chown(path, Some(0), None).unwrap();
            }
        }
        let elsewhere = above.path().join("elsewhere");
        std::fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(cache.get("text"), None, "a link");
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
        // A binary that the driver rejects is compiled again.
        assert_eq!(cache().get("text", |_| None, compile).unwrap(), "kernel");
    }
}
