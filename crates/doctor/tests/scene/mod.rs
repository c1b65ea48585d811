//! A scripted machine with an engine on it, and five seconds that pass at once.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::Path;
use std::time::Duration;

use saccade_doctor::clock::Clock;
use saccade_doctor::examine;
use saccade_doctor::facts::Watch;
use saccade_doctor::finding::{Finding, Severity};
use saccade_doctor::reference::Prices;
use saccade_doctor::report::Report;
use saccade_doctor::target::Target;
use saccade_host::scripted::{Family, Thread, Tree};

pub const SERVER: u32 = 100;
pub const SECONDS: u64 = 5;
/// Folder of the pod that [`Scene::in_pod`] puts the server into.
pub const POD: &str = "sys/fs/cgroup/kubepods.slice/pod1.slice";

pub struct Scene {
    pub folder: tempfile::TempDir,
    pub tree: Tree,
    pub families: Vec<Family>,
    cores: u32,
    /// Files of processes that are written over what the builder writes.
    overwritten: Vec<(String, String)>,
}

impl Scene {
    /// One process.
    pub fn single(cores: u32, words: &[&str]) -> Scene {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::tempdir_in(folder).expect("a temporary folder");
        let tree = Tree::new(folder.path(), cores);
        let families = vec![Family::new(SERVER, 1, words)];
        let mut scene = Scene { folder, tree, families, cores, overwritten: Vec::new() };
        scene.affinity(&format!("0-{}", cores - 1));
        scene.write();
        scene
    }

    /// vLLM with one worker for each GPU: API server 100, engine core 101, workers from 102.
    pub fn vllm(cores: u32, gpus: u32) -> Scene {
        let mut scene = Scene::single(cores, &["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"]);
        scene.families.push(Family::new(SERVER + 1, SERVER, &["VLLM::EngineCore"]));
        for rank in 0..gpus {
            let pid = SERVER + 2 + rank;
            let title = format!("VLLM::Worker_TP{rank}");
            scene.families.push(Family::new(pid, SERVER + 1, &[&title]));
            scene.tree.link(&format!("proc/{pid}/fd/5"), &format!("/dev/nvidia{rank}"));
            let bus = format!("0000:{rank}B:00.0");
            scene.tree.file(
                &format!("proc/driver/nvidia/gpus/{bus}/information"),
                &format!("Model: \t NVIDIA H100 80GB HBM3\nDevice Minor: \t {rank}\n"),
            );
        }
        scene.affinity(&format!("0-{}", cores - 1));
        scene.write();
        scene
    }

    pub fn affinity(&mut self, cores: &str) {
        for thread in self.families.iter_mut().flat_map(|family| &mut family.threads) {
            thread.affinity = cores.to_owned();
        }
    }

    /// Puts the server into a pod of Kubernetes with version 2 cgroups.
    pub fn in_pod(&mut self) {
        for family in &mut self.families {
            family.cgroup = "0::/kubepods.slice/pod1.slice/cri-containerd-x.scope\n".to_owned();
        }
    }

    /// Gives the first process a pool of threads.
    pub fn pool(&mut self, name: &str, threads: u32) {
        let first = &mut self.families[0];
        let affinity = first.threads[0].affinity.clone();
        first.threads[0].name = first.cmdline[0].rsplit('/').next().unwrap_or("x").to_owned();
        for index in 0..threads {
            let mut thread = Thread::new(5000 + index, name);
            thread.affinity = affinity.clone();
            first.threads.push(thread);
        }
    }

    /// A file of each process is to hold this.
    pub fn rewrite(&mut self, name: &str, content: &str) {
        self.overwritten.retain(|(known, _)| known != name);
        self.overwritten.push((name.to_owned(), content.to_owned()));
    }

    /// Each core is busy, and stolen, for these shares of the five seconds.
    pub fn fill_cores(&self, busy: f64, steal: f64) {
        let ticks = |share: f64| (share * 100.0 * SECONDS as f64).round() as u64;
        let idle = ticks(1.0 - busy - steal);
        self.tree.cpu_ticks(&vec![[ticks(busy), idle, ticks(steal)]; self.cores as usize]);
    }

    pub fn write(&self) {
        for family in &self.families {
            self.tree.process(family);
            for (name, content) in &self.overwritten {
                self.tree.file(&format!("proc/{}/{name}", family.pid), content);
            }
        }
    }

    /// Looks at the server. Meanwhile each of its processes works a little, and `during` happens.
    pub fn look(&mut self, during: impl FnMut(&mut Scene)) -> Report {
        self.examine(&Target::Pid(SERVER), during).expect("the server is there")
    }

    pub fn examine(
        &mut self,
        target: &Target,
        during: impl FnMut(&mut Scene),
    ) -> anyhow::Result<Report> {
        self.write();
        // Machines start with their counters at zero.
        self.tree.cpu_ticks(&vec![[0, 0, 0]; self.cores as usize]);
        self.tree.pressure(0, 0);
        self.run(target, during, true)
    }

    /// As [`Scene::examine`], but files stay as they were last written.
    pub fn examine_as_is(
        &mut self,
        target: &Target,
        during: impl FnMut(&mut Scene),
    ) -> anyhow::Result<Report> {
        self.run(target, during, false)
    }

    fn run(
        &mut self,
        target: &Target,
        during: impl FnMut(&mut Scene),
        works: bool,
    ) -> anyhow::Result<Report> {
        let root = self.tree.root();
        let watch = Watch { time: Duration::from_secs(SECONDS), gpus: None };
        let prices = Prices::load(None, None, None).expect("the built-in prices");
        let mut script = Script { scene: self, during, works, now_ns: 7 };
        examine(&root, target, watch, &prices, &mut script)
    }
}

struct Script<'a, F> {
    scene: &'a mut Scene,
    during: F,
    works: bool,
    now_ns: u64,
}

impl<F: FnMut(&mut Scene)> Clock for Script<'_, F> {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn wait(&mut self, time: Duration) {
        self.now_ns += time.as_nanos() as u64;
        if !self.works {
            return (self.during)(self.scene);
        }
        for family in &mut self.scene.families {
            let own = &mut family.threads[0];
            own.run_ns += 500_000_000;
            own.wait_ns += 2_000_000;
            own.timeslices += 700;
            own.voluntary += 700;
            own.involuntary += 3;
        }
        self.scene.fill_cores(0.1, 0.0);
        (self.during)(self.scene);
        self.scene.write();
    }
}

pub fn ids(report: &Report) -> Vec<&'static str> {
    report.servers.iter().flat_map(|s| &s.findings).map(|finding| finding.id).collect()
}

pub fn finding<'a>(report: &'a Report, id: &str) -> &'a Finding {
    let mut all = report.servers.iter().flat_map(|server| &server.findings);
    all.find(|finding| finding.id == id).unwrap_or_else(|| panic!("no {id} in {:?}", ids(report)))
}

pub fn severity(report: &Report, id: &str) -> Option<Severity> {
    let mut all = report.servers.iter().flat_map(|server| &server.findings);
    all.find(|finding| finding.id == id).map(|finding| finding.severity)
}
