//! Corruption as disks make it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Changes bytes of a file; its size and time stay.
pub(crate) fn rot(path: &Path, offset: u64, count: usize) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&bytes, offset).unwrap();
    file.set_modified(modified).unwrap();
    file.sync_all().unwrap();
}
