//! The page in a real browser, driven over the DevTools pipe. Needs `chromium` (or the program that
//! `CHROMIUM` names): `cargo test -p saccade-frontend --test page -- --ignored`.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Harness;
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

    // Refused requests are logged by the browser as network errors; nothing else may be.
    let ours = |c: &&String| !c.contains("status of 400");
    let complaints: Vec<_> = browser.complaints.iter().filter(ours).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
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
    let narrow = json!({"width": 380, "height": 700, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    assert_eq!(browser.eval("document.documentElement.scrollWidth <= innerWidth"), true);
    let unnamed = "[...document.querySelectorAll('button, input, textarea')].filter(e => \
        !e.textContent.trim() && !e.labels?.length && !e.ariaLabel).length";
    assert_eq!(browser.eval(unnamed), 0);
}
