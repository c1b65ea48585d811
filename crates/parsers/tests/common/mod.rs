//! Answers as models write them, and what is in them.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::Arc;

use saccade_parsers::{AnswerParser, Calls, Event, ReasoningFormat, Schemas, Settings, ToolFormat};
use serde_json::json;

/// An answer's parts, each joined.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Answer {
    pub reasoning: String,
    pub text: String,
    /// Name, arguments, and whether it is whole.
    pub calls: Vec<(String, String, bool)>,
}

impl Answer {
    pub fn add(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Reasoning(text) => self.reasoning.push_str(&text),
                Event::Text(text) => self.text.push_str(&text),
                Event::Call(name) => self.calls.push((name, String::new(), false)),
                Event::Arguments(text) => self.calls.last_mut().unwrap().1.push_str(&text),
                Event::CallEnd => self.calls.last_mut().unwrap().2 = true,
            }
        }
    }
}

pub fn parse<'a>(settings: &Settings, pieces: impl IntoIterator<Item = &'a str>) -> Answer {
    let mut parser = AnswerParser::new(settings);
    let mut answer = Answer::default();
    for piece in pieces {
        answer.add(parser.push(piece));
    }
    answer.add(parser.finish());
    answer
}

pub fn schemas() -> Arc<Schemas> {
    let schema = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}}, "code": {"type": "string"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}});
    Arc::new(Schemas::of([("get_weather", Some(&schema)), ("write_file", Some(&schema))]))
}

pub fn calls(calls: Calls) -> Settings {
    Settings { calls: Some(calls), schemas: schemas(), ..Settings::default() }
}

pub fn tools(format: ToolFormat) -> Settings {
    calls(Calls::Format(format))
}

pub fn thinking(format: ToolFormat) -> Settings {
    Settings { reasoning: Some(ReasoningFormat::Think), ..tools(format) }
}

