//! Dumps in the forms in which they come.

use serde_json::{Value, json};

use super::*;
use crate::job::{Devices, Job, Reject, Skip};

const AT: &str = "2026-03-01T12:00:00Z";

fn rows(text: &str) -> Vec<Row> {
    let at = humantime::parse_rfc3339(AT).expect("a time");
    let at = at.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let mut rows = Vec::new();
    let mut cluster = Cluster::new(at);
    read(text.as_bytes(), &mut cluster, &mut |row| rows.push(row)).expect("readable");
    rows
}

fn pod(requests: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "llm-0", "namespace": "serving", "labels": {"app": "llm"}},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "engine", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "startTime": "2026-03-01T11:00:00Z"},
    })
}

fn node() -> Value {
    let labels = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"});
    json!({"kind": "Node", "metadata": {"name": "node-1", "labels": labels}, "spec": {}})
}

fn job(millicores: u64, model: &str, count: u64) -> Row {
    let devices = vec![Devices::new(model, count)];
    Row::Job(Job { millicores, devices, seconds: 3600, place: "serving".to_owned() })
}

#[test]
fn every_form_of_a_dump_gives_the_same() {
    let one = pod(json!({"cpu": "1500m", "nvidia.com/gpu": "2"}));
    let expected = [job(1500, "nvidia-h100-80gb-hbm3", 2)];
    let list = json!({"apiVersion": "v1", "items": [node(), one], "kind": "List"});
    let array = json!([node(), one]);
    let mut kindless = one.clone();
    kindless.as_object_mut().expect("an object").remove("kind");
    let pods = json!({"items": [kindless], "kind": "PodList"});
    for text in [
        list.to_string(),
        serde_json::to_string_pretty(&list).expect("JSON"),
        array.to_string(),
        format!("{}\n{}\n", node(), one),
        format!("{:#}\n{:#}", node(), one),
        format!("\n\n{:#} {:#}", node(), pods),
    ] {
        assert_eq!(rows(&text), expected, "{text}");
    }
}

#[test]
fn resources_are_summed_as_the_scheduler_does() {
    let mut value = pod(json!({"cpu": "1", "nvidia.com/gpu": 1}));
    value["spec"]["containers"] = json!([
        {"resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}},
        {"resources": {"limits": {"cpu": 2}}},
        {},
    ]);
    value["spec"]["initContainers"] = json!([
        {"resources": {"requests": {"cpu": "8"}}},
        {"resources": {"requests": {"cpu": "500m"}}, "restartPolicy": "Always"},
    ]);
    assert_eq!(rows(&value.to_string()), [job(8_000, "(type not recorded)", 1)]);
    value["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = json!("2");
    assert_eq!(rows(&value.to_string()), [job(3_500, "(type not recorded)", 1)]);
    value["spec"]["resources"] = json!({"requests": {"cpu": "12"}});
    value["spec"]["nodeSelector"] = json!({"cloud.google.com/gke-accelerator": "nvidia-l4"});
    assert_eq!(rows(&value.to_string()), [job(12_000, "nvidia-l4", 1)]);
}

#[test]
fn partitions_of_gpus_and_pods_without_requests_count() {
    let mig = pod(json!({"cpu": "2", "nvidia.com/mig-1g.10gb": "3"}));
    assert_eq!(rows(&mig.to_string()), [job(2_000, "1g.10gb", 3)]);
    let none = pod(json!({"nvidia.com/gpu": "1"}));
    assert_eq!(rows(&none.to_string()), [job(0, "(type not recorded)", 1)]);
}

#[test]
fn ended_pods_held_their_gpus_until_they_ended() {
    let mut value = pod(json!({"cpu": "4", "nvidia.com/gpu": "1"}));
    value["status"]["phase"] = json!("Succeeded");
    value["status"]["containerStatuses"] = json!([
        {"state": {"terminated": {"finishedAt": "2026-03-01T11:00:30Z"}}},
        {"state": {"terminated": {"finishedAt": "2026-03-01T11:01:30Z"}}},
    ]);
    let [Row::Job(job)] = &rows(&value.to_string())[..] else { panic!("one job") };
    assert_eq!(job.seconds, 90);
}

#[test]
fn what_does_not_count_says_why() {
    let cases = [
        (pod(json!({"cpu": "4"})), Row::Skip(Skip::NoGpu)),
        (pod(json!({"cpu": "4", "nvidia.com/gpu.shared": "1"})), Row::Skip(Skip::SharedGpu)),
        (pod(json!({"cpu": "four", "nvidia.com/gpu": "1"})), Row::Reject(Reject::Cores)),
        (pod(json!({"cpu": "4", "nvidia.com/gpu": "0.5"})), Row::Reject(Reject::Gpus)),
        (pod(json!([1, 2])), Row::Reject(Reject::Shape)),
        (json!({"kind": "Service"}), Row::Skip(Skip::OtherKind)),
        (json!({"hello": "world"}), Row::Reject(Reject::Shape)),
    ];
    for (value, expected) in cases {
        assert_eq!(rows(&value.to_string()), [expected], "{value}");
    }
    let mut pending = pod(json!({"cpu": "4", "nvidia.com/gpu": "1"}));
    pending["status"] = json!({"phase": "Pending"});
    assert_eq!(rows(&pending.to_string()), [Row::Skip(Skip::NeverRan)]);
    pending["status"] = json!({"phase": "Failed", "startTime": AT});
    assert_eq!(rows(&pending.to_string()), [Row::Reject(Reject::Time)]);
}

#[test]
fn a_document_that_breaks_off_counts_what_came_before() {
    let one = pod(json!({"cpu": "4", "nvidia.com/gpu": "1"}));
    let whole = format!("{:#}", json!({"items": [one, one]}));
    let cut = &whole[..whole.len() - 200];
    assert_eq!(rows(cut)[1..], [Row::Reject(Reject::Json)]);
    let lines = format!("{one}\n{{\"broken\": \n{one}\n");
    let seen = rows(&lines);
    assert_eq!(seen[1], Row::Reject(Reject::Json));
    assert_eq!((&seen[0], seen.len()), (&seen[2], 3));
}
