//! GPFS: `mmlsattr -L FILE`. It tells pool and number of replicas, but not where blocks lie. A file that is offline has
//! been migrated to tape, and reading it would recall it.

use crate::lines::{key_value, number};
use serde::Serialize;

/// Attributes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Attributes {
    /// Storage pool.
    pub pool: Option<String>,
    /// Fileset.
    pub fileset: Option<String>,
    /// Number of copies of the data; directories have none.
    pub data_replicas: Option<u64>,
    /// Number of copies of the metadata.
    pub metadata_replicas: Option<u64>,
    /// True if the content was migrated away; none if it is not known.
    pub offline: Option<bool>,
    /// Words of `flags` and `Misc attributes`.
    pub flags: Vec<String>,
}

/// Decodes the output of `mmlsattr -L` for one file.
///
/// # Errors
/// No known line.
pub fn attributes(text: &str) -> Result<Attributes, String> {
    let mut found = Attributes::default();
    let mut known = 0;
    for (key, value) in text.lines().filter_map(key_value) {
        let replicas = || value.split_whitespace().next().and_then(number);
        let named = || (!value.is_empty()).then(|| value.chars().take(200).collect::<String>());
        match key.to_ascii_lowercase().as_str() {
            "metadata replication" => found.metadata_replicas = replicas(),
            "data replication" => found.data_replicas = replicas(),
            "storage pool name" => found.pool = named(),
            "fileset name" => found.fileset = named(),
            "flags" => found.flags.extend(words(value)),
            "misc attributes" => {
                found.offline =
                    Some(value.split_whitespace().any(|word| word.eq_ignore_ascii_case("offline")));
                found.flags.extend(words(value));
            }
            _ => continue,
        }
        known += 1;
    }
    if known == 0 { Err("mmlsattr printed nothing that is known".to_owned()) } else { Ok(found) }
}

fn words(value: &str) -> impl Iterator<Item = String> {
    value.split_whitespace().take(32).map(|word| word.chars().take(40).collect())
}

#[cfg(test)]
mod tests {
    use super::attributes;

    #[test]
    fn attributes_of_a_migrated_file() {
        let text = "file name:            /gpfs/fs1/a\nmetadata replication: 1 max 2\ndata replication:     2 max 2\n\
            immutable:            no\nappendOnly:           no\nflags:                illcompressed\n\
            storage pool name:    system\nfileset name:         data-eng\nsnapshot name:\n\
            creation time:        Thu Aug 13 02:09:44 2026\nMisc attributes:      ARCHIVE OFFLINE\nEncrypted:            no\n";
        let found = attributes(text).unwrap();
        assert_eq!((found.data_replicas, found.metadata_replicas), (Some(2), Some(1)));
        assert_eq!((found.pool.as_deref(), found.offline), (Some("system"), Some(true)));
        assert_eq!(found.flags, ["illcompressed", "ARCHIVE", "OFFLINE"]);
        // Without the line it is not known whether the file may be read.
        assert_eq!(attributes("storage pool name: system\n").unwrap().offline, None);
        assert!(attributes("mmlsattr: command not found\n").is_err());
    }
}
