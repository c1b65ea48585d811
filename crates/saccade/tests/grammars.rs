//! Answers under grammars, through HTTP and a real device plane: at a temperature at which a model
//! says anything, each answer that ends by itself is what its grammar says, as others judge it.

mod common;

use common::{Result, Server, crowd};
use futures_util::future::join_all;
use serde_json::{Value, json};

/// Tokens that were not drawn.
const FORCED: &str = "saccade:device_forced_tokens_total";

/// Schemas whose answers end soon even where every token is as likely as any other.
fn schemas() -> Vec<Value> {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "additionalProperties": false, "required": ["v"],
        "properties": {"v": {"type": "boolean"}, "next": {"$ref": "#/$defs/node"}}}}});
    vec![
        json!({"type": "object", "additionalProperties": false,
               "properties": {"name": {"type": "string", "maxLength": 12},
               "age": {"type": "integer",
               "minimum": 0, "maximum": 130}, "tags": {"type": "array", "maxItems": 3,
               "items": {"enum": ["red", "green", "blue"]}}}, "required": ["name", "age"]}),
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 4}),
        json!({"type": "array", "maxItems": 2, "items": {"anyOf": [{"type": "null"},
               {"type": "number", "minimum": -1, "maximum": 1}, {"const": "a\"b\\c"}]}}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"}),
        json!({"type": "string", "format": "date-time"}),
        tree,
    ]
}

/// One request for each way to ask for a grammar, several times over.
fn requests() -> Vec<Value> {
    let schemas = schemas();
    (0..48usize)
        .map(|i| {
            let schema = &schemas[i % schemas.len()];
            let mut body = json!({
                "model": "saccade-tiny", "prompt": "Answer in JSON: ", "max_tokens": 120,
                "temperature": 1.5, "seed": i, "n": 1 + i % 3,
            });
            // With logprobs every token is drawn.
            if i % 5 < 2 {
                body["logprobs"] = json!(i % 5);
            }
            match i / schemas.len() % 4 {
                0 => {
                    body["response_format"] = json!({"type": "json_schema",
                        "json_schema": {"name": "answer", "strict": true, "schema": schema}});
                }
                1 => body["structured_outputs"] = json!({"json": schema}),
                2 => body["guided_json"] = json!(schema.to_string()),
                _ => {
                    body["structured_outputs"] = json!({"json": schema});
                    body["temperature"] = json!(0);
                    body["repetition_penalty"] = json!(1.3);
                    body["logit_bias"] = json!({"10": -100, "11": 50});
                }
            }
            body
        })
        .collect()
}

/// Text and finish reason of each choice.
async fn answers(server: &Server, body: &Value) -> Result<Vec<(String, String)>> {
    let (status, answer) = server.post("/v1/completions", body).await?;
    assert_eq!(status, 200, "{body}: {answer}");
    let choices = answer["choices"].as_array().ok_or("no choices")?;
    let text = |choice: &Value, field: &str| choice[field].as_str().unwrap_or_default().to_owned();
    Ok(choices.iter().map(|c| (text(c, "text"), text(c, "finish_reason"))).collect())
}

async fn together(server: &Server, bodies: &[Value]) -> Result<Vec<Vec<(String, String)>>> {
    join_all(bodies.iter().map(|body| answers(server, body))).await.into_iter().collect()
}

/// Every answer that ended by itself is valid; returns how many did.
fn judge(answers: &[Vec<(String, String)>], how: &str) -> Result<usize> {
    let schemas = schemas();
    let mut ended = 0;
    for (i, choices) in answers.iter().enumerate() {
        let schema = &schemas[i % schemas.len()];
        let judge = jsonschema::options().should_validate_formats(true).build(schema)?;
        for (text, reason) in choices {
            if reason == "stop" {
                ended += 1;
                let value: Value = serde_json::from_str(text)
                    .map_err(|e| format!("{how}: {schema} gave {text:?}: {e}"))?;
                assert!(judge.is_valid(&value), "{how}: {schema} gave {text:?}");
            } else {
                assert_eq!(reason, "length", "{how}: {text:?}");
            }
        }
    }
    Ok(ended)
}

