//! One object: a pod with its containers' resources and times, or a node with its labels.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::quantity::thousandths;
use crate::job::{
    Devices, Job, MAX_GPUS, MAX_MILLICORES, MAX_SECONDS, Reject, Row, SLICES, Skip, name,
};
use crate::slurm::UNTYPED;

/// Labels of nodes that name their GPUs, the most telling first.
const MODEL_LABELS: [&str; 6] = [
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "karpenter.k8s.aws/instance-gpu-name",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
];
/// Whole GPUs, by the names of their device plug-ins.
const WHOLE_GPUS: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"];
const MIG_PREFIX: &str = "nvidia.com/mig-";

/// What an object is to us.
pub enum What {
    Row(Row),
    Node { name: String, model: String },
}

#[derive(Deserialize)]
pub struct Object {
    kind: Option<String>,
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    resources: Option<Resources>,
    node_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    resources: Option<Resources>,
    restart_policy: Option<String>,
}

#[derive(Deserialize, Default)]
struct Resources {
    requests: Option<BTreeMap<String, Quantity>>,
    limits: Option<BTreeMap<String, Quantity>>,
}

/// The API writes text; files written by hand often hold numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Text(String),
    Number(serde_json::Number),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    start_time: Option<String>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    state: Option<State>,
}

#[derive(Deserialize)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    finished_at: Option<String>,
}

impl Object {
    /// What `json` is; `at` is when the dump was made, in seconds since 1970.
    pub fn classify(json: &str, models: &HashMap<String, String>, at: u64) -> What {
        let object: Object = match serde_json::from_str(json) {
            Ok(object) => object,
            Err(error) if error.is_data() => return What::Row(Row::Reject(Reject::Shape)),
            Err(_) => return What::Row(Row::Reject(Reject::Json)),
        };
        match object.kind.as_deref() {
            Some("Node") => object.node(),
            // Lists of the API server do not repeat the kind in each item.
            Some("Pod") => object.pod_row(models, at),
            None if object.spec.as_ref().is_some_and(|s| s.containers.is_some()) => {
                object.pod_row(models, at)
            }
            None if object.spec.is_some() && object.metadata.is_some() => object.node(),
            None => What::Row(Row::Reject(Reject::Shape)),
            Some(_) => What::Row(Row::Skip(Skip::OtherKind)),
        }
    }

    fn node(self) -> What {
        let metadata = self.metadata.unwrap_or_default();
        let labels = metadata.labels.unwrap_or_default();
        match (metadata.name, model_of(&labels)) {
            (Some(node), Some(model)) => What::Node { name: name(&node), model },
            _ => What::Row(Row::Skip(Skip::OtherKind)),
        }
    }

    fn pod_row(self, models: &HashMap<String, String>, at: u64) -> What {
        What::Row(self.pod(models, at).unwrap_or_else(|row| row))
    }

    /// The outcome is a row either way: the error is what ends the reading early.
    fn pod(self, models: &HashMap<String, String>, at: u64) -> Result<Row, Row> {
        let spec = self.spec.unwrap_or_default();
        let node = spec.node_name.as_deref().map(name);
        let by_node = node.and_then(|n| models.get(&n).cloned());
        let model = by_node.or_else(|| model_of(spec.node_selector.as_ref()?));
        let devices = spec.devices(model.as_deref().unwrap_or(UNTYPED))?;
        let status = self.status.unwrap_or_default();
        let seconds = status.seconds(at)?;
        if seconds == 0 {
            return Err(Row::Skip(Skip::NeverRan));
        }
        // No request is a request for nothing: the pod gets what others leave.
        let millicores = spec.total("cpu", Reject::Cores)?.unwrap_or(0);
        if millicores > MAX_MILLICORES {
            return Err(Row::Reject(Reject::Cores));
        }
        let namespace = self.metadata.and_then(|m| m.namespace).unwrap_or_default();
        Ok(Row::Job(Job { millicores, devices, seconds, place: name(&namespace) }))
    }
}

fn model_of(labels: &BTreeMap<String, String>) -> Option<String> {
    MODEL_LABELS.iter().find_map(|label| labels.get(*label)).map(|model| name(model))
}

