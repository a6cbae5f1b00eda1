"""``python -m knnpress`` is the command ``knnpress``."""

import sys

from knnpress.cli import main

if __name__ == "__main__":
    sys.exit(main())
