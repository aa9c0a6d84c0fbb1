"""The program under test, for whoever starts it: pytest or not."""
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("PUNICA_BIN", ROOT / "build/dev/punica")).absolute()
