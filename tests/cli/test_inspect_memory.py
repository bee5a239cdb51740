"""`tfgraph inspect ARTIFACT --memory`: storages, and the results that follow one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_plan_of_an_artifact(tfgraph: Callable[..., Any]) -> None:
    tfgraph("compile", "tiny.tfg", "--no-verify", "-o", "art")
    found = tfgraph("inspect", "art", "--memory", "--dim", "n=10", "--json").json["memory"]
    assert found == {
        "main": {
            "dims": {"n": 10},
            "memory": "32*n",
            "bytes": 320,
            "storages": [
                {"size": "16*n", "bytes": 160, "holds": ["y"]},
                {"size": "16*n", "bytes": 160, "holds": ["z"]},
            ],
        }
    }
    lines = tfgraph("inspect", "art", "--memory").out.splitlines()
    assert "memory of main at n=3: 96 B at most, in 2 storages" in lines
    assert lines[-2].split() == ["1", "48", "B", "16*n", "z"]


def test_a_model_has_no_plan_yet(tfgraph: Callable[..., Any]) -> None:
    result = tfgraph("inspect", "tiny.tfg", "--memory")
    assert result.code == 2
    assert "memory is planned when a model is compiled" in result.err
