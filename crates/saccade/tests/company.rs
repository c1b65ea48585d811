//! A request's tokens do not depend on its company: the same 64 requests, one by one and together,
//! under every way of running them, give the same bytes.

mod common;

use common::{End, Result, Server, Streamed, crowd, stream};
use serde_json::{Value, json};

const PROMPTS: [&str; 8] = [
    "In the beginning",
    "Hello! Who are you?",
    "The king said unto the people,",
    "A",
    "Tell me about the sea and about those who sail on it, and what they saw there in the night.",
    "1 2 3 4 5 6 7 8 9",
    "Continue this: and it came to pass",
    "\u{e9}t\u{e9} \u{4f60}\u{597d} \u{1f600}",
];

/// Greedy and seeded, short and long, with and without penalties.
fn requests() -> Vec<Value> {
    (0..64usize)
        .map(|i| {
            let prompt = PROMPTS[i % PROMPTS.len()].repeat(1 + (i / 8) % 5 * 3);
            let mut body = json!({
                "model": "saccade-tiny", "prompt": prompt, "max_tokens": 8 + i % 40, "seed": i,
                "temperature": if i % 3 == 0 { 0.0 } else { 0.9 }, "ignore_eos": true,
                "logprobs": i % 4,
            });
            if i % 5 == 1 {
                body["top_p"] = json!(0.8);
                body["presence_penalty"] = json!(0.5);
            }
            if i % 5 == 2 {
                body["top_k"] = json!(20);
                body["repetition_penalty"] = json!(1.2);
            }
            body
        })
        .collect()
}

async fn one_by_one(server: &Server) -> Result<Vec<Streamed>> {
    let mut all = Vec::new();
    for body in requests() {
        all.push(stream(server, &body).await?);
    }
    Ok(all)
}

async fn together(server: &Server) -> Result<Vec<Streamed>> {
    let bodies = requests();
    futures_util::future::join_all(bodies.iter().map(|body| stream(server, body)))
        .await
        .into_iter()
        .collect()
}

fn assert_same(expected: &[Streamed], got: &[Streamed], how: &str) {
    for (i, (e, g)) in expected.iter().zip(got).enumerate() {
        assert_eq!(e, g, "request {i} differs {how}");
    }
}

#[tokio::test]
async fn same_bytes_alone_and_in_any_company() -> Result<()> {
    let server = Server::start(&[]).await?;
    let alone = one_by_one(&server).await?;
    for (i, r) in alone.iter().enumerate() {
        assert_eq!(r.end, End::Done("length".into()), "request {i}");
        assert!(!r.text.is_empty(), "request {i} gave no text");
    }
    assert_same(&alone, &together(&server).await?, "among 64");
    drop(server);
    let ways: [(&str, &[&str]); 5] = [
        ("in small chunks", &["--max-num-batched-tokens", "37", "--max-num-seqs", "32"]),
        ("in serial mode", &["--serial"]),
        ("with inline prefill", &["--prefill-policy", "inline"]),
        ("on one thread", &["--device-threads", "1"]),
        (
            "with preemption",
            // 64 requests of up to ~300 tokens in 64 blocks of 8 tokens.
            &["--num-gpu-blocks-override", "64", "--block-size", "8", "--max-model-len", "512"],
        ),
    ];
    for (how, flags) in ways {
        let flags: Vec<&str> = flags.to_vec();
        let server = Server::start(&flags).await?;
        let crowd = crowd();
        let beside = server.post("/v1/completions", &crowd);
        let (got, crowded) = futures_util::future::join(together(&server), beside).await;
        assert_eq!(crowded?.0, 200, "{how}");
        assert_same(&alone, &got?, how);
        if how == "with preemption" {
            assert!(
                server.metric("vllm:num_preemptions_total").await? > 0.0,
                "nothing was preempted"
            );
        }
    }
    Ok(())
}
