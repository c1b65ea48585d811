//! Every tokenizer on the same text in the same process.
mod bench;
mod llama;
mod perf;
mod texts;

fn main() {
    bench::main();
}
