//! Compiled kernels on disk: one file per kernel, named by everything that decides its bytes.
//!
//! A file is a hash of its contents and the contents. What is damaged is as good as absent, and so is a directory
//! that cannot be written: the kernel is compiled then.

use std::io::Write;
use std::path::{Path, PathBuf};

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
}
