//! Planes that come late, die, come back, or hang: which side notices, and how each ticket ends.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{
    Ask, Breakable, DEVICE, End, Ledger, PATIENT, SMALL, frontend_side, small_ring, submit,
};
use saccade_ring::layout::{SAC_PHASE_FAILED, SAC_PHASE_LOADING};
use saccade_ring::testing::{FakeConfig, FakeDevice, FakeDeviceThread};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, JoinError, JoinOptions, Observer, Phase, RegionLimits,
    Roof, SubmitError,
};

fn ask() -> Ask {
    Ask::new(vec![1, 2, 3], 40)
}

fn ready_device(transport: &InProcTransport) -> FakeDevice<InProcTransport> {
    let mut device = FakeDevice::join(transport.clone(), DEVICE).expect("our region");
    device.ready().expect("in process");
    device
}

#[test]
fn a_frontend_may_come_first() {
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let began = Instant::now();
    // The join waits only for a device that is there, and for at most this long.
    let options = JoinOptions { ack_timeout: Duration::from_secs(60), ..JoinOptions::default() };
    let ring = FrontendRing::join_with(frontend_side(&transport), 0, options);
    let ring = ring.expect("no device is no error");
    assert!(began.elapsed() < options.ack_timeout, "waited for a device that is absent");
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let refused = |ledger: &mut Ledger| submit(&submitter, ledger, &ask()).expect_err("no device");
    assert_eq!(refused(&mut ledger), SubmitError::DeviceNotReady);
    assert_eq!(submitter.free_slots(), 0, "slots are free before anybody said so");
    let mut device = FakeDevice::join(transport, DEVICE).expect("our region");
    assert_eq!(submitter.device().phase, Phase::Loading);
    assert_eq!(refused(&mut ledger), SubmitError::DeviceNotReady);
    device.ready().expect("in process");
    let ticket = submit(&submitter, &mut ledger, &ask()).expect("ready");
    (0..20).for_each(|_| {
        device.tick().expect("in process");
        reader.poll(&mut ledger);
    });
    assert_eq!(ledger.lines[&ticket].end, Some(End::Finished(Finish::Length, 40)));
}

/// The count goes on from where an earlier life left it: two lives never mean two things by one
/// generation.
#[test]
fn resets_of_prefixes_are_counted_across_lives() {
    let (transport, mut device, ring) = small_ring();
    let (submitter, _reader) = ring.split();
    assert_eq!(device.prefix_generation(0), Ok(0));
    (0..2).for_each(|_| submitter.reset_prefixes().expect("ours"));
    assert_eq!(device.prefix_generation(0), Ok(2));
    let options = JoinOptions { ack_timeout: Duration::ZERO, ..JoinOptions::default() };
    let next = FrontendRing::join_with(frontend_side(&transport), 0, options).expect("our region");
    device.tick().expect("in process");
    let refused = submitter.reset_prefixes().expect_err("replaced");
    assert!(refused.to_string().contains("another process"), "{refused}");
    next.split().0.reset_prefixes().expect("ours");
    assert_eq!(device.prefix_generation(0), Ok(3));
}

/// A device measures its roof again once it is asked to and idle.
#[test]
fn a_roof_is_measured_again_between_requests() {
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let config = FakeConfig { measures_roof: true, max_num_seqs: 1, ..DEVICE };
    let mut device = FakeDevice::join(transport.clone(), config).expect("in process");
    let (submitter, _reader) =
        FrontendRing::join(transport.clone(), 0).expect("our region").split();
    assert_eq!(submitter.roof(), None);
    device.ready().expect("in process");
    let first = submitter.roof().expect("it is measured before READY");
    assert_eq!((first.generation, first.kernels.as_str(), first.num_threads), (1, "fake", 2));
    assert_eq!(first.product_flop_per_s, [(1, 1_000_000), (2, 3_000_000)]);
    assert_eq!((first.packed_bytes, first.huge_page_bytes), (1000, 600));
    assert_eq!(first.read_bytes_per_s, 8001);
    // 800 bytes take a tenth of a second, and a row's 400 operations less.
    assert!((first.steps_per_s(1) - 8001.0 / 800.0).abs() < 1e-9);
    // Two rows at 3 MFLOP/s; there is no rate of four, and theirs is that of two.
    let slow = Roof { row_flop: 3_000_000, ..first };
    assert!((slow.steps_per_s(2) - 0.5).abs() < 1e-9 && (slow.steps_per_s(4) - 0.25).abs() < 1e-9);

    let mut ledger = Ledger::default();
    submit(&submitter, &mut ledger, &ask()).expect("ready");
    device.tick().expect("in process");
    submitter.ask_roof().expect("ours");
    device.tick().expect("in process");
    assert_eq!(submitter.roof().expect("measured").generation, 1, "a request is in flight");
    ledger.lines.keys().for_each(|ticket| submitter.cancel(*ticket));
    (0..3).for_each(|_| device.tick().expect("in process"));
    let second = submitter.roof().expect("measured");
    assert_eq!((second.generation, second.read_bytes_per_s), (2, 8002));
}

