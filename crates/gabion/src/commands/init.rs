//! `gabion init`.

mod text;

use crate::output::{OutputArgs, print_json};
use anyhow::{Context, bail, ensure};
use gabion::daemon::config::Config;
use gabion::exit::Outcome;
use gabion::report::InitReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::policy::DurationText;
use std::io::{IsTerminal, Write, stdin};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use text::{Answers, Source, configuration};

const EXAMPLES: &str = "\
Examples:
  gabion init                                        asks, explains each choice, and writes /etc/gabion/daemon.toml
  gabion init --protect /srv/photos --yes            asks nothing
  gabion init --protect /srv/photos --repository /mnt/other/photos.gabion --scrub 30d --mail-to admin@example.org --yes

Writes the configuration of the daemon and starts nothing. Several directories: give --protect several times, or add them to the \
file later. A pool is made by `gabion pool create` first, and added to the file by hand.
Exit codes: 0 written, 2 error, or not confirmed.";

/// Arguments of `gabion init`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "/etc/gabion/daemon.toml")]
    config: PathBuf,
    /// A directory to protect; may be repeated
    #[arg(long, value_name = "DIR")]
    protect: Vec<PathBuf>,
    /// Where its redundancy goes, better on another disk; with one --protect only
    #[arg(long, value_name = "DIR")]
    repository: Option<PathBuf>,
    /// Redundancy: k data blocks get m redundancy blocks
    #[arg(long, value_name = "K+M", default_value = "8+2")]
    code: String,
    /// Read and verify everything once in this time; 0s for never
    #[arg(long, value_name = "TIME", default_value = "30d")]
    scrub: DurationText,
    /// Hours in which a scrub runs, local time: 22-6
    #[arg(long, value_name = "HOURS")]
    hours: Option<String>,
    /// Repair damage that a scrub finds, except of files that were written since
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    repair: bool,
    /// Send notifications to this address, by sendmail
    #[arg(long, value_name = "ADDRESS")]
    mail_to: Option<String>,
    /// Ask nothing: take the options and defaults
    #[arg(long, short)]
    yes: bool,
    /// Replace an existing file; the old one is kept as FILE.old
    #[arg(long)]
    force: bool,
    /// Print the configuration, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let exists = self.exists()?;
        ensure!(
            !exists || self.force || self.dry_run,
            "{} exists: add a [[source]] to it, or use --force, which keeps it as {}",
            DisplayPath::path(&self.config),
            DisplayPath::path(&self.old())
        );
        let answers = match self.yes || self.dry_run && !stdin().is_terminal() {
            true => self.given_answers()?,
            false => self.ask()?,
        };
        let text = configuration(&answers);
        let path = std::path::absolute(&self.config)?;
        // What is written is what the daemon can read.
        Config::parse(&text, &path).context("these answers make no configuration")?;
        if self.dry_run {
            match self.output.json {
                true => print_json(&InitReport::new(&path, false, &text)),
                false => out!("{text}"),
            }
            return Ok(Outcome::Fine);
        }
        if !self.yes {
            outln!("\n{text}");
            ensure!(yes_no(&format!("Write this to {}?", path.display()), true)?, "nothing was written");
        }
        self.write(&path, &text)?;
        if self.output.json {
            print_json(&InitReport::new(&path, true, &text));
        }
        let shown = gabion::shell::word(&path);
        self.output.print_line(format!("wrote {shown}. Next:"));
        self.output.print_line(format!("  gabion daemon run {shown} --check    shows all settings"));
        self.output.print_line(match path == Path::new("/etc/gabion/daemon.toml") {
            true => "  systemctl enable --now gabion    starts the daemon".to_owned(),
            false => format!("  gabion daemon run {shown}    starts the daemon"),
        });
        self.output.print_line("  gabion daemon status    shows what it does");
        Ok(Outcome::Fine)
    }

    /// True if there is a configuration. The one of the packages has only comments, and is replaced like one by hand.
    fn exists(&self) -> anyhow::Result<bool> {
        match std::fs::read_to_string(&self.config) {
            Ok(text) => Ok(text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).context(DisplayPath::path(&self.config).to_string()),
        }
    }

    fn old(&self) -> PathBuf {
        let mut old = self.config.clone().into_os_string();
        old.push(".old");
        old.into()
    }

    fn given_answers(&self) -> anyhow::Result<Answers> {
        ensure!(!self.protect.is_empty(), "nothing to protect: name directories with --protect");
        ensure!(
            self.repository.is_none() || self.protect.len() == 1,
            "--repository is for one directory: give the others theirs in the file"
        );
        let mut sources: Vec<Source> = Vec::new();
        for directory in &self.protect {
            let source = source(directory, self.repository.as_deref(), &sources)?;
            sources.push(source);
        }
        Ok(Answers {
            sources,
            code: self.code.clone(),
            scrub: Some(self.scrub).filter(|scrub| !scrub.0.is_zero()),
            hours: self.hours.clone(),
            repair: self.repair,
            mail_to: self.mail_to.clone(),
        })
    }

    fn ask(&self) -> anyhow::Result<Answers> {
        ensure!(
            stdin().is_terminal() && !self.output.json,
            "no terminal to ask on: name directories with --protect, and use --yes"
        );
        let mut sources: Vec<Source> = Vec::new();
        outln!("Directories to protect. Programs use them as before; files stay whole files.");
        loop {
            let given = self.protect.get(sources.len()).map(|path| path.display().to_string());
            let prompt = if sources.is_empty() { "Directory" } else { "Another directory (empty: no more)" };
            let directory = answer(prompt, given.as_deref().unwrap_or(""))?;
            if directory.is_empty() && !sources.is_empty() {
                break;
            }
            let directory = PathBuf::from(directory);
            outln!(
                "Redundancy can be in the directory (.gabion), which survives bit rot and overwritten regions, or better on \
                another disk."
            );
            let repository = answer("Repository (empty: in the directory)", "")?;
            let repository = Some(PathBuf::from(repository)).filter(|path| !path.as_os_str().is_empty());
            match source(&directory, repository.as_deref(), &sources) {
                Ok(source) => sources.push(source),
                Err(error) => outln!("{error}"),
            }
        }
        outln!(
            "\nThe code k+m adds m redundancy blocks to each k data blocks: 8+2 takes 25 % more space and restores up to a quarter \
            of a file; 4+4 takes as much again and can restore whole files from another disk."
        );
        let code = answer("Code", &self.code)?;
        outln!("\nA scrub reads everything once in this time and finds what has rotted. 0s is never.");
        let scrub = answer("Scrub every", &self.scrub.to_string())?
            .parse::<DurationText>()
            .map_err(anyhow::Error::msg)?;
        let scrub = Some(scrub).filter(|scrub| !scrub.0.is_zero());
        let (mut hours, mut repair) = (None, self.repair);
        if scrub.is_some() {
            let given = self.hours.as_deref().unwrap_or("");
            let range = answer("Hours of the day in which it runs (22-6, empty: any)", given)?;
            hours = Some(range).filter(|hours| !hours.is_empty());
            outln!(
                "\nDamage can be repaired at once. Files that were written since they were protected are left alone."
            );
            repair = yes_no("Repair damage that a scrub finds?", self.repair)?;
        }
        outln!("\nThe daemon can send e-mail when something needs attention, by the sendmail of this host.");
        let mail = answer("Address (empty: none)", self.mail_to.as_deref().unwrap_or(""))?;
        let mail_to = Some(mail).filter(|mail| !mail.is_empty());
        Ok(Answers { sources, code, scrub, hours, repair, mail_to })
    }

    /// Writes the file in one step, readable for all: it has no secrets.
    fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let shown = DisplayPath::path(path).to_string();
        let directory = path.parent().context("the file needs a directory")?;
        std::fs::create_dir_all(directory).with_context(|| shown.clone())?;
        let mut file = tempfile::NamedTempFile::new_in(directory).with_context(|| shown.clone())?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        if path.exists() {
            std::fs::rename(path, self.old()).with_context(|| shown.clone())?;
        }
        // Another program may have created it meanwhile.
        file.persist_noclobber(path).with_context(|| shown.clone())?;
        std::fs::File::open(directory)?.sync_all()?;
        Ok(())
    }
}

