//! What the server did with an attack, as counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::catalogue::Kind;

/// What happened to one kind of request of an attack that has several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Requests sent.
    pub sent: u64,
    /// Answered with 2xx.
    pub accepted: u64,
}

/// Counts of one attack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Connections opened.
    pub connections: u64,
    /// Attempts to open one that failed or took too long.
    pub not_connected: u64,
    /// Most connections open at one time.
    pub most_open: u64,
    /// Connections open now.
    #[serde(skip)]
    pub open: u64,
    /// Requests whose bytes were all sent, as far as the attack sends them.
    pub sent: u64,
    /// Heads of answers, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Connections that the server closed before an answer, or in the middle of one.
    pub closed_by_server: u64,
    /// Connections on which nothing came, or nothing could be written, within the attacker's
    /// patience.
    pub timed_out: u64,
    /// Answers read as far as the attack reads them.
    pub finished: u64,
    /// Bytes written.
    pub sent_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// What the first refusal said.
    pub refusal: Option<String>,
    /// Malformed requests by what is wrong with them.
    pub cases: BTreeMap<String, Case>,
}

impl Tally {
    /// Counts the head of an answer.
    pub fn answered(&mut self, status: u16) {
        *self.statuses.entry(status).or_default() += 1;
    }

    /// Answers whose status is of this hundred.
    pub fn of_hundred(&self, hundred: u16) -> u64 {
        self.statuses.iter().filter(|(status, _)| *status / 100 == hundred).map(|(_, n)| n).sum()
    }

    /// The counts of one kind of request.
    pub fn case(&mut self, name: &str) -> &mut Case {
        self.cases.entry(name.to_owned()).or_default()
    }

    /// What became of the attack, in a short line.
    pub fn verdict(&self, kind: Kind) -> String {
        let accepted = self.of_hundred(2);
        match kind {
            Kind::Malformed | Kind::SchemaBombs => return self.accepted_cases(),
            Kind::Priority | Kind::Slo if accepted == 0 && self.is_refused() => {
                return format!("the field is refused: {}", self.refusal());
            }
            Kind::LargeBodies if self.statuses.keys().any(|status| [404, 405].contains(status)) => {
                return format!("no such endpoint: {}", self.refusal());
            }
            Kind::BeyondKv if accepted == 0 && self.is_refused() => {
                let busy = self.statuses.get(&429).copied().unwrap_or_default();
                let right = self.of_hundred(4) - busy;
                let wrong =
                    if busy > 0 { format!(", wrongly as busy {busy}") } else { String::new() };
                return format!("refused {right}{wrong}: {}", self.refusal());
            }
            _ => {}
        }
        self.counts()
    }

    fn is_refused(&self) -> bool {
        self.of_hundred(4) > 0
    }

    fn refusal(&self) -> String {
        let first = self.statuses.keys().find(|status| *status / 100 != 2);
        let status = first.map_or(String::new(), |status| format!("HTTP {status}"));
        match &self.refusal {
            Some(words) if !words.is_empty() => format!("{status}, {words}"),
            _ => status,
        }
    }

    fn accepted_cases(&self) -> String {
        let (sent, accepted) =
            self.cases.values().fold((0, 0), |sum, c| (sum.0 + c.sent, sum.1 + c.accepted));
        let named: Vec<String> = self
            .cases
            .iter()
            .filter(|(_, case)| case.accepted > 0)
            .map(|(name, case)| format!("{name} {}/{}", case.accepted, case.sent))
            .collect();
        let which =
            if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
        format!("accepted {accepted} of {sent}{which}")
    }

    fn counts(&self) -> String {
        let mut parts: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{status} ×{count}")).collect();
        for (count, what) in [
            (self.closed_by_server, "closed by the server"),
            (self.timed_out, "timed out"),
            (self.not_connected, "not connected"),
        ] {
            if count > 0 {
                parts.push(format!("{what} ×{count}"));
            }
        }
        if parts.is_empty() {
            parts.push("no answer".to_owned());
        }
        if self.most_open > 0 {
            parts.push(format!("at most {} open", self.most_open));
        }
        match &self.refusal {
            Some(words) if !words.is_empty() => format!("{} ({words})", parts.join(", ")),
            _ => parts.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(statuses: &[(u16, u64)], refusal: &str) -> Tally {
        Tally {
            statuses: statuses.iter().copied().collect(),
            refusal: (!refusal.is_empty()).then(|| refusal.to_owned()),
            ..Tally::default()
        }
    }

    #[test]
    fn what_a_server_lacks_is_said() {
        for (kind, statuses, words, said) in [
            (Kind::Priority, &[(400, 3)][..], "priority: not here", "field is refused: HTTP 400"),
            (Kind::Priority, &[(200, 3)], "", "200 ×3"),
            (Kind::LargeBodies, &[(404, 2)], "", "no such endpoint: HTTP 404"),
            (Kind::BeyondKv, &[(400, 5)], "too long", "refused 5: HTTP 400, too long"),
            (Kind::BeyondKv, &[(400, 5), (429, 2)], "", "refused 5, wrongly as busy 2"),
            (Kind::BeyondKv, &[(200, 1)], "", "200 ×1"),
            (Kind::Stalled, &[], "", "no answer"),
        ] {
            let verdict = tally(statuses, words).verdict(kind);
            assert!(verdict.contains(said), "{verdict}");
        }
        let mut tally = Tally::default();
        tally.cases.insert("bare-lf".into(), Case { sent: 4, accepted: 3 });
        tally.cases.insert("no-host".into(), Case { sent: 4, accepted: 0 });
        assert_eq!(tally.verdict(Kind::Malformed), "accepted 3 of 8: bare-lf 3/4");
    }
}
