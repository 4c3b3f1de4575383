//! The user's own pip, started so that no stray file can replace it: in a new folder of kgen's, never in the user's
//! current one, whose `pip.py` Python would run, and without `PYTHONPATH`.

use super::{Cancel, ToolchainError, find_in_path, folder_size, process, wheels::Bundle};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Python's isolation flags, the strictest first. `-I` ignores the current folder, `PYTHON*` variables, and packages
/// installed for the user; `-E` includes these packages, for users whose pip is one of them.
const ISOLATIONS: [&str; 2] = ["-I", "-E"];

/// Time limit for pip to report its version: it needs a second, so one that exceeds this hangs.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// Time limit of a download.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(3600);

/// Interval between checks of the downloaded size.
const WATCHING: Duration = Duration::from_millis(200);

/// Maximum length of pip's error message when shown (characters).
const LONGEST: usize = 400;

/// A Python whose pip works.
#[derive(Clone, Debug)]
pub struct Pip {
    program: PathBuf,
    isolation: &'static str,
}

/// Outcome of one attempt.
enum Answer {
    Works,
    NoModule,
    Broken(String),
}

impl Pip {
    /// The pip of the first `python3` or `python` in `PATH`, tested by a version query.
    ///
    /// # Errors
    /// [`ToolchainError::NoPip`] with the missing one, [`ToolchainError::BrokenPip`] with pip's reason (an unreadable
    /// configuration, for example), [`ToolchainError::Cancelled`].
    pub fn find(cancel: &Cancel) -> Result<Self, ToolchainError> {
        let program = find_in_path("python3").or_else(|| find_in_path("python"));
        let program = program.ok_or_else(|| ToolchainError::NoPip { detail: "`python3` is not in `PATH`".into() })?;
        // Made absolute, because pip runs in another folder.
        let program = std::path::absolute(&program).map_err(ToolchainError::io("resolve", &program))?;
        for isolation in ISOLATIONS {
            let pip = Self { program: program.clone(), isolation };
            match pip.answer(cancel)? {
                Answer::Works => return Ok(pip),
                Answer::NoModule => {}
                Answer::Broken(reason) => return Err(ToolchainError::BrokenPip { command: pip.to_string(), reason }),
            }
        }
        Err(ToolchainError::NoPip { detail: format!("`{}` has no module `pip`", program.display()) })
    }

