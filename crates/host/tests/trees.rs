//! Scripted machines: what the readers make of layouts that this machine need not have.

use std::time::Duration;

use saccade_host::scripted::{Family, MOUNTS_V1, Thread, Tree};
use saccade_host::{
    Cgroups, Cores, CpuSet, Footprint, HostError, MAX_FILE_BYTES, Pressure, Resource, Root,
    Snapshot, Task, WaitMeter, cgroup, gpu, process, sockets,
};

fn tree(cores: u32) -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tree = Tree::new(folder.path(), cores);
    (folder, tree)
}

fn usable(root: &Root, pid: u32) -> Option<f64> {
    let tasks = Task::read_all(root, pid).expect("the process was written");
    Cores::of(root, pid, &tasks).expect("no limit is unreadable").usable
}

#[test]
fn version_2_takes_the_tightest_level() {
    let (_folder, tree) = tree(16);
    let mut family = Family::new(7, 1, &["vllm"]);
    family.cgroup = "0::/kubepods.slice/pod1.slice/cri-containerd-ab.scope\n".into();
    family.threads[0].affinity = "0-11".into();
    tree.process(&family);
    let base = "sys/fs/cgroup/kubepods.slice";
    tree.file(&format!("{base}/cpu.max"), "max 100000\n");
    tree.file(&format!("{base}/pod1.slice/cpu.max"), "250000 100000\n");
    tree.file(
        &format!("{base}/pod1.slice/cpu.stat"),
        "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 300\n",
    );
    let leaf = format!("{base}/pod1.slice/cri-containerd-ab.scope");
    tree.file(&format!("{leaf}/cpu.max"), "400000 100000\n");
    tree.file(&format!("{leaf}/cpuset.cpus.effective"), "0-7\n");
    tree.file(&format!("{leaf}/cpu.pressure"), "some avg10=1.0 avg60=0 avg300=0 total=9\n");
    let root = tree.root();
    let groups = Cgroups::of(&root, 7).unwrap();
    let levels = groups.cpu_levels(&root).unwrap();
    assert_eq!(levels.len(), 4);
    let (level, quota) = cgroup::tightest(&levels).unwrap();
    assert_eq!(quota.cores(), 2.5);
    assert!(level.quota_file.ends_with("pod1.slice/cpu.max"), "{}", level.quota_file);
    let throttling = level.throttling.unwrap();
    assert_eq!((throttling.nr_throttled, throttling.throttled_ns), (4, 300_000));
    let pressure: Option<Pressure> = groups.pressure(&root, Resource::Cpu).unwrap();
    assert_eq!(pressure.unwrap().some.total_us, 9);
    let cores = Cores::of(&root, 7, &Task::read_all(&root, 7).unwrap()).unwrap();
    assert_eq!(cores.set.unwrap().to_string(), "0-7");
    assert_eq!(cores.usable, Some(2.5));
}

#[test]
fn version_1_beside_version_2() {
    let (_folder, tree) = tree(8);
    tree.file("proc/self/mountinfo", MOUNTS_V1);
    let mut family = Family::new(7, 1, &["vllm"]);
    family.cgroup = "4:cpuset:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/system.slice\n".into();
    family.threads[0].affinity = "2-3".into();
    tree.process(&family);
    let cpu = "sys/fs/cgroup/cpu,cpuacct/docker/ab";
    tree.file(&format!("{cpu}/cpu.cfs_quota_us"), "150000\n");
    tree.file(&format!("{cpu}/cpu.cfs_period_us"), "100000\n");
    tree.file(&format!("{cpu}/cpu.stat"), "nr_periods 9\nnr_throttled 2\nthrottled_time 77\n");
    tree.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    tree.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    tree.file("sys/fs/cgroup/cpuset/docker/ab/cpuset.cpus", "0-3\n");
    tree.file(
        "sys/fs/cgroup/unified/system.slice/cpu.pressure",
        "some avg10=0 avg60=0 avg300=0 total=3\n",
    );
    let root = tree.root();
    let groups = Cgroups::of(&root, 7).unwrap();
    assert_eq!(groups.cpu_levels(&root).unwrap()[0].throttling.unwrap().throttled_ns, 77);
    assert_eq!(groups.cpuset(&root).unwrap(), "0-3".parse::<CpuSet>().ok());
    assert_eq!(groups.pressure(&root, Resource::Cpu).unwrap().unwrap().some.total_us, 3);
    assert_eq!(usable(&root, 7), Some(1.5));
    tree.file(&format!("{cpu}/cpu.cfs_quota_us"), "800000\n");
    assert_eq!(usable(&root, 7), Some(2.0), "the affinity mask is tighter now");
}

