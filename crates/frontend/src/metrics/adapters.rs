//! Which adapters have requests, as vLLM tells it to routers.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::GaugeVec;

use super::Builder;
use crate::config::Adapter;

/// `vllm:lora_requests_info`; without series where there are no adapters.
pub struct AdapterMetrics {
    info: GaugeVec,
    /// Numbers of those with requests that wait, and that run.
    last: Mutex<Option<[Vec<u32>; 2]>>,
}

impl AdapterMetrics {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        let opts = b.opts(
            "vllm:lora_requests_info",
            "Adapters that may be in memory, those with requests that wait, and those with \
             requests that run; the value is when this was first seen, in seconds since 1970.",
        );
        let labels = ["max_lora", "waiting_lora_adapters", "running_lora_adapters"];
        Ok(Self { info: b.add(GaugeVec::new(opts, &labels))?, last: Mutex::default() })
    }

    /// Replaces the series by what is so now. vLLM keeps the old ones, and readers take the latest:
    /// one alone means the same, and does not grow.
    pub fn set(&self, adapters: &[Adapter], most: Option<u32>, now: [Vec<u32>; 2]) {
        if adapters.is_empty() {
            return;
        }
        // One store under the lock: consistent even if a holder died.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() == Some(&now) {
            return;
        }
        let names = |numbers: &[u32]| {
            let name = |number: &u32| Some(&*adapters.get(*number as usize - 1)?.name);
            numbers.iter().filter_map(name).collect::<Vec<_>>().join(",")
        };
        let most = most.map_or(adapters.len(), |most| most as usize).to_string();
        let labels = [&*most, &names(&now[0]), &names(&now[1])];
        self.info.reset();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.info.with_label_values(&labels).set(since_1970.as_secs_f64());
        *last = Some(now);
    }
}
