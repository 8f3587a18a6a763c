//! Registry of the pools of this machine: pool names and target paths. It is optional, since any target leads to its
//! pool.

use super::config::{ConfigError, is_name};
use super::error::PoolError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A directory with one small file per pool.
#[derive(Debug, Clone)]
pub struct Registry {
    directory: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisteredPool {
    targets: Vec<PathBuf>,
}

impl Registry {
    /// The registry in a directory, which need not exist yet.
    pub fn new(directory: PathBuf) -> Registry {
        Registry { directory }
    }

    fn file(&self, name: &str) -> Result<PathBuf, PoolError> {
        match is_name(name) {
            true => Ok(self.directory.join(format!("{name}.toml"))),
            false => Err(ConfigError::Name(name.to_owned()).into()),
        }
    }

    /// Target paths of a pool; none if the name is unknown.
    ///
    /// # Errors
    /// I/O errors; an invalid registry file.
    pub fn find(&self, name: &str) -> Result<Option<Vec<PathBuf>>, PoolError> {
        let file = self.file(name)?;
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| unusable(&file, &error.to_string()))?,
        };
        let entry: RegisteredPool =
            toml::from_str(&text).map_err(|error| unusable(&file, error.message()))?;
        Ok(Some(entry.targets))
    }

    /// Records the target paths of a pool.
    ///
    /// # Errors
    /// I/O errors.
    pub fn record(&self, name: &str, targets: &[PathBuf]) -> Result<(), PoolError> {
        let file = self.file(name)?;
        let entry = RegisteredPool { targets: targets.to_vec() };
        let text = toml::to_string(&entry).map_err(|error| unusable(&file, &error.to_string()))?;
        self.replace(&file, &text).map_err(|error| unusable(&file, &error.to_string()))
    }

    fn replace(&self, file: &Path, text: &str) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let temporary = file.with_extension("toml.new");
        let mut out = fs::File::create(&temporary)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&temporary, file)
    }
}

fn unusable(file: &Path, why: &str) -> PoolError {
    PoolError::NotFound { paths: file.display().to_string(), why: why.to_owned() }
}