#[test]
fn there_is_no_frontend_beyond_the_last() {
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let error = FrontendRing::join(transport, 1).expect_err("one frontend only");
    assert!(matches!(error, JoinError::NoSuchFrontend { index: 1, num_frontends: 1 }), "{error}");
}

/// Every way in which a device stops serving ends every ticket, once, as lost.
#[test]
fn a_device_that_stops_serving_loses_its_tickets() {
    type Fate = fn(&mut FakeDevice<InProcTransport>, &InProcTransport);
    let fates: [(&str, Fate); 4] = [
        ("failed", |device, _| device.put_phase(SAC_PHASE_FAILED).expect("in process")),
        ("loading", |device, _| device.put_phase(SAC_PHASE_LOADING).expect("in process")),
        ("absent", |_, t| Observer::new(t.clone()).expect("ours").mark_absent().expect("ours")),
        ("replaced", |_, t| drop(ready_device(t))),
    ];
    for (name, fate) in fates {
        let (transport, mut device, ring) = small_ring();
        let (submitter, mut reader) = ring.split();
        let mut ledger = Ledger::default();
        let running = submit(&submitter, &mut ledger, &ask()).expect("ready");
        device.tick().expect("in process");
        reader.poll(&mut ledger);
        let unseen = submit(&submitter, &mut ledger, &ask()).expect("ready");
        assert!(ledger.lines[&running].delivered > 0);
        fate(&mut device, &transport);
        let summary = reader.poll(&mut ledger);
        assert_eq!((summary.lost, summary.in_flight), (2, 0), "{name}");
        for ticket in [running, unseen] {
            assert_eq!(ledger.lines[&ticket].end, Some(End::Lost), "{name}");
        }
        assert_eq!(reader.violations(), 0, "{name}");
        let mut device = ready_device(&transport);
        device.tick().expect("in process");
        reader.wait(Duration::ZERO); // gives the slots back
        assert_eq!(submitter.free_slots(), 32, "{name}");
        let next = submit(&submitter, &mut ledger, &ask()).expect("ready again");
        (0..20).for_each(|_| {
            device.tick().expect("in process");
            reader.poll(&mut ledger);
        });
        assert_eq!(ledger.lines[&next].end, Some(End::Finished(Finish::Length, 40)), "{name}");
    }
}

/// The device is replaced between the look at its epoch and the ring: the new one would refuse the
/// ticket, but may not live that long.
#[test]
fn a_ticket_for_an_earlier_device_is_lost_at_once() {
    let (transport, _device, ring) = small_ring();
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let ask = ask();
    let mut next = None;
    let ticket = submitter
        .try_submit_with(&ask.submission(), |ticket| {
            ledger.announce(ticket, ask.clone());
            next = Some(ready_device(&transport));
        })
        .expect("the earlier device was ready");
    assert_eq!(reader.poll(&mut ledger).lost, 1);
    assert_eq!(ledger.lines[&ticket].end, Some(End::Lost));
    reader.wait(Duration::ZERO);
    assert_eq!(submitter.free_slots(), 31);
    let mut device = next.expect("replaced");
    device.tick().expect("in process");
    assert_eq!((device.in_flight(), submitter.free_slots()), (0, 32));
}

