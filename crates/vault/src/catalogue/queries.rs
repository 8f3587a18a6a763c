//! Queries that run once per file. They join no tables: SQLite compiles a join again for each value of a parameter,
//! which took an eighth of the CPU time for protecting small files.

/// What is known of a file: the columns of an entry.
pub(super) const FIND: &str = "SELECT size, mtime, ctime, inode, id, \
     (SELECT identity FROM codes WHERE number = code), wanted, columns, redundancy, protected_at, scrubbed_at, state \
     FROM files WHERE directory = (SELECT number FROM directories WHERE path = ?) AND name = ?";

/// Names of files with an inode, size and mtime.
pub(super) const BY_INODE: &str = "SELECT (SELECT path FROM directories WHERE number = directory), name FROM files \
     WHERE inode = ? AND size = ? AND mtime = ? LIMIT 64";

/// Names of an inode, and the version that is protected under each.
pub(super) const NAMES_OF: &str = "SELECT (SELECT path FROM directories WHERE number = directory), name, size, mtime, ctime FROM files \
     WHERE inode = ?";

/// A file with an mtime and size.
pub(super) const LIKE: &str = "SELECT (SELECT path FROM directories WHERE number = directory), name FROM files \
     WHERE mtime = ? AND size = ? LIMIT 1";

/// Files of a size.
pub(super) const OF_SIZE: &str = "SELECT (SELECT path FROM directories WHERE number = directory), name FROM files \
     WHERE size = ? LIMIT ?";

/// Number of files in directories that satisfy a condition.
pub(super) fn count_in(directories: &str) -> String {
    format!(
        "SELECT count(*) FROM files WHERE directory IN (SELECT number FROM directories WHERE {directories})"
    )
}

/// Intact files with as much redundancy that have their size in common, with one that was protected lately.
pub(super) const EQUAL_SIZES: &str = "SELECT size, (SELECT path FROM directories WHERE number = directory), name FROM files \
     WHERE redundancy >= ?1 AND state = 0 AND size IN \
     (SELECT size FROM files WHERE redundancy >= ?1 AND state = 0 \
     GROUP BY size HAVING count(*) > 1 AND max(protected_at) >= ?2) \
     ORDER BY size";

/// Files by id.
pub(super) const IDS: &str =
    "SELECT id, (SELECT path FROM directories WHERE number = directory), name FROM files";
