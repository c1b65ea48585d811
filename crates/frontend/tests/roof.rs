//! What the device's machine allows: in `/version`, in the metrics, and measured again on demand.
#![allow(clippy::unwrap_used)]

mod common;

use common::Harness;
use saccade_ring::testing::FakeConfig;

fn with_roof(keys: Vec<String>) -> Harness {
    let config = FakeConfig { measures_roof: true, ..FakeConfig::default() };
    Harness::with(|c| c.api_keys = keys, config)
}

#[test]
fn version_and_metrics_tell_it() {
    let h = with_roof(Vec::new());
    let version = h.get("/version").json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let device = &version["device"];
    assert_eq!((&device["kernels"], &device["num_threads"]), (&"fake".into(), &2.into()));
    assert_eq!((&device["weight_bytes"], &device["huge_page_bytes"]), (&1000.into(), &600.into()));
    assert_eq!((&device["step_weight_bytes"], &device["row_flops"]), (&800.into(), &400.into()));
    assert_eq!(device["read_bytes_per_second"], 8001);
    let rates = serde_json::json!({"1": 1_000_000, "2": 3_000_000});
    assert_eq!(device["product_flops_per_second"], rates);

    let tiny =
        |name: &str, labels: &str| h.metric(&format!("{name}{{{labels}model_name=\"tiny\"}}"));
    assert_eq!(
        h.metric("saccade:device_info{kernels=\"fake\",model_name=\"tiny\",threads=\"2\"}"),
        1.0
    );
    assert_eq!(tiny("saccade:device_weight_bytes", ""), 1000.0);
    assert_eq!(tiny("saccade:device_weight_huge_page_bytes", ""), 600.0);
    assert_eq!(tiny("saccade:device_step_weight_bytes", ""), 800.0);
    assert_eq!(tiny("saccade:device_read_bytes_per_second", ""), 8001.0);
    let products = "saccade:device_product_flops_per_second{model_name=\"tiny\",rows=\"2\"}";
    assert_eq!(h.metric(products), 3e6);
}

#[test]
fn it_is_measured_again_with_the_key() {
    let h = with_roof(vec!["s3cret".into()]);
    assert_eq!(h.request("POST", "/measure_roof", &[], "").status, 401);
    let key = [("authorization", "Bearer s3cret")];
    assert_eq!(h.request("GET", "/measure_roof", &key, "").status, 405);
    for bytes in [8002, 8003] {
        let answer = h.request("POST", "/measure_roof", &key, "");
        assert_eq!(
            (answer.status, answer.json()["read_bytes_per_second"].clone()),
            (200, bytes.into())
        );
    }
    assert_eq!(h.get("/version").json()["device"]["read_bytes_per_second"], 8003);
}

#[test]
fn a_device_without_one_says_so() {
    let h = Harness::start();
    let answer = h.request("POST", "/measure_roof", &[], "");
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (501, "no_roof".into()));
    assert!(h.get("/version").json()["device"].is_null());
    assert!(!h.get("/metrics").text().contains("saccade:device_info{"));
}
