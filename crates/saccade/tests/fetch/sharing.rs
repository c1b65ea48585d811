//! What one server has computed, another one finds; and what it must not find.

use serde_json::json;

use crate::common::{Result, Server, stream};
use crate::world::*;

/// Through each store, exactly: prompts, turns of a conversation, whole and streamed.
#[tokio::test]
async fn another_server_finds_what_one_has_computed() -> Result<()> {
    let plain = plain().await?;
    for place in Place::all()? {
        for codec in ["lossless", "raw"] {
            let url = place.url(codec);
            let flags: &[&[&str]] = &[&PATIENT, &ROOMY, &["--prefix-codec", codec]];
            let (one, other) = (serve(&url, flags).await?, serve(&url, flags).await?);
            whole_prompts(&plain, &one, &other).await.map_err(|e| format!("{url}: {e}"))?;
            conversation(&plain, &one, &other).await.map_err(|e| format!("{url}: {e}"))?;
        }
    }
    Ok(())
}

async fn whole_prompts(plain: &Server, one: &Server, other: &Server) -> Result<()> {
    let long = body(&document(1, 1900), 12);
    let expected = ask(plain, &long).await?;
    let first = ask(one, &long).await?;
    assert_eq!((&first.said, first.cached), (&expected.said, 0));
    stored(one, 7.0).await?;
    let second = ask(other, &long).await?;
    assert_eq!((&second.said, second.cached), (&expected.said, 7 * CHUNK));
    let computed = (1900 - 7 * CHUNK) as f64;
    other.until_metric("saccade:device_prefill_tokens_total", computed, SOON).await?;
    other.until_metric("vllm:external_prefix_cache_hits_total", 7.0 * 256.0, SOON).await?;

    // The last chunk of a prompt of whole chunks has the token that is computed.
    let even = body(&document(2, 1024), 12);
    let expected = stream(plain, &even).await?;
    assert_eq!(stream(one, &even).await?, expected);
    stored(one, 7.0 + 4.0).await?;
    assert_eq!(stream(other, &even).await?, expected);
    let hits = (7.0 + 3.0) * 256.0;
    other.until_metric("vllm:external_prefix_cache_hits_total", hits, SOON).await?;
    let whole = ask(other, &even).await?;
    assert_eq!(whole.said, expected, "unstreamed");
    Ok(())
}

/// Turns go to the servers in turn: each finds the chunks of the answers too.
async fn conversation(plain: &Server, one: &Server, other: &Server) -> Result<()> {
    let mut history = document(3, 150);
    for turn in 0..4 {
        let server = if turn % 2 == 0 { one } else { other };
        let turn_body = body(&history, 300);
        let expected = ask(plain, &turn_body).await?;
        let kept = commands(server, "store", "done").await?;
        let answer = ask(server, &turn_body).await?;
        assert_eq!(answer.said, expected.said, "turn {turn}");
        let whole = (history.len() as u64 - 1) / CHUNK * CHUNK;
        assert!(answer.cached >= whole, "turn {turn}: {} of {whole}", answer.cached);
        let computed = history.len() as u64 + 300 - 1;
        let new = computed / CHUNK - whole / CHUNK;
        stored(server, kept + new as f64).await?;
        history.extend(answer.ids());
        history.extend(document(4 + turn, 40));
    }
    assert_eq!(history.len(), 150 + 4 * 340);
    Ok(())
}

/// Another salt, another key, another type of numbers: nothing is found.
#[tokio::test]
async fn strangers_find_nothing() -> Result<()> {
    let (plain, place) = (plain().await?, Place::folder()?);
    let url = place.url("kv");
    let keyed = ["--api-key", "red", "blue", "--cache-salt-by-key"];
    let (one, other) =
        (serve(&url, &[&PATIENT, &ROOMY]).await?, serve(&url, &[&PATIENT, &ROOMY]).await?);
    let mut salted = body(&document(11, 600), 12);
    let expected = ask(&plain, &salted).await?.said;
    assert_eq!(ask(&one, &salted).await?.said, expected);
    stored(&one, 2.0).await?;
    for (salt, found) in [(Some("sea"), 0), (None, 2 * CHUNK)] {
        salted["cache_salt"] = salt.map_or(json!(null), |salt| json!(salt));
        let answer = ask(&other, &salted).await?;
        assert_eq!((answer.said, answer.cached), (expected.clone(), found), "{salt:?}");
    }
    // What was computed with a salt is found with it.
    salted["cache_salt"] = json!("sea");
    stored(&other, 2.0).await?;
    assert_eq!(ask(&one, &salted).await?.cached, 2 * CHUNK);

    let (one, other) = (
        serve(&url, &[&PATIENT, &ROOMY, &keyed]).await?,
        serve(&url, &[&PATIENT, &ROOMY, &keyed]).await?,
    );
    let of_key = body(&document(12, 600), 12);
    let expected = ask(&plain, &of_key).await?.said;
    assert_eq!(ask_as(&one, Some("red"), &of_key).await?.said, expected);
    stored(&one, 2.0).await?;
    for (key, found) in [("blue", 0), ("red", 2 * CHUNK)] {
        let answer = ask_as(&other, Some(key), &of_key).await?;
        assert_eq!((answer.said, answer.cached), (expected.clone(), found), "{key}");
    }
    drop((one, other));

    // Documents 11 and 12 are there, of the model as it is.
    let usual = serve(&url, &[&PATIENT, &ROOMY]).await?;
    assert_eq!(ask(&usual, &body(&document(11, 600), 12)).await?.cached, 2 * CHUNK);
    for flags in [
        ["--dtype", "float16"],
        ["--dtype", "float32"],
        ["--quantization", "int8"],
        ["--kv-cache-dtype", "fp8"],
    ] {
        let server = serve(&url, &[&PATIENT, &ROOMY, &flags]).await?;
        let answer = ask(&server, &body(&document(11, 600), 12)).await?;
        assert_eq!(answer.cached, 0, "{flags:?}");
    }
    Ok(())
}

