"""What a machine lacks to run an artifact for GPUs, and artifacts that are not whole: each has an
error of its own that says what to do, and exit 3 or 2."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cuda_emulator.build import host_library
from cuda_emulator.driver.build import environment
from helpers.artifacts import edit_manifest, python
from helpers.cuda_artifacts import BUILD, MODELS, on_gpu

from tfgraph.runtime import format as layout


@pytest.fixture(scope="module")
def encoder(fake_cuda: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact for sm_80."""
    folder = tmp_path_factory.mktemp("encoder")
    (folder / "encoder.yaml").write_text(MODELS["encoder"])
    assert on_gpu(fake_cuda, BUILD, folder) == "encoder True None\n"
    return folder / "encoder.tfgraph"


def run(artifact: Path, fake_cuda: Path | None, before: str = "", **env: str) -> tuple[int, str]:
    """The exit code and stderr of `tfgraph run`, on the emulated GPU if there is one."""
    code = f"import sys\nfrom tfgraph.cli import main\n{before}\nsys.exit(main(sys.argv[1:]))"
    given = {**environment(fake_cuda), **env} if fake_cuda else env
    done = python("-c", code, "run", str(artifact), "--dim", "seq=3", **given)
    return done.returncode, done.stderr


def images(artifact: Path, copy: Path, **changes: Any) -> Path:
    """A copy whose images' entries differ."""
    cuda = layout.read_manifest(artifact)["cuda"]
    changed = [image | changes for image in cuda["images"]]
    return edit_manifest(artifact, copy, cuda={**cuda, "images": changed})


def test_no_driver(encoder: Path, tmp_path: Path) -> None:
    code, error = run(encoder, None, LD_LIBRARY_PATH=str(tmp_path))
    assert code == 3
    assert "no NVIDIA driver: libcuda.so.1 cannot be loaded" in error
    assert "install NVIDIA's driver, 580 or newer" in error


@pytest.mark.parametrize(
    ("env", "code", "message", "hint"),
    [
        ({"FAKE_CUDA_DEVICES": "0"}, 3, "no CUDA device", "CUDA_VISIBLE_DEVICES"),
        ({"FAKE_CUDA_INIT": "803"}, 3, "does not start: cuInit says 803", "nvidia-smi"),
        (
            {"FAKE_CUDA_DRIVER": "12040"},
            3,
            "it runs CUDA 12.4, and TVM's runtime needs 13.0",
            "update it to 580",
        ),
        (
            {"FAKE_CUDA_CAPABILITY": "75"},
            3,
            "compiled for sm_80, which GPU 0 (Fake GPU) does not run: it is sm_75",
            "--arch sm_75",
        ),
        (
            {"FAKE_CUDA_MEGABYTES": "0"},
            2,
            "the memory of GPU 0 (Fake GPU) does not suffice",
            "smaller sizes",
        ),
    ],
)
def test_what_the_driver_lacks(
    encoder: Path, fake_cuda: Path, env: dict[str, str], code: int, message: str, hint: str
) -> None:
    got, error = run(encoder, fake_cuda, **env)
    assert (got, message in error, hint in error) == (code, True, True), error


@pytest.mark.parametrize(
    ("capability", "image"), [("80", "cubin"), ("89", "cubin"), ("90", "ptx"), ("120", "ptx")]
)
def test_a_later_gpu_gets_the_cubin_of_its_generation_or_else_ptx(
    encoder: Path, fake_cuda: Path, tmp_path: Path, capability: str, image: str
) -> None:
    log = tmp_path / "log"
    env = {"FAKE_CUDA_CAPABILITY": capability, "FAKE_CUDA_LOG": str(log)}
    assert run(encoder, fake_cuda, **env) == (0, "")
    assert f"module {image} sm_80\n" in log.read_text()


def test_ptx_that_is_newer_than_the_driver(encoder: Path, fake_cuda: Path, tmp_path: Path) -> None:
    newer = images(encoder, tmp_path / "newer.tfgraph", cuda="13.2")
    code, error = run(newer, fake_cuda, FAKE_CUDA_CAPABILITY="90")
    assert code == 3
    assert "PTX of CUDA 13.2, and the NVIDIA driver compiles up to that of 13.0" in error
    assert "--arch sm_90" in error
    assert run(newer, fake_cuda)[0] == 0  # its cubin does not ask for that


def test_a_library_that_is_not_here(encoder: Path, fake_cuda: Path) -> None:
    for name, message, hint in (
        ("CUDART", "NVIDIA's CUDA runtime, other.so, is not here", "nvidia-cuda-runtime==13.0"),
        ("NAME", "TVM's CUDA runtime, other.so, cannot be loaded", "pip install apache-tvm"),
    ):
        before = f"from tfgraph.runtime.cuda import library\nlibrary.{name} = 'other.so'"
        code, error = run(encoder, fake_cuda, before)
        assert (code, message in error, hint in error) == (3, True, True), error


def test_source_alone(encoder: Path, fake_cuda: Path, tmp_path: Path) -> None:
    cuda = layout.read_manifest(encoder)["cuda"]
    alone = edit_manifest(encoder, tmp_path / "alone.tfgraph", cuda={**cuda, "images": []})
    code, error = run(alone, fake_cuda)
    assert code == 3
    assert "it holds CUDA source alone" in error
    assert "pip install 'tfgraph[cuda]'" in error


