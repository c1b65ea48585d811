//! Neighbours that are other programs, and servers: started, repeated, fed and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::board::Board;
use super::descendants;
use super::hogs::mixed;

/// How a failure after the start is reported.
type Failed = fn(anyhow::Error);

/// Copies of a command line (or one copy, told the number of threads by `{threads}`), each
/// started again when it ends; counts ends.
pub(super) fn command(line: &str, board: &Arc<Board>, failed: Failed) -> anyhow::Result<()> {
    let placeholder = "{threads}";
    let copies = if line.contains(placeholder) { 1 } else { board.threads() };
    let line = line.replace(placeholder, &board.threads().to_string());
    repeat(copies, board, failed, move || shell(&line))
}

/// Compiles one generated translation unit, as many times at once as there are jobs; counts units.
pub(super) fn compile(board: &Arc<Board>, failed: Failed) -> anyhow::Result<()> {
    let compiler = find_compiler()?;
    // Read from standard input, so that no file is left behind whatever happens.
    let unit: Arc<str> = translation_unit().into();
    for thread in 0..board.threads() {
        let (board, compiler, unit) = (Arc::clone(board), compiler.clone(), Arc::clone(&unit));
        std::thread::spawn(move || {
            loop {
                match compile_once(&compiler, &unit) {
                    Ok(()) => board.add(thread, 1),
                    Err(error) => return failed(error),
                }
            }
        });
    }
    Ok(())
}

