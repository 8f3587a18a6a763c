//! The commands of `gabion --help`, in groups.

use clap::Command;

/// Groups, and the commands in them. Commands that are not listed are in the last one.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Protect and check",
        &[
            "protect", "status", "report", "diff", "scrub", "check", "repair", "rebuild", "replaced",
            "approve", "forget",
        ],
    ),
    ("Protect continuously", &["init", "watch", "mount", "daemon", "events", "notify", "work"]),
    ("Pools and shards", &["pool", "shard"]),
    ("Plan", &["policy", "whatif", "forecast", "doctor"]),
    ("Maintain", &["catalogue", "changelog"]),
    ("This program", &["info", "completions", "manual", "help"]),
];

/// Template of the help text.
pub(super) fn template(command: &Command) -> String {
    let name_width = names(command).map(|(name, _)| name.len()).max().unwrap_or(0).max("help".len());
    let listed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (number, (heading, group)) in GROUPS.iter().enumerate() {
        text += &format!("\n{heading}:\n");
        let is_last = number + 1 == GROUPS.len();
        let others = names(command).map(|(name, _)| name).filter(|name| is_last && !listed(name));
        for name in group.iter().copied().chain(others) {
            let about = names(command).find(|(known, _)| *known == name).map(|(_, about)| about);
            let about = about.unwrap_or_else(|| "Print this message or the help of a command".to_owned());
            text += &format!("  {name:name_width$}  {about}\n");
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

/// Visible commands with their descriptions.
fn names(command: &Command) -> impl Iterator<Item = (&str, String)> {
    let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
    visible.map(|it| (it.get_name(), it.get_about().map(ToString::to_string).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, names, template};
    use crate::commands::Cli;
    use clap::CommandFactory;

    /// A new command has to be put into a group, and its line fits a terminal.
    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        for (name, about) in names(&command) {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
            assert!(!about.is_empty() && !about.contains(['{', '}']), "{name}: {about}");
        }
        for name in GROUPS.iter().flat_map(|(_, names)| *names).filter(|name| **name != "help") {
            assert!(command.find_subcommand(name).is_some(), "{name} is no command");
        }
        let help = Cli::grouped().render_help().to_string();
        assert!(help.contains("\nProtect and check:\n  protect ") && help.contains("\nOptions:\n"), "{help}");
        assert!(help.contains("Exit codes:") && template(&command).contains("{after-help}"), "{help}");
    }
}
