"""Where the time of an artifact goes, kernel by kernel, and how far that is from what the machine
can do. May import: backends, cache, runtime, errors.
"""

from tfgraph.bench.machine import Machine, cpu_name, measure_machine
from tfgraph.bench.profile import Kernel, Profile, profile

__all__ = ["Kernel", "Machine", "Profile", "cpu_name", "measure_machine", "profile"]
