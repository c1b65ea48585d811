//! FP8 KV against values that Hugging Face transformers computes with a cache that rounds K and V
//! to e4m3 (`tests/reference/make_fp8_kv.py`), through the real ring.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

mod common;

use saccade_device::KvDtype;
use saccade_model::{Dtype, DtypeChoice, Weights};
use serde_json::Value;

use common::{
    Records, Setup, bits, create_scaled, expected, ids, open, reference, serve, serve_on,
};

fn cases() -> Vec<Value> {
    let folder = std::fs::read_dir(reference().join("fp8_kv")).unwrap();
    let mut files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 27, "the reference values are in the tree");
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    files.iter().map(read).collect()
}

fn fp8(choice: DtypeChoice) -> Setup {
    Setup { kv_dtype: KvDtype::Fp8, ..Setup::roomy(choice) }
}

/// How far each record is off that transformers has as well: those of the prompt, and of the
/// answer up to the first token that differs. There both tokens are nearly the best, and what is
/// compared is the values of the best.
fn deviations(result: &Value, prompt_len: usize, got: &Records) -> Vec<f64> {
    let numbers = |key: &str| -> Vec<f64> {
        result[key].as_array().unwrap().iter().filter_map(Value::as_f64).collect()
    };
    let (of_prompt, of_answer) = got.split_at(prompt_len - 1);
    let greedy = ids(&result["greedy"]);
    let same = of_answer.iter().zip(&greedy).take_while(|(record, id)| record.0 == **id).count();
    let (prompt, answer) = (numbers("logprobs"), numbers("greedy_logprobs"));
    assert_eq!((prompt.len(), answer.len()), (of_prompt.len(), of_answer.len()));
    let compared = (same + 1).min(answer.len());
    let want = prompt.iter().chain(&answer[..compared]);
    let records = of_prompt.iter().chain(of_answer);
    want.zip(records).map(|(want, record)| (want - f64::from(record.1)).abs()).collect()
}

/// Bounds of the median, of 90 %, and of all.
struct Bounds([f64; 3]);

impl Bounds {
    /// Sums are in f32 on both sides. A value of K or V between two codes may fall on the other
    /// side, and moves what follows: seldom.
    const F32: Self = Self([2e-5, 5e-3, 0.1]);

    /// As far as transformers is off itself when it computes in the stored type.
    fn of_stored_type(case: &Value) -> Self {
        let most = case["low_precision_error"].as_f64().unwrap();
        Self([2e-3, most / 2.0, most])
    }

    fn check(&self, what: &str, mut off: Vec<f64>) {
        off.sort_by(f64::total_cmp);
        for (share, bound) in [0.5, 0.9, 1.0].into_iter().zip(self.0) {
            let got = off[((off.len() - 1) as f64 * share) as usize];
            assert!(
                got <= bound,
                "{what}: a share of {share} is off by up to {got:e}, not {bound:e}"
            );
        }
    }
}

fn against_transformers(case: &Value, choice: DtypeChoice, bounds: &Bounds) {
    let name = case["model"].as_str().unwrap();
    let exact = expected(name);
    let exact = exact["results"].as_array().unwrap();
    let (got, _) = serve(name, &fp8(choice), &[exact]);
    let results = case["results"].as_array().unwrap().iter().zip(exact).zip(&got);
    let off = results
        .flat_map(|((result, exact), got)| deviations(result, ids(&exact["prompt"]).len(), got));
    bounds.check(&format!("{name} {choice:?}"), off.collect());
}

#[test]
fn every_family_with_fp8_kv_matches_transformers() {
    for case in cases() {
        against_transformers(&case, DtypeChoice::Fixed(Dtype::F32), &Bounds::F32);
        if case["low_precision_error"].is_number() {
            against_transformers(&case, DtypeChoice::Auto, &Bounds::of_stored_type(&case));
        }
    }
}

/// Without scales all are 1; what is kept is the value / scale, so that others change the result.
#[test]
fn scales_of_each_layer_are_used() {
    let name = "llama-plain-v4";
    let folder = open(&reference().join("models").join(name));
    let model = folder.config().unwrap();
    let weights = Weights::open(&folder, &model).unwrap();
    let results = expected(name);
    let results = results["results"].as_array().unwrap();
    let serve_with = |scales: &[[f32; 2]]| {
        let setup = fp8(DtypeChoice::Fixed(Dtype::F32));
        let mut device = create_scaled(&model, None, Dtype::F32, &setup, scales).unwrap();
        device.load(&weights, |_| ()).unwrap();
        device.finish_load().unwrap();
        bits(&serve_on(device, &[results]).0)
    };
    let layers = model.num_layers as usize;
    let plain = serve_with(&[]);
    assert!(plain == serve_with(&vec![[1.0, 1.0]; layers]));
    for (k, v) in [(1.1, 1.0), (1.0, 1.1)] {
        let mut scales = vec![[1.0, 1.0]; layers];
        scales[layers - 1] = [k, v];
        assert!(plain != serve_with(&scales), "{k} {v}");
    }
    let refused = |scales: &[[f32; 2]]| {
        let setup = fp8(DtypeChoice::Auto);
        let made = create_scaled(&model, None, Dtype::F32, &setup, scales);
        made.err().expect("refused").to_string()
    };
    let error = refused(&vec![[1.0, 1.0]; layers + 1]);
    assert!(error.contains("kv_scales") && error.contains("not one of each layer"), "{error}");
    for wrong in [0.0, -1.0, f32::INFINITY, f32::NAN] {
        let mut scales = vec![[1.0, 1.0]; layers];
        scales[1] = [1.0, wrong];
        let error = refused(&scales);
        assert!(error.contains("the scale of V of layer 1"), "{error}");
    }
}