impl Spec {
    /// The GPUs of the pod.
    fn devices(&self, model: &str) -> Result<Vec<Devices>, Row> {
        let mut devices = Vec::new();
        let mut shared = false;
        for resource in self.resource_names() {
            let mig = resource.strip_prefix(MIG_PREFIX);
            let known = WHOLE_GPUS.contains(&resource) || mig.is_some();
            if resource.ends_with(".shared") {
                shared |= resource.starts_with("nvidia.com/");
            } else if known {
                let thousandths = self.total(resource, Reject::Gpus)?.unwrap_or(0);
                let count = thousandths / 1000;
                if count > MAX_GPUS || thousandths % 1000 != 0 {
                    return Err(Row::Reject(Reject::Gpus));
                }
                // A whole GPU's product name may name the profile of its node, too.
                let entry = match mig {
                    Some(profile) => Devices::new(profile, count),
                    None => Devices { slices: SLICES, ..Devices::new(model, count) },
                };
                devices.push(entry);
            }
        }
        devices.retain(|d| d.count > 0);
        match (devices.is_empty(), shared) {
            (false, _) => Ok(devices),
            (true, true) => Err(Row::Skip(Skip::SharedGpu)),
            (true, false) => Err(Row::Skip(Skip::NoGpu)),
        }
    }

    fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().chain(&self.init_containers).flatten()
    }

    fn resource_names(&self) -> std::collections::BTreeSet<&str> {
        self.all_containers()
            .filter_map(|c| c.resources.as_ref())
            .flat_map(|r| r.requests.iter().chain(&r.limits))
            .flat_map(|map| map.keys().map(String::as_str))
            .collect()
    }

    /// Thousandths of a resource that the scheduler sets aside: what the pod asks for as a whole,
    /// or the sum of its containers; at least the most that one of its init containers takes.
    fn total(&self, resource: &str, otherwise: Reject) -> Result<Option<u64>, Row> {
        let of = |resources: &Option<Resources>| -> Result<Option<u64>, Row> {
            let amount = resources.as_ref().and_then(|r| r.amount(resource));
            match amount.map(|q| thousandths(&q)) {
                None => Ok(None),
                Some(Some(amount)) => Ok(Some(amount)),
                Some(None) => Err(Row::Reject(otherwise)),
            }
        };
        if let Some(whole) = of(&self.resources)? {
            return Ok(Some(whole));
        }
        let (mut sum, mut most) = (None, None);
        for container in self.containers.iter().flatten() {
            sum = add(sum, of(&container.resources)?);
        }
        for container in self.init_containers.iter().flatten() {
            // Init containers that stay (sidecars) run alongside the others.
            if container.restart_policy.as_deref() == Some("Always") {
                sum = add(sum, of(&container.resources)?);
            } else {
                most = most.max(of(&container.resources)?);
            }
        }
        Ok(sum.max(most))
    }
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

impl Resources {
    /// The request; the limit where there is none.
    fn amount(&self, resource: &str) -> Option<String> {
        let find = |map: &Option<BTreeMap<String, Quantity>>| {
            map.as_ref()?.get(resource).map(|quantity| match quantity {
                Quantity::Text(text) => text.clone(),
                Quantity::Number(number) => number.to_string(),
            })
        };
        find(&self.requests).or_else(|| find(&self.limits))
    }
}

impl Status {
    /// How long the pod held its resources.
    fn seconds(&self, at: u64) -> Result<u64, Row> {
        let Some(start) = &self.start_time else { return Ok(0) };
        let start = time(start)?;
        let ended = matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"));
        let end = if ended { self.last_end()? } else { at };
        let seconds = end.saturating_sub(start);
        if seconds > MAX_SECONDS { Err(Row::Reject(Reject::Time)) } else { Ok(seconds) }
    }

    /// When the last container ended. An evicted pod may have no such record.
    fn last_end(&self) -> Result<u64, Row> {
        let statuses = self.container_statuses.iter().flatten();
        let ends =
            statuses.filter_map(|s| s.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
        let mut last = None;
        for end in ends {
            last = last.max(Some(time(end)?));
        }
        last.ok_or(Row::Reject(Reject::Time))
    }
}

/// Seconds since 1970.
fn time(text: &str) -> Result<u64, Row> {
    let time = humantime::parse_rfc3339(text).map_err(|_| Row::Reject(Reject::Time))?;
    let since = time.duration_since(std::time::UNIX_EPOCH);
    since.map(|d| d.as_secs()).map_err(|_| Row::Reject(Reject::Time))
}
