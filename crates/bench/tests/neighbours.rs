//! Neighbours start, do work where they were put, and leave nothing behind.

#![allow(clippy::unwrap_used)] // in helpers of tests

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use saccade_bench::neighbours::{Neighbour, Pauser, Placement, Spec, use_program};
use saccade_host::{CpuSet, Process, Root, Task, process};

fn spec(kind: &str, threads: usize, placement: &str) -> Spec {
    Spec {
        kind: kind.parse().unwrap(),
        threads,
        placement: placement.parse::<Placement>().unwrap(),
    }
}

fn start(kind: &str, threads: usize, placement: &str) -> anyhow::Result<Neighbour> {
    use_program(env!("CARGO_BIN_EXE_saccade-bench"));
    Neighbour::start(&spec(kind, threads, placement))
}

/// Waits until it is so; a busy machine may take its time.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !so() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_alive(pid: u32) -> bool {
    Task::read(&Root::default(), pid, pid).is_ok_and(|task| !matches!(task.state, 'Z' | 'X'))
}

fn tree(pid: u32) -> Vec<u32> {
    process::tree(&Root::default(), pid).unwrap().iter().map(|p| p.pid).collect()
}

fn works_and_goes(kind: &str, threads: usize) {
    let mut hog = start(kind, threads, "anywhere").unwrap();
    let before = hog.read();
    eventually(&format!("{kind} does work"), || hog.work_since(before).done > 0);
    hog.check().unwrap();
    let pids = tree(hog.pid());
    hog.stop().unwrap();
    eventually(&format!("{kind} is gone"), || !pids.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn built_in_hogs_do_work_and_end() {
    for kind in ["cpu", "memory-bandwidth:8MiB", "cache:1MiB", "tlb:4MiB", "fork"] {
        works_and_goes(kind, 2);
    }
}

#[test]
fn commands_are_repeated_and_counted() {
    works_and_goes("cmd:true", 2);
    let once = start("cmd:test {threads} -eq 3 && sleep 100", 3, "anywhere").unwrap();
    eventually("one copy runs, told its threads", || tree(once.pid()).len() > 1);
}

/// A server that cannot hear SIGTERM would always be killed instead of ending on its own.
#[test]
fn commands_begin_with_no_signal_blocked() {
    let line = "cmd:exec sleep 1000";
    let hog = start(line, 1, "anywhere").unwrap();
    eventually("it runs", || tree(hog.pid()).len() > 1);
    let pid = tree(hog.pid())[1];
    let blocked = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|l| l.strip_prefix("SigBlk:")).map(|mask| mask.trim().to_owned())
    };
    eventually("nothing is blocked", || blocked().as_deref() == Some("0000000000000000"));
}

#[test]
fn programs_that_are_installed_do_work() {
    for (kind, program) in [("compile", "g++"), ("pbzip2", "pbzip2")] {
        let installed = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if installed.is_ok_and(|output| output.status.success()) {
            works_and_goes(kind, 1);
        } else {
            let what = format!("not tried: {program} is not installed");
            assert!(std::env::var_os("SACCADE_CI").is_none(), "{what}");
            eprintln!("{what}");
        }
    }
}

#[test]
fn a_command_that_fails_is_told() {
    let mut failing = match start("cmd:exit 3", 1, "anywhere") {
        Ok(neighbour) => neighbour,
        Err(error) => return assert!(format!("{error:#}").contains("exit status: 3"), "{error:#}"),
    };
    let mut told = None;
    eventually("the failure is told", || {
        told = failing.check().err();
        told.is_some()
    });
    assert!(format!("{:#}", told.unwrap()).contains("exit status: 3"));
}

