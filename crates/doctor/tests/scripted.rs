//! Scripted machines, healthy and otherwise: each case of `saccade doctor` on trees that look like
//! /proc and /sys, with time that passes at once.

mod scene;

use clap::Parser;
use std::process::ExitCode;

use saccade_doctor::finding::Severity;
use saccade_doctor::report::{Report, Verdict};
use saccade_doctor::target::Target;
use saccade_doctor::text;
use saccade_host::scripted::{Family, MOUNTS_V1, Thread};
use scene::{POD, SECONDS, SERVER, Scene, finding, ids, severity};

#[test]
fn a_healthy_server_gives_no_alarm() {
    let report = Scene::vllm(16, 2).look(|_| {});
    let server = &report.servers[0];
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", ids(&report));
    assert!(server.findings.is_empty(), "{:?}", ids(&report));
    assert_eq!((server.gpus, server.cores_per_gpu), (2, Some(8.0)));
    assert_eq!(server.processes.len(), 4);
    assert!(server.summary.contains("vLLM (pid 100) may use 16 cores and drives 2 GPUs"));
    assert!(text::brief(&report).starts_with("HEALTHY: "));
    assert!(server.not_read.is_empty(), "{:?}", server.not_read);
}

#[test]
fn a_busy_healthy_server_gives_no_alarm() {
    let report = Scene::vllm(16, 2).look(|scene| {
        for family in &mut scene.families {
            let own = &mut family.threads[0];
            own.run_ns += 3_500_000_000;
            own.timeslices += 4000;
            own.involuntary += 30;
        }
    });
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", ids(&report));
}

/// A large share of next to nothing: what wakes up now and then waits for milliseconds.
#[test]
fn a_sleeper_that_waits_a_little_gives_no_alarm() {
    let report = Scene::single(2, &["llama-server"]).look(|scene| {
        scene.families[0].threads[0].wait_ns += 200_000_000;
        scene.families[0].threads[0].involuntary += 90;
    });
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", ids(&report));
}

#[test]
fn exit_codes_are_those_of_the_verdict() {
    let code = saccade_doctor::exit_code;
    let healthy = Scene::vllm(16, 2).look(|_| {});
    assert_eq!(code(&healthy), ExitCode::SUCCESS);
    let mut scene = Scene::vllm(16, 4);
    scene.affinity("0-7");
    assert_eq!(code(&scene.look(|_| {})), ExitCode::from(1));
    scene.affinity("0-2");
    assert_eq!(code(&scene.look(|_| {})), ExitCode::from(4));
    let mut scene = Scene::single(2, &["llama-server"]);
    scene.rewrite("task/100/schedstat", "");
    assert_eq!(code(&scene.look(|_| {})), ExitCode::from(3));
    // One that could not be looked at is no all-clear either.
    let mut partly = healthy;
    partly.failed.push("pid 9: gone".into());
    assert_eq!(code(&partly), ExitCode::from(3));
}

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    args: saccade_doctor::Args,
}

