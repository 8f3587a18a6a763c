//! Access of other users to a mount.

use super::Say;

/// Configuration file of FUSE: `user_allow_other` lets users mount for others.
const FUSE_CONF: &str = "/etc/fuse.conf";

/// Users that may access a mount, subject to file permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// All users; the mount fails if that is not permitted.
    Everyone,
    /// Only the mounting user.
    Owner,
    /// All users if that is permitted, otherwise only the mounting user.
    #[default]
    AsAllowed,
}

impl Access {
    /// True if other users may access the mount. Prints a message if they may not and that was not requested.
    pub(super) fn allows_others(self, say: &Say) -> bool {
        match self {
            Access::Everyone => true,
            Access::Owner => false,
            Access::AsAllowed if rustix::process::geteuid().is_root() => true,
            Access::AsAllowed => {
                // An unreadable file permits nothing.
                let allowed = allows_others(&std::fs::read_to_string(FUSE_CONF).unwrap_or_default());
                if !allowed {
                    say(&format!(
                        "only you can access this mount: {FUSE_CONF} has no line user_allow_other, which other users would need"
                    ));
                }
                allowed
            }
        }
    }
}

/// As `fusermount3` reads it: the option stands alone in its line.
fn allows_others(conf: &str) -> bool {
    conf.lines().any(|line| line.split('#').next().is_some_and(|line| line.trim() == "user_allow_other"))
}

#[cfg(test)]
mod tests {
    use super::{Access, allows_others};
    use std::sync::Arc;

    #[test]
    fn users_may_mount_for_others_if_a_line_says_so() {
        for conf in ["user_allow_other", "# text\n mount_max = 3\n\tuser_allow_other # why\n"] {
            assert!(allows_others(conf), "{conf}");
        }
        for conf in
            ["", "#user_allow_other", "user_allow_other = no", "user_allow_others", "not user_allow_other"]
        {
            assert!(!allows_others(conf), "{conf}");
        }
    }

    #[test]
    fn explicit_access_prints_nothing() {
        let silent: super::Say = Arc::new(|text| panic!("{text}"));
        assert!(Access::Everyone.allows_others(&silent));
        assert!(!Access::Owner.allows_others(&silent));
    }
}
