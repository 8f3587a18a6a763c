//! The processor as Linux describes it. Missing values stay unknown.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Architecture of this build.
    pub architecture: &'static str,
    /// Name of the model.
    pub model: Option<String>,
    /// Physical cores that are online.
    pub cores: Option<usize>,
    /// Hardware threads that are online.
    pub hardware_threads: Option<usize>,
    /// Caches that the first hardware thread sees, nearest first; empty where unknown.
    pub caches: Vec<Cache>,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1 is the nearest.
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size.
    pub bytes: u64,
    /// Hardware threads that share it.
    pub shared_by: Option<usize>,
}

impl Cpu {
    /// The processor this runs on.
    pub fn of_this_machine() -> Cpu {
        Cpu::from_files(Path::new("/sys/devices/system/cpu"), Path::new("/proc/cpuinfo"))
    }

    /// The processor that these files describe.
    pub fn from_files(sys: &Path, cpuinfo: &Path) -> Cpu {
        let online = line(&sys.join("online")).and_then(|list| numbers(&list));
        Cpu {
            architecture: std::env::consts::ARCH,
            model: fs::read_to_string(cpuinfo).ok().and_then(|text| model(&text)),
            cores: online.as_ref().and_then(|online| cores(sys, online)),
            hardware_threads: online.as_ref().map(Vec::len),
            caches: online
                .and_then(|online| caches(&sys.join(format!("cpu{}/cache", online.first()?))))
                .unwrap_or_default(),
        }
    }
}

/// The first line, unless it is empty.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The key is `model name` on x86; many ARM boards have none.
fn model(cpuinfo: &str) -> Option<String> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut names = fields.filter(|(key, _)| ["model name", "Model"].contains(&key.trim()));
    names.next().map(|(_, name)| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The kernel's list format: `0-3,8,10-11`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.trim().parse().ok()?..=last.trim().parse::<usize>().ok()?);
    }
    Some(all)
}

/// Cores are counted by package and number; if one is not described, the count is unknown.
fn cores(sys: &Path, online: &[usize]) -> Option<usize> {
    let place = |cpu: &usize| {
        let topology = sys.join(format!("cpu{cpu}/topology"));
        Some((line(&topology.join("physical_package_id"))?, line(&topology.join("core_id"))?))
    };
    online.iter().map(place).collect::<Option<BTreeSet<_>>>().map(|places| places.len())
}

fn caches(directory: &Path) -> Option<Vec<Cache>> {
    let mut caches: Vec<Cache> = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let shared = line(&path.join("shared_cpu_list")).and_then(|list| numbers(&list));
            Some(Cache {
                level: line(&path.join("level"))?.parse().ok()?,
                kind: line(&path.join("type"))?.to_lowercase(),
                bytes: size(&line(&path.join("size"))?)?,
                shared_by: shared.map(|shared| shared.len()),
            })
        })
        .collect();
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    Some(caches)
}

/// `48K`, `2048K`, `32M`.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Four hardware threads on two cores, of which the last one is offline.
    fn board(directory: &Path) -> (PathBuf, PathBuf) {
        let sys = directory.join("cpu");
        let write = |path: &str, text: &str| {
            let path = sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("online", "0-2\n");
        for cpu in 0..3 {
            write(&format!("cpu{cpu}/topology/physical_package_id"), "0\n");
            write(&format!("cpu{cpu}/topology/core_id"), &format!("{}\n", cpu / 2));
        }
        for (index, level, kind, size) in
            [(0, 1, "Instruction", "32K"), (1, 1, "Data", "48K"), (2, 2, "Unified", "2M")]
        {
            let cache = format!("cpu0/cache/index{index}");
            write(&format!("{cache}/level"), &level.to_string());
            write(&format!("{cache}/type"), kind);
            write(&format!("{cache}/size"), size);
            write(&format!("{cache}/shared_cpu_list"), "0,1\n");
        }
        write("cpu0/cache/index3/level", "3");
        let cpuinfo = directory.join("cpuinfo");
        fs::write(&cpuinfo, "processor : 0\nmodel\t\t: 143\nmodel name\t: Abacus 9\n").unwrap();
        (sys, cpuinfo)
    }

    #[test]
    fn system_files_are_parsed() {
        let directory = tempfile::tempdir().unwrap();
        let (sys, cpuinfo) = board(directory.path());
        let cpu = Cpu::from_files(&sys, &cpuinfo);
        assert_eq!(cpu.model.as_deref(), Some("Abacus 9"));
        assert_eq!((cpu.cores, cpu.hardware_threads), (Some(2), Some(3)));
        let caches: Vec<_> = cpu.caches.iter().map(|c| (c.level, c.kind.as_str(), c.bytes)).collect();
        // The third level has no size here: it is left out, not guessed.
        assert_eq!(caches, [(1, "data", 48 << 10), (1, "instruction", 32 << 10), (2, "unified", 2 << 20)]);
        assert_eq!(cpu.caches[0].shared_by, Some(2));
    }

    #[test]
    fn missing_values_are_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let cpu = Cpu::from_files(&directory.path().join("none"), &directory.path().join("neither"));
        assert_eq!((cpu.model, cpu.cores, cpu.hardware_threads), (None, None, None));
        assert!(cpu.caches.is_empty());
        let (sys, cpuinfo) = board(directory.path());
        fs::remove_file(sys.join("cpu1/topology/core_id")).unwrap();
        assert_eq!(Cpu::from_files(&sys, &cpuinfo).cores, None);
        assert_eq!(numbers("0-x"), None);
    }
}
