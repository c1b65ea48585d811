//! What a tenant has in flight, and what it used of its minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::StatusCode;

use super::Tenant;
use super::meter::{Held, Meter};
use crate::api_error::ApiError;
use crate::limits::GRAMMAR_US_PER_MINUTE;

/// `Retry-After` where it depends on when the tenant's own requests end.
const IN_FLIGHT_RETRY_S: u32 = 1;

/// Counts of one tenant. They outlive a change of its limits. Without a lock: a thread that is
/// descheduled here holds up no other's requests.
pub struct Ledger {
    started: Instant,
    requests: AtomicU64,
    tokens: AtomicU64,
    tokens_used: AtomicU64,
    refused: AtomicU64,
    requests_meter: Meter,
    tokens_meter: Meter,
    grammars_us: AtomicU64,
    grammars_meter: Meter,
}

/// A reading of a [`Ledger`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Choices in flight.
    pub requests: u64,
    /// Tokens of these: prompts, and what they may produce.
    pub tokens: u64,
    /// Tokens of requests that have ended: prompts, and what was produced.
    pub tokens_used: u64,
    /// Requests refused for a limit of the tenant.
    pub refused: u64,
    /// Processor time that compiling its grammars took, microseconds.
    pub grammars_us: u64,
}

/// One request of a tenant, from before its body is prepared to its end.
pub struct Admission {
    tenant: Arc<Tenant>,
    requests: u64,
    tokens: u64,
    used: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            requests: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            tokens_used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            requests_meter: Meter::default(),
            tokens_meter: Meter::default(),
            grammars_us: AtomicU64::new(0),
            grammars_meter: Meter::default(),
        }
    }
}

