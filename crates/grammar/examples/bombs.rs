//! Processor time of refusing each of the sources that are short to say and long to compile.
//!
//!     cargo run --release -p saccade-grammar --example bombs [REPEATS]

#[path = "../tests/judged/bombs.rs"]
mod bombs;

use rustix::time::{ClockId, clock_gettime};
use saccade_grammar::{Limits, compile};

/// Milliseconds that the calling thread has run. Waiting for a core is none of them.
fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn main() {
    let repeats: usize = std::env::args().nth(1).map_or(5, |text| text.parse().expect("a number"));
    println!("| source | longest of {repeats}, CPU ms | refused because |\n|---|---|---|");
    for (name, source) in bombs::all() {
        let mut longest: f64 = 0.0;
        let mut reason = "it is not refused".to_owned();
        for _ in 0..repeats {
            let before = cpu_ms();
            let compiled = compile(&source, &Limits::default());
            longest = longest.max(cpu_ms() - before);
            if let Err(error) = compiled {
                reason = error.to_string();
            }
        }
        println!("| {name} | {longest:.1} | {reason} |");
    }
}
