//! What a tenant has in flight, and what it used of its minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::StatusCode;

use super::Tenant;
use super::meter::{Held, Meter};
use crate::api_error::ApiError;

/// `Retry-After` where it depends on when the tenant's own requests end.
const IN_FLIGHT_RETRY_S: u32 = 1;

/// Counts of one tenant. They outlive a change of its limits.
#[derive(Default)]
pub struct Ledger(Mutex<Counts>);

/// See [`Ledger`].
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
    requests_meter: Meter,
    tokens_meter: Meter,
}

/// One request of a tenant, from before its body is prepared to its end.
pub struct Admission {
    tenant: Arc<Tenant>,
    requests: u64,
    tokens: u64,
    used: u64,
}

impl Ledger {
    /// As they are now.
    pub fn counts(&self) -> Counts {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        // Plain counts, changed in one go: consistent even if a holder died.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// Counts `requests` choices of `tenant` in.
    ///
    /// # Errors
    /// 429 beyond the tenant's requests in flight or per minute; 400 if one request alone is beyond.
    pub fn of(tenant: Arc<Tenant>, requests: u64, now: Instant) -> Result<Self, ApiError> {
        let limits = tenant.limits;
        let mut counts = tenant.ledger.lock();
        let counted = (|| {
            in_flight(counts.requests, requests, limits.max_requests, "max_requests")?;
            let per_minute = (limits.requests_per_minute, "requests_per_minute");
            metered(&mut counts.requests_meter, requests, per_minute, now)
        })();
        match counted {
            Ok(()) => counts.requests += requests,
            Err(_) => counts.refused += 1,
        }
        drop(counts);
        counted.map_err(|refusal| refusal.said_to(&tenant))?;
        Ok(Self { tenant, requests, tokens: 0, used: 0 })
    }

    /// Counts in what the choices take at most: prompts, and what they may produce.
    ///
    /// # Errors
    /// As in [`of`](Self::of), for tokens.
    pub fn reserve(&mut self, tokens: u64, now: Instant) -> Result<(), ApiError> {
        let limits = self.tenant.limits;
        let mut counts = self.tenant.ledger.lock();
        let counted = (|| {
            in_flight(counts.tokens, tokens, limits.max_tokens, "max_tokens")?;
            let per_minute = (limits.tokens_per_minute, "tokens_per_minute");
            metered(&mut counts.tokens_meter, tokens, per_minute, now)
        })();
        match counted {
            Ok(()) => counts.tokens += tokens,
            Err(_) => counts.refused += 1,
        }
        drop(counts);
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
        let per_minute = self.tenant.limits.tokens_per_minute;
        let mut counts = self.tenant.ledger.lock();
        counts.requests -= self.requests;
        counts.tokens -= self.tokens;
        counts.tokens_used += self.used;
        if let Some(per_minute) = per_minute {
            counts.tokens_meter.put_back(self.tokens - self.used, per_minute);
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

fn in_flight(now: u64, more: u64, max: Option<u64>, limit: &'static str) -> Result<(), Refusal> {
    let Some(bound) = max else { return Ok(()) };
    if now.saturating_add(more) <= bound {
        return Ok(());
    }
    let retry_after_s = (more <= bound).then_some(IN_FLIGHT_RETRY_S);
    Err(Refusal { limit, bound, asked: more, retry_after_s })
}

fn metered(
    meter: &mut Meter,
    amount: u64,
    (per_minute, limit): (Option<u64>, &'static str),
    now: Instant,
) -> Result<(), Refusal> {
    let Some(bound) = per_minute else { return Ok(()) };
    let held = match meter.pass(amount, bound, now) {
        Ok(()) => return Ok(()),
        Err(held) => held,
    };
    let retry_after_s = match held {
        Held::For(time) => Some(time.as_secs() as u32 + 1),
        Held::ForEver => None,
    };
    Err(Refusal { limit, bound, asked: amount, retry_after_s })
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

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
        assert_eq!((refused.status.as_u16(), refused.retry_after_s), (429, Some(31)));
    }
}
