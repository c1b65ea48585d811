//! `bench attack --attacks` against a scripted server: a planted weakness shows in the table, and a
//! server without one looks like it. What counts is counted; no time is compared but with the
//! victims' own time-out.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use common::{Folder, json, mock, text, tool};
use serde_json::Value;

/// A fast server: its own delays hide nothing.
const QUICK: &str = r#""ttft": "constant:1ms", "itl": "constant:1ms""#;

/// Runs these attacks for a short window, and gives the record and what was printed.
fn attack(name: &str, script: &str, attacks: &str, more: &[&str]) -> (Value, String) {
    let folder = Folder::new(name);
    let server = mock(script);
    let url = format!("s=http://{}", server.address());
    let (json_file, html) = (folder.path("a.json"), folder.path("a.html"));
    let mut words = vec!["attack", "--server", &url, "--attacks", attacks];
    words.extend(["--window", "2", "--victim-streams", "2", "--victim-len", "8"]);
    words.extend(["--victim-output-len", "8", "--repeats", "1", "--lead", "1", "--drain", "20"]);
    words.extend(["--client-priority", "normal", "--client-tolerance", "1000000"]);
    words.extend(["--json", &json_file, "--html", &html]);
    words.extend(more);
    let output = tool(&words).output().unwrap();
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && page.contains("Victims beside attackers"), "a page");
    assert_eq!(redrawn(&folder, &json_file), page, "the record has all that the page shows");
    (json(&json_file), told)
}

fn redrawn(folder: &Folder, json_file: &str) -> String {
    let out = folder.path("again.html");
    let output = tool(&["page", json_file, "--out", &out]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    std::fs::read_to_string(out).unwrap()
}

fn cell<'a>(record: &'a Value, attack: &str) -> &'a Value {
    let mut cells = record["cells"].as_array().unwrap().iter();
    cells.find(|cell| cell["attack"] == attack).unwrap()
}

/// What attackers of a kind saw in the first pair.
fn seen<'a>(record: &'a Value, attack: &str) -> &'a Value {
    let mut pairs = record["pairs"].as_array().unwrap().iter();
    let pair = pairs.find(|pair| pair["attack"]["kind"] == attack).unwrap();
    &pair["attacked"]["attackers"]["tally"]
}

fn failed(cell: &Value, side: &str) -> (u64, u64) {
    let counts = &cell[side];
    (counts[0].as_u64().unwrap(), counts[1].as_u64().unwrap())
}