#[test]
fn flags() {
    let parse =
        |words: &str| CommandLine::try_parse_from(words.split(' ')).map(|line| line.args.target());
    assert_eq!(parse("doctor").unwrap(), Target::Everything);
    assert_eq!(parse("doctor --pid 7 --seconds 0.5 -v").unwrap(), Target::Pid(7));
    assert_eq!(parse("doctor --url http://x:1").unwrap(), Target::Url("http://x:1".into()));
    for wrong in ["--pid 7 --url http://x", "--seconds 0", "--seconds nan", "--seconds 9999"] {
        assert!(parse(&format!("doctor {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn a_quota_below_need_in_version_2() {
    let mut scene = Scene::vllm(64, 4);
    scene.in_pod();
    scene.tree.file(&format!("{POD}/cpu.max"), "400000 100000\n");
    let report = scene.look(|_| {});
    let found = finding(&report, "quota_below_need");
    assert_eq!(found.severity, Severity::Trouble);
    assert!(found.title.contains("4 cores, but 6 processes"), "{}", found.title);
    assert_eq!(found.evidence[0].value, "400000 us of each 100000 us");
    assert!(found.evidence[0].from.ends_with("cpu.max"));
    assert!(found.change[0].how.contains("limits: {cpu: \"16\"}"), "{:?}", found.change);
    let loss = &found.expected_losses[0];
    assert_eq!((loss.low, loss.high), (Some(1.36), Some(5.40)));
    let cost = found.cost.as_ref().unwrap();
    assert_eq!(cost.cores, 12.0);
    assert!((cost.usd_per_hour_high - 0.72).abs() < 1e-9);
    assert!((cost.share_of_gpus.unwrap() - 0.72 / (4.0 * 6.88)).abs() < 1e-9);
    let shown = text::full(&report);
    assert!(shown.starts_with("TROUBLE: vLLM (pid 100) may use 4 cores and drives 4 GPUs."));
    assert!(shown.contains("expected: time to first token"), "{shown}");
    let brief = text::brief(&report);
    let lines: Vec<&str> = brief.lines().collect();
    assert_eq!(lines.len(), 3, "{brief}");
    assert!(shown.starts_with(lines[0]));
    assert!(lines[1].contains("it used 0.60 cores"), "{brief}");
    assert!(
        lines[2].contains("limits: {cpu: \"16\"}") && lines[2].contains("--verbose"),
        "{brief}"
    );
    assert!(lines[2].contains("12 more cores: 0.36 to 0.72 USD per hour"), "{brief}");
}

#[test]
fn a_quota_below_need_in_version_1() {
    let mut scene = Scene::vllm(64, 4);
    scene.tree.file("proc/self/mountinfo", MOUNTS_V1);
    let id = "ab".repeat(32);
    for family in &mut scene.families {
        family.cgroup = format!("4:cpuset:/docker/{id}\n3:cpu,cpuacct:/docker/{id}\n0::/\n");
    }
    let folder = format!("sys/fs/cgroup/cpu,cpuacct/docker/{id}");
    scene.tree.file(&format!("{folder}/cpu.cfs_quota_us"), "250000\n");
    scene.tree.file(&format!("{folder}/cpu.cfs_period_us"), "100000\n");
    let report = scene.look(|_| {});
    let found = finding(&report, "quota_below_need");
    assert!(found.title.contains("2.50 cores"), "{}", found.title);
    assert_eq!(found.change[0].how, "docker update --cpus 16 abababababab");
}

#[test]
fn affinity_below_need() {
    let mut scene = Scene::vllm(64, 4);
    scene.affinity("0-4");
    let report = scene.look(|_| {});
    let found = finding(&report, "cores_below_need");
    assert!(found.title.contains("5 cores, but 6 processes"));
    assert!(found.change[0].how.contains("taskset -acp 0-15 $p"), "{:?}", found.change);
}

#[test]
fn few_cores_for_each_gpu() {
    let mut scene = Scene::vllm(64, 4);
    scene.affinity("0-7");
    let report = scene.look(|_| {});
    assert_eq!(ids(&report), ["few_cores_per_gpu"]);
    assert_eq!(report.verdict, Verdict::Warnings);
}

#[test]
fn pinned_to_one_core() {
    let mut scene = Scene::vllm(16, 2);
    scene.affinity("3");
    let report = scene.look(|_| {});
    let found = finding(&report, "pinned_to_one_core");
    assert_eq!(found.severity, Severity::Trouble);
    assert!(found.title.contains("share core 3, of 16"), "{}", found.title);
    assert!(found.change[0].how.contains("for p in 100 101 102 103;"), "{:?}", found.change);
}

#[test]
fn busy_threads_on_the_same_core() {
    let mut scene = Scene::vllm(16, 2);
    for family in &mut scene.families[2..] {
        family.threads[0].affinity = "5".into();
    }
    let report = scene.look(|scene| {
        for family in &mut scene.families[2..] {
            family.threads[0].run_ns += 2_000_000_000;
            family.threads[0].wait_ns += 1_000_000_000;
        }
    });
    let found = finding(&report, "threads_share_core");
    assert!(found.title.starts_with("2 busy threads are pinned to core 5"), "{}", found.title);
}

/// A machine of one core has nothing to be unpinned to.
#[test]
fn one_core_is_not_pinned() {
    let mut scene = Scene::single(1, &["llama-server", "-m", "x"]);
    scene.affinity("0");
    let report = scene.look(|_| {});
    assert!(ids(&report).is_empty(), "{:?}", ids(&report));
}

#[test]
fn throttled() {
    for (throttled, expected) in [(30, "Trouble"), (4, "Warning"), (0, "none")] {
        let mut scene = Scene::vllm(64, 2);
        scene.in_pod();
        scene.tree.file(&format!("{POD}/cpu.max"), "1600000 100000\n");
        let stat = |periods: u64, throttled: u64| {
            format!(
                "nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled}000\n"
            )
        };
        scene.tree.file(&format!("{POD}/cpu.stat"), &stat(1000, 10));
        let report = scene.look(|scene| {
            scene.tree.file(&format!("{POD}/cpu.stat"), &stat(1050, 10 + throttled));
        });
        let found = severity(&report, "throttled").map_or("none".into(), |s| format!("{s:?}"));
        assert_eq!(found, expected, "{throttled} of 50");
        if throttled > 0 {
            let file = &finding(&report, "throttled").evidence[0];
            assert_eq!(file.value, format!("{throttled} of 50"));
            assert!(file.from.ends_with("pod1.slice/cpu.stat"), "{}", file.from);
        }
    }
}

/// A tokenizer's pool, active on fewer cores than it has threads.
#[test]
fn oversubscribed_tokenizer_threads() {
    let mut scene = Scene::vllm(64, 2);
    scene.in_pod();
    scene.tree.file(&format!("{POD}/cpu.max"), "800000 100000\n");
    scene.pool("rayon-worker", 32);
    let report = scene.look(|scene| {
        for thread in &mut scene.families[0].threads[1..] {
            thread.run_ns += 800_000_000;
            thread.wait_ns += 2_000_000_000;
            thread.timeslices += 1000;
        }
    });
    let found = finding(&report, "pool_oversubscribed");
    assert_eq!(found.severity, Severity::Trouble);
    assert!(found.title.contains("32 rayon (tokenizer) threads work"), "{}", found.title);
    assert!(found.change[0].how.starts_with("RAYON_NUM_THREADS=5"), "{:?}", found.change);
    assert!(severity(&report, "run_queue_wait").is_some());
}

#[test]
fn a_sleeping_pool_is_an_alarm_only_below_a_quota() {
    let mut scene = Scene::vllm(64, 2);
    scene.in_pod();
    scene.tree.file(&format!("{POD}/cpu.max"), "800000 100000\n");
    scene.pool("tokenizer", 64);
    let report = scene.look(|_| {});
    assert_eq!(severity(&report, "pool_oversubscribed"), Some(Severity::Warning));

    let mut scene = Scene::vllm(8, 2);
    scene.pool("tokenizer", 64);
    let report = scene.look(|_| {});
    assert_eq!(severity(&report, "pool_oversubscribed"), Some(Severity::Note));
    assert_eq!(report.verdict, Verdict::Healthy);

    let mut scene = Scene::vllm(64, 2);
    scene.pool("tokenizer", 64);
    let report = scene.look(|_| {});
    assert!(ids(&report).is_empty(), "as many threads as cores are no crowd");
}

#[test]
fn spinning_matters_where_cores_are_few() {
    let spin = |scene: &mut Scene| {
        for family in &mut scene.families[1..] {
            let own = &mut family.threads[0];
            own.run_ns += SECONDS * 950_000_000;
            own.voluntary -= 700;
        }
    };
    let mut plenty = Scene::vllm(16, 2);
    let report = plenty.look(spin);
    assert_eq!(severity(&report, "spinning"), Some(Severity::Note));
    assert_eq!(report.verdict, Verdict::Healthy);
    let mut scarce = Scene::vllm(16, 2);
    scarce.affinity("0-2");
    let report = scarce.look(spin);
    let found = finding(&report, "spinning");
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(found.change[0].how, "VLLM_SLEEP_WHEN_IDLE=1");
}

/// On CPU engines a busy thread computes.
#[test]
fn computing_is_not_spinning() {
    let mut scene = Scene::single(4, &["llama-server", "-t", "4"]);
    scene.pool("llama-server", 3);
    let report = scene.look(|scene| {
        for thread in &mut scene.families[0].threads {
            thread.run_ns += SECONDS * 980_000_000;
        }
    });
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", ids(&report));
    assert!(ids(&report).is_empty(), "{:?}", ids(&report));
}

#[test]
fn waiting_neighbours_and_pressure() {
    let mut scene = Scene::vllm(8, 2);
    scene.tree.file("proc/sys/kernel/sched_autogroup_enabled", "1\n");
    scene.families.push(Family::new(900, 1, &["pbzip2"]));
    let report = scene.look(|scene| {
        for family in &mut scene.families[..4] {
            let own = &mut family.threads[0];
            own.run_ns += 1_000_000_000;
            own.wait_ns += 1_500_000_000;
            own.timeslices += 500;
            own.involuntary += 400;
        }
        scene.families[4].threads[0].run_ns += 25_000_000_000;
        scene.fill_cores(1.0, 0.0);
        scene.tree.pressure(4_000_000, 0);
    });
    assert_eq!(
        ids(&report),
        ["run_queue_wait", "pressure", "neighbours", "preempted", "autogroup"],
        "worst first"
    );
    assert_eq!(report.verdict, Verdict::Trouble);
    let others = finding(&report, "neighbours");
    assert!(others.evidence.iter().any(|e| e.what == "pid 900 \"pbzip2\""), "{others:?}");
    assert!(others.expected_losses[0].source.contains("2604.07609"));
}

/// Threads of others wait more than the server's: the verdict is about the server.
#[test]
fn pressure_of_the_machine_is_as_bad_as_the_servers_own_waiting() {
    for (wait_ns, expected) in [(0, Severity::Note), (100_000_000, Severity::Warning)] {
        let report = Scene::vllm(8, 2).look(|scene| {
            for family in &mut scene.families {
                family.threads[0].wait_ns += wait_ns;
            }
            scene.tree.pressure(4_000_000, 0);
        });
        assert_eq!(severity(&report, "pressure"), Some(expected), "{wait_ns}");
        if wait_ns > 0 {
            assert_eq!(ids(&report)[0], "run_queue_wait");
        }
    }
}

/// Others at work where there is room for all.
#[test]
fn neighbours_on_free_cores_are_a_note() {
    let report = Scene::vllm(16, 2).look(|scene| scene.fill_cores(0.5, 0.0));
    assert_eq!(severity(&report, "shared_caches"), Some(Severity::Note));
    assert_eq!(report.verdict, Verdict::Healthy);
}

#[test]
fn time_taken_by_the_hypervisor() {
    let report = Scene::vllm(16, 2).look(|scene| scene.fill_cores(0.2, 0.1));
    assert_eq!(severity(&report, "stolen"), Some(Severity::Warning));
}

#[test]
fn memory_on_the_other_node() {
    let mut scene = Scene::vllm(16, 2);
    scene.affinity("0-7");
    scene.tree.file("sys/devices/system/node/node0/cpulist", "0-7\n");
    scene.tree.file("sys/devices/system/node/node1/cpulist", "8-15\n");
    for gpu in 0..2 {
        let bus = format!("0000:{gpu}B:00.0");
        scene.tree.file(&format!("sys/bus/pci/devices/{}/numa_node", bus.to_lowercase()), "1\n");
    }
    let maps = "7f default N0=1000 N1=900000 kernelpagesize_kB=4\n";
    scene.rewrite("numa_maps", maps);
    let report = scene.look(|_| {});
    let found = finding(&report, "numa_crossing");
    assert!(found.title.starts_with("99.9 % of its memory"), "{}", found.title);
    assert!(severity(&report, "gpu_on_other_node").is_some());
    scene.rewrite("numa_maps", "7f default N0=900000 N1=1000 kernelpagesize_kB=4\n");
    assert!(severity(&scene.look(|_| {}), "numa_crossing").is_none());
}

#[test]
fn a_limit_on_locked_memory_where_memory_is_locked() {
    let mut scene = Scene::vllm(16, 2);
    let limits = "Max locked memory         8388608              8388608              bytes\n";
    scene.rewrite("limits", limits);
    assert_eq!(severity(&scene.look(|_| {}), "memory_lock"), Some(Severity::Note));
    scene.tree.link("proc/102/fd/9", "/dev/infiniband/uverbs0");
    assert_eq!(severity(&scene.look(|_| {}), "memory_lock"), Some(Severity::Warning));
}

/// What cannot be read is no all-clear.
#[test]
fn unreadable_is_unknown() {
    let mut scene = Scene::vllm(16, 2);
    scene.in_pod();
    scene.tree.file(&format!("{POD}/cpu.max"), "rubbish\n");
    let report = scene.look(|_| {});
    assert_eq!(report.verdict, Verdict::Unknown);
    assert!(report.servers[0].not_read.iter().any(|l| l.contains("cpu.max")));
    assert!(report.servers[0].cores.is_none());

    let mut scene = Scene::single(4, &["llama-server"]);
    scene.rewrite("task/100/schedstat", "");
    let report = scene.look(|_| {});
    assert_eq!(report.verdict, Verdict::Unknown);
}

#[test]
fn servers_are_found_by_number_port_container_or_name() {
    let mut scene = Scene::vllm(16, 2);
    scene.families.push(Family::new(300, 1, &["sh", "-c", "vllm serve m"]));
    scene.families.push(Family::new(310, 300, &["./llama-server"]));
    let id = "cd".repeat(32);
    scene.families[5].cgroup = format!("0::/system.slice/docker-{id}.scope\n");
    let config = format!("var/lib/docker/containers/{id}/config.v2.json");
    scene.tree.file(&config, "{\"Name\": \"/llama\", \"ID\": \"x\"}");
    scene.write();
    // The engine core listens, in this script: the server is found above it.
    let socket = "   0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 4242 1 0 100 0 0 10 0\n";
    scene.tree.file("proc/net/tcp", socket);
    scene.tree.link("proc/101/fd/3", "socket:[4242]");
    let mut found = |target: Target| -> Vec<u32> {
        scene.examine(&target, |_| {}).unwrap().servers.iter().map(|s| s.pid).collect()
    };
    assert_eq!(found(Target::Everything), [SERVER, 310]);
    assert_eq!(found(Target::Pid(101)), [101]);
    assert_eq!(found(Target::Url("http://127.0.0.1:8080/v1".into())), [SERVER]);
    assert_eq!(found(Target::Container("llama".into())), [310]);
    assert_eq!(found(Target::Container("cdcdcdcd".into())), [310]);
    for (target, says) in [
        (Target::Pid(77), "no process 77"),
        (Target::Url("http://127.0.0.1:8081".into()), "listens on port 8081"),
        (Target::Url("http://192.0.2.1:8080".into()), "not this machine"),
        (Target::Container("other".into()), "no process runs in a container"),
    ] {
        let error = format!("{:#}", scene.examine(&target, |_| {}).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn no_engine_is_an_error_that_says_what_to_do() {
    let mut scene = Scene::single(2, &["sleep", "9"]);
    let error = format!("{:#}", scene.examine(&Target::Everything, |_| {}).unwrap_err());
    assert!(error.contains("--pid"), "{error}");
}

#[test]
fn a_server_that_ends_while_watched() {
    let mut scene = Scene::single(2, &["llama-server"]);
    let error = scene.examine(&Target::Pid(SERVER), |scene| {
        std::fs::remove_dir_all(scene.folder.path().join("proc/100")).unwrap();
        scene.families.clear();
    });
    assert!(format!("{:#}", error.unwrap_err()).contains("process 100"));
}

/// The observed processes choose these names; they must not drive the reader's terminal.
#[test]
fn names_cannot_drive_the_terminal() {
    let mut scene = Scene::single(2, &["llama-server", "\u{1b}[2J\u{7}x\ny"]);
    scene.families[0].threads.push(Thread::new(101, "\u{1b}]0;x) R 1 1"));
    let report = scene.look(|scene| {
        scene.families[0].threads[1].wait_ns += 4_000_000_000;
        scene.families[0].threads[1].run_ns += 1_000_000_000;
    });
    assert!(severity(&report, "run_queue_wait").is_some());
    let shown = text::full(&report) + &text::brief(&report);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

#[test]
fn json_says_its_schema() {
    let report = Scene::vllm(4, 2).look(|_| {});
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], "saccade.doctor/1");
    assert_eq!(json["verdict"], "warnings");
    let server = &json["servers"][0];
    assert_eq!(server["engine"], "vllm");
    assert_eq!(server["cores"]["set"], "0-3");
    assert_eq!(server["findings"][0]["severity"], "warning");
    assert!(server["measured"]["throttling"].is_null(), "not counted is null, not zero");
}

/// A machine of two busy cores, both of them the server's, shared with others.
fn crowded(words: &[&str], neighbours: &[&[&str]]) -> Report {
    let mut scene = Scene::single(2, words);
    for (index, words) in neighbours.iter().enumerate() {
        let mut family = Family::new(900 + index as u32, 1, words);
        family.threads[0].affinity = "0-1".into();
        scene.families.push(family);
    }
    scene.look(|scene| {
        let own = &mut scene.families[0].threads[0];
        own.run_ns += 2_500_000_000;
        own.wait_ns += 2_500_000_000;
        own.timeslices += 500;
        own.involuntary += 400;
        for family in &mut scene.families[1..] {
            family.threads[0].run_ns += 2_000_000_000;
        }
        scene.fill_cores(1.0, 0.0);
    })
}

fn remedies(report: &Report) -> Vec<String> {
    let findings = report.servers.iter().flat_map(|server| &server.findings);
    findings.flat_map(|finding| finding.change.iter().map(|change| change.how.clone())).collect()
}

#[test]
fn only_what_is_neither_server_nor_client_is_told_to_yield() {
    let neighbours: [&[&str]; 3] =
        [&["vllm", "serve", "m"], &["saccade", "bench", "serve"], &["pbzip2"]];
    let report = crowded(&["llama-server"], &neighbours);
    let neighbours = finding(&report, "neighbours");
    let named: Vec<&str> = neighbours.evidence.iter().map(|e| e.what.as_str()).collect();
    assert!(named.contains(&"pid 900 \"vllm\" (vLLM server)"), "{named:?}");
    assert!(named.contains(&"pid 901 \"saccade\" (load client)"), "{named:?}");
    let how: Vec<&str> = neighbours.change.iter().map(|c| c.how.as_str()).collect();
    assert_eq!(
        how,
        [
            "run the other vLLM server (pid 900) on another machine",
            "run the load client (pid 901) on another machine",
            "chrt -ap --idle 0 902",
        ]
    );
}

/// The server has both cores already, and there are no others.
#[test]
fn what_is_so_already_is_not_proposed() {
    let cases: [&[&[&str]]; 2] = [&[], &[&["pbzip2"]]];
    for neighbours in cases {
        let report = crowded(&["llama-server"], neighbours);
        assert!(severity(&report, "run_queue_wait").is_some());
        let remedies = remedies(&report);
        assert!(!remedies.iter().any(|how| how.contains("taskset")), "{remedies:?}");
        let costs = report.servers[0].findings.iter().filter(|f| f.cost.is_some()).count();
        assert_eq!(costs, 0, "no cores to add, no price");
    }
}

#[test]
fn neighbours_on_cores_of_their_own_are_none() {
    let mut scene = Scene::single(4, &["llama-server"]);
    scene.affinity("0-1");
    for (pid, cores) in [(900, "2-3"), (901, "1-2")] {
        let mut family = Family::new(pid, 1, &["pbzip2"]);
        family.threads[0].affinity = cores.into();
        scene.families.push(family);
    }
    let report = scene.look(|scene| {
        scene.families[0].threads[0].run_ns += 2_000_000_000;
        scene.families[1].threads[0].run_ns += 5_000_000_000;
        scene.families[2].threads[0].run_ns += 4_000_000_000;
        scene.fill_cores(1.0, 0.0);
    });
    let found = finding(&report, "neighbours");
    assert!(!found.evidence.iter().any(|e| e.what.contains("900")), "{found:?}");
    assert!(found.evidence.iter().any(|e| e.what.contains("901")), "{found:?}");
    // The server keeps its two cores; the other moves to the other two.
    let how: Vec<&str> = found.change.iter().map(|c| c.how.as_str()).collect();
    assert_eq!(how, ["taskset -acp 2-3 901"]);
}

/// What was measured on several GPUs says nothing of a process that computes on cores.
#[test]
fn a_server_without_gpus_gets_no_advice_for_several() {
    let report = crowded(&["llama-server"], &[&["pbzip2"]]);
    assert_eq!(report.verdict, Verdict::Trouble);
    assert!(report.servers[0].findings.iter().all(|f| f.expected_losses.is_empty()));
    let shown = text::full(&report);
    assert!(!shown.contains("TP") && !shown.contains("rank"), "{shown}");
}

/// Threads of a pool that all compute on two cores.
fn oversubscribed(words: &[&str], thread: &str) -> Report {
    let mut scene = Scene::single(2, words);
    scene.pool(thread, 8);
    scene.look(|scene| {
        for thread in &mut scene.families[0].threads[1..] {
            thread.run_ns += 1_000_000_000;
            thread.wait_ns += 3_000_000_000;
            thread.timeslices += 500;
        }
    })
}

#[test]
fn threads_are_bounded_by_the_engines_own_words() {
    for (words, thread, how) in [
        (&["saccade", "device"][..], "saccade", "--device-threads 2"),
        (&["saccade", "frontend"], "tokenize-0", "--tokenizer-threads 2"),
        (&["llama-server"], "llama-server", "--threads 2"),
        (&["vllm", "serve", "m"], "rayon-worker", "RAYON_NUM_THREADS=2"),
        (&["VLLM::EngineCore"], "VLLM::EngineCore", "OMP_NUM_THREADS=2"),
    ] {
        let report = oversubscribed(words, thread);
        let found = finding(&report, "pool_oversubscribed");
        assert_eq!(found.change.iter().map(|c| &c.how).collect::<Vec<_>>(), [how], "{words:?}");
    }
    // Its flag says so already: another number of threads is not the remedy.
    let report = oversubscribed(&["saccade", "frontend", "--tokenizer-threads=2"], "tokenize-0");
    let found = finding(&report, "pool_oversubscribed");
    assert!(found.change.is_empty(), "{:?}", found.change);
    assert!(found.evidence.iter().any(|e| e.value == "2" && e.what == "--tokenizer-threads"));
}

#[test]
fn the_brief_report_is_three_lines_for_each_server() {
    let mut unreadable = Scene::single(4, &["llama-server"]);
    unreadable.rewrite("task/100/schedstat", "");
    for report in [
        Scene::vllm(16, 2).look(|_| {}),
        Scene::vllm(4, 2).look(|_| {}),
        crowded(&["llama-server"], &[&["pbzip2"]]),
        crowded(&["llama-server"], &[]),
        unreadable.look(|_| {}),
    ] {
        let brief = text::brief(&report);
        assert_eq!(brief.lines().count(), 3, "{brief}");
        assert!(brief.ends_with("Evidence: --verbose.\n"), "{brief}");
    }
    let mut failed = Scene::vllm(16, 2).look(|_| {});
    failed.failed.push("pid 9: gone".into());
    assert!(text::brief(&failed).contains("not examined: pid 9: gone"));
}
