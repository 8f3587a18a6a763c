//! Binding of a redundancy file to the file that it protects.
//!
//! Redundancy lies at a path; the path alone does not prove whose it is. A tool may have copied, swapped or misplaced redundancy files,
//! and repair would then write the content of one file into another. In a plain directory the binding is a hash of the file's name
//! without its directories: a directory that is renamed takes the redundancy of all its files along in one step, without writing to it. Storage
//! that has its own identity for each file (a pool) uses that.

/// Text that is hashed before a name, so that the hash means nothing elsewhere.
const NAME: &[u8] = b"gabion redundancy name 2";

/// Identity of a protected file as its storage knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Binding(pub [u8; 16]);

impl Binding {
    /// Of a file that is known by its name: `name` is the last component of its path.
    pub fn of_name(name: &[u8]) -> Binding {
        let mut hasher = blake3::Hasher::new();
        hasher.update(NAME).update(name);
        let mut binding = [0; 16];
        binding.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Binding(binding)
    }
}
