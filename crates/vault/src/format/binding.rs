//! Binding of a redundancy file to the file that it protects.
//!
//! The path of a redundancy file does not prove which file it belongs to. A tool may have copied, swapped or misplaced
//! redundancy files, and repair would then write the content of one file into another. In a plain directory the binding
//! is a hash of the file name without its directories: renaming a directory thus moves the redundancy of all its files
//! in one step, without writing to it. Storage with an identity for each file (a pool) uses that identity.

/// Prefix of the hashed text, so that the hash is used for nothing else.
const NAME: &[u8] = b"gabion redundancy name 2";

/// Identity of a protected file in its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Binding(pub [u8; 16]);

impl Binding {
    /// Binding to a file name: `name` is the last component of the path.
    pub fn of_name(name: &[u8]) -> Binding {
        let mut hasher = blake3::Hasher::new();
        hasher.update(NAME).update(name);
        let mut binding = [0; 16];
        binding.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Binding(binding)
    }
}
