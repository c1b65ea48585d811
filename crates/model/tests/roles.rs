//! The mirrored numbers against the device plane's header.

use saccade_model::{Dtype, TensorRole};

const HEADER: &str = include_str!("../../../device/capi/saccade_device.h");

fn define(name: &str) -> u32 {
    let mut lines = HEADER.lines().filter_map(|line| line.strip_prefix("#define "));
    let value =
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next());
    let value = value.unwrap_or_else(|| panic!("{name} is not in the header"));
    value.trim_end_matches('u').parse().expect("a number")
}

#[test]
fn roles_and_dtypes_have_the_numbers_of_the_header() {
    use TensorRole as R;
    let roles = [
        ("EMBED", R::Embed),
        ("FINAL_NORM", R::FinalNorm),
        ("LM_HEAD", R::LmHead),
        ("INPUT_NORM", R::InputNorm),
        ("POST_NORM", R::PostNorm),
        ("Q", R::Q),
        ("K", R::K),
        ("V", R::V),
        ("O", R::O),
        ("GATE", R::Gate),
        ("UP", R::Up),
        ("DOWN", R::Down),
        ("Q_BIAS", R::QBias),
        ("K_BIAS", R::KBias),
        ("V_BIAS", R::VBias),
        ("O_BIAS", R::OBias),
        ("GATE_BIAS", R::GateBias),
        ("UP_BIAS", R::UpBias),
        ("DOWN_BIAS", R::DownBias),
        ("Q_NORM", R::QNorm),
        ("K_NORM", R::KNorm),
        ("ROUTER", R::Router),
        ("EXPERT_GATE", R::ExpertGate),
        ("EXPERT_UP", R::ExpertUp),
        ("EXPERT_DOWN", R::ExpertDown),
    ];
    for (name, role) in roles {
        assert_eq!(role.code(), define(&format!("SAC_TENSOR_{name}")), "{name}");
    }
    assert_eq!(roles.len() as u32, define("SAC_NUM_TENSOR_ROLES"));
    for (name, dtype) in [("F32", Dtype::F32), ("BF16", Dtype::Bf16), ("F16", Dtype::F16)] {
        assert_eq!(dtype.code(), define(&format!("SAC_DTYPE_{name}")), "{name}");
    }
}