/// A source for a directory, with a name that no other source has.
fn source(directory: &Path, repository: Option<&Path>, others: &[Source]) -> anyhow::Result<Source> {
    let shown = DisplayPath::path(directory);
    let path = std::fs::canonicalize(directory).with_context(|| shown.to_string())?;
    ensure!(path.is_dir(), "{shown} is not a directory");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a configuration has UTF-8 paths only");
    for other in others {
        let inside = path.starts_with(&other.watch) || Path::new(&other.watch).starts_with(&path);
        ensure!(!inside, "{shown} and {} are within each other", other.watch);
    }
    let repository = repository.map(std::path::absolute).transpose()?;
    if let Some(repository) = &repository {
        ensure!(!repository.starts_with(&path), "the repository would be in the directory that it protects");
        let above = repository.ancestors().find(|path| path.exists());
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
        if above.and_then(device) == device(&path) {
            errln!(
                "gabion: warning: {} is on the same file system as {shown}: both would be lost with its disk",
                DisplayPath::path(repository)
            );
        }
    }
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    let base: String =
        path.file_name().unwrap_or_default().to_string_lossy().chars().map(plain).take(48).collect();
    let base = base.trim_start_matches(['.', '-']).to_owned();
    let base = if base.is_empty() { "root".to_owned() } else { base };
    let is_free = |name: &String| others.iter().all(|other| other.name != *name);
    let name =
        std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}-{number}"))).find(is_free);
    let Some(name) = name else { bail!("no name for {shown}") };
    let repository = repository.as_deref().map(text).transpose()?;
    Ok(Source { name, watch: text(&path)?, repository })
}

/// Asks for a line; an empty one is the default.
fn answer(prompt: &str, default: &str) -> anyhow::Result<String> {
    match default {
        "" => out!("{prompt}: "),
        _ => out!("{prompt} [{default}]: "),
    }
    let mut line = String::new();
    // The end of the input is no answer to further questions.
    ensure!(stdin().read_line(&mut line)? > 0, "nothing was written");
    let line = line.trim();
    Ok(if line.is_empty() { default.to_owned() } else { line.to_owned() })
}

fn yes_no(prompt: &str, default: bool) -> anyhow::Result<bool> {
    let answer = answer(&format!("{prompt} (y/n)"), if default { "y" } else { "n" })?;
    Ok(matches!(answer.as_str(), "y" | "Y" | "yes"))
}
