//! What the machine allows, of a server as a user starts it.

mod common;

use common::{Result, Server};
use serde_json::Value;

#[tokio::test]
async fn a_server_tells_its_roof_and_measures_it_again() -> Result<()> {
    let server = Server::start(&[]).await?;
    let version: Value =
        server.http.get(format!("{}/version", server.url)).send().await?.json().await?;
    let told = &version["device"];
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or_default();
    assert!(told["kernels"].as_str().is_some_and(|name| !name.is_empty()), "{told}");
    assert!(number(told, "read_bytes_per_second") > 0, "{told}");
    assert!(number(told, "weight_bytes") >= number(told, "step_weight_bytes"), "{told}");
    assert!(number(told, "huge_page_bytes") <= number(told, "weight_bytes"), "{told}");
    assert!(number(&told["product_flops_per_second"], "1") > 0, "{told}");

    let micro = std::process::Command::new(env!("CARGO_BIN_EXE_saccade"))
        .args([
            "bench",
            "micro",
            "roof",
            "--repeats",
            "2",
            "--json",
            "-",
            "--base-url",
            &server.url,
        ])
        .output()?;
    assert!(micro.status.success(), "{}", String::from_utf8_lossy(&micro.stderr));
    let found: Value = serde_json::from_slice(&micro.stdout)?;
    let again = &found["roof"]["roofs"];
    assert_eq!(again.as_array().map(Vec::len), Some(2));
    for name in ["kernels", "num_threads", "weight_bytes", "step_weight_bytes", "row_flops"] {
        assert_eq!(again[1][name], told[name], "{name}");
    }
    Ok(())
}
