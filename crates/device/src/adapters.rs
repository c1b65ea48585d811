//! Adapters of a device: their bounds, keys and weights.

use saccade_model::Adapter;

use crate::{Device, Result, sys};

/// How many adapters a device has, and of which ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdapterLimits {
    /// Requests name them 1 to this; each needs [`Device::set_adapter`].
    pub num_adapters: u32,
    /// Of any of their matrices, 1 to 512; 0 without adapters.
    pub max_rank: u32,
}

impl Device {
    /// Gives adapter `number` its key: not 0, a hash of what it holds. It separates the KV of
    /// adapters, so that equal adapters must have equal keys on all hosts. `name`: not 0, a hash of
    /// its name, by which events say whose a block is.
    pub fn set_adapter(&mut self, number: u32, key: u64, name: u64) -> Result<()> {
        // SAFETY: the handle is valid.
        let code = unsafe { (self.api().sac_device_set_adapter)(self.raw(), number, key, name) };
        self.api().check("set adapter", code)
    }

    /// Copies the matrices of adapter `number`; before [`Device::finish_load`].
    pub fn load_adapter(&mut self, number: u32, adapter: &Adapter) -> Result<()> {
        for pair in adapter.iter() {
            let c_pair = sys::SacAdapterPair {
                role: pair.role.code(),
                layer: pair.layer,
                rank: pair.rank,
                a_dtype: pair.a.dtype.code(),
                b_dtype: pair.b.dtype.code(),
                scaling: pair.scaling,
                inputs: pair.inputs,
                outputs: pair.outputs,
                a: pair.a.data.as_ptr().cast(),
                b: pair.b.data.as_ptr().cast(),
            };
            // SAFETY: A holds rank * inputs elements of its type and B outputs * rank, which
            // Adapter checked; the callee copies them. The handle is as above.
            let code =
                unsafe { (self.api().sac_device_set_adapter_pair)(self.raw(), number, &c_pair) };
            self.api().check("load adapter", code)?;
        }
        Ok(())
    }
}