/// What the device had finished before it died is still delivered.
#[test]
fn an_end_that_was_shown_stands() {
    let (transport, mut device, ring) = small_ring();
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let ticket = submit(&submitter, &mut ledger, &ask()).expect("ready");
    ledger.lines.entry(ticket).and_modify(|line| line.room = 5);
    (0..20).for_each(|_| device.tick().expect("in process"));
    assert_eq!(reader.poll(&mut ledger).stalled, 1);
    drop(device);
    drop(ready_device(&transport));
    assert_eq!(reader.poll(&mut ledger).in_flight, 1);
    ledger.lines.entry(ticket).and_modify(|line| line.room = usize::MAX);
    assert_eq!(reader.poll(&mut ledger).finished, 1);
    assert_eq!(ledger.lines[&ticket].delivered, 40);
}

#[test]
fn a_silent_device_is_lost_after_the_time_that_was_set() {
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let mut device = ready_device(&transport);
    let lost_after = Duration::from_millis(100);
    let options = JoinOptions { device_lost_after: lost_after, ack_timeout: Duration::ZERO };
    let ring = FrontendRing::join_with(frontend_side(&transport), 0, options).expect("our region");
    device.tick().expect("in process");
    let began = Instant::now();
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let ticket = submit(&submitter, &mut ledger, &ask()).expect("ready");
    while ledger.in_flight() > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "never lost");
        reader.poll(&mut ledger);
        reader.wait(Duration::from_millis(5));
    }
    assert!(began.elapsed() >= lost_after, "{:?}", began.elapsed());
    assert_eq!(ledger.lines[&ticket].end, Some(End::Lost));
    assert!(!submitter.device().alive);
    assert_eq!(submit(&submitter, &mut ledger, &ask()), Err(SubmitError::DeviceNotReady));
    reader.wait(Duration::ZERO); // gives the slots back
    assert_eq!(submitter.free_slots(), 31, "the device may still hold the lost one");
    // It was only slow: it sees the cancel, and the frontend sees it alive.
    device.tick().expect("in process");
    assert_eq!(device.in_flight(), 0, "computes without a client");
    assert!(submitter.device().ready());
    reader.wait(Duration::ZERO);
    assert_eq!(submitter.free_slots(), 32);
}

/// The connection is lost right after a ring, and comes back: the doorbell never arrived, yet the
/// slot comes free again.
#[test]
fn a_doorbell_that_was_lost_costs_no_slot() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let mut device = ready_device(&region);
    let side = Breakable { region, cut: Arc::default() };
    let ring = FrontendRing::join_with(side.clone(), 0, PATIENT).expect("our region");
    device.tick().expect("in process");
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let ask = ask();
    let ticket = submitter
        .try_submit_with(&ask.submission(), |ticket| {
            ledger.announce(ticket, ask.clone());
            side.cut.store(true, Ordering::Relaxed);
        })
        .expect("a lost put reports no error");
    assert_eq!(reader.poll(&mut ledger).lost, 1);
    assert_eq!(ledger.lines[&ticket].end, Some(End::Lost));
    side.cut.store(false, Ordering::Relaxed);
    device.tick().expect("in process");
    assert_eq!(device.ended(), 0, "the device has never heard of it");
    reader.wait(Duration::ZERO);
    assert_eq!(submitter.free_slots(), 31);
    device.tick().expect("in process");
    assert_eq!(submitter.free_slots(), 32);
}

/// A frontend that was itself held up does not blame the device.
#[test]
fn a_frontend_that_slept_takes_no_device_for_dead() {
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let _device = ready_device(&transport);
    let lost_after = Duration::from_millis(40);
    let options = JoinOptions { device_lost_after: lost_after, ack_timeout: Duration::ZERO };
    let ring = FrontendRing::join_with(frontend_side(&transport), 0, options).expect("our region");
    let _first_look = ring.device();
    std::thread::sleep(3 * lost_after);
    assert!(ring.device().alive, "one look after a long pause is not enough");
}

