"""`python -m tfgraph`."""

import sys

from tfgraph.cli import entry

if __name__ == "__main__":
    sys.exit(entry())
