"""`python -m tfgraph`."""

import sys

from tfgraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