/// A frontend whose place was taken writes nothing more, and its tickets end.
#[test]
fn a_frontend_that_was_replaced_stops() {
    let (transport, mut device, ring) = small_ring();
    let (old_submitter, mut old_reader) = ring.split();
    let mut old = Ledger::default();
    let old_ticket = submit(&old_submitter, &mut old, &ask()).expect("ready");
    device.tick().expect("in process");
    let ring = FrontendRing::join_with(frontend_side(&transport), 0, PATIENT).expect("our region");
    assert_eq!(submit(&old_submitter, &mut old, &ask()), Err(SubmitError::DeviceNotReady));
    old_submitter.cancel(old_ticket);
    assert_eq!(old_reader.poll(&mut old).lost, 1);
    let (submitter, mut reader) = ring.split();
    assert_eq!(submitter.free_slots(), 0, "the old life's slots are not free yet");
    let mut ledger = Ledger::default();
    assert_eq!(submit(&submitter, &mut ledger, &ask()), Err(SubmitError::DeviceNotReady));
    device.tick().expect("in process");
    assert_eq!(device.in_flight(), 0);
    for _ in 0..32 {
        let ticket = submit(&submitter, &mut ledger, &Ask::new(vec![9], 5)).expect("all are free");
        assert_ne!(ticket, old_ticket);
    }
    (0..40).for_each(|_| {
        device.tick().expect("in process");
        reader.poll(&mut ledger);
    });
    assert_eq!(ledger.in_flight(), 0);
}

#[test]
fn a_cancel_ends_a_request_in_the_tick_that_sees_it() {
    let (_transport, mut device, ring) = small_ring();
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let ticket = submit(&submitter, &mut ledger, &ask()).expect("ready");
    device.tick().expect("in process");
    reader.poll(&mut ledger);
    assert_eq!(ledger.lines[&ticket].delivered, 3);
    device.tick().expect("in process");
    submitter.cancel(ticket);
    submitter.cancel(ticket);
    ledger.lines.entry(ticket).and_modify(|line| line.cancelled = true);
    device.tick().expect("in process");
    assert_eq!(device.in_flight(), 0);
    assert_eq!(reader.poll(&mut ledger).finished, 1);
    assert_eq!(ledger.lines[&ticket].delivered, 3, "a cancelled ticket gets no record");
    assert_eq!(ledger.lines[&ticket].end, Some(End::Finished(Finish::Cancelled, 6)));
    submitter.cancel(ticket); // it has ended: nothing happens to the slot's next ticket
    assert_eq!(submitter.free_slots(), 32);
}

/// A cancel while the ticket is being announced travels with the ring itself.
#[test]
fn a_cancel_may_come_before_the_ring() {
    let (_transport, mut device, ring) = small_ring();
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let ask = ask();
    let canceller = submitter.clone();
    let ticket = submitter
        .try_submit_with(&ask.submission(), |ticket| {
            ledger.announce(ticket, ask.clone());
            canceller.cancel(ticket);
        })
        .expect("ready");
    ledger.lines.entry(ticket).and_modify(|line| line.cancelled = true);
    device.tick().expect("in process");
    assert_eq!(reader.poll(&mut ledger).finished, 1);
    assert_eq!(ledger.lines[&ticket].end, Some(End::Finished(Finish::Cancelled, 0)));
}

#[test]
fn frontends_share_a_device_and_nothing_else() {
    let limits = RegionLimits { num_slots: 96, num_frontends: 2, arena_bytes: 65536, ..SMALL };
    let transport = InProcTransport::create(&limits).expect("in bounds");
    let mut device = ready_device(&transport);
    let mut halves: Vec<_> = (0..2)
        .map(|i| {
            FrontendRing::join_with(frontend_side(&transport), i, PATIENT).expect("ours").split()
        })
        .collect();
    device.tick().expect("in process");
    let mut ledgers = [Ledger::default(), Ledger::default()];
    assert_eq!(halves[0].0.num_slots(), 32);
    assert_eq!(halves[1].0.num_slots(), 64, "the last frontend takes the remainder");
    for ((submitter, _), ledger) in halves.iter().zip(&mut ledgers) {
        while submit(submitter, ledger, &Ask::new(vec![7; 50], 20)).is_ok() {}
    }
    let slots = |ledger: &Ledger| ledger.order.iter().map(|t| t.slot).collect::<Vec<_>>();
    assert!(slots(&ledgers[0]).iter().all(|&slot| slot < 32));
    assert!(slots(&ledgers[1]).iter().all(|&slot| (32..96).contains(&slot)));
    for _ in 0..200 {
        device.tick().expect("in process");
        for ((_, reader), ledger) in halves.iter_mut().zip(&mut ledgers) {
            reader.poll(ledger);
        }
    }
    assert_eq!(ledgers.each_ref().map(Ledger::in_flight), [0, 0]);
    assert_eq!(ledgers.each_ref().map(|ledger| ledger.order.len()), [32, 64]);
}