/// In a container of version 1 without a namespace of its own, the mount shows a part only.
#[test]
fn a_container_sees_its_part_of_the_hierarchy() {
    let (_folder, tree) = tree(8);
    tree.file(
        "proc/self/mountinfo",
        "32 31 0:29 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n\
         33 31 0:29 /docker/other /elsewhere rw - cgroup cgroup rw,cpu\n",
    );
    let mut family = Family::new(7, 1, &["vllm"]);
    family.cgroup = "3:cpu:/docker/ab/inner\n".into();
    tree.process(&family);
    tree.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
    tree.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    tree.file("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "-1\n");
    tree.file("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
    assert_eq!(usable(&tree.root(), 7), Some(3.0));
    family.cgroup = "3:cpu:/../outside\n".into();
    tree.process(&family);
    let groups = Cgroups::of(&tree.root(), 7).unwrap();
    assert_eq!(groups.cpu, None, "another container's limits are not ours to guess");
}

#[test]
fn a_namespace_hides_ancestors() {
    let (_folder, tree) = tree(2);
    tree.process(&Family::new(7, 1, &["vllm"]));
    assert_eq!(Cgroups::of(&tree.root(), 7).unwrap().ancestors_hidden, None);
    tree.link("proc/self/ns/cgroup", "cgroup:[4026531835]");
    assert_eq!(Cgroups::of(&tree.root(), 7).unwrap().ancestors_hidden, Some(false));
    tree.link("proc/self/ns/cgroup", "cgroup:[4026532000]");
    assert_eq!(Cgroups::of(&tree.root(), 7).unwrap().ancestors_hidden, Some(true));
}

/// A limit that cannot be understood must not pass for none.
#[test]
fn a_malformed_quota_is_an_error() {
    let (_folder, tree) = tree(2);
    let mut family = Family::new(7, 1, &["vllm"]);
    family.cgroup = "0::/a\n".into();
    tree.process(&family);
    for wrong in ["", "12", "0 100000", "x y", "100000 0"] {
        tree.file("sys/fs/cgroup/a/cpu.max", wrong);
        let read = Cgroups::of(&tree.root(), 7).unwrap().cpu_levels(&tree.root());
        assert!(matches!(read, Err(HostError::Malformed { .. })), "{wrong:?}: {read:?}");
    }
}

#[test]
fn families_follow_parents_not_numbers() {
    let (_folder, tree) = tree(2);
    for (pid, ppid) in [(50, 1), (9, 50), (60, 9), (61, 1), (62, 61)] {
        tree.process(&Family::new(pid, ppid, &["x"]));
    }
    let found: Vec<u32> = process::tree(&tree.root(), 50).unwrap().iter().map(|p| p.pid).collect();
    assert_eq!(found, [50, 9, 60]);
    assert!(process::tree(&tree.root(), 51).unwrap_err().is_absent());
    // Two that claim each other, as a reused number may look.
    tree.process(&Family::new(50, 60, &["x"]));
    assert_eq!(process::tree(&tree.root(), 50).unwrap().len(), 3);
}

#[test]
fn names_of_any_characters_come_through() {
    let (_folder, tree) = tree(2);
    for name in ["a) R 1 1", "with blank", "new\nline", "(((", "\u{1b}[31m"] {
        let mut family = Family::new(7, 1, &["x"]);
        family.threads[0].name = name.into();
        tree.process(&family);
        assert_eq!(Task::read(&tree.root(), 7, 7).unwrap().name, name);
        assert_eq!(process::Process::read(&tree.root(), 7).unwrap().name, name);
    }
}

#[test]
fn what_is_missing_is_none_not_zero() {
    let (folder, tree) = tree(2);
    tree.process(&Family::new(7, 1, &["x"]));
    for gone in ["schedstat", "sched", "status"] {
        std::fs::remove_file(folder.path().join("proc/7/task/7").join(gone)).unwrap();
    }
    let task = Task::read(&tree.root(), 7, 7).unwrap();
    assert_eq!((task.counters.run_ns, task.counters.wait_ns), (None, None));
    assert_eq!((task.counters.migrations, task.counters.involuntary), (None, None));
    assert_eq!((task.affinity, task.counters.user_ns), (None, Some(0)));
    let before = Snapshot::take_at(&tree.root(), &[7], 0).unwrap();
    let after = Snapshot::take_at(&tree.root(), &[7], 1_000_000_000).unwrap();
    let delta = after.since(&before);
    assert_eq!((delta.total.wait_s, delta.total.wait_share()), (None, None));
    assert_eq!(delta.total.cpu_s(), Some(0.0));
}

/// A thread, then the process, end between listing and reading.
#[test]
fn ending_meanwhile_is_no_failure_of_the_rest() {
    let (folder, tree) = tree(2);
    let mut family = Family::new(7, 1, &["x"]);
    family.threads.push(Thread::new(8, "worker"));
    tree.process(&family);
    tree.process(&Family::new(20, 7, &["y"]));
    std::fs::remove_file(folder.path().join("proc/7/task/8/stat")).unwrap();
    assert_eq!(Task::read_all(&tree.root(), 7).unwrap().len(), 1);
    std::fs::remove_dir_all(folder.path().join("proc/20")).unwrap();
    let read = Snapshot::take_at(&tree.root(), &[7, 20], 0).unwrap();
    assert_eq!(read.processes.len(), 1);
    assert!(!read.problems.is_empty());
    std::fs::remove_file(folder.path().join("proc/7/task/7/stat")).unwrap();
    assert!(Snapshot::take_at(&tree.root(), &[7], 0).unwrap_err().is_absent());
}

#[test]
fn huge_files_are_bounded() {
    let (folder, tree) = tree(2);
    tree.process(&Family::new(7, 1, &["x"]));
    let huge = "x".repeat(MAX_FILE_BYTES + 1);
    tree.file("proc/7/cgroup", &huge);
    assert!(matches!(Cgroups::of(&tree.root(), 7), Err(HostError::TooLong { .. })));
    tree.file("proc/7/cmdline", &huge);
    let words = process::Process::read(&tree.root(), 7).unwrap().cmdline.unwrap();
    assert!(words[0].len() < MAX_FILE_BYTES);
    tree.file("proc/7/numa_maps", &"7f default N0=1\n".repeat(400_000));
    let read = saccade_host::numa::residence(&tree.root(), 7).unwrap();
    assert!(!read.complete && read.bytes[&0] > 0);
    assert!(folder.path().exists());
}

#[test]
fn a_delta_is_what_both_moments_tell() {
    let (_folder, tree) = tree(2);
    let mut family = Family::new(7, 1, &["x"]);
    family.threads[0].run_ns = 5_000_000_000;
    family.threads.push(Thread::new(8, "ends"));
    tree.process(&family);
    tree.cpu_ticks(&[[100, 900, 0], [0, 1000, 0]]);
    let before = Snapshot::take_at(&tree.root(), &[7], 1_000_000_000).unwrap();

    family.threads[0].run_ns += 600_000_000;
    family.threads[0].wait_ns += 200_000_000;
    family.threads[0].timeslices += 100;
    family.threads[0].involuntary += 50;
    family.threads[1] = Thread::new(9, "born");
    family.threads[1].run_ns = 200_000_000;
    tree.process(&family);
    std::fs::remove_dir_all(tree.root().path("proc/7/task/8")).unwrap();
    tree.cpu_ticks(&[[290, 910, 0], [100, 1080, 20]]);
    tree.pressure(500_000, 0);
    let delta = Snapshot::take_at(&tree.root(), &[7], 3_000_000_000).unwrap().since(&before);

    assert_eq!(delta.seconds, 2.0);
    assert_eq!((delta.threads_born, delta.threads_gone), (1, 1));
    assert!((delta.total.run_s.unwrap() - 0.8).abs() < 1e-9);
    assert!((delta.total.wait_share().unwrap() - 0.2).abs() < 1e-9);
    assert!((delta.tasks[0].used.wait_ms_per_slice().unwrap() - 2.0).abs() < 1e-9);
    assert_eq!(delta.total.involuntary, Some(50));
    assert!((delta.cpus[&0].busy - 0.95).abs() < 1e-9);
    assert!((delta.cpus[&1].steal - 0.1).abs() < 1e-9);
    // 1.45 cores busy, 0.4 of them ours.
    let both: CpuSet = "0-1".parse().unwrap();
    assert!((delta.others_cores(&both).unwrap() - 1.05).abs() < 1e-9);
    assert_eq!(delta.steal(&both), Some(0.1));
    assert_eq!(delta.cpu_pressure, Some(0.25));
}

/// A reused thread number must not be mistaken for the same thread, running backwards.
#[test]
fn a_reused_number_is_another_thread() {
    let (_folder, tree) = tree(2);
    let mut family = Family::new(7, 1, &["x"]);
    family.threads[0].run_ns = 5_000_000_000;
    tree.process(&family);
    let before = Snapshot::take_at(&tree.root(), &[7], 0).unwrap();
    family.threads[0].run_ns = 1_000_000_000;
    tree.process(&family);
    let path = "proc/7/task/7/stat";
    let stat = tree.root().text(path).unwrap().replace(" 1007 ", " 2007 ");
    tree.file(path, &stat);
    let delta = Snapshot::take_at(&tree.root(), &[7], 2_000_000_000).unwrap().since(&before);
    assert_eq!((delta.threads_born, delta.threads_gone), (1, 1));
    assert_eq!(delta.total.run_s, Some(1.0));
}

#[test]
fn own_wait_never_falls() {
    let (folder, tree) = tree(2);
    let write =
        |tid: u32, three: &str| tree.file(&format!("proc/self/task/{tid}/schedstat"), three);
    write(1, "100 10 1\n");
    write(2, "50 5 1\n");
    let mut meter = WaitMeter::at(tree.root());
    assert_eq!(meter.read().unwrap().wait_ns, 15);
    std::fs::remove_dir_all(folder.path().join("proc/self/task/2")).unwrap();
    write(1, "110 12 2\n");
    let read = meter.read().unwrap();
    assert_eq!((read.run_ns, read.wait_ns, read.threads), (160, 17, 1));
    // Thread 1 ends and its number is given to another.
    write(1, "7 1 1\n");
    assert_eq!(meter.read().unwrap().wait_ns, 18);
    std::fs::remove_dir_all(folder.path().join("proc/self/task/1")).unwrap();
    assert!(meter.read().is_err(), "no thread at all is no answer");
}

#[test]
fn own_wait_of_this_process() {
    let began = std::time::Instant::now();
    let mut spun = 0u64;
    while began.elapsed() < Duration::from_millis(20) {
        spun = std::hint::black_box(spun + 1);
    }
    match saccade_host::self_wait() {
        Ok(read) => assert!(read.run_ns > 1_000_000 && read.threads >= 1, "{read:?}"),
        // A kernel without CONFIG_SCHED_INFO says so instead of zero.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[test]
fn listeners_are_found_by_inode() {
    let (_folder, tree) = tree(2);
    let head = "  sl  local_address rem_address   st tx rx tr tm retrnsmt uid timeout inode\n";
    let line = "   0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 4242 1 0 100 0 0 10 0\n";
    tree.file("proc/net/tcp", &format!("{head}{line}"));
    for (pid, socket) in [(7, 4242), (8, 4243)] {
        tree.process(&Family::new(pid, 1, &["x"]));
        tree.link(&format!("proc/{pid}/fd/3"), &format!("socket:[{socket}]"));
    }
    assert_eq!(sockets::listeners(&tree.root(), 8080).unwrap(), [7]);
    assert!(sockets::listeners(&tree.root(), 8081).unwrap().is_empty());
    tree.file(
        "proc/8/net/tcp6",
        &line
            .replace("4242", "4243")
            .replace("0100007F:1F90", "00000000000000000000000000000000:2328"),
    );
    assert!(sockets::listens(&tree.root(), 8, 9000).unwrap());
    assert!(!sockets::listens(&tree.root(), 8, 9001).unwrap());
}

#[test]
fn gpus_are_known_by_their_files() {
    let (_folder, tree) = tree(2);
    tree.process(&Family::new(7, 1, &["x"]));
    tree.link("proc/7/fd/3", "/dev/nvidia1");
    tree.link("proc/7/fd/4", "/dev/nvidiactl");
    tree.file(
        "proc/driver/nvidia/gpus/0000:1B:00.0/information",
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nDevice Minor: \t 1\n",
    );
    tree.file("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    tree.file("sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "0-1\n");
    let all = gpu::gpus(&tree.root());
    assert_eq!(all[0].model.as_deref(), Some("NVIDIA H200"));
    assert_eq!((all[0].minor, all[0].numa_node), (Some(1), Some(1)));
    let driven = gpu::driven(&tree.root(), &[7]).unwrap();
    assert_eq!(driven.minors.into_iter().collect::<Vec<_>>(), [1]);
    assert_eq!(driven.source, gpu::Source::OpenFiles);
}

/// This machine, whatever it is: its own process is found with its threads.
#[test]
fn the_machine_itself() {
    let root = Root::default();
    let own = std::process::id();
    let found = process::tree(&root, own).unwrap();
    assert_eq!(found[0].pid, own);
    let tasks = Task::read_all(&root, own).unwrap();
    assert!(tasks.len() >= 2, "the test's own thread and the harness's");
    let cores = Cores::of(&root, own, &tasks).unwrap();
    assert!(cores.usable.unwrap() > 0.0);
    let read = Snapshot::take(&root, &[own]).unwrap();
    assert!(read.machine.is_some());
}

#[test]
fn the_footprint_of_a_family_is_a_sum_of_what_is_known() {
    let (_folder, tree) = tree(2);
    for (pid, ppid) in [(7, 1), (8, 7), (9, 7), (10, 1)] {
        tree.process(&Family::new(pid, ppid, &["server"]));
    }
    tree.file("proc/7/status", "VmHWM:\t 900 kB\nVmRSS:\t 100 kB\nRssAnon:\t 40 kB\n");
    tree.file("proc/8/status", "VmRSS:\t 50 kB\n");
    for descriptor in 0..3 {
        tree.link(&format!("proc/7/fd/{descriptor}"), "socket:[1]");
    }
    let root = tree.root();
    let family = Footprint::of_tree(&root, 7).expect("it lives");
    assert_eq!(family.resident_bytes, Some(150 << 10));
    assert_eq!((family.private_bytes, family.descriptors), (Some(40 << 10), Some(3)));
    let alone = Footprint::read(&root, 9).expect("it lives");
    assert_eq!((alone.resident_bytes, alone.descriptors), (None, Some(0)));
    assert_eq!(family.most(alone), family);
    assert!(Footprint::of_tree(&root, 11).is_err(), "it never lived");
}
