import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("exa")