/// FP8 KV goes through a store in whole, whichever name the flag has; KV in the model's type is
/// neither found by its servers nor finds it.
#[tokio::test]
async fn fp8_kv_is_shared_with_fp8_kv_only() -> Result<()> {
    let fp8 = ["--kv-cache-dtype", "fp8"];
    let plain = Server::start(&["--no-enable-prefix-caching", fp8[0], fp8[1]]).await?;
    for codec in ["lossless", "raw", "bins-rans"] {
        let (place, codec) = (Place::folder()?, ["--prefix-codec", codec]);
        let url = place.url("kv");
        let one = serve(&url, &[&PATIENT, &ROOMY, &fp8, &codec]).await?;
        let long = body(&document(14, 1100), 12);
        let expected = ask(&plain, &long).await?.said;
        assert_eq!(ask(&one, &long).await?.said, expected);
        stored(&one, 4.0).await?;
        let same = ["--kv-cache-dtype", "fp8_e4m3"];
        let other = serve(&url, &[&PATIENT, &ROOMY, &same, &codec]).await?;
        let answer = ask(&other, &long).await?;
        assert_eq!((answer.said, answer.cached), (expected, 4 * CHUNK), "{codec:?}");
        let usual = serve(&url, &[&PATIENT, &ROOMY, &codec]).await?;
        assert_eq!(ask(&usual, &long).await?.cached, 0, "{codec:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_reset_forgets_what_is_in_the_store() -> Result<()> {
    let place = Place::folder()?;
    let server = serve(&place.url("kv"), &[&PATIENT, &ROOMY]).await?;
    let body = body(&document(21, 600), 12);
    let expected = ask(&server, &body).await?.said;
    stored(&server, 2.0).await?;
    let reset = server.http.post(format!("{}/reset_prefix_cache", server.url)).send().await?;
    assert!(reset.status().is_success());
    let anew = ask(&server, &body).await?;
    assert_eq!((anew.said, anew.cached), (expected.clone(), 0));
    let again = ask(&server, &body).await?;
    assert_eq!(again.said, expected);
    assert!(again.cached >= 2 * CHUNK);
    Ok(())
}

/// Codecs that change KV a little change answers a little.
#[tokio::test]
async fn lossy_codecs_come_close() -> Result<()> {
    let (plain, place) = (plain().await?, Place::folder()?);
    for (codec, bound) in
        [("bins-rans", 1.0), ("bins-deflate", 1.0), ("bins-zstd", 1.0), ("cachegen", 4.0)]
    {
        let url = place.url(codec);
        let flags: &[&[&str]] = &[&PATIENT, &ROOMY, &["--prefix-codec", codec]];
        let (one, other) = (serve(&url, flags).await?, serve(&url, flags).await?);
        let (mut worst, mut sum, mut compared) = (0f64, 0.0, 0);
        for n in 0..4 {
            let mut body = body(&document(31 + n, 900), 1);
            body["logprobs"] = json!(20);
            body["temperature"] = json!(0.0);
            let exact = top_logprobs(&plain, &body).await?;
            assert_eq!(top_logprobs(&one, &body).await?, exact, "{codec}: what is computed");
            stored(&one, 3.0 * (n + 1) as f64).await?;
            for (token, logprob) in top_logprobs(&other, &body).await? {
                let Some(right) = exact.iter().find(|(t, _)| *t == token) else { continue };
                let error = (logprob - right.1).abs();
                (worst, sum, compared) = (worst.max(error), sum + error, compared + 1);
            }
        }
        assert_eq!(commands(&other, "load", "done").await?, 12.0, "{codec}");
        let mean = sum / f64::from(compared);
        println!(
            "{codec}: error of {compared} log probabilities: mean {mean:.4}, worst {worst:.4}"
        );
        assert!(worst < bound && compared > 20, "{codec}: {worst} of {compared}");
        let long = ask(&other, &body(&document(31, 900), 40)).await?;
        assert_eq!(long.said.logprobs.len(), 40, "{codec}");
    }
    Ok(())
}

async fn top_logprobs(server: &Server, body: &serde_json::Value) -> Result<Vec<(String, f64)>> {
    let (status, answer) = server.post("/v1/completions", body).await?;
    assert_eq!(status, 200, "{answer}");
    let top = answer["choices"][0]["logprobs"]["top_logprobs"][0].as_object().cloned();
    let pairs = top.unwrap_or_default().into_iter();
    Ok(pairs.filter_map(|(token, logprob)| Some((token, logprob.as_f64()?))).collect())
}