fn compile_once(compiler: &Path, unit: &str) -> anyhow::Result<()> {
    let mut command = Command::new(compiler);
    command.args(["-std=c++17", "-O2", "-x", "c++", "-c", "-", "-o", "/dev/null"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = tied_to_us(&mut command).spawn().context("start the compiler")?;
    let mut source = child.stdin.take().context("the compiler's input")?;
    source.write_all(unit.as_bytes()).context("write to the compiler")?;
    drop(source);
    check(child.wait().context("wait for the compiler")?, "the compiler")
}

fn find_compiler() -> anyhow::Result<PathBuf> {
    let asked = std::env::var("CXX").ok();
    let names = asked.iter().map(String::as_str).chain(["g++", "c++", "clang++"]);
    for name in names {
        if let Some(path) = in_path(name) {
            return Ok(path);
        }
    }
    bail!("neighbour compile needs a C++ compiler: set CXX, or install g++ or clang++")
}

/// Enough standard headers and templates for about a second of a compiler's work.
fn translation_unit() -> String {
    let mut text = String::from("#include <algorithm>\n#include <map>\n");
    text.push_str("#include <string>\n#include <vector>\n");
    for i in 0..6 {
        text.push_str(&format!(
            "int work{i}(std::vector<std::string> words) {{\n\
               std::map<std::string, std::vector<int>> places;\n\
               for (unsigned at = 0; at < words.size(); ++at)\n\
                 places[words[at]].push_back(int(at) + {i});\n\
               std::stable_sort(words.begin(), words.end(), [&](auto& a, auto& b) {{\n\
                 return places[a].size() * {i} < places[b].size();\n\
               }});\n\
               return int(places.size());\n\
             }}\n"
        ));
    }
    text
}

/// `pbzip2` over endless text-like bytes; counts the bytes it has read. A stream rather than a
/// file: its progress is visible, and no disk sets the pace.
pub(super) fn pbzip2(board: &Arc<Board>, failed: Failed) -> anyhow::Result<()> {
    let program = in_path("pbzip2").context("neighbour pbzip2: pbzip2 is not installed")?;
    let mut command = Command::new(program);
    command.args(["-c", "-z", &format!("-p{}", board.threads())]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let board = Arc::clone(board);
    // The death signal of a child is sent when the *thread* that started it ends.
    std::thread::spawn(move || {
        failed(
            feed_pbzip2(&mut command, &board)
                .err()
                .unwrap_or_else(|| anyhow::anyhow!("pbzip2 ended before its input did")),
        );
    });
    Ok(())
}

fn feed_pbzip2(command: &mut Command, board: &Board) -> anyhow::Result<()> {
    let mut child = tied_to_us(command).spawn().context("start pbzip2")?;
    let mut input = child.stdin.take().context("the input of pbzip2")?;
    let text = text_like(8 << 20);
    loop {
        for piece in text.chunks(64 << 10) {
            input.write_all(piece).context("write to pbzip2: it has ended")?;
            board.add(0, piece.len() as u64);
        }
    }
}

/// Words of an invented language with the skew of a real one: compresses about as text does.
fn text_like(bytes: usize) -> Vec<u8> {
    const SYLLABLES: [&str; 16] = [
        "ba", "ke", "lo", "mi", "nu", "pra", "sti", "ver", "an", "den", "es", "for", "ge", "hol",
        "is", "jor",
    ];
    let mut text = Vec::with_capacity(bytes + 16);
    let mut state = 1u64;
    while text.len() < bytes {
        state = mixed(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        // The product of two uniform numbers prefers small word numbers.
        let word = mixed((state & 0xff) * ((state >> 8) & 0xff));
        for syllable in 0..1 + (word >> 60) % 4 {
            text.extend_from_slice(
                SYLLABLES[(word >> (4 * syllable)) as usize % SYLLABLES.len()].as_bytes(),
            );
        }
        text.push(if state >> 60 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(bytes);
    text
}

/// Set once a server is being ended: then its end is no news.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Starts a server, its output to a file; `failed` is called when it ends on its own.
pub(super) fn server(line: &str, log: &Path, failed: Failed) -> anyhow::Result<()> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("open {}", log.display()))?;
    let errors = file.try_clone().context("share the log file")?;
    let mut command = shell(line);
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let (started, answer) = std::sync::mpsc::sync_channel(1);
    // The death signal of a child is sent when the *thread* that started it ends.
    std::thread::spawn(move || {
        let child = tied_to_us(&mut command).spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => return drop(started.send(Err(error))),
        };
        let _ = started.send(Ok(()));
        let status = child.wait();
        // SYNC: sequentially consistent, partner `end_gracefully`: it is set before any signal.
        if STOPPING.load(Ordering::SeqCst) {
            return;
        }
        failed(match status {
            Ok(status) => anyhow::anyhow!("it exited by itself ({status})"),
            Err(error) => anyhow::anyhow!("it exited by itself ({error})"),
        });
    });
    answer.recv().context("start the server")?.context("start the server")
}

/// How long a server has to end on its own before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// Between two checks on a server that is ending.
const ENDING_POLL: Duration = Duration::from_millis(20);

/// Asks a server to end, and waits a while for all its processes: a killed server leaves its
/// shared memory behind. A second caller waits forever: the first ends this process.
pub(super) fn end_gracefully() {
    // SYNC: sequentially consistent, partner `server`.
    while STOPPING.swap(true, Ordering::SeqCst) {
        std::thread::sleep(GRACE);
    }
    let deadline = Instant::now() + GRACE;
    let mut asked = Vec::new();
    while Instant::now() < deadline {
        descendants::reap();
        if descendants::alive().is_empty() {
            return;
        }
        // Repeatedly: orphans of a process that has ended are children of this one now.
        for pid in descendants::without_shells() {
            if !asked.contains(&pid) {
                ask_to_end(pid);
                asked.push(pid);
            }
        }
        std::thread::sleep(ENDING_POLL);
    }
}

/// A stopped process gets the first signal with the second.
fn ask_to_end(pid: u32) {
    // SAFETY: plain integers; a descendant that was just read of.
    unsafe {
        libc::kill(pid as libc::pid_t, libc::SIGTERM);
        libc::kill(pid as libc::pid_t, libc::SIGCONT);
    }
}

fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command
}

/// Runs a command in a loop on each of `copies` threads.
fn repeat(
    copies: usize,
    board: &Arc<Board>,
    failed: Failed,
    make: impl Fn() -> Command + Clone + Send + 'static,
) -> anyhow::Result<()> {
    for thread in 0..copies {
        let (board, make) = (Arc::clone(board), make.clone());
        std::thread::Builder::new()
            .name(format!("command-{thread}"))
            .spawn(move || {
                loop {
                    let mut command = make();
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    let ended = tied_to_us(&mut command).status().context("start the command");
                    match ended.and_then(|status| check(status, "the command")) {
                        Ok(()) => board.add(thread, 1),
                        Err(error) => return failed(error),
                    }
                }
            })
            .context("start a thread of the neighbour")?;
    }
    Ok(())
}

fn check(status: ExitStatus, what: &str) -> anyhow::Result<()> {
    match status.signal() {
        _ if status.success() => Ok(()),
        Some(signal) => bail!("{what} was ended by signal {signal}"),
        None => bail!("{what} ended with {status}"),
    }
}

/// The child is killed when the thread of this process that started it ends. It begins with no
/// signal blocked: this process blocks the signals that end it, and a server must hear SIGTERM.
fn tied_to_us(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: prctl, getppid, sigemptyset, pthread_sigmask and _exit are async-signal-safe; nothing
    // is allocated; the set is initialised before it is read.
    unsafe {
        command.pre_exec(move || {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            let code =
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the request above.
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            Ok(())
        })
    }
}

/// Where a program is in `PATH`; a name with a slash is itself.
fn in_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_like() {
        let text = text_like(100_000);
        assert_eq!(text.len(), 100_000);
        let words: Vec<&[u8]> = text.split(|b| b.is_ascii_whitespace()).collect();
        let distinct: std::collections::HashSet<&[u8]> = words.iter().copied().collect();
        assert!(distinct.len() > 1_000 && distinct.len() < words.len() / 2, "{}", distinct.len());
    }
}