impl Ledger {
    /// As they are now.
    pub fn counts(&self) -> Counts {
        // SYNC: each count alone matters.
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            requests: read(&self.requests),
            tokens: read(&self.tokens),
            tokens_used: read(&self.tokens_used),
            refused: read(&self.refused),
            grammars_us: read(&self.grammars_us),
        }
    }

    /// Compiling a grammar took `us` microseconds of a processor.
    pub fn compiled_for(&self, us: u64) {
        // SYNC: as in `counts`.
        self.grammars_us.fetch_add(us, Ordering::Relaxed);
    }

    /// They were not spare time: they are part of what the tenant has of the processors.
    pub fn charge_grammar(&self, us: u64, now: Instant) {
        self.grammars_meter.take(us, GRAMMAR_US_PER_MINUTE, self.now_ns(now));
    }

    /// Whether grammars took more than a tenant's part of the processors.
    pub fn compiles_in_spare_time(&self, now: Instant) -> bool {
        self.grammars_meter.is_overdrawn(self.now_ns(now))
    }

    fn now_ns(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

impl Admission {
    /// Counts `requests` choices of `tenant` in.
    ///
    /// # Errors
    /// 429 beyond the tenant's requests in flight or per minute; 400 if one request alone is
    /// beyond.
    pub fn of(tenant: Arc<Tenant>, requests: u64, now: Instant) -> Result<Self, ApiError> {
        let (limits, ledger) = (tenant.limits, &tenant.ledger);
        let counted = count_in(
            (&ledger.requests, limits.max_requests, "max_requests"),
            (&ledger.requests_meter, limits.requests_per_minute, "requests_per_minute"),
            requests,
            ledger.now_ns(now),
        );
        counted.map_err(|refusal| refusal.said_to(&tenant))?;
        Ok(Self { tenant, requests, tokens: 0, used: 0 })
    }

    /// Counts in what the choices take at most: prompts, and what they may produce.
    ///
    /// # Errors
    /// As in [`of`](Self::of), for tokens.
    pub fn reserve(&mut self, tokens: u64, now: Instant) -> Result<(), ApiError> {
        let (limits, ledger) = (self.tenant.limits, &self.tenant.ledger);
        let counted = count_in(
            (&ledger.tokens, limits.max_tokens, "max_tokens"),
            (&ledger.tokens_meter, limits.tokens_per_minute, "tokens_per_minute"),
            tokens,
            ledger.now_ns(now),
        );
        counted.map_err(|refusal| refusal.said_to(&self.tenant))?;
        self.tokens += tokens;
        Ok(())
    }

    /// Of what was reserved, `tokens` were used in the end.
    pub fn used(&mut self, tokens: u64) {
        self.used = tokens.min(self.tokens);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let ledger = &self.tenant.ledger;
        // SYNC: as in `Ledger::counts`.
        ledger.requests.fetch_sub(self.requests, Ordering::Relaxed);
        ledger.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
        ledger.tokens_used.fetch_add(self.used, Ordering::Relaxed);
        if let Some(per_minute) = self.tenant.limits.tokens_per_minute {
            ledger.tokens_meter.put_back(self.tokens - self.used, per_minute);
        }
    }
}

/// Which limit refuses, and for how long.
struct Refusal {
    limit: &'static str,
    bound: u64,
    asked: u64,
    retry_after_s: Option<u32>,
}

impl Refusal {
    fn said_to(self, tenant: &Tenant) -> ApiError {
        // SYNC: as in `Ledger::counts`.
        tenant.ledger.refused.fetch_add(1, Ordering::Relaxed);
        let Self { limit, bound, asked, retry_after_s } = self;
        let name = &tenant.name;
        let Some(seconds) = retry_after_s else {
            let message = format!(
                "the request takes {asked} of `{limit}`, and tenant `{name}` has {bound} in all"
            );
            return ApiError::new(StatusCode::BAD_REQUEST, "tenant_limit_exceeded", message);
        };
        let message = format!("tenant `{name}` is at its limit `{limit}` of {bound}");
        let mut error = ApiError::overloaded(message, seconds);
        error.code = "tenant_limit_reached";
        error
    }
}

/// Counts `amount` in flight and lets it pass the meter: both, or neither.
fn count_in(
    in_flight: (&AtomicU64, Option<u64>, &'static str),
    per_minute: (&Meter, Option<u64>, &'static str),
    amount: u64,
    now_ns: u64,
) -> Result<(), Refusal> {
    raise(in_flight, amount)?;
    metered(per_minute, amount, now_ns).inspect_err(|_| {
        // SYNC: as in `Ledger::counts`.
        in_flight.0.fetch_sub(amount, Ordering::Relaxed);
    })
}

fn raise(
    (count, max, limit): (&AtomicU64, Option<u64>, &'static str),
    more: u64,
) -> Result<(), Refusal> {
    let bound = max.unwrap_or(u64::MAX);
    let raised = |now: u64| now.checked_add(more).filter(|sum| *sum <= bound);
    // SYNC: as in `Ledger::counts`.
    match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised) {
        Ok(_) => Ok(()),
        Err(_) => {
            let retry_after_s = (more <= bound).then_some(IN_FLIGHT_RETRY_S);
            Err(Refusal { limit, bound, asked: more, retry_after_s })
        }
    }
}

fn metered(
    (meter, per_minute, limit): (&Meter, Option<u64>, &'static str),
    amount: u64,
    now_ns: u64,
) -> Result<(), Refusal> {
    let Some(bound) = per_minute else { return Ok(()) };
    meter.pass(amount, bound, now_ns).map_err(|held| {
        let retry_after_s = match held {
            Held::For(time) => Some(time.as_secs() as u32 + 1),
            Held::ForEver => None,
        };
        Refusal { limit, bound, asked: amount, retry_after_s }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    #[test]
    fn spare_time_is_counted_and_not_charged() {
        let (ledger, now) = (Ledger::default(), Instant::now());
        ledger.compiled_for(10 * GRAMMAR_US_PER_MINUTE);
        assert_eq!(ledger.counts().grammars_us, 10 * GRAMMAR_US_PER_MINUTE);
        ledger.charge_grammar(GRAMMAR_US_PER_MINUTE, now);
        assert!(!ledger.compiles_in_spare_time(now));
        ledger.charge_grammar(1, now);
        assert!(ledger.compiles_in_spare_time(now));
    }

    fn tenant(limits: Limits) -> Arc<Tenant> {
        Arc::new(Tenant { limits, ..Tenant::named("t") })
    }

    #[test]
    fn what_is_in_flight_is_bounded_and_returns() {
        let t =
            tenant(Limits { max_requests: Some(3), max_tokens: Some(100), ..Limits::default() });
        let now = Instant::now();
        let mut one = Admission::of(t.clone(), 2, now).unwrap();
        let refused = Admission::of(t.clone(), 2, now).err().unwrap();
        assert_eq!((refused.status.as_u16(), refused.retry_after_s), (429, Some(1)));
        assert!(refused.message.contains("`max_requests` of 3"), "{}", refused.message);
        let never = Admission::of(t.clone(), 4, now).err().unwrap();
        assert_eq!((never.status.as_u16(), never.retry_after_s), (400, None));
        let mut other = Admission::of(t.clone(), 1, now).unwrap();
        one.reserve(60, now).unwrap();
        assert_eq!(other.reserve(50, now).err().unwrap().status.as_u16(), 429);
        assert_eq!(other.reserve(101, now).err().unwrap().status.as_u16(), 400);
        other.reserve(40, now).unwrap();
        one.used(10);
        drop(one);
        let counts = t.ledger.counts();
        assert_eq!((counts.requests, counts.tokens, counts.tokens_used), (1, 40, 10));
        assert_eq!(counts.refused, 4);
        drop(other);
        assert_eq!((t.ledger.counts().requests, t.ledger.counts().tokens), (0, 0));
    }

    #[test]
    fn tokens_that_were_not_produced_do_not_count_for_the_minute() {
        let t = tenant(Limits { tokens_per_minute: Some(100), ..Limits::default() });
        let now = Instant::now();
        for _ in 0..10 {
            let mut one = Admission::of(t.clone(), 1, now).unwrap();
            one.reserve(100, now).unwrap_or_else(|e| panic!("{}", e.message));
            one.used(0);
        }
        let mut one = Admission::of(t.clone(), 1, now).unwrap();
        one.reserve(100, now).unwrap();
        one.used(100);
        drop(one);
        let mut late = Admission::of(t.clone(), 1, now).unwrap();
        let refused = late.reserve(50, now).err().unwrap();
        assert_eq!(refused.status.as_u16(), 429);
        assert!(refused.retry_after_s.is_some_and(|s| (30..=31).contains(&s)));
    }
}