#[tokio::test]
async fn what_ends_by_itself_is_valid_in_any_company_and_under_preemption() -> Result<()> {
    let server = Server::start(&[]).await?;
    let bodies = requests();
    let mut alone = Vec::new();
    for body in &bodies {
        alone.push(answers(&server, body).await?);
    }
    let count: usize = alone.iter().map(Vec::len).sum();
    assert!(judge(&alone, "alone")? > count / 2, "too few answers ended");
    // Among requests without grammars too.
    let mut mixed = bodies.clone();
    mixed
        .extend((0..8).map(|i| json!({"prompt": "In the beginning", "max_tokens": 60, "seed": i})));
    assert_eq!(together(&server, &mixed).await?[..bodies.len()], alone);
    assert!(server.metric(FORCED).await? > 100.0, "every token was drawn");
    drop(server);
    let tight = ["--num-gpu-blocks-override", "48", "--block-size", "8", "--max-model-len", "256"];
    let server = Server::start(&tight).await?;
    let crowded = [bodies.clone(), vec![crowd()]].concat();
    assert_eq!(together(&server, &crowded).await?[..bodies.len()], alone);
    assert!(server.metric("vllm:num_preemptions_total").await? > 0.0, "nothing was preempted");
    Ok(())
}

#[tokio::test]
async fn random_weights_and_an_emulated_device_obey_as_well() -> Result<()> {
    for flags in [&["--load-format", "dummy"][..], &["--device", "sim:h100"][..]] {
        let server = Server::start(flags).await?;
        let answers = together(&server, &requests()).await?;
        let ended = judge(&answers, &flags.join(" "))?;
        assert!(ended > 20, "{flags:?}: only {ended} answers ended");
    }
    Ok(())
}

#[tokio::test]
async fn regular_expressions_choices_and_any_object() -> Result<()> {
    let server = Server::start(&[]).await?;
    let ask = |grammar: Value, seed: usize| {
        let mut body = json!({"prompt": "x", "max_tokens": 100, "temperature": 1.5, "seed": seed});
        body.as_object_mut().expect("an object").extend(grammar.as_object().cloned().expect("one"));
        body
    };
    for seed in 0..6 {
        let regex = ask(json!({"guided_regex": "(\\d{1,3}\\.){3}\\d{1,3}"}), seed);
        for (text, reason) in answers(&server, &regex).await? {
            assert_eq!(reason, "stop", "{text}");
            let parts: Vec<&str> = text.split('.').collect();
            assert!(parts.len() == 4 && parts.iter().all(|p| p.parse::<u16>().is_ok()), "{text}");
        }
        let choice = ask(json!({"structured_outputs": {"choice": ["yes", "no", "perhaps"]}}), seed);
        for (text, reason) in answers(&server, &choice).await? {
            assert!(
                ["yes", "no", "perhaps"].contains(&text.as_str()) && reason == "stop",
                "{text}"
            );
        }
        let object = ask(json!({"response_format": {"type": "json_object"}}), seed);
        for (text, reason) in answers(&server, &object).await? {
            assert!(text.starts_with('{'), "{text}");
            if reason == "stop" {
                let value: Value = serde_json::from_str(&text)?;
                assert!(value.is_object(), "{text}");
            }
        }
    }
    // Chat, streamed: the end is told apart from a cut.
    let (status, chat) = server
        .post(
            "/v1/chat/completions",
            &json!({"messages": [{"role": "user", "content": "Say yes or no."}], "max_tokens": 20,
                    "temperature": 1.5, "structured_outputs": {"choice": ["yes", "no"]}}),
        )
        .await?;
    assert_eq!(status, 200, "{chat}");
    assert_eq!(chat["choices"][0]["finish_reason"], "stop");
    assert!(matches!(chat["choices"][0]["message"]["content"].as_str(), Some("yes" | "no")));
    Ok(())
}

/// An answer of which a grammar leaves no choice is the same with and without forced tokens, in
/// fewer steps with them.
#[tokio::test]
async fn a_text_without_choice_takes_fewer_steps() -> Result<()> {
    let text = "{\"configuration\": {\"temperature\": 21, \"ventilation\": false}}";
    let body = json!({"prompt": "x", "max_tokens": 100, "structured_outputs": {"choice": [text]}});
    let mut steps = Vec::new();
    for flags in [&[][..], &["--disable-jump-forward"][..]] {
        let server = Server::start(flags).await?;
        assert_eq!(answers(&server, &body).await?, [(text.to_owned(), "stop".to_owned())]);
        let forced = server.metric(FORCED).await?;
        assert_eq!(forced > 0.0, flags.is_empty(), "{forced} tokens forced with {flags:?}");
        steps.push(server.metric("saccade:device_steps_total").await?);
    }
    assert!(2.0 * steps[0] < steps[1], "{steps:?} steps with and without");
    Ok(())
}

