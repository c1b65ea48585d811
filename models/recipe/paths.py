"""Where the recipe keeps its working files: always outside the repository."""

import os
from pathlib import Path

RECIPE = Path(__file__).resolve().parent
MODEL = RECIPE.parent / "saccade-tiny"
CACHE = Path(
    os.environ.get("SACCADE_TRAIN_DIR")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade-train"
)
TEXT = CACHE / "text"
CLEAN = CACHE / "clean"
DATA = CACHE / "data"
CHECKPOINTS = CACHE / "checkpoints"
