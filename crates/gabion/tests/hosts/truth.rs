//! What must hold at every step: `gabion status` says no file is protected that is not, on any host.
//!
//! A file is known to be unprotected if its redundancy is missing or older than its content, before and after the
//! question. Otherwise a worker may have protected it meanwhile, and either answer is right.

use crate::network::Network;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

/// Files that the tests wrote, with what they were last written with.
pub(crate) type Reference = BTreeMap<String, (usize, u64)>;

/// Bytes without a pattern that a code could hide behind.
pub(crate) fn bytes_of(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

impl Network {
    /// Files whose present content has no redundancy, with their versions.
    fn unprotected(&self) -> BTreeMap<String, (u64, i64, i64)> {
        let mut found = BTreeMap::new();
        for name in self.reference().keys() {
            let Ok(file) = std::fs::metadata(self.tree().join(name)) else { continue };
            let time = |it: &std::fs::Metadata| (it.mtime(), it.mtime_nsec());
            let is_old = |it: std::fs::Metadata| time(&it) < time(&file);
            if std::fs::metadata(self.redundancy(name)).map_or(true, is_old) {
                found.insert(name.clone(), (file.ino(), file.mtime(), file.mtime_nsec()));
            }
        }
        found
    }

    /// What a host says of the tree, unless it cannot reach the server: then it says nothing else.
    fn asked(&self, host: usize) -> Option<(i32, Value)> {
        let output = self.gabion(host, &["status", "tree", "--json"]).output().unwrap();
        let code = output.status.code().unwrap();
        if self.is_reachable(host) && !(code == 2 && self.is_lossy(host)) {
            assert!(code != 2, "host {host}: {output:?}");
            return Some((code, serde_json::from_slice(&output.stdout).unwrap()));
        }
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(code == 2 && !said.contains("matrix"), "host {host} cannot know: {said}");
        assert!(said.contains("10.99.0.1:6379"), "host {host} names the server: {said}");
        None
    }

    /// Expects that no host calls a file protected that is not.
    pub(crate) fn truth(&self) {
        self.truth_of(0..self.hosts());
    }

    /// Expects that none of these hosts calls a file protected that is not.
    pub(crate) fn truth_of(&self, hosts: impl IntoIterator<Item = usize>) {
        for host in hosts {
            let before = self.unprotected();
            let Some((code, status)) = self.asked(host) else { continue };
            let after = self.unprotected();
            let known =
                before.iter().filter(|(name, version)| after.get(*name) == Some(*version)).count() as u64;
            let pending = status["pending"]["files"].as_u64().unwrap();
            let cells = status["matrix"].as_array().unwrap().iter();
            let protected: u64 =
                cells.filter(|cell| cell["actual"] != 0).map(|cell| cell["files"].as_u64().unwrap()).sum();
            assert!(pending >= known, "host {host}: {known} files are not protected: {status}");
            assert!(
                known == 0 || code == 1,
                "host {host}: {known} files are not protected: exit code {code}"
            );
            let all = self.reference().len() as u64;
            assert!(
                protected + known <= all,
                "host {host}: {known} of {all} files are not protected: {status}"
            );
        }
    }

    /// Expects that all files are what was written, and that their redundancy is complete and verified.
    pub(crate) fn assert_whole(&self) {
        self.truth();
        let reference = self.reference();
        for (name, &(size, seed)) in &reference {
            let found = std::fs::read(self.tree().join(name)).unwrap();
            assert!(found == bytes_of(size, seed), "{name} is not what was written last");
        }
        let names = std::fs::read_dir(self.tree()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name != ".gabion" && !reference.contains_key(&*name.to_string_lossy())
        });
        assert_eq!(names.count(), 0, "files that nobody wrote");
        assert_eq!(self.unprotected().len(), 0);
        let scrub = self.expect(1, 0, &["scrub", "tree", "--json"]);
        let scrub: Value = serde_json::from_slice(&scrub.stdout).unwrap();
        assert_eq!((&scrub["files"], &scrub["damage"]), (&reference.len().into(), &Value::Array(Vec::new())));
        for host in (0..self.hosts()).filter(|&host| self.is_reachable(host)) {
            let (code, status) = self.asked(host).unwrap();
            assert_eq!(code, 0, "host {host}: {status}");
            let cells = status["matrix"].as_array().unwrap();
            let is_whole = cells.iter().all(|cell| cell["actual"] == cell["configured"]);
            let files: u64 = cells.iter().map(|cell| cell["files"].as_u64().unwrap()).sum();
            assert!(is_whole && files == reference.len() as u64, "host {host}: {status}");
        }
    }
}