/// Why a request was refused.
async fn refusal(server: &Server, body: &Value) -> Result<String> {
    let (status, answer) = server.post("/v1/completions", body).await?;
    assert_eq!(status, 400, "{answer}");
    Ok(answer["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// A flag says how large a grammar may be, and the device holds all of one that takes most of the
/// largest room.
#[tokio::test]
async fn a_large_grammar_needs_room_in_the_seats() -> Result<()> {
    let word = |i: u64| format!("{:016x}", (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let words: Vec<String> = (0..4096).map(word).collect();
    let body = json!({"prompt": "x", "max_tokens": 40, "temperature": 1.5, "n": 4,
                      "structured_outputs": {"choice": words}});
    let server = Server::start(&[]).await?;
    let message = refusal(&server, &body).await?;
    assert!(message.ends_with("must be at most 131072 (--max-grammar-kib)"), "{message}");
    let server = Server::start(&["--max-grammar-kib", "768"]).await?;
    for (text, reason) in answers(&server, &body).await? {
        assert!(reason == "stop" && words.contains(&text), "{text}: {reason}");
    }
    Ok(())
}

/// Another says how much compiling one may take.
#[tokio::test]
async fn a_grammar_that_takes_many_steps_is_compiled_where_they_are_allowed() -> Result<()> {
    let number = json!({"type": "number"});
    let schema = json!({"type": "object", "required": ["shape"], "properties": {"shape": {
    "type": "object",
    "properties": {"base": number, "height": number, "length": number, "radius": number,
                   "width": number},
    "oneOf": [
        {"properties": {"kind": {"const": "rectangle"}}, "required": ["length", "width"]},
        {"properties": {"kind": {"const": "circle"}}, "required": ["radius"]},
        {"properties": {"kind": {"const": "triangle"}}, "required": ["base", "height"]},
    ]}}});
    let body = json!({"prompt": "A circle: ", "max_tokens": 200, "temperature": 1.0, "n": 8,
                      "seed": 1, "structured_outputs": {"json": schema}});
    let server = Server::start(&[]).await?;
    let message = refusal(&server, &body).await?;
    assert!(message.ends_with("must be at most 6000000 (--max-grammar-steps)"), "{message}");
    let server = Server::start(&["--max-grammar-steps", "20000000"]).await?;
    let judge = jsonschema::validator_for(&schema)?;
    let mut ended = 0;
    for (text, reason) in answers(&server, &body).await? {
        if reason == "stop" {
            assert!(judge.is_valid(&serde_json::from_str(&text)?), "{text}");
            ended += 1;
        }
    }
    assert!(ended > 0, "no answer ended");
    Ok(())
}

/// Sums that nest.
#[tokio::test]
async fn context_free_grammars_in_both_notations() -> Result<()> {
    const SUMS: [(&str, &str); 2] = [
        (
            "guided_grammar",
            "root ::= sum \"=\"\nsum ::= sum \"+\" value | value\n\
          value ::= [0-9] | \"(\" sum \")\"",
        ),
        (
            "structured_outputs",
            "start: sum \"=\"\nsum: sum \"+\" value | value\n\
          value: DIGIT | \"(\" sum \")\"\nDIGIT: /[0-9]/",
        ),
    ];
    // To random weights every token is as likely as any other.
    let server = Server::start(&["--load-format", "dummy"]).await?;
    let mut whole = 0;
    for seed in 0..12 {
        let mut said = Vec::new();
        for (field, source) in SUMS {
            let mut body = json!({"prompt": "2+", "max_tokens": 60, "temperature": 1.5, "n": 2,
                                  "seed": seed});
            body[field] =
                if field == "guided_grammar" { json!(source) } else { json!({"grammar": source}) };
            said.push(answers(&server, &body).await?);
        }
        assert_eq!(said[0], said[1], "both notations are one grammar");
        for (text, reason) in &said[0] {
            let mut depth = 0;
            for (at, c) in text.char_indices() {
                depth += i32::from(c == '(') - i32::from(c == ')');
                let before = text[..at].chars().last().unwrap_or('+');
                let begins = matches!(before, '+' | '(');
                assert_eq!(begins, matches!(c, '(' | '0'..='9'), "{text}");
                assert!(depth >= 0 && (c != '=' || depth == 0), "{text}");
            }
            whole += usize::from(reason == "stop");
            assert_eq!(text.ends_with('='), reason == "stop", "{text}");
        }
    }
    assert!(whole > 5, "only {whole} answers ended");
    Ok(())
}

/// A letter that texts are full of is a trigger: wherever it comes, its tag follows.
#[tokio::test]
async fn structural_tags_in_every_field() -> Result<()> {
    const TAGS: [&str; 2] = ["e<true>", "e<false>"];
    let older = json!({"type": "structural_tag", "triggers": ["e"],
        "structures": [{"begin": "e<", "schema": {"type": "boolean"}, "end": ">"}]});
    let newer = json!({"type": "structural_tag", "format": {"type": "triggered_tags",
        "triggers": ["e"], "tags": [{"type": "tag", "begin": "e<", "end": ">",
            "content": {"type": "regex", "pattern": "true|false"}}]}});
    let server = Server::start(&[]).await?;
    let mut tags = 0;
    for seed in 0..8 {
        let mut said = Vec::new();
        for fields in [
            json!({"response_format": older}),
            json!({"response_format": newer}),
            json!({"structured_outputs": {"structural_tag": older}}),
            json!({"structured_outputs": {"structural_tag": newer.to_string()}}),
            json!({"structural_tag": newer.to_string()}),
        ] {
            let mut body = json!({"prompt": "In the beginning", "max_tokens": 80,
                "temperature": 1.0, "seed": seed, "n": 2});
            body.as_object_mut().expect("one").extend(fields.as_object().cloned().expect("one"));
            said.push(answers(&server, &body).await?);
        }
        said.iter().for_each(|other| assert_eq!(&said[0], other));
        for (text, reason) in &said[0] {
            tags += TAGS.iter().map(|tag| text.matches(tag).count()).sum::<usize>();
            let free = TAGS.iter().fold(text.clone(), |text, tag| text.replace(tag, ""));
            if let Some((_, cut)) = free.split_once('e') {
                let begun = format!("e{cut}");
                assert!(TAGS.iter().any(|tag| tag.starts_with(&begun)), "{text}");
                assert_eq!(reason, "length", "{text}");
            }
        }
    }
    assert!(tags > 20, "only {tags} tags");
    Ok(())
}

/// A thought, then calls between commas: all of it is of a form.
#[tokio::test]
async fn structural_tags_without_free_text() -> Result<()> {
    let tag = |begin: &str, content: Value, end: &str| json!({"type": "tag", "begin": begin, "content": content, "end": end});
    let schema = json!({"type": "json_schema", "json_schema": {"enum": [null, {"a": [1]}]}});
    let format = json!({"type": "sequence", "elements": [
    tag("<think>", json!({"type": "regex", "pattern": "[a-z ]{0,9}"}), "</think>"),
    {"type": "tags_with_separator", "separator": ",", "at_least_one": true, "tags": [
        tag("<a>", schema, "</a>"),
        tag("<b>", json!({"type": "grammar", "grammar": "root ::= \"(\" root? \")\""}), "</b>"),
    ]}]});
    let server = Server::start(&["--load-format", "dummy"]).await?;
    let mut ended = 0;
    for seed in 0..12 {
        let body = json!({"prompt": "x", "max_tokens": 150, "temperature": 1.5, "seed": seed,
            "response_format": {"type": "structural_tag", "format": format}});
        for (text, reason) in answers(&server, &body).await? {
            if reason == "length" {
                continue;
            }
            ended += 1;
            let rest = text.strip_prefix("<think>").ok_or("no thought")?;
            let (thought, calls) = rest.split_once("</think>").ok_or("no end of it")?;
            assert!(thought.len() <= 9 && !thought.contains('<'), "{text}");
            for call in calls.split(',') {
                let inner = |tag: &str| {
                    call.strip_prefix(&format!("<{tag}>"))?.strip_suffix(&format!("</{tag}>"))
                };
                let is_call = match (inner("a"), inner("b")) {
                    (Some(text), _) => {
                        [json!(null), json!({"a": [1]})].contains(&serde_json::from_str(text)?)
                    }
                    (_, Some(nested)) => {
                        let depth = nested.len() / 2;
                        depth > 0 && nested == "(".repeat(depth) + &")".repeat(depth)
                    }
                    _ => false,
                };
                assert!(is_call, "{text}");
            }
        }
    }
    assert!(ended > 3, "only {ended} answers ended");
    Ok(())
}

#[tokio::test]
async fn a_bomb_is_refused_and_others_go_on() -> Result<()> {
    let server = Server::start(&[]).await?;
    let mut deep = json!(true);
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep, "minItems": 2});
    }
    for (field, value) in [
        ("guided_regex", json!("((a{1000}){1000}){1000}")),
        ("guided_regex", json!("(a")),
        ("guided_json", deep),
        ("guided_json", json!({"pattern": "a", "maxLength": 100_000_000})),
        ("guided_json", json!({"not": {}})),
        ("guided_grammar", json!("root ::= ((\"a\"{1000}){1000}){1000}")),
        ("guided_grammar", json!("root ::= \"a")),
        ("guided_grammar", json!("start: start")),
        ("structural_tag", json!({"format": {"type": "token", "token": 1}})),
    ] {
        let mut body = json!({"prompt": "x", "max_tokens": 5});
        body[field] = value;
        let (status, answer) = server.post("/v1/completions", &body).await?;
        assert_eq!(status, 400, "{answer}");
        assert_eq!(answer["error"]["param"], field);
    }
    let body = json!({"prompt": "x", "max_tokens": 5});
    assert_eq!(server.post("/v1/completions", &body).await?.0, 200);
    Ok(())
}

/// A tool whose schema refers to itself, and one without parameters.
fn functions(strict: bool) -> Value {
    json!([
        {"type": "function", "function": {"name": "plant", "strict": strict, "parameters": {
            "type": "object", "additionalProperties": false, "required": ["tree"],
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "additionalProperties": false, "required": ["v"],
                "properties": {"v": {"type": "boolean"}, "next": {"$ref": "#/$defs/node"}}}}}}},
        {"type": "function", "function": {"name": "rest", "strict": strict, "parameters": {
            "type": "object", "additionalProperties": false, "properties": {}}}},
    ])
}

