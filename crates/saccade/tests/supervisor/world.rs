//! A server that may not become ready, and what it says.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common::Result;

/// Longer than anything here takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(90);
/// Little KV: servers of other tests run beside this one.
pub const SMALL: [&str; 4] = ["--kv-cache-memory-bytes", "16000000", "--max-num-seqs", "8"];

/// A server with its standard error in a file. Dropped, it is killed.
pub struct Started {
    child: Child,
    said: PathBuf,
    _folder: tempfile::TempDir,
}

impl Started {
    /// `saccade serve` with these flags, and what `prepare` adds.
    pub fn new(flags: &[&str], prepare: impl FnOnce(&mut Command)) -> Result<Started> {
        Started::run(Command::new(env!("CARGO_BIN_EXE_saccade")), flags, prepare)
    }

    /// The same where the limit of open files is `files`, soft and hard.
    pub fn with_open_files(files: u32, flags: &[&str]) -> Result<Started> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
        shell.arg(env!("CARGO_BIN_EXE_saccade"));
        Started::run(shell, flags, |_| ())
    }

    fn run(
        mut command: Command,
        flags: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Started> {
        let folder = tempfile::tempdir()?;
        let said = folder.path().join("stderr");
        command.arg("serve").args(SMALL).args(flags).env("SACCADE_LOG", "info");
        command.stdin(Stdio::null()).stderr(std::fs::File::create(&said)?);
        prepare(&mut command);
        Ok(Started { child: command.spawn()?, said, _folder: folder })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it and its planes have written to standard error.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits until that contains `words`; returns all of it.
    pub async fn says(&mut self, words: &str) -> Result<String> {
        let what = format!("it says {words:?}");
        until(&what, || self.said().contains(words)).await.map_err(|e| self.with_log(&e))?;
        Ok(self.said())
    }

    /// What follows `label` in a line that it has said.
    pub async fn value(&mut self, label: &str) -> Result<String> {
        let said = self.says(label).await?;
        let value = |line: &str| Some(line.split_once(label)?.1.trim().to_owned());
        Ok(said.lines().find_map(value).unwrap_or_default())
    }

    /// `http://HOST:PORT`, when it is known.
    pub async fn url(&mut self) -> Result<String> {
        self.value("listening on").await
    }

    /// Waits until `/ready` at `url` says yes.
    pub async fn ready(&mut self, http: &reqwest::Client, url: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < SOON {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.with_log(&format!("ended with {status}")));
            }
            let answer = http.get(format!("{url}/ready")).timeout(Duration::from_secs(5));
            if answer.send().await.is_ok_and(|a| a.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(self.with_log("not ready"))
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < SOON {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(self.with_log("has not ended"))
    }

    /// SIGTERM, and its end.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        signal(self.pid(), libc::SIGTERM);
        self.ended().await
    }

    /// Processes of its planes of a kind.
    pub fn planes(&self, kind: &str) -> Vec<u32> {
        planes(self.pid(), kind)
    }

    /// Waits until another process than `old` is the plane of a kind.
    pub async fn replaced(&mut self, kind: &str, old: u32) -> Result<u32> {
        let supervisor = self.pid();
        let other = || planes(supervisor, kind).into_iter().find(|pid| *pid != old);
        let what = format!("another {kind} plane");
        until(&what, || other().is_some()).await.map_err(|e| self.with_log(&e))?;
        Ok(other().unwrap_or_default())
    }

    fn with_log(&self, error: &str) -> Box<dyn std::error::Error + Send + Sync> {
        format!("{error}; it said:\n{}", self.said()).into()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for kind in ["device", "frontend"] {
            for pid in self.planes(kind) {
                signal(pid, libc::SIGKILL);
            }
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until `true`, for a bounded time.
pub async fn until(what: &str, mut is: impl FnMut() -> bool) -> std::result::Result<(), String> {
    let start = Instant::now();
    while !is() {
        if start.elapsed() > SOON {
            return Err(format!("not within {SOON:?}: {what}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Sends a signal to a process of this test. A process that is stopped has stopped when this
/// returns: one of its threads takes the signal, and until it has a core the others go on.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: a signal to a process that this test started.
    unsafe { libc::kill(pid as i32, signal) };
    while signal == libc::SIGSTOP && !is_stopped(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all threads of the process have stopped, or it is gone.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    // The state follows the name, which is in parentheses and may hold any character.
    states
        .map(|stat| stat.rsplit(") ").next().map(str::to_owned))
        .all(|rest| rest.is_none_or(|rest| rest.starts_with(['T', 'Z', 'X'])))
}

/// Children of a supervisor that run the command of this name.
pub fn planes(supervisor: u32, kind: &str) -> Vec<u32> {
    let path = format!("/proc/{supervisor}/task/{supervisor}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let is = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).nth(1) == Some(kind.as_bytes())
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is).collect()
}

/// Whether a process runs; one that has ended and is not waited for does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
