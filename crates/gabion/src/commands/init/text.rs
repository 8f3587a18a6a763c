//! Text of a first configuration, with the reason of each setting.

use gabion_vault::policy::DurationText;
use toml::Value;

/// What the configuration says.
pub(super) struct Answers {
    pub(super) sources: Vec<Source>,
    pub(super) code: String,
    /// None: no scheduled scrubs.
    pub(super) scrub: Option<DurationText>,
    pub(super) hours: Option<String>,
    pub(super) repair: bool,
    pub(super) mail_to: Option<String>,
}

/// A directory to protect.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) watch: String,
    pub(super) repository: Option<String>,
}

/// The text of the file.
pub(super) fn configuration(answers: &Answers) -> String {
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let mut text = "\
# Configuration of the Gabion daemon, written by `gabion init`. After an edit:
#
#   gabion daemon run THIS_FILE --check    # shows the settings, or line and column of an error
#   systemctl reload gabion                # applies them
"
    .to_owned();
    for Source { name, watch, repository } in &answers.sources {
        text += &format!("\n[[source]]\nname = {}\n", quoted(name));
        text +=
            &format!("# Programs use it as before; the kernel reports changes.\nwatch = {}\n", quoted(watch));
        match repository {
            Some(repository) => text += &format!("repository = {}\n", quoted(repository)),
            None => {
                text += "# Redundancy is in .gabion there. Better: repository = \"/mnt/another-disk/NAME.gabion\"\n"
            }
        }
        text += &format!("# k+m: any m of k + m blocks may be lost.\ncode = {}\n", quoted(&answers.code));
        match answers.scrub {
            Some(every) => {
                text += &format!("# Everything is read and verified once in {every}.\n");
                let mut keys = vec![format!("every = {}", quoted(&every.to_string()))];
                keys.extend(answers.hours.iter().map(|hours| format!("hours = {}", quoted(hours))));
                keys.push(format!("repair = {}", answers.repair));
                text += &format!("scrub = {{ {} }}\n", keys.join(", "));
            }
            None => {
                text += "# No scrubs: corruption is found when a file is read through a mount, or by `gabion scrub`.\n"
            }
        }
    }
    match &answers.mail_to {
        Some(address) => {
            text += "\n# Told by e-mail: damage, lost files and targets, held change-sets, failed jobs.\n[[notify]]\n";
            text += "name = \"mail\"\nsendmail = [\"/usr/sbin/sendmail\", \"-t\", \"-i\"]\n";
            text += &format!("from = \"gabion@localhost\"\nto = [{}]\n", quoted(address));
        }
        None => text += "\n# Nobody is told: see [[notify]] in the example, and `gabion notify test`.\n",
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Answers, Source, configuration};
    use gabion::daemon::config::Config;
    use gabion_vault::policy::DurationText;
    use std::path::Path;

    /// Names and addresses cannot change what else the file says.
    #[test]
    fn any_answers_are_a_configuration_of_just_these() {
        let source = |name: &str, watch: &str| Source {
            name: name.to_owned(),
            watch: watch.to_owned(),
            repository: Some("/mnt/\"b\"\n[x]".to_owned()),
        };
        let answers = Answers {
            sources: vec![source("a", "/srv/it's \\ \"here\""), source("b", "/srv/\u{1}x\nname = 'c'")],
            code: "4+2".to_owned(),
            scrub: "30d".parse::<DurationText>().ok(),
            hours: Some("22-6".to_owned()),
            repair: false,
            mail_to: Some("admin@example.org".to_owned()),
        };
        let text = configuration(&answers);
        let config = Config::parse(&text, Path::new("/etc/gabion/daemon.toml")).unwrap();
        assert_eq!(config.sources.len(), 2, "{text}");
        for (read, said) in config.sources.iter().zip(&answers.sources) {
            assert_eq!((read.name.as_str(), read.path()), (said.name.as_str(), Path::new(&said.watch)));
            assert_eq!(read.repository.as_deref(), said.repository.as_deref().map(Path::new));
            assert!(read.scrub.is_some_and(|scrub| !scrub.repair && scrub.rhythm.hours.is_some()));
        }
        assert_eq!(config.receivers.len(), 1);
        let least = Answers { scrub: None, hours: None, mail_to: None, ..answers };
        let config = Config::parse(&configuration(&least), Path::new("/etc/gabion/daemon.toml")).unwrap();
        assert!(config.receivers.is_empty() && config.sources[0].scrub.is_none());
    }
}
