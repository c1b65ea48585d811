//! The page in a real browser, driven over the DevTools pipe. Needs `chromium` (or the program that
//! `CHROMIUM` names): `cargo test -p saccade-frontend --test page -- --ignored`.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{EOS, Harness, takes_grammars};
use saccade_ring::testing::FakeRequest;
use serde_json::{Value, json};

/// A browser with one page, spoken to over two named pipes.
struct Browser {
    process: Child,
    commands: File,
    replies: BufReader<File>,
    session: Value,
    next_id: u64,
    complaints: Vec<String>,
    dir: tempfile::TempDir,
}

impl Browser {
    fn open(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = dir.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        let (commands, replies) = (pipe("commands"), pipe("replies"));
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
        let flags = "--headless=new --no-sandbox --disable-gpu --no-first-run \
                     --remote-debugging-pipe --window-size=1200,800";
        let process = Command::new("sh")
            .arg("-c")
            .arg(format!("exec \"$0\" {flags} --user-data-dir=\"$1\" 3<\"$2\" 4>\"$3\""))
            .args([program.as_str()])
            .args([&dir.path().join("profile"), &commands, &replies])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The browser opens its ends in this order: so do we.
        let commands = OpenOptions::new().write(true).open(commands).unwrap();
        let replies = BufReader::new(File::open(replies).unwrap());
        let mut browser = Self {
            process,
            commands,
            replies,
            session: Value::Null,
            next_id: 0,
            complaints: Vec::new(),
            dir,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        browser.call("Page.navigate", json!({"url": url}));
        browser.call("Page.bringToFront", json!({}));
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        write!(self.commands, "{message}\0").unwrap();
        loop {
            let mut reply = Vec::new();
            self.replies.read_until(0, &mut reply).unwrap();
            reply.pop();
            let reply: Value = serde_json::from_slice(&reply).unwrap();
            if reply["id"] == id {
                assert!(reply.get("error").is_none(), "{method}: {reply}");
                return reply["result"].clone();
            }
            let event = reply["method"].as_str().unwrap_or_default();
            let error = reply["params"]["entry"]["level"] == "error";
            if event == "Runtime.exceptionThrown" || (event == "Log.entryAdded" && error) {
                self.complaints.push(reply["params"].to_string());
            }
        }
    }

    /// The value of a JavaScript expression.
    fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        self.call("Runtime.evaluate", params)["result"]["value"].clone()
    }