#[test]
fn what_cannot_be_started_is_refused_in_words() {
    for (kind, threads, placement, words) in [
        ("cpu", 0, "anywhere", "1 .. 4096"),
        ("cpu", 1, "cores=8191", "cores 8191"),
        ("cache:999999GiB", 1, "anywhere", "MiB available"),
    ] {
        let error = format!("{:#}", start(kind, threads, placement).unwrap_err());
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn placement_is_what_the_kernel_says() {
    let last = CpuSet::of_task(0).unwrap().iter().last().unwrap();
    let hog = start("cpu", 2, &format!("cores={last}:nice=7:session=own")).unwrap();
    // SAFETY: plain integers.
    let session = unsafe { libc::getsid(hog.pid() as libc::pid_t) };
    assert_eq!(session, hog.pid() as libc::pid_t);
    let tasks = Task::read_all(&Root::default(), hog.pid()).unwrap();
    let workers: Vec<&Task> = tasks.iter().filter(|t| t.name.starts_with("hog-")).collect();
    assert_eq!(workers.len(), 2);
    for task in workers {
        assert_eq!(task.nice, Some(7));
        assert_eq!(task.affinity.as_ref().map(ToString::to_string), Some(last.to_string()));
    }
    let plain = start("cpu", 1, "anywhere").unwrap();
    // SAFETY: plain integers.
    unsafe {
        assert_eq!(libc::getsid(plain.pid() as libc::pid_t), libc::getsid(0));
        assert_ne!(libc::getpgid(plain.pid() as libc::pid_t), libc::getpgid(0));
    }
}

#[test]
fn a_quota_holds_or_is_refused_in_words() {
    let hog = match start("cpu", 1, "quota=0.2") {
        Ok(hog) => hog,
        Err(error) => {
            let error = format!("{error:#}");
            assert!(error.contains("cgroup") || error.contains("quota"), "{error}");
            return eprintln!("not tried: {error}");
        }
    };
    let cpu_ns = || {
        let process = Process::read(&Root::default(), hog.pid()).unwrap();
        process.user_ns + process.system_ns
    };
    let (before, from) = (cpu_ns(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let share = (cpu_ns() - before) as f64 / from.elapsed().as_nanos() as f64;
    assert!(share < 0.4, "{share} cores of 0.2");
    let group = saccade_host::Cgroups::of(&Root::default(), hog.pid()).unwrap().cpu.unwrap().dir;
    assert!(group.contains("saccade-neighbour-"), "{group}");
    hog.stop().unwrap();
    assert!(!std::path::Path::new(&group).exists(), "{group} is left behind");
}

/// Run by the next test in a process of its own: starts neighbours and waits to be killed.
#[test]
#[ignore = "part of another test"]
fn starts_neighbours_and_waits() {
    // A grandchild, and one that left group and session.
    let line = "cmd:setsid sleep 1000 & sleep 1000 & sleep 1000";
    let neighbours = [start("cpu", 1, "anywhere").unwrap(), start(line, 1, "anywhere").unwrap()];
    eventually("the sleepers run", || tree(neighbours[1].pid()).len() >= 4);
    for pid in neighbours.iter().flat_map(|n| tree(n.pid())) {
        println!("\npid {pid}");
    }
    println!("\nthat is all");
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn nothing_survives_a_killed_parent() {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "starts_neighbours_and_waits", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pids: Vec<u32> = lines
        .take_while(|line| line != "that is all")
        .filter_map(|line| line.strip_prefix("pid ")?.parse().ok())
        .collect();
    assert!(pids.len() >= 5, "{pids:?}");
    assert!(pids.iter().all(|&pid| is_alive(pid)), "{pids:?}");
    parent.kill().unwrap();
    parent.wait().unwrap();
    for pid in pids {
        eventually(&format!("process {pid} is gone"), || !is_alive(pid));
    }
}

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn is_stopped(&self) -> bool {
        Task::read(&Root::default(), self.0.id(), self.0.id()).unwrap().state == 'T'
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn paused_processes_go_on_when_told_and_when_the_pauser_goes() {
    use_program(env!("CARGO_BIN_EXE_saccade-bench"));
    let (a, b) = (Sleeper::start(), Sleeper::start());
    let mut pauser = Pauser::start().unwrap();
    pauser.pause_only(&[a.0.id(), 4_000_000_000]).unwrap();
    eventually("a stops", || a.is_stopped());
    assert!(!b.is_stopped());
    pauser.pause_only(&[b.0.id()]).unwrap();
    eventually("b stops, a goes on", || b.is_stopped() && !a.is_stopped());
    drop(pauser);
    eventually("b goes on", || !b.is_stopped());
}
