//! Requests that HTTP or JSON does not allow.

use std::time::Duration;

use super::bodies::Bodies;
use super::wire::{Connection, Trouble, Way};

/// Longest wait for an answer: a server may also wait for the rest of what it cannot parse.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is wrong with a request.
pub(super) const CASES: [&str; 6] = [
    "two-hosts",
    "no-host",
    "bare-lf",
    "wrong-content-encoding",
    "duplicate-json-keys",
    "length-and-chunked",
];

/// Sends the case of this turn, and counts it where it is accepted.
pub(super) async fn one(
    way: &Way,
    bodies: &Bodies,
    connection: &mut Connection<'_>,
    turn: u64,
) -> Result<u16, Trouble> {
    let case = CASES[(turn % CASES.len() as u64) as usize];
    connection.write(&request(case, way, bodies)).await?;
    {
        let mut tally = way.tally();
        tally.sent += 1;
        tally.case(case).sent += 1;
    }
    let answered = tokio::time::timeout(PATIENCE, connection.status()).await;
    let status = answered.map_err(|_| Trouble::TimedOut)??;
    if status / 100 == 2 {
        way.tally().case(case).accepted += 1;
        connection.body(super::wire::Reading::All).await?;
    }
    Ok(status)
}

/// The bytes of a request that would be right but for one thing.
fn request(case: &str, way: &Way, bodies: &Bodies) -> Vec<u8> {
    let authority = way.origin.authority.as_str();
    let model = &bodies.model;
    let asked = match bodies.api {
        saccade_load::Api::Chat => r#""messages":[{"role":"user","content":"a"}]"#,
        saccade_load::Api::Completions => r#""prompt":"a""#,
    };
    let twice = if case == "duplicate-json-keys" { r#""max_tokens":2,"# } else { "" };
    let body = format!(r#"{{"model":"{model}",{twice}"max_tokens":1,{asked}}}"#);
    let mut fields = vec![format!("POST {} HTTP/1.1", way.origin.path(&bodies.path))];
    let hosts = match case {
        "two-hosts" => 2,
        "no-host" => 0,
        _ => 1,
    };
    fields.extend((0..hosts).map(|_| format!("Host: {authority}")));
    fields.extend(way.api_key.iter().map(|key| format!("Authorization: Bearer {key}")));
    fields.push("Content-Type: application/json".to_owned());
    fields.push("Connection: close".to_owned());
    fields.push(format!("Content-Length: {}", body.len()));
    match case {
        "wrong-content-encoding" => fields.push("Content-Encoding: gzip".to_owned()),
        "length-and-chunked" => fields.push("Transfer-Encoding: chunked".to_owned()),
        _ => {}
    }
    let end = if case == "bare-lf" { "\n" } else { "\r\n" };
    let body = match case {
        "length-and-chunked" => format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        _ => body,
    };
    let mut text = fields.join(end);
    text.push_str(end);
    text.push_str(end);
    text.push_str(&body);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::bodies::Form;
    use super::*;

    #[test]
    fn each_case_is_wrong_in_its_own_way() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let way = Way::to("http://127.0.0.1:9/x", Some("k".into()), Arc::default());
        let way = runtime.block_on(way).unwrap();
        let bodies = Bodies {
            api: saccade_load::Api::Completions,
            path: "/v1/completions".into(),
            model: "m".into(),
            form: Form::Words,
        };
        let texts = CASES.map(|case| String::from_utf8(request(case, &way, &bodies)).unwrap());
        let hosts = |text: &str| text.matches("Host: 127.0.0.1:9").count();
        assert_eq!([hosts(&texts[0]), hosts(&texts[1]), hosts(&texts[3])], [2, 0, 1]);
        assert!(!texts[2].contains('\r') && texts[3].contains("Content-Encoding: gzip"));
        assert_eq!(texts[4].matches("max_tokens").count(), 2);
        assert!(texts[5].contains("Content-Length") && texts[5].ends_with("0\r\n\r\n"));
        for text in &texts {
            assert!(text.starts_with("POST /x/v1/completions HTTP/1.1"), "{text}");
            assert!(text.contains("Authorization: Bearer k"), "{text}");
        }
    }
}
