//! Sliding-window attention, layer by layer, by the rules of each family's Hugging Face class.

use crate::error::Result;
use crate::family::Family;
use crate::json::Fields;
use crate::limits::{MAX_LAYERS, MAX_POSITIONS};

/// Window of the Mistral and Qwen classes when config.json leaves it out.
const DEFAULT_WINDOW: u32 = 4096;
/// First sliding layer of the Qwen classes when config.json leaves it out.
const DEFAULT_MAX_WINDOW_LAYERS: u32 = 28;

/// `[num_layers]`: positions that a row may look back, itself included; 0 is all of them.
pub(crate) fn sliding_windows(
    family: Family,
    fields: &Fields<'_>,
    num_layers: u32,
) -> Result<Vec<u32>> {
    let windows = match family {
        Family::Llama => llama(fields, num_layers)?,
        Family::Mistral => vec![mistral_window(fields)?; num_layers as usize],
        // Null and absent both mean no window.
        Family::Phi3 | Family::Mixtral => {
            vec![window(fields)?.unwrap_or(0); num_layers as usize]
        }
        Family::Qwen3Moe => vec![qwen_window(fields)?; num_layers as usize],
        Family::Qwen2 | Family::Qwen3 => return qwen(fields, num_layers),
    };
    check_layer_types(fields, &windows)?;
    Ok(windows)
}

fn window(fields: &Fields<'_>) -> Result<Option<u32>> {
    fields.u32("sliding_window", 1..=MAX_POSITIONS)
}

fn llama(fields: &Fields<'_>, num_layers: u32) -> Result<Vec<u32>> {
    match window(fields)? {
        Some(n) => {
            let problem = format!("is {n}, must be null for {}", Family::Llama.architecture());
            Err(fields.error("sliding_window", problem))
        }
        None => Ok(vec![0; num_layers as usize]),
    }
}

/// Null means no window; an absent field means the class default.
fn mistral_window(fields: &Fields<'_>) -> Result<u32> {
    let absent = if fields.has("sliding_window") { 0 } else { DEFAULT_WINDOW };
    Ok(window(fields)?.unwrap_or(absent))
}

/// The window of sliding layers, 0 if none slides.
fn qwen_window(fields: &Fields<'_>) -> Result<u32> {
    let used = fields.bool("use_sliding_window")?.unwrap_or(false);
    let absent = (!fields.has("sliding_window")).then_some(DEFAULT_WINDOW);
    Ok(window(fields)?.or(absent).filter(|_| used).unwrap_or(0))
}

fn qwen(fields: &Fields<'_>, num_layers: u32) -> Result<Vec<u32>> {
    let window = qwen_window(fields)?;
    let first = fields.u32("max_window_layers", 0..=MAX_LAYERS)?;
    let first = first.unwrap_or(DEFAULT_MAX_WINDOW_LAYERS);
    let Some(sliding) = layer_types(fields, num_layers as usize)? else {
        let by_index = |layer| if layer >= first { window } else { 0 };
        return Ok((0..num_layers).map(by_index).collect());
    };
    if window == 0 && sliding.contains(&true) {
        let problem = "names sliding_attention, which needs use_sliding_window and sliding_window";
        return Err(fields.error("layer_types", problem));
    }
    Ok(sliding.iter().map(|&is| if is { window } else { 0 }).collect())
}

/// For each layer: is it `sliding_attention`? `None` if config.json does not have the list.
fn layer_types(fields: &Fields<'_>, num_layers: usize) -> Result<Option<Vec<bool>>> {
    let Some(names) = fields.strings("layer_types", MAX_LAYERS as usize)? else { return Ok(None) };
    if names.len() != num_layers {
        let problem =
            format!("has {} entries, must be num_hidden_layers = {num_layers}", names.len());
        return Err(fields.error("layer_types", problem));
    }
    let is_sliding = |(layer, name): (usize, &&str)| match *name {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => Err(fields.error(
            &format!("layer_types[{layer}]"),
            format!("is {other:?}, must be \"full_attention\" or \"sliding_attention\""),
        )),
    };
    names.iter().enumerate().map(is_sliding).collect::<Result<Vec<bool>>>().map(Some)
}

/// The classes other than Qwen2 and Qwen3 do not look at `layer_types`; a list that says something
/// else than what they would do is refused.
fn check_layer_types(fields: &Fields<'_>, windows: &[u32]) -> Result<()> {
    let Some(sliding) = layer_types(fields, windows.len())? else { return Ok(()) };
    match sliding.iter().zip(windows).position(|(&is, &window)| is != (window > 0)) {
        None => Ok(()),
        Some(layer) => Err(fields.error(
            &format!("layer_types[{layer}]"),
            format!("contradicts sliding_window, which is {} there", windows[layer]),
        )),
    }
}