fn chat(seed: usize, fields: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Do it."}], "max_tokens": 160,
        "temperature": 1.5, "seed": seed, "n": 2, "tools": functions(true)});
    body.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("fields"));
    body
}

/// A chat template that renders tools, which that of the bundled model does not.
fn with_tools() -> [String; 2] {
    let path = "/../frontend/tests/templates/tagged.jinja";
    ["--chat-template".into(), format!("{}{path}", env!("CARGO_MANIFEST_DIR"))]
}

/// The calls of a message are of the functions, with arguments that these take. Returns how many.
fn judge_calls(message: &Value) -> Result<usize> {
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    for call in calls {
        let name = &call["function"]["name"];
        let tools = functions(true);
        let mut tools = tools.as_array().ok_or("a list")?.iter();
        let tool = tools.find(|t| t["function"]["name"] == *name).ok_or("no such function")?;
        let arguments: Value =
            serde_json::from_str(call["function"]["arguments"].as_str().ok_or("a text")?)?;
        let judge = jsonschema::validator_for(&tool["function"]["parameters"])?;
        assert!(judge.is_valid(&arguments), "{call}");
    }
    Ok(calls.len())
}

#[tokio::test]
async fn an_answer_that_must_call_calls() -> Result<()> {
    let [flag, template] = with_tools();
    let server = Server::start(&[&flag, &template]).await?;
    let named = json!({"type": "function", "function": {"name": "plant"}});
    let mut whole = 0;
    for seed in 0..12 {
        for (choice, parallel) in [("required", true), ("required", false), ("plant", true)] {
            let tool_choice = if choice == "plant" { named.clone() } else { json!(choice) };
            let fields = json!({"tool_choice": tool_choice, "parallel_tool_calls": parallel});
            let body = chat(seed, fields);
            let (status, answer) = server.post("/v1/chat/completions", &body).await?;
            assert_eq!(status, 200, "{answer}");
            for said in answer["choices"].as_array().ok_or("choices")? {
                if said["finish_reason"] == "length" {
                    continue;
                }
                assert_eq!(said["finish_reason"], "tool_calls", "{said}");
                assert_eq!(said["message"]["content"], Value::Null, "{said}");
                let calls = judge_calls(&said["message"])?;
                assert!(calls > 0 && (calls == 1 || parallel && choice == "required"), "{said}");
                whole += 1;
                if choice == "plant" {
                    assert_eq!(said["message"]["tool_calls"][0]["function"]["name"], "plant");
                }
            }
        }
    }
    assert!(whole > 12, "only {whole} are whole");
    Ok(())
}

