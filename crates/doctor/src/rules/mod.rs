//! The rules, one family to a file. Each looks at a case and tells what it finds.

mod cores;
mod memory;
mod neighbours;
mod threads;
mod waiting;

use crate::case::Case;
use crate::finding::Finding;

/// What all rules find, worst first.
pub fn judge(case: &Case) -> Vec<Finding> {
    let rules: [fn(&Case) -> Vec<Finding>; 5] = [
        cores::findings,
        waiting::findings,
        threads::findings,
        neighbours::findings,
        memory::findings,
    ];
    let mut found: Vec<Finding> = rules.iter().flat_map(|rule| rule(case)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// `12.3 %`
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `2`, or `2.5` where it is not whole.
fn count(number: f64) -> String {
    if number.fract().abs() < 0.005 { format!("{number:.0}") } else { format!("{number:.2}") }
}
