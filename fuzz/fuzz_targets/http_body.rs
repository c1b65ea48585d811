//! Bodies of the API: any bytes are parsed and validated, or refused with an error that names a
//! field. The first byte chooses the endpoint.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_frontend::{Endpoint, fuzz_http_body};

fuzz_target!(|data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let endpoint = match first % 6 {
        0 => Endpoint::Chat,
        1 => Endpoint::Completions,
        2 => Endpoint::Tokenize,
        3 => Endpoint::Detokenize,
        4 => Endpoint::Messages,
        _ => Endpoint::Responses,
    };
    // Refusals are answers; what must not happen is a panic, a hang, or memory beyond the limit.
    let _ = fuzz_http_body(endpoint, body);
});