/// What a device publishes for others keeps no frontend awake that has nothing in flight.
#[test]
fn an_idle_frontend_sleeps_beside_a_busy_one() {
    const NAP: Duration = Duration::from_millis(20);
    let limits = RegionLimits { num_slots: 96, num_frontends: 2, arena_bytes: 65536, ..SMALL };
    let transport = InProcTransport::create(&limits).expect("in bounds");
    let mut device = ready_device(&transport);
    let join = |i| FrontendRing::join_with(frontend_side(&transport), i, PATIENT).expect("ours");
    let ((busy, mut busy_reader), (_idle, mut idle_reader)) = (join(0).split(), join(1).split());
    device.tick().expect("in process");
    let (mut ledger, mut nothing) = (Ledger::default(), Ledger::default());
    submit(&busy, &mut ledger, &Ask::new(vec![7; 5], 3)).expect("room");
    while ledger.in_flight() > 0 {
        device.tick().expect("in process");
        busy_reader.poll(&mut ledger);
    }
    // A wait may end early once in a while; one that never lasts is a spin.
    let lasted = (0..3).any(|_| {
        idle_reader.poll(&mut nothing);
        let began = Instant::now();
        idle_reader.wait(NAP);
        began.elapsed() >= NAP
    });
    assert!(lasted, "an idle reader does not sleep");
}

/// What a person sees of the slots.
#[test]
fn slot_states_count_what_the_device_shows() {
    let (_transport, mut device, ring) = small_ring();
    let (submitter, _reader) = ring.split();
    assert_eq!(submitter.slot_states(), [32, 0, 0, 0, 0, 0, 0, 0]);
    let mut ledger = Ledger::default();
    for _ in 0..10 {
        submit(&submitter, &mut ledger, &ask()).expect("ready");
    }
    assert_eq!(submitter.slot_states(), [22, 10, 0, 0, 0, 0, 0, 0], "rung counts as pending");
    device.tick().expect("in process");
    assert_eq!(submitter.slot_states(), [22, 2, 0, 8, 0, 0, 0, 0]);
    assert_eq!(submitter.stats().requests_accepted, 10);
}

/// Many submitting and cancelling threads, one reader, one device, all at once.
#[test]
fn threads_submit_and_cancel_at_once() {
    const THREADS: u32 = 4;
    const EACH: u32 = 200;
    let transport = InProcTransport::create(&SMALL).expect("in bounds");
    let device = FakeDevice::join(transport.clone(), DEVICE).expect("our region");
    let _running = FakeDeviceThread::spawn(device, Duration::ZERO);
    let ring = FrontendRing::join_with(frontend_side(&transport), 0, PATIENT).expect("our region");
    let (submitter, mut reader) = ring.split();
    let ledger = std::sync::Mutex::new(Ledger::default());
    let began = Instant::now();
    let hurry = || assert!(began.elapsed() < Duration::from_secs(60), "stuck");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (submitter, ledger) = (submitter.clone(), &ledger);
            scope.spawn(move || {
                for i in 0..EACH {
                    let ask = Ask::new(vec![thread, i], 1 + i % 30);
                    let cancels = i % 3 == 0;
                    let ticket = loop {
                        let announce = |ticket| {
                            let mut ledger = ledger.lock().expect("no panic under the lock");
                            ledger.announce(ticket, ask.clone());
                            ledger.lines.entry(ticket).and_modify(|l| l.cancelled = cancels);
                        };
                        match submitter.try_submit_with(&ask.submission(), announce) {
                            Ok(ticket) => break ticket,
                            Err(SubmitError::Invalid(why)) => panic!("{why}"),
                            Err(_) => std::thread::yield_now(),
                        }
                        hurry();
                    };
                    if cancels {
                        submitter.cancel(ticket);
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut ended = 0;
            while ended < (THREADS * EACH) as usize {
                hurry();
                let mut ledger = ledger.lock().expect("no panic under the lock");
                let summary = reader.poll(&mut *ledger);
                drop(ledger);
                ended += summary.finished + summary.lost;
                reader.wait(Duration::from_millis(1));
            }
        });
    });
    let ledger = ledger.into_inner().expect("no panic under the lock");
    assert_eq!(ledger.order.len(), (THREADS * EACH) as usize);
    assert!(ledger.lines.values().all(|line| matches!(line.end, Some(End::Finished(..)))));
    assert_eq!(submitter.free_slots(), 32);
}
