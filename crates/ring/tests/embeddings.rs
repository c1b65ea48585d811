//! Requests for embeddings: one record of its own form, the bounds of what may be asked with it,
//! and devices that answer otherwise.

mod common;

use std::collections::HashMap;
use std::sync::Arc;

use common::{DEVICE, SMALL, frontend_side};
use saccade_ring::layout::{
    RegionHeader, SAC_FINISH_STOP, SAC_STATE_DECODE_COMPLETED, sac_embedding_words, sac_status_word,
};
use saccade_ring::testing::{FakeConfig, FakeDevice, scripted_value};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, JoinOptions, Reader, Record, RequestParams, Sink,
    Submission, SubmitError, Submitter, Ticket, Transport,
};

/// Odd: the last word is half.
const SIZE: u32 = 45;

#[derive(Debug, Default)]
struct Collected {
    values: HashMap<Ticket, Vec<f32>>,
    tokens: usize,
    ended: HashMap<Ticket, (Finish, u32)>,
    lost: usize,
}

impl Sink for Collected {
    fn room(&mut self, _: Ticket) -> usize {
        1
    }
    fn record(&mut self, _: Ticket, _: Record<'_>) {
        self.tokens += 1;
    }
    fn embedding(&mut self, ticket: Ticket, values: &[f32]) {
        assert!(self.values.insert(ticket, values.to_vec()).is_none(), "an embedding came twice");
    }
    fn finished(&mut self, ticket: Ticket, finish: Finish, count: u32) {
        self.ended.insert(ticket, (finish, count));
    }
    fn lost(&mut self, _: Ticket) {
        self.lost += 1;
    }
}

struct Rig {
    transport: InProcTransport,
    device: FakeDevice<InProcTransport>,
    submitter: Submitter<Arc<dyn Transport>>,
    reader: Reader<Arc<dyn Transport>>,
}

fn rig(embedding_size: u32) -> Rig {
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let config = FakeConfig { embedding_size, ..DEVICE };
    let mut device = FakeDevice::join(transport.clone(), config).expect("our region");
    device.ready().expect("in process");
    let options = JoinOptions { ack_timeout: std::time::Duration::ZERO, ..JoinOptions::default() };
    let ring = FrontendRing::join_with(frontend_side(&transport), 0, options).expect("our region");
    device.tick().expect("in process");
    let (submitter, reader) = ring.split();
    Rig { transport, device, submitter, reader }
}

fn of<'a>(prompt: &'a [u32], params: RequestParams) -> Submission<'a> {
    Submission { prompt, logit_bias: &[], stop_ids: &[], grammar: &[], params }
}

fn header(transport: &impl Transport) -> RegionHeader {
    let mut header: RegionHeader = bytemuck::Zeroable::zeroed();
    transport.get(0, bytemuck::bytes_of_mut(&mut header)).expect("in bounds");
    header
}

#[test]
fn an_embedding_is_one_record_beside_those_of_tokens() {
    let mut rig = rig(SIZE);
    let prompts: Vec<Vec<u32>> = (1..12).map(|n| (0..n).collect()).collect();
    let mut sink = Collected::default();
    let mut tickets = Vec::new();
    for prompt in &prompts {
        let embed = of(prompt, RequestParams::embedding(SIZE));
        tickets.push(rig.submitter.try_submit(&embed).expect("in bounds"));
        let params = RequestParams { max_tokens: 5, ..RequestParams::default() };
        rig.submitter.try_submit(&of(prompt, params)).expect("in bounds");
    }
    for _ in 0..40 {
        rig.device.tick().expect("in process");
        rig.reader.poll(&mut sink);
    }
    for (ticket, prompt) in tickets.iter().zip(&prompts) {
        let expected: Vec<f32> = (0..SIZE).map(|i| scripted_value(prompt, i)).collect();
        assert_eq!(sink.values.remove(ticket), Some(expected));
        assert_eq!(sink.ended[ticket], (Finish::Stop, 1));
    }
    assert!(sink.values.is_empty(), "tokens came as embeddings");
    assert_eq!((sink.tokens, sink.lost, rig.reader.violations()), (5 * prompts.len(), 0, 0));
}