/// Streams of many bytes, so that a reader that takes none fills every buffer on the way.
fn padded(weaknesses: &str) -> String {
    format!(r#"{{{QUICK}, "wire": {{"pad_bytes": 32768}}, "weaknesses": {{{weaknesses}}}}}"#)
}

const STALLED: &[&str] = &[
    "--timeout",
    "3",
    "--attack-set",
    "stalled.clients=4,stalled.prompt=8,stalled.output=2000,stalled.logprobs=0",
];

#[test]
fn a_server_that_one_stalled_reader_stalls_shows_it() {
    let script = padded(r#""stalled_reader_stalls_all": true"#);
    let (record, told) = attack("stalls", &script, "stalled", STALLED);
    let cell = cell(&record, "stalled");
    assert_eq!(failed(cell, "quiet_failures").1, 0, "{told}");
    let (victims, lost) = failed(cell, "attacked_failures");
    assert!(lost > 0 && lost == victims, "{lost} of {victims} failed\n{told}");
    assert!(
        cell["ttft_p99_ms"]["attacked"].as_f64().unwrap() >= 3000.0,
        "its wait is missing: {cell}"
    );
    assert_eq!(seen(&record, "stalled")["statuses"]["200"], 4, "{told}");
    assert!(told.contains("s: victims beside attackers"), "{told}");
}

#[test]
fn a_server_without_the_weakness_answers_every_victim() {
    let (record, told) = attack("holds", &padded(""), "stalled", STALLED);
    let cell = cell(&record, "stalled");
    for side in ["quiet_failures", "attacked_failures"] {
        let (victims, lost) = failed(cell, side);
        assert!(victims > 0 && lost == 0, "{side}: {lost} of {victims}\n{told}");
    }
    assert_eq!(seen(&record, "stalled")["most_open"], 4, "{told}");
}

#[test]
fn seats_that_aborted_streams_keep_are_missed_by_victims() {
    for (name, weaknesses, all_answered) in
        [("keeps", r#""aborted_keeps_seat": true"#, false), ("frees", "", true)]
    {
        let script = format!(
            r#"{{{QUICK}, "capacity": {{"running": 20}}, "weaknesses": {{{weaknesses}}}}}"#
        );
        let more = ["--timeout", "3", "--attack-set", "aborts.clients=4,aborts.prompt=8"];
        let (record, told) = attack(name, &script, "aborts", &more);
        let (victims, lost) = failed(cell(&record, "aborts"), "attacked_failures");
        assert!(victims > 0 && (lost == 0) == all_answered, "{lost} of {victims}\n{told}");
        assert!(seen(&record, "aborts")["finished"].as_u64().unwrap() >= 20, "{told}");
    }
}

/// A server with few connections and no bound on how long one may say nothing.
#[test]
fn connections_that_say_nothing_or_half_a_head_keep_victims_out() {
    let script = format!(r#"{{{QUICK}, "capacity": {{"connections": 16}}}}"#);
    let more = ["--timeout", "3", "--attack-set", "idle-connections.clients=64"];
    let (record, told) = attack("floods", &script, "idle-connections", &more);
    let (victims, lost) = failed(cell(&record, "idle-connections"), "attacked_failures");
    assert!(lost > 0, "{lost} of {victims}\n{told}");
    let attacks = "idle-connections,half-heads";
    let few = "idle-connections.clients=64,half-heads.clients=64,half-heads.pause=100";
    let more = ["--timeout", "60", "--attack-set", few];
    let (record, told) = attack("floods-held", &format!("{{{QUICK}}}"), attacks, &more);
    for kind in ["idle-connections", "half-heads"] {
        let (victims, lost) = failed(cell(&record, kind), "attacked_failures");
        assert!(victims > 0 && lost == 0, "{kind}: {lost} of {victims}\n{told}");
        assert_eq!(seen(&record, kind)["most_open"], 64, "{told}");
    }
    assert!(seen(&record, "half-heads")["sent_bytes"].as_u64().unwrap() > 64 * 100, "{told}");
}

/// All other attacks at once: each does what its name says, and says what the server lacks.
#[test]
fn every_attack_counts_what_the_server_did_with_it() {
    let script = format!(
        r#"{{{QUICK}, "max_model_len": 2048, "refused_fields": ["priority", "slo_ttft_ms"]}}"#
    );
    let attacks = "crowd,trickle,priority,slo,one-byte-chunks,large-bodies,wide,long-prompts,\
                   beyond-kv,schema-bombs,malformed";
    let small = "crowd.clients=2,crowd.prompt=8,crowd.output=8,trickle.clients=2,\
                 one-byte-chunks.clients=2,one-byte-chunks.chunks=20000,large-bodies.bytes=100000";
    let (record, told) =
        attack("every", &script, attacks, &["--timeout", "60", "--attack-set", small]);
    for cell in record["cells"].as_array().unwrap() {
        let (victims, lost) = failed(cell, "attacked_failures");
        assert!(victims > 0 && lost == 0, "{lost} of {victims}: {cell}\n{told}");
    }
    let verdict = |kind| cell(&record, kind)["attackers"].as_str().unwrap();
    for (kind, words) in [
        ("crowd", "200 ×"),
        ("priority", "the field is refused: HTTP 400, priority: not a field"),
        ("slo", "the field is refused: HTTP 400, slo_ttft_ms"),
        ("large-bodies", "no such endpoint: HTTP 404"),
        ("wide", "400 ×"),
        ("long-prompts", "200 ×"),
        ("beyond-kv", "refused "),
        // The scripted server reads no `response_format`.
        ("schema-bombs", "doubled-alternatives"),
    ] {
        assert!(verdict(kind).contains(words), "{kind}: {}\n{told}", verdict(kind));
    }
    let cases = &seen(&record, "malformed")["cases"];
    let case = |name: &str| {
        let of = |field: &str| cases[name][field].as_u64().unwrap();
        (of("sent"), of("accepted"))
    };
    // The scripted server looks at no Content-Encoding, and its JSON has each key once.
    let (sent, accepted) = case("wrong-content-encoding");
    assert!(sent > 0 && accepted + 4 >= sent, "{cases}");
    assert_eq!(case("duplicate-json-keys").1, 0, "{cases}");
    let chunks = seen(&record, "one-byte-chunks");
    assert!(chunks["sent"].as_u64().unwrap() == 2, "{chunks}");
    // Six bytes for each chunk of one.
    assert!(chunks["sent_bytes"].as_u64().unwrap() >= 2 * 6 * 20_000, "{chunks}");
    let attacked = |kind: &str| {
        let mut pairs = record["pairs"].as_array().unwrap().iter();
        pairs.find(|pair| pair["attack"]["kind"] == kind).unwrap()["attacked"]["attackers"].clone()
    };
    let long = attacked("long-prompts");
    assert_eq!((&long["limit"], &long["prompts"]), (&2048.into(), &"token ids".into()));
    assert!(!record["pairs"][0]["attacked"]["footprint"].is_null(), "the server is this process");
}

/// Each side has its key; neither is in the record.
#[test]
fn victims_and_attackers_have_keys_of_their_own() {
    let script = format!(r#"{{{QUICK}, "api_key": "right"}}"#);
    let more = ["--victim-api-key", "right", "--attacker-api-key", "wrong"];
    let (record, told) = attack("keys", &script, "crowd", &more);
    let (victims, lost) = failed(cell(&record, "crowd"), "attacked_failures");
    assert!(victims > 0 && lost == 0, "{lost} of {victims}\n{told}");
    let statuses = &seen(&record, "crowd")["statuses"];
    assert!(statuses["401"].as_u64().unwrap() > 0 && statuses["200"].is_null(), "{statuses}");
    assert_eq!(record["setup"]["separate_keys"], true);
    let written = record.to_string();
    assert!(!written.contains("\"right\"") && !written.contains("\"wrong\""), "{written}");
}

#[test]
fn mistakes_are_named() {
    let url = "s=http://127.0.0.1:1";
    for (words, named) in [
        (vec!["--attacks", "stalled,nothing"], "\"nothing\" is none of all, crowd"),
        (vec!["--attacks", "stalled", "--cores", "1,2"], "--cores"),
        (vec!["--attacks", "stalled", "--attack-rate", "1"], "--attack-rate"),
        (vec!["--attacks", "stalled", "--attack-set", "stalled.clients=0"], "outside 1 .. 16384"),
        (vec!["--attacks", "stalled", "--window", "0"], "--window"),
        (vec!["--cores", "1,2", "--victim-streams", "3"], "--cores"),
        (vec!["--victim-streams", "3"], "--attacks"),
        (vec!["--server", "t=https://127.0.0.1:1", "--attacks", "stalled"], "plain HTTP"),
    ] {
        let words: Vec<&str> =
            ["attack", "--server", url].into_iter().chain(words.iter().copied()).collect();
        let output = tool(&words).output().unwrap();
        let told = text(&output);
        assert!(output.status.code() == Some(2) && told.contains(named), "{words:?}: {told}");
    }
}
