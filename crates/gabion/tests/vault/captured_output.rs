//! Standard error of child processes: captured while a test runs, and printed only if the test fails.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// A temporary file that collects the output of several programs, in order.
pub(crate) struct CapturedOutput(File);

impl CapturedOutput {
    pub(crate) fn new() -> CapturedOutput {
        CapturedOutput(tempfile::tempfile().unwrap())
    }

    /// A handle for one more program, which appends.
    pub(crate) fn as_stdio(&self) -> Stdio {
        self.0.try_clone().unwrap().into()
    }

    /// All output so far.
    pub(crate) fn text(&self) -> String {
        let length = self.0.metadata().map_or(0, |metadata| metadata.len());
        let mut text = vec![0; length as usize];
        let _ = self.0.read_exact_at(&mut text, 0);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for CapturedOutput {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("output of child processes:\n{}", self.text());
        }
    }
}
