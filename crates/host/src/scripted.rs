//! Builds trees that look like /proc and /sys, for tests.

use std::fs;
use std::path::PathBuf;

use crate::Root;

/// A thread to be written.
#[derive(Debug, Clone)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name: any bytes.
    pub name: String,
    /// Nanoseconds on a core.
    pub run_ns: u64,
    /// Nanoseconds waited for a core.
    pub wait_ns: u64,
    /// Times put on a core.
    pub timeslices: u64,
    /// Voluntary switches.
    pub voluntary: u64,
    /// Involuntary switches.
    pub involuntary: u64,
    /// Moves to another core.
    pub migrations: u64,
    /// Core it last ran on.
    pub cpu: u32,
    /// Cores it may run on.
    pub affinity: String,
}

impl Thread {
    /// A thread that has done nothing yet, on any of four cores.
    pub fn new(tid: u32, name: &str) -> Thread {
        Thread {
            tid,
            name: name.to_owned(),
            run_ns: 0,
            wait_ns: 0,
            timeslices: 0,
            voluntary: 0,
            involuntary: 0,
            migrations: 0,
            cpu: 0,
            affinity: "0-3".to_owned(),
        }
    }
}

/// A process to be written.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Its words.
    pub cmdline: Vec<String>,
    /// Its threads; the first gives its name.
    pub threads: Vec<Thread>,
    /// Lines of /proc/PID/cgroup.
    pub cgroup: String,
}

impl Family {
    /// A process of one thread, named after the first word.
    pub fn new(pid: u32, ppid: u32, words: &[&str]) -> Family {
        let name: String = words.first().unwrap_or(&"").chars().take(15).collect();
        Family {
            pid,
            ppid,
            cmdline: words.iter().map(|&w| w.to_owned()).collect(),
            threads: vec![Thread::new(pid, &name)],
            cgroup: "0::/\n".to_owned(),
        }
    }
}

/// A tree in a folder, which stays the caller's.
#[derive(Debug, Clone)]
pub struct Tree {
    folder: PathBuf,
}

/// Mounts of a version 2 machine.
pub const MOUNTS_V2: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
/// Mounts of a version 1 machine with version 2 alongside, as systemd's hybrid layout has them.
pub const MOUNTS_V1: &str = "\
    32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
    34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
    41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

impl Tree {
    /// A machine with `cores` idle cores, one memory node, version 2 cgroups and no processes.
    ///
    /// # Panics
    /// As all of these, when the folder cannot be written.
    pub fn new(folder: impl Into<PathBuf>, cores: u32) -> Tree {
        let tree = Tree { folder: folder.into() };
        let all = format!("0-{}\n", cores - 1);
        tree.file("sys/devices/system/cpu/online", &all);
        tree.file("sys/devices/system/node/node0/cpulist", &all);
        tree.file("proc/self/mountinfo", MOUNTS_V2);
        tree.file("proc/sys/kernel/sched_autogroup_enabled", "0\n");
        tree.pressure(0, 0);
        tree.cpu_ticks(&vec![[0, 0, 0]; cores as usize]);
        tree
    }

    /// Where readers find it.
    pub fn root(&self) -> Root {
        Root::at(&self.folder)
    }

    /// Writes a file, and the folders to it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, path: &str, content: &str) {
        let path = self.folder.join(path);
        let folder = path.parent().expect("a file has a folder");
        fs::create_dir_all(folder).expect("the folder is writable");
        fs::write(path, content).expect("the folder is writable");
    }

    /// Makes a symbolic link that leads nowhere, such as a descriptor.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn link(&self, path: &str, to: &str) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().expect("a link has a folder")).expect("writable");
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(to, path).expect("the folder is writable");
    }

    /// Ticks of each core: busy, idle, stolen.
    pub fn cpu_ticks(&self, cores: &[[u64; 3]]) {
        let line = |(cpu, [busy, idle, steal]): (usize, &[u64; 3])| {
            format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 {steal} 0 0\n")
        };
        let lines: String = cores.iter().enumerate().map(line).collect();
        self.file("proc/stat", &format!("cpu  0 0 0 0\n{lines}ctxt 1\nprocesses 1\n"));
    }

    /// Microseconds of pressure of the machine, on cores and on memory.
    pub fn pressure(&self, cpu_us: u64, memory_us: u64) {
        for (name, total) in [("cpu", cpu_us), ("memory", memory_us)] {
            let line = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
            self.file(&format!("proc/pressure/{name}"), &line);
        }
    }

    /// Writes a process with its threads.
    pub fn process(&self, family: &Family) {
        let dir = format!("proc/{}", family.pid);
        let first = family.threads.first().cloned().unwrap_or_else(|| Thread::new(family.pid, ""));
        let words: String = family.cmdline.iter().flat_map(|w| [w.as_str(), "\0"]).collect();
        self.file(&format!("{dir}/cmdline"), &words);
        self.file(&format!("{dir}/cgroup"), &family.cgroup);
        let run_ns = family.threads.iter().map(|t| t.run_ns).sum();
        self.file(&format!("{dir}/stat"), &stat(family, &first, run_ns));
        self.file(&format!("{dir}/status"), &status(&first));
        let limits = "Max locked memory         unlimited            unlimited            bytes\n";
        self.file(&format!("{dir}/limits"), limits);
        self.file(&format!("{dir}/environ"), "");
        fs::create_dir_all(self.folder.join(format!("{dir}/fd"))).expect("writable");
        for thread in &family.threads {
            let dir = format!("{dir}/task/{}", thread.tid);
            self.file(&format!("{dir}/stat"), &stat(family, thread, thread.run_ns));
            self.file(&format!("{dir}/status"), &status(thread));
            let schedstat = format!("{} {} {}\n", thread.run_ns, thread.wait_ns, thread.timeslices);
            self.file(&format!("{dir}/schedstat"), &schedstat);
            let sched = format!("se.nr_migrations    :   {}\n", thread.migrations);
            self.file(&format!("{dir}/sched"), &sched);
        }
    }
}

fn stat(family: &Family, thread: &Thread, run_ns: u64) -> String {
    let ticks = run_ns / 10_000_000;
    format!(
        "{} ({}) S {} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 {} 0 {} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
         17 {} 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        thread.tid,
        thread.name,
        family.ppid,
        family.threads.len(),
        1000 + thread.tid,
        thread.cpu,
    )
}

fn status(thread: &Thread) -> String {
    format!(
        "Name:\tx\nVmLck:\t       0 kB\nVmPin:\t       0 kB\nCpus_allowed_list:\t{}\n\
         voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n",
        thread.affinity, thread.voluntary, thread.involuntary,
    )
}
