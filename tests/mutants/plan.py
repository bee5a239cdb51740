"""Which files have rules, and the tests that look at each: those that find most first."""

from __future__ import annotations

_ENGINE = ("one_change", "near_misses", "golden")
_IMPORTED = ("recovered", "recover_near_misses", "recover alone", "golden", "recover")
_MASKS = ("recover_masks", "recover_added", "read_biases", "recover_near_misses", *_IMPORTED)

TESTS: dict[str, tuple[str, ...]] = {
    "simplify": ("simplify", *_ENGINE),
    "fold_constants": ("fold_constants", *_ENGINE),
    "cleanup": ("cleanup",),
    "fuse_add_norm": ("near_misses", *_ENGINE),
    "fuse_linear_activation": ("near_misses", *_ENGINE),
    "fuse_gated_linear": ("near_misses", *_ENGINE),
    "fuse_embedding": ("fuse_embedding", *_ENGINE),
    "fuse_rotary": ("fuse_rotary", *_ENGINE),
    "fuse_attention": ("fuse_attention", "merge_projections", *_ENGINE),
    "recover_linear": _IMPORTED,
    "recover_norms": _IMPORTED,
    "recover_activations": _IMPORTED,
    "recover_heads": _IMPORTED,
    "recover_rotary": _IMPORTED,
    "recover_rotary_parts": _IMPORTED,
    "recover_constants": ("recover_constants", "golden", "recover"),
    "recover_bools": _IMPORTED,
    "recover_indices": _IMPORTED,
    "recover_empty_rows": _IMPORTED,
    "recover_masks": _MASKS,
    "read_masks": _MASKS,
    "read_biases": ("read_biases", *_MASKS),
    "windows": _MASKS,
    "behind": _MASKS,
}


def stages(file: str) -> list[list[str]]:
    """What pytest is given, time after time, until a test fails."""
    return [_stage(name, file) for name in dict.fromkeys(TESTS[file])]


def _stage(name: str, file: str) -> list[str]:
    """A file of tests, or some; of those that are about passes one by one, the file's own; of those
    about recorded models the rest, where it is to be `alone`."""
    name, _, alone = name.partition(" ")
    if name in _BY_PASS:
        chosen = " or ".join(PASSES.get(file, (file.replace("_", "-"),)))
        return [*(f"tests/passes/test_{part}.py" for part in _BY_PASS[name]), "-k", chosen]
    return [f"tests/passes/test_{name}.py", *(["-k", "not legacy and not dynamo"] if alone else [])]


_BY_PASS = {
    "one_change": ("one_change",),
    "recovered": (
        "left_alone",
        "left_alone_rotary",
        "one_change_recovered",
        "one_change_rotary",
        "one_change_written_out",
    ),
}
"""Files of graphs, each for a pass."""
PASSES = {
    "fuse_attention": ("fuse-attention", "merge-projections"),
    "read_masks": ("recover-masks",),
    "read_biases": ("recover-masks",),
    "windows": ("recover-masks",),
    "behind": ("recover-masks",),
}
"""The passes of a file, where it has not the name of one."""