    fn answer(&self, cancel: &Cancel) -> Result<Answer, ToolchainError> {
        let folder = tempfile::tempdir().map_err(ToolchainError::io("create a folder in", std::env::temp_dir()))?;
        // Both streams: pip reports a configuration that is not UTF-8 on standard error.
        let log = folder.path().join("said");
        let done = self.run(folder.path(), &log, &["--version"], VERSION_LIMIT, cancel)?;
        let said = fs::read(&log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        Ok(match done {
            process::Ending::Exited(0) => Answer::Works,
            process::Ending::Cancelled => return Err(ToolchainError::Cancelled),
            process::Ending::TimeLimit => Answer::Broken(format!("it gave no answer in {} s", VERSION_LIMIT.as_secs())),
            process::Ending::Signalled(signal) => Answer::Broken(format!("it died of signal {signal}")),
            process::Ending::Exited(_) if said.contains("No module named pip") => Answer::NoModule,
            process::Ending::Exited(code) => Answer::Broken(complaint(&said).unwrap_or_else(|| format!("exit code {code}"))),
        })
    }

    /// Has pip download all wheels of `bundle` into `into`, a folder in a new one of kgen's, through the user's
    /// configured index, proxy and cache. `watch` is called periodically with the number of bytes received.
    ///
    /// # Errors
    /// [`ToolchainError`]: pip's failure, or cancelled.
    pub(super) fn download(
        &self,
        bundle: &Bundle,
        into: &Path,
        cancel: &Cancel,
        watch: &(dyn Fn(u64) + Sync),
    ) -> Result<(), ToolchainError> {
        fs::create_dir_all(into).map_err(ToolchainError::io("create", into))?;
        let log = into.join("pip.log");
        let mut arguments = vec!["download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"];
        // pip runs in `into`, so that no path is an argument.
        arguments.extend(["--progress-bar", "off", "--dest", "."]);
        let wheels: Vec<String> = bundle.wheels.iter().map(super::wheels::Wheel::requirement).collect();
        arguments.extend(wheels.iter().map(String::as_str));
        let (ended, wait) = mpsc::channel::<()>();
        let ending = thread::scope(|scope| {
            scope.spawn(move || {
                while let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(WATCHING) {
                    watch(folder_size(into));
                }
            });
            let ending = self.run(into, &log, &arguments, DOWNLOAD_LIMIT, cancel);
            drop(ended);
            ending
        });
        let reason = match ending? {
            process::Ending::Exited(0) => return Ok(()),
            process::Ending::Cancelled => return Err(ToolchainError::Cancelled),
            process::Ending::TimeLimit => format!("it was not done after {} minutes", DOWNLOAD_LIMIT.as_secs() / 60),
            process::Ending::Signalled(signal) => format!("it was killed by signal {signal}"),
            process::Ending::Exited(_) => error(&fs::read_to_string(&log).unwrap_or_default()),
        };
        Err(ToolchainError::Download { reason })
    }

    /// Runs pip in `folder`, one of kgen's own, with both streams in `log` and its temporary files there too.
    fn run(
        &self,
        folder: &Path,
        log: &Path,
        arguments: &[&str],
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<process::Ending, ToolchainError> {
        let (out, errors) = both(log).map_err(ToolchainError::io("write", log))?;
        let mut command = Command::new(&self.program);
        command.args([self.isolation, "-m", "pip"]).args(arguments);
        command.current_dir(folder).env("TMPDIR", folder).stdin(Stdio::null()).stdout(out).stderr(errors);
        let done = process::run(&mut command, limit, cancel);
        let done =
            done.map_err(|e| ToolchainError::NoPip { detail: format!("`{}` cannot be run ({e})", self.program.display()) })?;
        Ok(done.ending)
    }
}

/// In the form that a user would type.
impl std::fmt::Display for Pip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} -m pip", self.program.display(), self.isolation)
    }
}

fn both(log: &Path) -> io::Result<(File, File)> {
    let file = File::create(log)?;
    Ok((file.try_clone()?, file))
}

/// All of pip's output, on one line, without control characters; `None` if there was none.
fn complaint(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    (!lines.is_empty()).then(|| lines.join(" ").trim_end_matches('.').chars().take(LONGEST).map(plain).collect())
}

/// pip's first `ERROR:` line, or its last line: after `ERROR: Exception:` a traceback follows, which ends with the
/// cause, such as a full disk.
fn error(log: &str) -> String {
    let error = log.lines().find_map(|l| l.trim().strip_prefix("ERROR:")).filter(|e| e.trim() != "Exception:");
    let last = log.lines().map(str::trim).rfind(|l| !l.is_empty());
    error.or(last).unwrap_or("pip said nothing").trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_own_error_is_what_is_told() {
        let log = "Looking in indexes\nERROR: No matching distribution found for x\nnotice\n";
        assert_eq!(error(log), "No matching distribution found for x");
        assert_eq!(error("Killed\n\n"), "Killed");
        let full = "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on device\n";
        assert_eq!(error(full), "OSError: [Errno 28] No space left on device");
    }

    #[test]
    fn a_complaint_is_one_line_that_names_the_file() {
        let said = "Configuration file could not be loaded.\nFile contains no section headers.\nfile: '/x/pip.conf', line: 1\n'\u{1b}['\n";
        let line = complaint(said).expect("it said something");
        assert!(line.contains("'/x/pip.conf', line: 1") && !line.contains(char::is_control), "{line}");
        assert_eq!(complaint("\n \n"), None);
    }
}
