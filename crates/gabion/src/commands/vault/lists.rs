//! Lists of paths: as commands read them, and their names in the tree of a vault.

use anyhow::Context;
use gabion_platform::display_path::DisplayPath;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Reads the list of paths that `--files-from` names.
pub(super) fn read_list(list: &Path, ends_with_zero: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut text = Vec::new();
    let shown = DisplayPath::path(list);
    match list.as_os_str() == "-" {
        true => std::io::stdin().lock().read_to_end(&mut text).context("standard input")?,
        false => std::fs::File::open(list)
            .and_then(|mut file| file.read_to_end(&mut text))
            .with_context(|| format!("--files-from {shown}"))?,
    };
    let end = if ends_with_zero { 0 } else { b'\n' };
    let paths = text.split(|&byte| byte == end).filter(|path| !path.is_empty());
    Ok(paths.map(|path| PathBuf::from(OsString::from_vec(path.to_vec()))).collect())
}

/// Path in the tree of a name that is missing, or a symbolic link that leads elsewhere.
pub(super) fn name_inside(root: &Path, path: &Path) -> Option<Vec<u8>> {
    let absolute = std::path::absolute(path).ok()?;
    for above in absolute.ancestors().skip(1) {
        let Ok(real) = std::fs::canonicalize(above) else { continue };
        let rest = absolute.strip_prefix(above).ok()?;
        let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
        let inside = real.join(rest).strip_prefix(root).ok()?.as_os_str().as_bytes().to_vec();
        return is_plain.then_some(inside);
    }
    None
}
