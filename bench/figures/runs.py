"""The runs that documents speak of: campaign -> commit, as in the names of the folders in bench/results."""
EMULATED = "a02b7a6"
TOKENIZER = "a86d860"
GPU_FIRST, GPU, GPU_LATER, GPU_TICK = "6d1e2cc", "329695c", "07658dc", "c2ea76b"
