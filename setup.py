"""The packages and where each comes from; everything else about the build is in pyproject.toml.

`passes/` and `backends/` are folders at the top, and install inside `tfgraph`. Listing packages by
a walk means that a new one can't be forgotten, in a checkout or an sdist, with or without the
symbolic links in `tfgraph/`.
"""

from setuptools import find_packages, setup

FOLDERS = {"tfgraph": "tfgraph", "tfgraph.passes": "passes", "tfgraph.backends": "backends"}

# A set, since the walk through `tfgraph/` meets the linked folders a second time.
packages = {
    name
    for root, folder in FOLDERS.items()
    for name in (root, *(f"{root}.{inner}" for inner in find_packages(folder)))
}

setup(packages=sorted(packages), package_dir=FOLDERS)
