"""Extensions from outside: installed packages with entry points, and `--plugin file.py`.

    [project.entry-points."tfgraph.ops"]            cube = "my_package.ops"
    [project.entry-points."tfgraph.passes"]         fold-cubes = "my_package.passes:FoldCubes"
    [project.entry-points."tfgraph.rules"]          "simplify.cube" = "my_package.rules:cube_of_one"
    [project.entry-points."tfgraph.backends"]       toy = "my_package.backend:ToyBackend"
    [project.entry-points."tfgraph.architectures"]  toynet = "my_package.toynet"

Loading an op, or a module, is enough where a decorator registers it. A pass is a class; a rule
names the pass it joins before the first dot (one rule or a list of them); a backend is a class or
function of no arguments, called when its target is asked for. May import: backends.base, passes,
errors.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.errors import Location, TfgraphError
from tfgraph.ops.place import in_library

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint
    from types import ModuleType

# In this order: a rule may use an op, and joins a pass.
GROUPS = (
    "tfgraph.ops",
    "tfgraph.passes",
    "tfgraph.rules",
    "tfgraph.backends",
    "tfgraph.architectures",
)
log = logging.getLogger("tfgraph")
_loaded: set[object] = set()
_packages: set[str] = set()
_TRACE = "-v shows the traceback"


def load_plugins(files: Sequence[str | Path] = ()) -> None:
    """Load every installed extension and the given files, each once.

    An installed one that fails is left out with a warning; for a file, TfgraphError is raised at
    the line that failed.
    """
    for group in GROUPS:
        for point in importlib.metadata.entry_points(group=group):
            key = (group, point.name, point.value)
            if key not in _loaded:
                _loaded.add(key)
                _packages.add(point.module.partition(".")[0])
                try:
                    _load_entry_point(group, point)
                except Exception as error:
                    log.warning(
                        "%s, an extension (%s), does not load: %s", point.name, group, error
                    )
    for file in files:
        path = Path(file).resolve()
        if path not in _loaded:
            before = _registered()
            module = _load_file(Path(file))
            _loaded.add(path)
            _warn_of_the_unregistered(file, module, registered=_registered() != before)


def any_loaded() -> bool:
    """Whether any extension takes part."""
    return bool(_loaded)


def _registered() -> list[Any]:
    """The ops, passes, rules and backends that there are; emitters and architectures too where
    their modules are loaded."""
    from tfgraph.backends.base import backend_names
    from tfgraph.ops import REGISTRY
    from tfgraph.passes import PASSES, RulePass

    rules = [list(cls.rules) for cls in PASSES.values() if issubclass(cls, RulePass)]
    found: list[Any] = [dict(REGISTRY), dict(PASSES), rules, backend_names()]
    for module, name in (
        ("tfgraph.backends.tvm.lower", "_EMITTERS"),
        ("tfgraph.hf.architecture", "_registry"),
    ):
        if module in sys.modules:
            found.append(vars(sys.modules[module])[name].copy())
    return found


def _warn_of_the_unregistered(file: str | Path, module: ModuleType, *, registered: bool) -> None:
    """Warn of a rule or pass of the file that nothing uses, and of a file that adds nothing."""
    from tfgraph.passes import PASSES, Pass, Rule, RulePass

    own = [(n, v) for n, v in vars(module).items() if not n.startswith("_")]
    passes = {
        name: value
        for name, value in own
        if isinstance(value, type)
        and issubclass(value, Pass)
        and value.__module__ == module.__name__
    }
    users = [*PASSES.values(), *passes.values()]
    rule_passes = [cls for cls in users if issubclass(cls, RulePass)]
    used = {id(r) for cls in rule_passes for r in (*cls.rules, *cls.cleanups)}
    for name, value in passes.items():
        if value not in PASSES.values():
            log.warning("%s: the pass %s needs @register_pass above its class", file, name)
            registered = True
    for name, value in own:
        if isinstance(value, Rule) and id(value) not in used:
            log.warning('%s: the rule %s joins no pass: add_rule("PASS", %s)', file, name, name)
            registered = True
    if not registered:
        log.warning("%s registers nothing: no op, rule, pass, backend or kernel", file)


def _load_entry_point(group: str, point: EntryPoint) -> None:
    if group == "tfgraph.backends":
        from tfgraph.backends.base import register_backend

        register_backend(point.name, lambda: point.load()())
        return
    value: Any = point.load()
    if group == "tfgraph.passes" and isinstance(value, type):
        from tfgraph.passes import register_pass

        register_pass(value)
    elif group == "tfgraph.rules":
        from tfgraph.passes import Rule, add_rule

        for rule in [value] if isinstance(value, Rule) else value:
            add_rule(point.name.partition(".")[0], rule)


def _load_file(path: Path) -> ModuleType:
    """Run a Python file as a module, its folder first on the import path while it runs."""
    where = Location(str(path))
    if not path.is_file():
        raise TfgraphError("no such plugin", where)
    name = f"tfgraph_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TfgraphError("a plugin is a Python file, such as plugin.py", where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
        return module
    except TfgraphError as error:
        error.location = error.location or where
        raise
    except SyntaxError as error:
        place = Location(str(path), error.lineno or 0, error.offset or 0)
        raise TfgraphError(f"not Python: {error.msg}", place) from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if _is(frame.filename, path)]
        place = Location(str(path), lines[-1] if lines else 0)
        raise TfgraphError(f"{type(error).__name__}: {error}", place) from error
    finally:
        sys.path.remove(str(path.resolve().parent))


def blame(error: Exception) -> TfgraphError | None:
    """The error at the innermost line of an extension, or of a user's own file, that it passed
    through; None where it came from this library alone."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _packages or _is_users(file):
            blamed = TfgraphError(f"{type(error).__name__}: {error}", Location(file, line), _TRACE)
            blamed.__cause__ = error
            return blamed
    return None


def _is_users(file: str) -> bool:
    """Whether a file of code is neither ours, nor Python's, nor of an installed package."""
    path = Path(file)
    if in_library(file) or path.is_relative_to(sysconfig.get_path("stdlib")):
        return False
    return path.is_file() and not {"site-packages", "dist-packages"} & set(path.parts)


def _is(filename: str, path: Path) -> bool:
    return Path(filename).resolve() == path.resolve()