#[test]
fn what_is_for_tokens_is_refused_with_an_embedding() {
    let rig = rig(SIZE);
    let good = RequestParams::embedding(SIZE);
    let refused =
        |submission: &Submission<'_>, part: &str| match rig.submitter.try_submit(submission) {
            Err(SubmitError::Invalid(why)) => assert!(why.contains(part), "{why}"),
            other => panic!("{part}: {other:?}"),
        };
    let with = |params| of(&[1, 2, 3], params);
    refused(&with(RequestParams { embedding_size: SIZE + 1, ..good }), "must be 45");
    refused(&with(RequestParams { max_tokens: 1, ..good }), "max_tokens of an embedding");
    refused(&with(RequestParams { min_tokens: 1, ..good }), "min_tokens");
    refused(&with(RequestParams { ignore_eos: true, ..good }), "no flag");
    refused(&with(RequestParams { logprobs: true, ..good }), "no flag");
    refused(&with(RequestParams { num_top_logprobs: 1, ..good }), "num_top_logprobs");
    refused(&Submission { logit_bias: &[(1, 1.0)], ..with(good) }, "logit_bias");
    refused(&Submission { stop_ids: &[1], ..with(good) }, "stop_ids");
    refused(&of(&[], good), "prompt");
    refused(&with(RequestParams { max_tokens: 0, ..RequestParams::default() }), "max_tokens: 0");
}

#[test]
fn a_device_that_gives_none_is_asked_for_none() {
    let rig = rig(0);
    let refused = rig.submitter.try_submit(&of(&[1], RequestParams::embedding(SIZE)));
    let Err(SubmitError::Invalid(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("embedding_size: 45, must be 0"), "{why}");
}

/// Of 64 words.
#[test]
fn a_device_that_claims_more_than_the_ring_holds_is_not_believed() {
    for (size, believed) in [(128, 128), (129, 0), (u32::MAX, 0)] {
        let rig = rig(size);
        assert_eq!(rig.submitter.device().embedding_size, believed);
        let submitted = rig.submitter.try_submit(&of(&[1], RequestParams::embedding(size)));
        assert_eq!(submitted.is_ok(), believed == size, "{submitted:?}");
    }
}

#[test]
fn a_second_record_is_a_violation() {
    let mut rig = rig(SIZE);
    let mut sink = Collected::default();
    let embed = of(&[1, 2], RequestParams::embedding(SIZE));
    let ticket = rig.submitter.try_submit(&embed).expect("in bounds");
    let header = header(&rig.transport);
    let word =
        |count| sac_status_word(ticket.ticket, SAC_STATE_DECODE_COMPLETED, SAC_FINISH_STOP, count);
    rig.transport
        .put_u64(header.status_offset + 16 * u64::from(ticket.slot), word(2))
        .expect("in bounds");
    rig.reader.poll(&mut sink);
    assert_eq!((rig.reader.violations(), sink.lost, sink.values.len()), (1, 1, 0));
}

/// Bits are delivered as they are, in the order of the wire.
#[test]
fn values_come_as_they_were_written() {
    let mut rig = rig(SIZE);
    let mut sink = Collected::default();
    let embed = of(&[1, 2], RequestParams::embedding(SIZE));
    let ticket = rig.submitter.try_submit(&embed).expect("in bounds");
    let header = header(&rig.transport);
    for word in 0..sac_embedding_words(SIZE) {
        let both =
            u64::from(0x7fc0_0000 | (2 * word + 1)) << 32 | u64::from(0xff80_0000 | (2 * word));
        let at = header.out_ring_offset + 8 * u64::from(ticket.slot * header.out_ring_words + word);
        rig.transport.put_u64(at, both).expect("in bounds");
    }
    let done = sac_status_word(ticket.ticket, SAC_STATE_DECODE_COMPLETED, SAC_FINISH_STOP, 1);
    rig.transport
        .put_u64(header.status_offset + 16 * u64::from(ticket.slot), done)
        .expect("in bounds");
    rig.reader.poll(&mut sink);
    let expected = |i: u32| if i.is_multiple_of(2) { 0xff80_0000 | i } else { 0x7fc0_0000 | i };
    let bits: Vec<u32> = sink.values[&ticket].iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, (0..SIZE).map(expected).collect::<Vec<u32>>());
}
