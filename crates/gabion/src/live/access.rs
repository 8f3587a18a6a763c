//! Who may use a mount.

use super::Say;

/// Where administrators say what users may mount.
const FUSE_CONF: &str = "/etc/fuse.conf";

/// Who may use a mount, as far as permissions of files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Everyone, or there is no mount.
    Everyone,
    /// Only who mounts.
    Owner,
    /// Everyone if who mounts may ask for that; otherwise only he.
    #[default]
    AsAllowed,
}

impl Access {
    /// Whether others than who mounts may use it; says so if they may not though nobody wanted that.
    pub(super) fn allows_others(self, say: &Say) -> bool {
        match self {
            Access::Everyone => true,
            Access::Owner => false,
            Access::AsAllowed if rustix::process::geteuid().is_root() => true,
            Access::AsAllowed => {
                // Who cannot read it is not told that he may.
                let allowed = allows_others(&std::fs::read_to_string(FUSE_CONF).unwrap_or_default());
                if !allowed {
                    say(&format!(
                        "only you can use this mount: {FUSE_CONF} has no line user_allow_other, by which users may mount for others"
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
    fn who_was_asked_for_is_not_asked_about() {
        let silent: super::Say = Arc::new(|text| panic!("{text}"));
        assert!(Access::Everyone.allows_others(&silent));
        assert!(!Access::Owner.allows_others(&silent));
    }
}
