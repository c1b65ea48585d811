//! Formats of strings as patterns: each describes a part of what the format's standard allows.

use serde_json::Value;

/// Days fit their months; the 29th of February comes in leap years.
const DATE: &str = concat!(
    "((000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})",
    "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])",
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))",
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
);
const TIME: &str = concat!(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?",
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
);
const BYTE: &str = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const HEX: &str = "[0-9a-fA-F]";
const JSON_POINTER: &str = r"(/([^~/]|~[01])*)*";

/// `format` says something about strings.
pub(super) fn is_known(format: &Value) -> bool {
    format.as_str().is_none_or(|format| pattern(format).is_some())
}

/// The pattern of all of a text of this format. None for a format that JSON Schema does not
/// define: such a keyword is an annotation (2020-12 Validation, 7.2.3).
pub(super) fn pattern(format: &str) -> Option<String> {
    Some(match format {
        "date" => DATE.into(),
        "time" => TIME.into(),
        "date-time" => format!("({DATE})T({TIME})"),
        "duration" => duration(),
        "uuid" => format!("{HEX}{{8}}(-{HEX}{{4}}){{3}}-{HEX}{{12}}"),
        "ipv4" => ipv4(),
        "ipv6" => ipv6(),
        "hostname" => host("A-Za-z"),
        "idn-hostname" => host("a-z"),
        "email" | "idn-email" => email(),
        "uri" => uri(""),
        "iri" => uri(LETTERS),
        "uri-reference" => uri_reference(""),
        "iri-reference" => uri_reference(LETTERS),
        "uri-template" => uri_template(),
        "json-pointer" => JSON_POINTER.into(),
        "relative-json-pointer" => format!("(0|[1-9][0-9]{{0,8}})(#|{JSON_POINTER})"),
        "regex" => regex(),
        _ => return None,
    })
}

/// A unit may only be followed by the next lesser one: RFC 3339, appendix A.
fn duration() -> String {
    let one = |unit: char| format!("[0-9]{{1,6}}{unit}");
    let (day, second, week) = (one('D'), one('S'), one('W'));
    let month = format!("{}({day})?", one('M'));
    let minute = format!("{}({second})?", one('M'));
    let date = format!("({day}|{month}|{}({month})?)", one('Y'));
    let time = format!("T({second}|{minute}|{}({minute})?)", one('H'));
    format!("P({date}({time})?|{time}|{week})")
}

fn ipv4() -> String {
    format!(r"({BYTE}\.){{3}}{BYTE}")
}

/// Eight groups, or fewer with `::` for one or more of them; the last two may be an IPv4 address.
fn ipv6() -> String {
    let group = format!("{HEX}{{1,4}}");
    let mut forms = vec![
        format!("({group}:){{7}}{group}"),
        format!("({group}:){{1,7}}:"),
        format!(":((:{group}){{1,7}}|:)"),
        format!("({group}:){{6}}{}", ipv4()),
        format!("::([fF]{{4}}:)?{}", ipv4()),
    ];
    for before in 1..=6 {
        let behind = 7 - before;
        forms.push(format!("({group}:){{1,{before}}}(:{group}){{1,{behind}}}"));
    }
    forms.join("|")
}

/// At most four labels of at most 41 characters; the last ones begin with a letter, so that no
/// address is among them. Hyphens stand alone: two have a meaning for some.
fn host(letters: &str) -> String {
    let rest = format!("(-?[{letters}0-9]){{0,20}}");
    format!(r"([{letters}0-9]{rest}\.)?[{letters}]{rest}(\.[{letters}]{rest}){{0,2}}")
}

fn email() -> String {
    let atom = "[A-Za-z0-9_+-]{1,20}";
    format!(r"{atom}(\.{atom}){{0,2}}@{}", host("A-Za-z"))
}

/// Letters beyond ASCII that an IRI may have.
const LETTERS: &str = r"\u{c0}-\u{24f}";
const SCHEME: &str = "[A-Za-z][A-Za-z0-9+.-]*";

/// A character of a path, or more that are like it.
fn path_char(more: &str) -> String {
    format!(r"([A-Za-z0-9._~!$&'()*+,;=@{more}-]|%{HEX}{{2}})")
}

/// What comes behind a path.
fn tail(more: &str) -> String {
    let any = path_char(&format!(":/?{more}"));
    format!(r"(\?{any}*)?(#{any}*)?")
}

/// With an authority, of a file without one, or a name such as `urn:isbn:1`.
fn uri(letters: &str) -> String {
    let char = path_char(&format!(":{letters}"));
    let user = r"([A-Za-z0-9._~-]+(:[A-Za-z0-9._~-]*)?@)?";
    let host = "[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?";
    let authority = format!("{user}{host}(:[1-5]?[0-9]{{1,4}})?");
    let segments = format!("(/{char}*)*");
    let tail = tail(letters);
    format!("{SCHEME}:(//{authority}{segments}|{char}+{segments}){tail}|file:///{char}+{segments}")
}

/// A URI, or a path that does not look like one.
fn uri_reference(letters: &str) -> String {
    let (char, first) = (path_char(&format!(":{letters}")), path_char(letters));
    let (uri, tail) = (uri(letters), tail(letters));
    format!("{uri}|(/({char}+(/{char}*)*)?|{first}+(/{char}*)*)?{tail}")
}

fn uri_template() -> String {
    let name = r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(\*|:[1-9][0-9]{0,3})?";
    let expression = format!(r"\{{[+#./;?&]?{name}(,{name})*\}}");
    format!(r"([A-Za-z0-9._~:/?#@!$&()*+,;=\[\]-]|%{HEX}{{2}}|{expression})*")
}

/// A pattern of characters, classes and groups of these, each at most once repeated.
fn regex() -> String {
    let class = r"\[\^?([A-Za-z0-9_. ]|a-z|A-Z|0-9|\\[dws.])+-?\]";
    let one = format!(r"([A-Za-z0-9_ /:@,-]|\.|\\[dwsDWS.]|{class})[*+?]?");
    let group = format!(r"\({one}({one})*(\|{one}({one})*)*\)[*+?]?");
    let branch = format!(r"\^?({one}|{group})*\$?");
    format!(r"{branch}(\|{branch})*")
}
