//! `cargo xtask gpu-check`: a folder that checks and measures a GPU wherever it is carried.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::shell::Cmd;

/// Prepare a folder that checks and measures GPUs, and run it if there is one here
///
/// Builds gabion and gabion-bench in release mode and puts them with a script into target/gpu-check. The folder needs
/// no Rust: carry it to a machine with a GPU and call ./run.sh there, again after an interruption. It runs the
/// conformance suite on CUDA and on the GPU's own OpenCL platform in parts, the table with its bars, transfers,
/// methods, the model and the plot, and collects records.jsonl for bench/records/gpu.jsonl.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only prepare
    #[arg(long)]
    no_run: bool,
    /// Steps of the script, all of them by default
    #[arg(value_name = "STEP")]
    steps: Vec<String>,
}

const SCRIPT: &str = include_str!("gpu_check/run.sh");

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Without the other libraries, which would have to be installed where the folder is carried.
    let features = "--no-default-features --features gabion/gpu,gabion-bench/gpu";
    let build = Cmd::cargo(&format!("build --release -p gabion -p gabion-bench {features}"));
    println!("    {build}");
    build.run()?;
    let target = std::env::var("CARGO_TARGET_DIR").map_or(PathBuf::from("target"), PathBuf::from);
    let folder = target.join("gpu-check");
    prepare(&target.join("release"), &folder)?;
    println!("    {} is ready: carry it, then ./run.sh", folder.display());
    if args.no_run {
        return Ok(ExitCode::SUCCESS);
    }
    // The driver makes these; without one there is nothing to run.
    if !Path::new("/dev/nvidia0").exists() && !Path::new("/dev/kfd").exists() {
        println!("SKIP gpu-check: no GPU here (no /dev/nvidia0, no /dev/kfd)");
        return Ok(ExitCode::SUCCESS);
    }
    let script = Cmd::new("./run.sh", args.steps.clone()).dir(&folder.to_string_lossy());
    let code = script.status()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Puts the programs and the script side by side.
fn prepare(built: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for name in ["gabion", "gabion-bench"] {
        let program = built.join(name);
        fs::copy(&program, folder.join(name)).with_context(|| format!("copying {}", program.display()))?;
    }
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT).with_context(|| script.display().to_string())?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Replaces both programs: writes its arguments to a file, and fails for mapped memory.
    const PROGRAM: &str = "#!/bin/sh
if [ \"$1\" = info ]; then echo 'opencl     1: X, 8 MiB, gpu, 2 units'; exit; fi
echo \"$@\" >> asked
case \"$*\" in *mapped*) exit 3 ;; esac
";

    /// The script asks for every step once; what is done is not asked for again, what failed is.
    #[test]
    fn the_script_runs_every_step_once() {
        let folder = std::env::temp_dir().join(format!("gabion-gpu-check-{}", std::process::id()));
        let built = folder.join("built");
        fs::create_dir_all(&built).unwrap();
        for name in ["gabion", "gabion-bench"] {
            fs::write(built.join(name), PROGRAM).unwrap();
            fs::set_permissions(built.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        prepare(&built, &folder).unwrap();
        let script = |steps: &[&str]| {
            let mut command = Command::new("./run.sh");
            let ran = command.args(steps).env("PARTS", "2").current_dir(&folder).output().unwrap();
            let asked = fs::read_to_string(folder.join("asked")).unwrap_or_default();
            let _ = fs::remove_file(folder.join("asked"));
            (ran.status.code(), asked.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let (code, asked) = script(&["check-cuda", "check-opencl", "model"]);
        assert_eq!(code, Some(0));
        assert_eq!(asked.len(), 3 + 4 + 2, "{asked:?}");
        let is_asked = |text: &str| asked.iter().any(|line| line.contains(text));
        assert!(is_asked("--check --kernels specialised --part 2/2"), "{asked:?}");
        assert!(is_asked("--api opencl --device 1 --check --kernels methods"), "{asked:?}");
        assert_eq!(script(&["check-cuda", "check-opencl", "model"]), (Some(0), Vec::new()));
        let (code, asked) = script(&["transfers"]);
        assert_eq!((code, asked.len()), (Some(3), 2 + 8), "{asked:?}");
        let shapes = |shape: &str| asked.iter().filter(|line| line.contains(shape)).count();
        assert_eq!((shapes("--code 10+4"), shapes("--code 30+33")), (4, 4), "{asked:?}");
        let (code, again) = script(&["transfers"]);
        assert_eq!((code, again.len()), (Some(3), 3), "{again:?}");
        assert_eq!(script(&["nonsense"]).0, Some(2));
        fs::remove_dir_all(&folder).unwrap();
    }
}
