//! What programs say beside their results, while a test runs them: shown where the test fails, and nowhere else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// Keeps it until the test is over.
pub(crate) struct Said(File);

impl Said {
    pub(crate) fn new() -> Said {
        Said(tempfile::tempfile().unwrap())
    }

    /// Where one more program says it, behind what others have said.
    pub(crate) fn here(&self) -> Stdio {
        self.0.try_clone().unwrap().into()
    }

    /// What was said until now.
    pub(crate) fn text(&self) -> String {
        let length = self.0.metadata().map_or(0, |metadata| metadata.len());
        let mut text = vec![0; length as usize];
        let _ = self.0.read_exact_at(&mut text, 0);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("said meanwhile:\n{}", self.text());
        }
    }
}
