//! Any bytes in any file of /proc and /sys: the doctor says something, or that it cannot, and does
//! not panic.

mod scene;

use proptest::prelude::*;
use saccade_doctor::target::Target;
use saccade_doctor::text;
use scene::Scene;

/// Files that are read of a server and of the machine.
const FILES: [&str; 24] = [
    "proc/100/stat",
    "proc/100/status",
    "proc/100/cmdline",
    "proc/100/cgroup",
    "proc/100/limits",
    "proc/100/environ",
    "proc/100/numa_maps",
    "proc/100/task/100/stat",
    "proc/100/task/100/status",
    "proc/100/task/100/schedstat",
    "proc/100/task/100/sched",
    "proc/101/stat",
    "proc/stat",
    "proc/self/mountinfo",
    "proc/pressure/cpu",
    "proc/net/tcp",
    "proc/driver/nvidia/gpus/0000:0B:00.0/information",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node1/cpulist",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/cpu.stat",
    "sys/fs/cgroup/cpu.pressure",
    "sys/fs/cgroup/cpuset.cpus.effective",
];

/// Random bytes seldom pass a first check: pieces of what the kernel writes come among them.
fn content() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("100 (x) S 1 "),
        Just("cpu0 1 2 3 4 "),
        Just("0::/"),
        Just("3:cpu:/a"),
        Just(" - cgroup2 c rw"),
        Just("41 31 0:38 / /sys/fs/cgroup rw"),
        Just("max 100000"),
        Just("18446744073709551615"),
        Just("-1 "),
        Just("0-511,"),
        Just("some avg10=nan avg60=0 avg300=0 total=18446744073709551615"),
        Just("nr_periods 0\nnr_throttled 18446744073709551615\nthrottled_usec 1"),
        Just("N0=18446744073709551615 "),
        Just("\u{0}"),
        Just("\n"),
        Just(": "),
    ];
    prop_oneof![prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat()), ".{0,200}",]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn no_content_panics(
        before in prop::collection::vec((prop::sample::select(&FILES[..]), content()), 0..6),
        during in prop::collection::vec((prop::sample::select(&FILES[..]), content()), 0..6),
    ) {
        let mut scene = Scene::vllm(4, 1);
        scene.write();
        for target in [Target::Pid(100), Target::Everything, Target::Container("a".into())] {
            for (file, content) in &before {
                scene.tree.file(file, content);
            }
            let report = scene.examine_as_is(&target, |scene| {
                for (file, content) in &during {
                    scene.tree.file(file, content);
                }
            });
            if let Ok(report) = report {
                let shown = text::full(&report) + &text::brief(&report);
                prop_assert!(shown.chars().all(|c| c == '\n' || !c.is_control()));
                prop_assert!(serde_json::to_string(&report).is_ok());
            }
        }
    }
}
