//! What requests ask, seen by what a server is asked: generated prompts, files and traces.

use std::io::Write;

use saccade_load::{
    Arrival, Lengths, LoadSpec, Priority, Run, SharedPrefix, Source, Target, Trace, Workload,
    run_on_own_thread,
};
use saccade_mock::{Script, Server};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn spec(workload: Workload, requests: u64) -> LoadSpec {
    LoadSpec::new(Arrival::Closed { concurrency: 4 }, workload, requests)
}

/// Requests against a server whose count of prompt tokens is the count of ids.
fn run(spec: &LoadSpec) -> Run {
    let script = Script::from_json(r#"{"ttft": "constant:100us", "itl": "constant:10us"}"#);
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = Server::start(script.expect("a script"), address).expect("a server");
    let target = Target::new(format!("http://{}", server.address()));
    run_on_own_thread(&target, spec, &(), Priority::Normal).expect("a run")
}

/// Prompt and output tokens of each request, in order.
fn lengths(run: &Run) -> Vec<(u32, u32)> {
    run.requests.iter().map(|r| (r.prompt_tokens.unwrap_or(0), r.output_tokens)).collect()
}

fn error(workload: Workload) -> String {
    let target = Target::new("http://127.0.0.1:1");
    let error = run_on_own_thread(&target, &spec(workload, 1), &(), Priority::Normal);
    error.expect_err("refused before anything is sent").to_string()
}

#[test]
fn ids_have_exact_lengths_and_seeds_repeat_them() {
    let input = Lengths::Uniform { min: 3, max: 40 };
    let output = Lengths::LogNormal { mean: 6.0, std: 3.0, min: 1, max: 20 };
    let mut spec = spec(Workload::generated(input, output).with_ids(100), 30);
    spec.seed = 5;
    let (first, again) = (lengths(&run(&spec)), lengths(&run(&spec)));
    assert_eq!(first, again);
    assert!(first.iter().all(|(i, o)| (3..=40).contains(i) && (1..=20).contains(o)), "{first:?}");
    spec.seed = 6;
    assert_ne!(first, lengths(&run(&spec)));
}

#[test]
fn a_shared_prefix_comes_on_top_for_its_share() {
    let source = Source::Generated {
        input: Lengths::Fixed { tokens: 5 },
        output: Lengths::Fixed { tokens: 1 },
        prefix: Some(SharedPrefix { tokens: 10, share: 0.5, groups: 2 }),
    };
    let got = lengths(&run(&spec(Workload::of(source).with_ids(50), 60)));
    let with = got.iter().filter(|(input, _)| *input == 15).count();
    assert!((15..=45).contains(&with), "{with} of 60");
    assert_eq!(got.iter().filter(|(input, _)| *input == 5).count(), 60 - with);
}

#[test]
fn sharegpt_files_give_prompts_and_output_lengths() {
    let turn = |n: usize| format!(r#"{{"from": "x", "value": "{}"}}"#, "abcd".repeat(n));
    let conversation = |a: usize, b: usize| {
        format!(r#"{{"id": "i", "conversations": [{}, {}]}}"#, turn(a), turn(b))
    };
    // One that is used, one too short, one too long, one without an answer.
    let text = format!(
        r#"[{}, {}, {}, {{"conversations": [{}]}}, {{"other": 1}}]"#,
        conversation(10, 6),
        conversation(1, 6),
        conversation(5000, 6),
        turn(9)
    );
    let file = file(&text);
    let source = Source::ShareGpt { path: file.path().into(), output: None };
    let got = lengths(&run(&spec(Workload::of(source), 5)));
    assert_eq!(got, vec![(10, 6); 5]);
    let output = Some(Lengths::Fixed { tokens: 3 });
    let source = Source::ShareGpt { path: file.path().into(), output };
    assert!(lengths(&run(&spec(Workload::of(source), 4))).iter().all(|(_, output)| *output == 3));
}

#[test]
fn json_lines_in_their_forms() {
    let file = file(concat!(
        "{\"prompt\": \"abcdabcd\", \"output_tokens\": 2}\n\n",
        "{\"context\": \"abcd\", \"input\": \"ab\", \"answers\": [\"x\"], \"length\": 3}\n",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"abcdabcdabcdabcd\"}]}\n",
    ));
    let output = Lengths::Fixed { tokens: 7 };
    let source = Source::JsonLines { path: file.path().into(), output };
    let mut got = lengths(&run(&spec(Workload::of(source.clone()), 3)));
    got.sort_unstable();
    assert_eq!(got, [(2, 2), (2, 7), (4, 7)]);
    let mut bounded = Workload::of(source);
    bounded.max_prompt_tokens = Some(3);
    assert!(lengths(&run(&spec(bounded, 6))).iter().all(|(input, _)| *input == 2));
}

#[test]
fn a_trace_gives_times_lengths_and_shared_blocks() {
    let file = file(concat!(
        "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 3, \"hash_ids\": [1, 2]}\n",
        "{\"timestamp\": 1100, \"input_length\": 520, \"output_length\": 1, \"hash_ids\": [1, 3]}\n",
        "{\"timestamp\": 1250.5, \"input_length\": 4, \"output_length\": 2, \"hash_ids\": [9]}\n",
    ));
    let trace = Trace::read(file.path()).expect("a trace");
    let expected = [0.0, 0.1, 0.2505];
    assert!(trace.timestamps_s.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9));
    let workload = Workload::of(Source::Trace { entries: trace.entries }).with_ids(1000);
    let mut spec = spec(workload, 1);
    spec.arrival = Arrival::Replay { timestamps_s: trace.timestamps_s };
    spec.requests = None;
    let run = run(&spec);
    assert_eq!(lengths(&run), [(600, 3), (520, 1), (4, 2)]);
    assert!(run.requests.iter().zip(expected).all(|(r, t)| (r.intended_s - t).abs() < 1e-9));
    assert!((run.window_s.1 - 0.2505).abs() < 1e-9, "{:?}", run.window_s);
}

#[test]
fn times_alone_are_a_trace_too() {
    let times = file("0.5\n0.6\n\n2\n");
    let trace = Trace::read(times.path()).expect("a trace");
    assert_eq!((trace.timestamps_s.len(), trace.entries.len()), (3, 0));
    assert!((trace.timestamps_s[2] - 1.5).abs() < 1e-9);
    let bad = [
        ("", "no requests"),
        ("1\nx\n", "line 2"),
        ("2\n1\n", "before"),
        ("{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n2\n", "some have none"),
        (
            "{\"timestamp\": 1, \"input_length\": 99999999, \"output_length\": 1}\n",
            "must not exceed",
        ),
    ];
    for (text, word) in bad {
        let error = Trace::read(file(text).path()).expect_err(text).to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_line() {
    let output = Lengths::Fixed { tokens: 1 };
    let lines = |text: &str| {
        let file = file(text);
        error(Workload::of(Source::JsonLines { path: file.path().into(), output }))
    };
    assert!(lines("{\"prompt\": \"a\"}\n{\"text\": \"a\"}\n").contains("line 2"));
    assert!(lines("not JSON\n").contains("line 1"));
    assert!(lines("\n").contains("no usable prompt"));
    let missing = Source::ShareGpt { path: "/no/such/file.json".into(), output: None };
    assert!(error(Workload::of(missing)).contains("/no/such/file.json"));
    let object = file("{}");
    let source = Source::ShareGpt { path: object.path().into(), output: None };
    assert!(error(Workload::of(source)).contains("array"));
}
