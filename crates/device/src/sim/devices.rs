//! Accelerators by name. Peaks are the vendor's; the share that kernels reach is assumed equal for
//! all, and stated once below.

use super::SimHardware;

/// An accelerator and where its figures come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NamedDevice {
    /// As on the command line; compared ignoring case.
    pub name: &'static str,
    /// Device memory.
    pub hbm_bytes: f64,
    /// Its peak bandwidth.
    pub hbm_bytes_per_s: f64,
    /// Dense bf16.
    pub flops_per_s: f64,
    /// To or from host memory, each direction alone, for copies of large blocks.
    pub link_bytes_per_s: f64,
    /// Both directions together.
    pub link_both_bytes_per_s: f64,
    /// Where the figures are from.
    pub source: &'static str,
}

/// Share of the peak bandwidth that decode kernels reach.
const HBM_EFFICIENCY: f64 = 0.80;
/// Share of the peak FLOPs that products of hundreds of rows reach.
const FLOPS_EFFICIENCY: f64 = 0.70;
/// Share of the peak FLOPs that attention over prompts reaches.
const ATTENTION_EFFICIENCY: f64 = 0.50;
/// Launch and completion of a step.
const STEP_OVERHEAD_S: f64 = 100e-6;
/// Between the dependent kernels of a layer, summed.
const LAYER_OVERHEAD_S: f64 = 15e-6;
/// Share of PCIe's nominal rate that large copies reach.
const PCIE_EFFICIENCY: f64 = 0.85;

/// Copies of one layer's part of a block each, one by one (SuperInfer's table 1, "Naive": 10.75
/// GB/s down and 9.86 GB/s up, one after the other).
const SEGMENT_COPIES_BYTES_PER_S: f64 = 10.29e9;

const PCIE_4: f64 = 32e9 * PCIE_EFFICIENCY;
const PCIE_5: f64 = 64e9 * PCIE_EFFICIENCY;

const DEVICES: [NamedDevice; 5] = [
    NamedDevice {
        name: "GH200",
        hbm_bytes: 144e9,
        hbm_bytes_per_s: 4.9e12,
        flops_per_s: 989e12,
        link_bytes_per_s: 239e9,
        link_both_bytes_per_s: 360e9,
        source: "NVIDIA GH200 data sheet (144 GB HBM3e); link: SuperInfer, table 1 (DuplexKV both \
                 ways 181 + 179 GB/s, one way 239 GB/s)",
    },
    NamedDevice {
        name: "H100",
        hbm_bytes: 80e9,
        hbm_bytes_per_s: 3.35e12,
        flops_per_s: 989e12,
        link_bytes_per_s: PCIE_5,
        link_both_bytes_per_s: 2.0 * PCIE_5,
        source: "NVIDIA H100 data sheet (SXM, 80 GB); link: PCIe 5.0 x16 at 85 %",
    },
    NamedDevice {
        name: "H200",
        hbm_bytes: 141e9,
        hbm_bytes_per_s: 4.8e12,
        flops_per_s: 989e12,
        link_bytes_per_s: PCIE_5,
        link_both_bytes_per_s: 2.0 * PCIE_5,
        source: "NVIDIA H200 data sheet (SXM); link: PCIe 5.0 x16 at 85 %",
    },
    NamedDevice {
        name: "L40S",
        hbm_bytes: 48e9,
        hbm_bytes_per_s: 0.864e12,
        flops_per_s: 362e12,
        link_bytes_per_s: PCIE_4,
        link_both_bytes_per_s: 2.0 * PCIE_4,
        source: "NVIDIA L40S data sheet; link: PCIe 4.0 x16 at 85 %",
    },
    NamedDevice {
        name: "A100",
        hbm_bytes: 80e9,
        hbm_bytes_per_s: 2.039e12,
        flops_per_s: 312e12,
        link_bytes_per_s: PCIE_4,
        link_both_bytes_per_s: 2.0 * PCIE_4,
        source: "NVIDIA A100 data sheet (SXM, 80 GB); link: PCIe 4.0 x16 at 85 %",
    },
];

/// All of them.
pub fn devices() -> &'static [NamedDevice] {
    &DEVICES
}

/// By name, ignoring case.
pub fn device(name: &str) -> Option<&'static NamedDevice> {
    DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name))
}

impl NamedDevice {
    /// With copies of whole blocks in both directions at once.
    pub fn hardware(&self) -> SimHardware {
        SimHardware {
            hbm_bytes_per_s: self.hbm_bytes_per_s,
            hbm_efficiency: HBM_EFFICIENCY,
            flops_per_s: self.flops_per_s,
            flops_efficiency: FLOPS_EFFICIENCY,
            attention_efficiency: ATTENTION_EFFICIENCY,
            step_overhead_s: STEP_OVERHEAD_S,
            layer_overhead_s: LAYER_OVERHEAD_S,
            link_bytes_per_s: self.link_bytes_per_s,
            link_both_bytes_per_s: self.link_both_bytes_per_s,
            link_duplex: 1,
            _pad0: 0,
        }
    }

    /// With the copies that engines make today: segment by segment, one direction after the other.
    pub fn hardware_with_naive_copies(&self) -> SimHardware {
        let rate = self.link_bytes_per_s.min(SEGMENT_COPIES_BYTES_PER_S);
        SimHardware {
            link_bytes_per_s: rate,
            link_both_bytes_per_s: rate,
            link_duplex: 0,
            ..self.hardware()
        }
    }
}