/// Settings, an answer, its text, and its calls: whole ones.
pub type Sample = (Settings, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const PARIS: (&str, &str) = ("get_weather", r#"{"city": "Paris"}"#);
const ROME: (&str, &str) = ("get_weather", r#"{"city": "Rome", "days": 2}"#);

/// As the families' documentation and chat templates have them.
pub fn samples() -> Vec<Sample> {
    let mut all = hermes();
    all.extend(llama());
    all.extend(mistral());
    all.extend(qwen3_coder());
    all.extend(deepseek());
    all.extend(held());
    all
}

/// Held to a grammar.
fn held() -> Vec<Sample> {
    let arguments = || calls(Calls::ArgumentsOf("get_weather".into()));
    vec![
        (arguments(), r#"{"city": "Paris"}"#, "", &[PARIS]),
        (arguments(), " {\"city\": \"Rome\", \"days\": 2}\n", "", &[ROME]),
        (
            calls(Calls::List),
            r#"[{"name": "get_weather", "parameters": {"city": "Paris"}}, {"name":"get_weather","parameters":{"city": "Rome", "days": 2}}]"#,
            "",
            &[PARIS, ROME],
        ),
    ]
}

fn hermes() -> Vec<Sample> {
    use ToolFormat::Hermes;
    vec![
        (
            tools(Hermes),
            "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n\
             </tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \
             \"days\": 2}}\n</tool_call>",
            "I look.",
            &[PARIS, ROME],
        ),
        // Hermes 2 Pro writes the arguments first.
        (
            tools(Hermes),
            "<tool_call>\n{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}\n\
             </tool_call>\n",
            "",
            &[PARIS],
        ),
        (
            tools(Hermes),
            r#"<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}</tool_call>"#,
            "",
            &[PARIS],
        ),
        (tools(Hermes), r#"<tool_call>{"name": "now"}</tool_call>"#, "", &[("now", "{}")]),
        (
            tools(Hermes),
            r#"<tool_call>{"name": "f", "arguments": {"a": "} </tool_call> \" {"}}</tool_call> Done. "#,
            " Done. ",
            &[("f", r#"{"a": "} </tool_call> \" {"}"#)],
        ),
        (
            thinking(Hermes),
            "<think>\nParis, <tool_call> maybe.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \
             \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
            "",
            &[PARIS],
        ),
        (
            tools(Hermes),
            "1 < 2, and <tool_call> is a tag.",
            "1 < 2, and <tool_call> is a tag.",
            &[],
        ),
        (
            tools(Hermes),
            r#"<tool_call>{"no": "name"}</tool_call>"#,
            r#"<tool_call>{"no": "name"}</tool_call>"#,
            &[],
        ),
    ]
}

fn llama() -> Vec<Sample> {
    use ToolFormat::{Llama3Json, Phi4Mini, Pythonic};
    vec![
        (
            tools(Llama3Json),
            r#"{"name": "get_weather", "parameters": {"city": "Paris"}}"#,
            "",
            &[PARIS],
        ),
        (
            tools(Llama3Json),
            "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": \
             {\"city\": \"Paris\"}}; {\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\", \
             \"days\": 2}}",
            "",
            &[PARIS, ROME],
        ),
        (
            tools(Llama3Json),
            r#"{"name": "Ada", "born": 1815}"#,
            r#"{"name": "Ada", "born": 1815}"#,
            &[],
        ),
        (tools(Llama3Json), r#"It is {"name": "x"}."#, r#"It is {"name": "x"}."#, &[]),
        (
            tools(Pythonic),
            "[get_weather(city=\"Paris\"), get_weather(city='Rome', days=2)]",
            "",
            &[PARIS, ROME],
        ),
        (
            tools(Pythonic),
            "<|python_start|>[get_weather(city='Paris')]<|python_end|>",
            "",
            &[PARIS],
        ),
        (
            tools(Pythonic),
            "[a.b(x=[1, {'y': None}], z=\"(]'\")]",
            "",
            &[("a.b", r#"{"x": [1, {"y": null}], "z": "(]'"}"#)],
        ),
        (tools(Pythonic), "[1] says so.", "[1] says so.", &[]),
        (tools(Pythonic), "[see(below)] and go on.", "[see(below)] and go on.", &[]),
        (
            tools(Phi4Mini),
            r#"functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]"#,
            "",
            &[PARIS],
        ),
        (tools(Phi4Mini), "import functools\nx = 1", "import functools\nx = 1", &[]),
    ]
}

fn mistral() -> Vec<Sample> {
    use ToolFormat::Mistral;
    vec![
        (
            tools(Mistral),
            "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, \
             {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 2}, \
             \"id\": \"VvvODy9mT\"}]",
            "",
            &[PARIS, ROME],
        ),
        (
            tools(Mistral),
            "I look.[TOOL_CALLS]get_weather{\"city\": \"Paris\"}[TOOL_CALLS]get_weather[CALL_ID]\
             VvvODy9mT[ARGS]{\"city\": \"Rome\", \"days\": 2}",
            "I look.",
            &[PARIS, ROME],
        ),
        (tools(Mistral), "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}", "", &[PARIS]),
        (tools(Mistral), "[TOOL_CALLS] none", "[TOOL_CALLS] none", &[]),
        (tools(Mistral), "[TOOL_CALLS] [1]", "[TOOL_CALLS] [1]", &[]),
    ]
}

fn qwen3_coder() -> Vec<Sample> {
    use ToolFormat::Qwen3Coder;
    vec![
        (
            tools(Qwen3Coder),
            "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n\
             </function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n\
             <parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
            "I look.",
            &[PARIS, ROME],
        ),
        // Without the first tag, as it happens.
        (
            tools(Qwen3Coder),
            "<function=write_file>\n<parameter=code>\nif a < b:\n\tprint(\"</p>\")\n\n</parameter>\n\
             <parameter=tags>\n['a', \"b\"]\n</parameter>\n<parameter=limit>\nnull\n</parameter>\n\
             <parameter=metric>True</parameter></function></tool_call>",
            "",
            &[(
                "write_file",
                r#"{"code": "if a < b:\n\tprint(\"</p>\")\n", "tags": ["a", "b"], "limit": null, "metric": true}"#,
            )],
        ),
        (
            tools(Qwen3Coder),
            "<tool_call><function=get_weather><parameter=city>007</parameter><parameter=days>soon\
             </parameter></function></tool_call>",
            "",
            &[("get_weather", r#"{"city": "007", "days": "soon"}"#)],
        ),
        (
            tools(Qwen3Coder),
            "<tool_call><function=now></function></tool_call>",
            "",
            &[("now", "{}")],
        ),
        // As a structural tag of the style `qwen_xml_parameter` lets it be: no layout, values of
        // other types in JSON, texts as they are.
        (
            tools("qwen_xml_parameter".parse().unwrap()),
            "<tool_call>\n<function=get_weather><parameter=city>\"Rome\"</parameter><parameter=days>2\
             </parameter><parameter=tags>[\"a\", \"b\"]</parameter><parameter=limit>null</parameter>\
             <parameter=metric>false</parameter></function>\n</tool_call>",
            "",
            &[(
                "get_weather",
                r#"{"city": "\"Rome\"", "days": 2, "tags": ["a", "b"], "limit": null, "metric": false}"#,
            )],
        ),
        (tools(Qwen3Coder), "<tool_call> <b>", "<tool_call> <b>", &[]),
    ]
}

fn deepseek() -> Vec<Sample> {
    use ToolFormat::DeepSeekV3;
    vec![
        (
            tools(DeepSeekV3),
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n\
             {\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>\
             get_weather\n```json\n{\"city\": \"Rome\", \"days\": 2}\n```<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>",
            "",
            &[PARIS, ROME],
        ),
        (
            tools(DeepSeekV3),
            "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>\
             {\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "I look.",
            &[PARIS],
        ),
        (tools(DeepSeekV3), "<｜tool▁calls▁begin｜> none", "<｜tool▁calls▁begin｜> none", &[]),
    ]
}
