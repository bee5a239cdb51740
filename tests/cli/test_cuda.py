"""The command line on a machine with an emulated GPU, and `doctor` on machines that lack things."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cuda_emulator.driver.build import environment
from helpers.artifacts import python
from helpers.cuda_artifacts import MODELS


def tfgraph(*words: str, cwd: Path, **env: str) -> tuple[int, str, str]:
    code = "import sys; from tfgraph.cli import main; sys.exit(main(sys.argv[1:]))"
    done = python("-c", code, *words, cwd=cwd, timeout=600, **env)
    return done.returncode, done.stdout, done.stderr


def told(fake_cuda: Path | None, cwd: Path, **env: str) -> dict[str, Any]:
    """What doctor finds about CUDA, by name."""
    given = {**environment(fake_cuda), **env} if fake_cuda else env
    code, out, err = tfgraph("doctor", "--json", cwd=cwd, **given)
    assert code == 0, err
    found = {f.pop("name"): f for f in json.loads(out)["findings"]}
    return {name: f for name, f in found.items() if "CUDA" in name or name[:3] in ("GPU", "NVI")}


def test_doctor_where_all_is_here(fake_cuda: Path, tmp_path: Path) -> None:
    found = told(fake_cuda, tmp_path)
    assert all(f["ok"] for f in found.values())
    assert {name: f["found"] for name, f in found.items()} == {
        "NVIDIA driver": "for CUDA up to 13.0",
        "GPU 0": "Fake GPU, sm_80, 2 GiB",
        "CUDA runtime": "libcudart.so.13",
        "CUDA compiler": "nvcc 13.0.0",
        "CUDA compile": "--target cuda writes kernels.cu, cubins and PTX",
        "CUDA run": "artifacts run on GPU 0 (Fake GPU)",
    }


@pytest.mark.parametrize(
    ("env", "name", "text", "hint"),
    [
        ({"FAKE_CUDA_DEVICES": "0"}, "GPU", "no CUDA device", "CUDA_VISIBLE_DEVICES"),
        ({"FAKE_CUDA_DEVICES": "0"}, "CUDA run", "no CUDA device", "nvidia-smi"),
        ({"FAKE_CUDA_DRIVER": "12080"}, "CUDA run", "it runs CUDA 12.8", "580 or newer"),
        ({"FAKE_CUDA_INIT": "803"}, "NVIDIA driver", "cuInit says 803", "nvidia-smi"),
    ],
)
def test_doctor_says_what_is_missing(
    fake_cuda: Path, tmp_path: Path, env: dict[str, str], name: str, text: str, hint: str
) -> None:
    found = told(fake_cuda, tmp_path, **env)[name]
    assert (found["ok"], text in found["found"], hint in found["hint"]) == (False, True, True)


def test_doctor_without_driver_and_compiler(tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path), "CUDA_HOME": str(tmp_path)}
    found = told(None, tmp_path, **empty, CUDA_PATH=str(tmp_path))
    assert not found["NVIDIA driver"]["ok"]
    assert found["CUDA run"]["found"] == "no NVIDIA driver: libcuda.so.1 cannot be loaded"
    if not found["CUDA compiler"]["ok"]:  # NVRTC may be in the folders of the dynamic linker
        assert "tfgraph[cuda]" in found["CUDA compiler"]["hint"]
        assert "kernels.cu alone" in found["CUDA compile"]["found"]


def test_from_a_model_to_tokens(fake_cuda: Path, tmp_path: Path) -> None:
    """Compile, verified on the GPU; compare, run, generate; and what is for CPUs says so."""
    env = environment(fake_cuda, TFGRAPH_CACHE=str(tmp_path / "cache"))
    (tmp_path / "llama.yaml").write_text(MODELS["llama"])

    def done(*words: str, expected: int = 0) -> str:
        code, out, err = tfgraph(*words, cwd=tmp_path, **env)
        assert code == expected, err + out
        return out if expected == 0 else err

    printed = done("compile", "llama.yaml", "--target", "cuda", "--no-prove")
    assert "target  cuda sm_80 (GPU 0 (Fake GPU))\n" in printed
    assert "cubins  sm_80, and PTX of sm_80 for later GPUs, by nvcc 13.0.0\n" in printed
    assert "verify  ok against numpy" in printed
    assert "step: logits" in printed
    compared = done("compare", "llama.yaml", "--backends", "numpy,cuda", "--dim", "seq=5", "--json")
    assert json.loads(compared)["ok"] is True
    artifact = "llama.cuda.tfgraph"
    assert "logits" in done("run", artifact, "--dim", "seq=5")
    words = ("generate", artifact, "--ids", "5,6,7", "--max-tokens", "5", "--json")
    tokens = json.loads(done(*words))["ids"]
    assert len(tokens) == 5
    assert tokens == json.loads(done(*words, "--no-cache"))["ids"]
    refused = done("bench", artifact, expected=2)
    assert "kernels are timed on the CPU alone" in refused
    assert "nsys" in refused


def test_a_machine_without_a_gpu_says_so(fake_cuda: Path, tmp_path: Path) -> None:
    (tmp_path / "encoder.yaml").write_text(MODELS["encoder"])
    no_driver = {**environment(fake_cuda), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine may have a GPU")
    code, out, _ = tfgraph(
        "compile", "encoder.yaml", "--target", "cuda", "--no-prove", cwd=tmp_path, **no_driver
    )
    assert code == 0
    assert "target  cuda sm_80 (default: no GPU found)\n" in out
    assert "verify  not run: no NVIDIA driver: libcuda.so.1 cannot be loaded\n" in out
    for verb in (("run",), ("generate", "--ids", "1")):
        code, _, err = tfgraph(
            verb[0], "encoder.cuda.tfgraph", *verb[1:], cwd=tmp_path, **no_driver
        )
        assert code == 3
        assert err.startswith("error: no NVIDIA driver: ")