/// What an agent asks for in every turn: its tools, and the format of its last word.
#[tokio::test]
async fn an_answer_with_a_format_obeys_it_or_calls() -> Result<()> {
    let [flag, template] = with_tools();
    let server = Server::start(&[&flag, &template]).await?;
    let format = json!({"type": "object", "additionalProperties": false, "required": ["done"],
        "properties": {"done": {"type": "boolean"}, "next": {"$ref": "#"}}});
    let judge = jsonschema::validator_for(&format)?;
    // Tokens that an array begins with: the bundled model always would.
    let (_, bracket) = server.post("/tokenize", &json!({"prompt": "["})).await?;
    let bracket = bracket["tokens"][0].as_u64().ok_or("a token")?.to_string();
    let (mut calls, mut texts) = (0, 0);
    for seed in 0..24 {
        let fields = json!({"tool_choice": "auto", "parallel_tool_calls": false,
            "logit_bias": {&bracket: if seed % 2 == 0 { -100 } else { 0 }},
            "response_format": {"type": "json_schema",
                "json_schema": {"name": "x", "strict": true, "schema": format}}});
        let (status, answer) = server.post("/v1/chat/completions", &chat(seed, fields)).await?;
        assert_eq!(status, 200, "{answer}");
        for said in answer["choices"].as_array().ok_or("choices")? {
            match said["finish_reason"].as_str() {
                Some("length") => {}
                Some("tool_calls") => calls += judge_calls(&said["message"])?,
                _ => {
                    let text = said["message"]["content"].as_str().ok_or("a text")?;
                    assert!(judge.is_valid(&serde_json::from_str(text)?), "{said}");
                    texts += 1;
                }
            }
        }
    }
    assert!(calls > 6 && texts > 6, "{calls} calls, {texts} texts");
    Ok(())
}

