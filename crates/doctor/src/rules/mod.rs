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
        threads::findings,
        waiting::findings,
        neighbours::findings,
        memory::findings,
    ];
    let mut found: Vec<Finding> = rules.iter().flat_map(|rule| rule(case)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}
