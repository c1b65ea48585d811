//! `saccade-tokenize`: the command line of the crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    let run = saccade_tokenizer::cli::run(
        std::env::args().skip(1),
        std::io::stdin().lock(),
        std::io::BufWriter::new(std::io::stdout().lock()),
    );
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