def test_without_a_compiler_there_is_source_alone(fake_cuda: Path, tmp_path: Path) -> None:
    """And one line that says so; the exit code is 0."""
    (tmp_path / "encoder.yaml").write_text(MODELS["encoder"])
    code = (
        "import sys\nfrom tfgraph.backends.tvm.cuda import backend\n"
        "backend.find_toolkit = lambda: None\nfrom tfgraph.cli import main\n"
        "sys.exit(main(['compile', 'encoder.yaml', '--target', 'cuda', '--no-prove']))"
    )
    done = python("-c", code, cwd=tmp_path, **environment(fake_cuda))
    assert done.returncode == 0, done.stderr
    assert "cubins  none: no nvcc or NVRTC; pip install 'tfgraph[cuda]'\n" in done.stdout
    assert "no nvcc or NVRTC to make code for GPU 0 (Fake GPU)" in done.stdout
    artifact = tmp_path / "encoder.cuda.tfgraph"
    assert layout.read_manifest(artifact)["cuda"]["images"] == []
    kernels = {path.suffix for path in (artifact / "kernels").iterdir()}
    assert kernels == {".cu", ".json", ".o"}


@pytest.mark.parametrize("name", ["kernels/sm_80.cubin", layout.CUDA_SOURCE, "kernels/host0.o"])
def test_a_damaged_file_is_named(encoder: Path, fake_cuda: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(encoder, tmp_path / "copy.tfgraph"))
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    code, error = run(copy, fake_cuda)
    assert code == 2
    assert f"{copy / name}: damaged: its hash does not match" in error


def replaced(artifact: Path, copy: Path, name: str, data: bytes) -> Path:
    """A copy, still whole, in which a file is another."""
    files = layout.read_manifest(artifact)["files"]
    sha256 = hashlib.sha256(data).hexdigest()
    edit_manifest(artifact, copy, files={**files, name: sha256})
    (copy / name).write_bytes(data)
    return copy


def test_host_code_of_another_source_is_refused(
    encoder: Path, fake_cuda: Path, tmp_path: Path
) -> None:
    """What the objects ask to be compiled must be what the cubins were made of."""
    source = (encoder / layout.CUDA_SOURCE).read_bytes() + b"// another\n"
    code, error = run(replaced(encoder, tmp_path / "a", layout.CUDA_SOURCE, source), fake_cuda)
    assert code == 2
    assert "the source in the object files is not kernels.cu" in error


def test_code_that_the_device_refuses(encoder: Path, fake_cuda: Path, tmp_path: Path) -> None:
    other = replaced(encoder, tmp_path / "a", "kernels/sm_80.cubin", b"no code at all")
    code, error = run(other, fake_cuda)
    assert code == 2
    assert "GPU 0 (Fake GPU)" in error
    assert "cuModuleLoadData" in error


def test_a_kernel_that_writes_outside_is_seen(
    encoder: Path, fake_cuda: Path, tmp_path: Path
) -> None:
    """A test of the emulated driver."""
    source = (encoder / layout.CUDA_SOURCE).read_text()
    assert "out[" in source
    # A page further, since TVM's runtime takes memory in pages.
    wrong = host_library(source.replace("out[", "out[1024 + "), tmp_path)
    cubin = f"FAKE-CUBIN sm_80 {wrong}\n".encode()
    code, error = run(replaced(encoder, tmp_path / "a", "kernels/sm_80.cubin", cubin), fake_cuda)
    assert code == 2
    assert "wrote outside of an allocation" in error


def test_memory_of_the_device_is_not_the_hosts(encoder: Path, fake_cuda: Path) -> None:
    """A test of the emulated driver: who reads it there crashes, as on a real GPU."""
    code = (
        "import ctypes, sys, tfgraph, numpy as np\n"
        "run = tfgraph.load(sys.argv[1])\n"
        "array = run.place.empty((4,), 'float32')\n"
        "print('made', flush=True)\n"
        "ctypes.string_at(array.address, 4)\n"
    )
    done = python("-c", code, str(encoder), **environment(fake_cuda))
    assert done.stdout == "made\n"
    assert done.returncode == -11


def test_objects_do_not_depend_on_a_gpu(encoder: Path, fake_cuda: Path, tmp_path: Path) -> None:
    """Where TVM's CUDA runtime is loaded it would compile, and the objects hold what came of it."""
    model = encoder.with_suffix(".yaml")
    code = (
        "import sys, tfgraph\n"
        "from tfgraph.runtime.cuda.library import find_device\n"
        "if sys.argv[3]: find_device()\n"
        "tfgraph.build(sys.argv[1], 'cuda', sys.argv[2], check=False, prove=False)\n"
    )
    kept: list[dict[str, str]] = []
    for with_gpu in ("", "yes"):
        out = tmp_path / f"{with_gpu}.tfgraph"
        env = environment(fake_cuda) if with_gpu else {"PATH": os.environ["PATH"]}
        done = python("-c", code, str(model), str(out), with_gpu, **env)
        assert done.returncode == 0, done.stderr
        files = layout.read_manifest(out)["files"]
        kept.append({n: h for n, h in files.items() if n.endswith((".o", ".cu", ".json"))})
    assert kept[0] == kept[1]
    assert any(name.endswith(".o") for name in kept[0])