    fn wait_for(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.eval(expression) != true {
            let body = self.eval("document.querySelector('aside').innerText");
            assert!(begun.elapsed() < Duration::from_secs(20), "never: {expression}\n{body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A ready page whose requests are kept in `sent`, and end where the scripted model does.
    fn open_watched(h: &Harness) -> Self {
        let mut browser = Self::open(&format!("http://{}/", h.addr));
        browser.wait_for("document.getElementById('phase').textContent === 'ready'");
        browser.eval(&format!(
            "globalThis.sent = []; const plain = fetch; globalThis.fetch = (url, options) => {{ \
               if (!options?.body) return plain(url, options); \
               const body = JSON.parse(options.body); sent.push(body); \
               return plain(url, {{...options, body: \
                 JSON.stringify({{...body, stop_token_ids: [{EOS}]}})}}); }}; 0"
        ));
        browser
    }

    /// What a user's choice in a `select` does.
    fn choose(&mut self, id: &str, value: &str) {
        self.eval(&format!(
            "$('{id}').value = '{value}', $('{id}').dispatchEvent(new Event('change'))"
        ));
    }

    /// What typing into a field instead of what is there does.
    fn fill(&mut self, id: &str, value: &str) {
        let value = json!(value);
        self.eval(&format!(
            "$('{id}').value = {value}, $('{id}').dispatchEvent(new Event('input'))"
        ));
    }

    fn say(&mut self, message: &str) {
        self.eval("$('input').focus()");
        self.type_text(message);
        self.key("Enter", 13);
    }

    /// Nothing but refused requests, which the browser logs as network errors, was complained of.
    fn assert_quiet(&self) {
        let ours = |c: &&String| !c.contains("status of 400");
        let complaints: Vec<_> = self.complaints.iter().filter(ours).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    fn key(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({"type": kind, "key": key, "code": key, "text": text,
                                "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", params);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Both fail only if the browser is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = self.dir.path();
    }
}

#[test]
#[ignore = "needs chromium"]
fn the_page_chats_and_shows_the_machine() {
    let h = Harness::start();
    let mut browser = Browser::open(&format!("http://{}/", h.addr));
    browser.wait_for("document.getElementById('phase').textContent === 'ready'");
    assert_eq!(browser.eval("document.activeElement.id"), "input");
    assert_eq!(browser.eval("document.getElementById('model').textContent"), "tiny");

    // The keyboard is enough: type, Enter, read. 13 characters, so that the limit ends it.
    browser.eval("document.getElementById('max').value = 12");
    browser.type_text("Hi <b>you</b>");
    browser.key("Enter", 13);
    browser.wait_for("document.querySelector('.assistant .text')?.textContent === 'Hello there.'");
    browser
        .wait_for("document.querySelector('.assistant .note').textContent.includes('12 tokens')");
    let mine = "document.querySelector('.user .text').textContent";
    assert_eq!(browser.eval(mine), "Hi <b>you</b>");

    // A long answer: the machine shows it, Escape ends it, and its slot is free.
    h.device.babble();
    browser.eval("document.getElementById('max').value = 4000");
    browser.type_text("again");
    browser.key("Enter", 13);
    browser.wait_for(
        "document.getElementById('slots').getAttribute('aria-label').includes('1 decode')",
    );
    browser.wait_for("document.getElementById('tbt').textContent.includes('/')");
    browser.wait_for("Number(document.getElementById('rate').textContent.replaceAll(',', '')) > 0");
    browser.key("Escape", 27);
    h.wait_until("stopped", |h| h.device.in_flight() == 0);
    browser.wait_for("[...document.querySelectorAll('.note')].at(-2).textContent === 'stopped'");

    // What prompts found in KV memory, of all that was looked up.
    h.device.set_stats(|s| (s.prefix_query_tokens, s.prefix_hit_tokens) = (100, 25));
    browser.wait_for("document.getElementById('hits').textContent === '25 %'");

    // An error is shown as one.
    browser.eval("document.getElementById('max').value = 100000");
    browser.type_text("too long");
    browser.key("Enter", 13);
    browser.wait_for("document.querySelector('.note.error')?.textContent.includes('max_tokens')");

    browser.assert_quiet();
}

/// The bytes of a text, then the end; they stop before each mark `|` until `go_on`.
struct Gate {
    until: Arc<AtomicU32>,
    marks: Vec<u32>,
}

impl Gate {
    fn say(h: &Harness, text: &str) -> Self {
        let mut marks: Vec<u32> = Vec::new();
        for (i, _) in text.match_indices('|') {
            marks.push(u32::try_from(i - marks.len()).unwrap());
        }
        marks.push(u32::MAX);
        let bytes = text.replace('|', "").into_bytes();
        let until = Arc::new(AtomicU32::new(marks.remove(0)));
        let gate = Self { until: until.clone(), marks };
        h.device.script(Box::new(move |_: &FakeRequest, i| {
            while i >= until.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Some(bytes.get(i as usize).map_or(EOS, |b| u32::from(*b)))
        }));
        gate
    }

    fn go_on(&mut self) {
        self.until.store(self.marks.remove(0), Ordering::Release);
    }
}

/// A failed check must not leave the device's thread waiting.
impl Drop for Gate {
    fn drop(&mut self) {
        self.until.store(u32::MAX, Ordering::Release);
    }
}

/// Every prefix of a value is shown as a prefix of the whole, and only the whole one as whole.
#[test]
#[ignore = "needs chromium"]
fn every_prefix_of_a_value_is_read() {
    let h = Harness::start();
    let mut browser = Browser::open_watched(&h);
    browser.eval(
        r#"globalThis.view = (text) => {
             const box = make("pre");
             box.append(valueView(parsePartial(text)));
             globalThis.hasError = !!box.querySelector('.error');
             return box.textContent;
           }; 0"#,
    );
    let check = r#"(() => {
        const value = {a: [1, -2.5, true, null, {}, []], "k\"\\": "x\\\"\n\u2028",
                       o: {p: [{q: "r"}]}, e: "", last: [0]};
        const full = JSON.stringify(value, null, 2), wrong = [];
        for (const text of [JSON.stringify(value), JSON.stringify(value, null, 3)]) {
            for (let end = 0; end <= text.length; end++) {
                const read = parsePartial(text.slice(0, end));
                const isRight = full.startsWith(view(text.slice(0, end)).trimEnd())
                    && !hasError && !read.rest && isWhole(read) === (end === text.length);
                if (!isRight) wrong.push(text.slice(0, end));
            }
            if (view(text) !== full) wrong.push(text);
        }
        return wrong;
    })()"#;
    assert_eq!(browser.eval(check), json!([]));
    // An escape that is not whole has no character yet.
    assert_eq!(browser.eval(r#"view('["\\u00e')"#), "[\n  \"");
    assert_eq!(browser.eval(r#"view('["\\u00e9')"#), "[\n  \"é");
    // What is no JSON is shown, and nothing is too deep.
    for (text, shown) in [("Hello", "Hello"), ("[1] more", "[\n  1\n]more"), ("[}", "[\n  }")] {
        assert_eq!(browser.eval(&format!("view('{text}')")), shown);
    }
    assert_eq!(browser.eval("view('['.repeat(20000)).replaceAll(/\\s/g, '').length"), 20000);
    assert_eq!(browser.eval("isWhole(parsePartial('12')) && !isWhole(parsePartial('tru'))"), true);
    browser.assert_quiet();
}

#[test]
#[ignore = "needs chromium"]
fn an_object_is_seen_as_it_grows() {
    let h = Harness::with(|_| {}, takes_grammars());
    let mut browser = Browser::open_watched(&h);

    // A schema that is none is told beside it, and nothing is sent.
    browser.fill("schema", "{\"type\": ");
    assert_eq!(browser.eval("$('schema-error').textContent.includes('JSON')"), true);
    assert_eq!(browser.eval("$('schema-preset').value"), "own");
    browser.say("Ada?");
    assert_eq!(browser.eval("document.activeElement.id"), "schema");
    assert_eq!(browser.eval("$('format').open && sent.length === 0 && !!$('empty')"), true);
    browser.fill("schema", "[]");
    assert_eq!(browser.eval("$('schema-error').textContent"), "A schema is a JSON object.");
    browser.choose("schema-preset", "person");
    assert_eq!(browser.eval("$('schema-error').textContent"), "");
    assert_eq!(browser.eval("$('schema-state').textContent"), "JSON Schema");

    let said = r#"{"name": "<b>A|da</b>", "age": 36, "languages": ["C"]}"#;
    let mut gate = Gate::say(&h, said);
    browser.say(" ");
    browser.wait_for(r#"document.querySelector('.value')?.textContent === '{\n  "name": "<b>A'"#);
    let open = "[...document.querySelectorAll('.value .open')].map(e => e.textContent)";
    assert_eq!(browser.eval(open), json!(["{", "\"<b>A"]));
    let cursor =
        "getComputedStyle(document.querySelector('.cursor'), '::after').content !== 'none'";
    assert_eq!(browser.eval(cursor), true);
    gate.go_on();
    browser.wait_for("document.querySelector('.note').textContent.includes('the value is whole')");
    let plain = said.replace('|', "");
    let whole: Value = serde_json::from_str(&plain).unwrap();
    let shown = "document.querySelector('.value').textContent";
    let printed = format!("JSON.stringify(JSON.parse({shown}), null, 2) === {shown}");
    assert_eq!(browser.eval(&printed), true);
    assert_eq!(browser.eval(&format!("JSON.parse({shown})")), whole);
    assert_eq!(browser.eval("document.querySelector('.raw .text').textContent"), *plain);
    assert_eq!(browser.eval(open), json!([]));
    assert_eq!(browser.eval(cursor), false);
    assert_eq!(browser.eval("document.querySelectorAll('#log b').length"), 0);
    let format = browser.eval("sent[0].response_format");
    assert_eq!(format["type"], "json_schema");
    assert_eq!(format["json_schema"]["name"], "answer");
    assert_eq!(format["json_schema"]["strict"], true);
    assert_eq!(format["json_schema"]["schema"]["properties"]["age"]["type"], "integer");

    // One that was cut off stays open, and is said to be.
    browser.eval("$('max').value = 20");
    h.device.say(&plain);
    browser.say("Again");
    let last = "[...document.querySelectorAll('#log .note')].at(-1).textContent";
    browser.wait_for(&format!("{last}.includes('the value is not whole')"));
    assert_eq!(browser.eval(&format!("{last}.includes('limit of tokens')")), true);
    assert_eq!(browser.eval(&format!("{open}.length")), 2);

    // What the server refuses is shown as it came.
    browser.fill("schema", r#"{"type": "colour"}"#);
    browser.say("Red?");
    let refused = "document.querySelector('.note.error')?.textContent";
    browser.wait_for(&format!("{refused}?.includes('must be a JSON type')"));
    assert_eq!(browser.eval(&format!("{refused}.includes('response_format')")), true);
    browser.choose("schema-preset", "none");
    browser.say("Text");
    browser.wait_for(&format!("{last}.includes('tokens')"));
    assert_eq!(browser.eval("'response_format' in sent.at(-1)"), false);
    assert_eq!(browser.eval("[...document.querySelectorAll('.value')].at(-1).hidden"), true);
    browser.assert_quiet();
}

const LOOKS: &str = "<think>\nHm, <i>Pa|ris</i>.\n</think>\n\nI look.\n<tool_call>\n\
    {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa|ris\"}}\n</tool_call>";

#[test]
#[ignore = "needs chromium"]
fn calls_are_seen_and_answered() {
    let tagged = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates/tagged.jinja");
    let h = Harness::with(|config| config.chat_template = Some(tagged), takes_grammars());
    let mut browser = Browser::open_watched(&h);
    browser.fill("tools", "{}");
    assert_eq!(browser.eval("$('tools-error').textContent"), "Tools are a JSON array of objects.");
    browser.choose("tools-preset", "get_weather");
    assert_eq!(browser.eval("$('tools-state').textContent"), "get_weather");

    // Reasoning, then text, then a call: each apart from the others while it grows.
    let mut gate = Gate::say(&h, LOOKS);
    browser.say("The weather in Paris?");
    browser.wait_for("document.querySelector('.thought')?.textContent === 'Hm, <i>Pa'");
    let open =
        "(r => r.open && !r.hidden && r.checkVisibility())(document.querySelector('.reasoning'))";
    assert_eq!(browser.eval(open), true);
    assert_eq!(browser.eval("document.querySelector('.assistant .text').textContent"), "");
    gate.go_on();
    browser
        .wait_for(r#"document.querySelector('.call .value')?.textContent === '{\n  "city": "Pa'"#);
    assert_eq!(browser.eval("document.querySelector('.call h3').textContent"), "Calls get_weather");
    assert_eq!(browser.eval("document.querySelectorAll('.call .open').length"), 2);
    assert_eq!(browser.eval("document.querySelector('.call textarea')"), Value::Null);
    gate.go_on();
    browser.wait_for("!!document.querySelector('.call textarea')");
    assert_eq!(browser.eval("document.querySelector('.thought').textContent"), "Hm, <i>Paris</i>.");
    assert_eq!(browser.eval("document.querySelector('.assistant .text').textContent"), "I look.");
    assert_eq!(browser.eval("document.querySelectorAll('#log i, .call .open').length"), 0);

    // The keyboard is enough: the field has the focus, Enter sends.
    let label = "document.activeElement.labels[0].firstChild.data";
    assert_eq!(browser.eval(label), "Result of get_weather");
    h.device.say("Sunny.");
    browser.type_text("21 degrees");
    browser.key("Enter", 13);
    let text = "[...document.querySelectorAll('.assistant .text')].at(-1).textContent";
    browser.wait_for(&format!("{text} === 'Sunny.'"));
    browser.wait_for("!abort");
    let closed = "document.querySelector('.call textarea').readOnly \
        && document.querySelector('.assistant .go').hidden";
    assert_eq!(browser.eval(closed), true);
    let sent = browser.eval("sent");
    assert_eq!(sent[0]["tools"][0]["function"]["name"], "get_weather");
    assert_eq!(sent[0]["tool_choice"], "auto");
    let messages = sent[1]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1]["content"], "I look.");
    assert_eq!(messages[1]["reasoning_content"], "Hm, <i>Paris</i>.");
    let call = &messages[1]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], r#"{"city": "Paris"}"#);
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"});
    assert_eq!(messages[2], result);

    // Several calls have a field each. Results that are refused can be sent again.
    browser.choose("tools-preset", "several");
    browser.choose("tool-choice", "required");
    h.device.say(
        r#"[{"name": "get_weather", "parameters": {}}, {"name": "get_time", "parameters": {}}]"#,
    );
    browser.say("Both, please");
    browser.wait_for("document.querySelectorAll('.call textarea:not([readonly])').length === 2");
    assert_eq!(browser.eval("sent.at(-1).tool_choice"), "required");
    browser.type_text("cold");
    browser.key("Enter", 13);
    assert_eq!(browser.eval(label), "Result of get_time");
    browser.type_text("late");
    browser.eval("$('max').value = 100000");
    browser.key("Enter", 13);
    browser.wait_for("document.querySelector('.note.error')?.textContent.includes('max_tokens')");
    browser.wait_for("document.querySelectorAll('.call textarea:not([readonly])').length === 2");
    browser.eval("$('max').value = 100");
    browser.choose("tool-choice", "none");
    h.device.say("Cold and late.");
    browser.eval("[...document.querySelectorAll('.assistant .go')].at(-1).click()");
    browser.wait_for(&format!("{text} === 'Cold and late.'"));
    let roles = "sent.at(-1).messages.map((m) => m.role + ':' + (m.content ?? '')).slice(-3)";
    assert_eq!(browser.eval(roles), json!(["assistant:", "tool:cold", "tool:late"]));
    assert_eq!(browser.eval("sent.at(-1).tool_choice"), "none");

    // A call that was cut off has no result, and is not part of the conversation.
    browser.choose("tool-choice", "auto");
    let cut = LOOKS.replace('|', "").find("ris\"}}").unwrap();
    browser.eval(&format!("$('max').value = {cut}"));
    h.device.say(&LOOKS.replace('|', ""));
    browser.say("And tomorrow?");
    let last = "[...document.querySelectorAll('#log .note')].at(-1).textContent";
    browser.wait_for(&format!("{last}.includes('limit of tokens')"));
    browser.wait_for("!abort");
    assert_eq!(browser.eval("document.querySelectorAll('.call textarea').length"), 3);
    assert_eq!(browser.eval("turns.at(-1)"), json!({"role": "assistant", "content": "I look."}));

    // A server without a chat template takes no tools.
    let fields =
        "show({...machine, has_chat_template: false}), [$('toolbox').hidden, askedFields()]";
    assert_eq!(browser.eval(fields), json!([true, {}]));
    browser.assert_quiet();
}

/// What was cleared while it streamed is not part of the next conversation.
#[test]
#[ignore = "needs chromium"]
fn a_cleared_conversation_is_gone() {
    let h = Harness::start();
    let mut browser = Browser::open_watched(&h);
    let _gate = Gate::say(&h, "Hel|lo");
    browser.say("first");
    browser.wait_for("document.querySelector('.assistant .text')?.textContent === 'Hel'");
    browser.eval("$('clear').click()");
    browser.wait_for("!abort && $('log').childElementCount === 0");
    browser.say("second");
    browser.wait_for("sent.length === 2");
    let messages = json!([{"role": "user", "content": "second"}]);
    assert_eq!(browser.eval("sent[1].messages"), messages);
    browser.assert_quiet();
}

#[test]
#[ignore = "needs chromium"]
fn the_page_is_readable_in_both_schemes_and_narrow() {
    let h = Harness::start();
    let mut browser = Browser::open(&format!("http://{}/", h.addr));
    browser.wait_for("document.getElementById('phase').textContent === 'ready'");
    let background = "getComputedStyle(document.body).backgroundColor";
    let mut seen = Vec::new();
    for scheme in ["light", "dark"] {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
        seen.push(browser.eval(background));
        if let Ok(dir) = std::env::var("SCREENSHOTS") {
            let shot = browser.call("Page.captureScreenshot", json!({}));
            let file = format!("{dir}/page-{scheme}.base64");
            std::fs::write(file, shot["data"].as_str().unwrap()).unwrap();
        }
    }
    assert_ne!(seen[0], seen[1]);
    // With all that a form may have open.
    browser.eval("document.querySelectorAll('form details').forEach(d => d.open = true)");
    browser.eval(
        "$('schema-preset').value = 'steps', \
        $('schema-preset').dispatchEvent(new Event('change'))",
    );
    let narrow = json!({"width": 380, "height": 700, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    assert_eq!(browser.eval("document.documentElement.scrollWidth <= innerWidth"), true);
    assert_eq!(browser.eval("$('form').scrollWidth <= $('form').clientWidth"), true);
    let unnamed = "[...document.querySelectorAll('button, input, textarea, select')].filter(e => \
        (e.type.startsWith('select') || !e.textContent.trim()) && !e.labels?.length && !e.ariaLabel).length";
    assert_eq!(browser.eval(unnamed), 0);
}