/// The bundled model's folder with one token more: the marker of a call, as in Qwen's vocabularies.
/// Returns the token's id. Its weights are for another vocabulary: `--load-format dummy`.
fn with_marker(folder: &std::path::Path) -> Result<u64> {
    let bundled =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/saccade-tiny");
    for entry in std::fs::read_dir(bundled)? {
        let entry = entry?;
        std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    let read = |name: &str| -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(folder.join(name))?)?)
    };
    let (mut config, mut tokenizer) = (read("config.json")?, read("tokenizer.json")?);
    let id = config["vocab_size"].as_u64().ok_or("no vocab_size")?;
    config["vocab_size"] = json!(id + 64);
    let mut token = tokenizer["added_tokens"][0].clone();
    token["id"] = json!(id);
    token["content"] = json!("<tool_call>");
    token["special"] = json!(false);
    tokenizer["added_tokens"].as_array_mut().ok_or("no added tokens")?.push(token);
    std::fs::write(folder.join("config.json"), config.to_string())?;
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    Ok(id)
}

#[tokio::test]
async fn calls_of_strict_functions_are_valid_wherever_they_are_made() -> Result<()> {
    let [flag, template] = with_tools();
    let folder = tempfile::tempdir()?;
    let marker = with_marker(folder.path())?;
    let model = folder.path().to_str().ok_or("a path")?;
    let server = Server::start(&[model, "--load-format", "dummy", &flag, &template]).await?;
    let mut calls = 0;
    for seed in 0..8 {
        let push = json!({marker.to_string(): 8});
        let fields = json!({"tool_choice": "auto", "logit_bias": push, "max_tokens": 600,
            "parallel_tool_calls": false});
        let (status, answer) = server.post("/v1/chat/completions", &chat(seed, fields)).await?;
        assert_eq!(status, 200, "{answer}");
        for said in answer["choices"].as_array().ok_or("choices")? {
            if said["finish_reason"] == "tool_calls" {
                calls += judge_calls(&said["message"])?;
            }
        }
    }
    assert!(calls > 4, "only {calls} calls");
    // Without a format that a grammar knows.
    let (status, answer) = Server::start(&[&flag, &template, "--tool-call-parser", "mistral"])
        .await?
        .post("/v1/chat/completions", &chat(0, json!({"tool_choice": "auto"})))
        .await?;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("tools[0].function.strict")));
    Ok(())
}
