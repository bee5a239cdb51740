"""A damaged artifact is refused with the name of the file: any bit of any file, and any file that
is cut, longer, missing, or not a file at all. What is no damage is accepted, and why."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest
from helpers.artifacts import contents, edit_manifest, python

import tfgraph
from tfgraph.cli import main
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.manifest import FUNCTION
from tfgraph.runtime.version import VERSION

SEED = 20240
REBUILD = "compile the model again"


def refusal(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of it: exit code 2 and one error, which is no traceback."""
    capsys.readouterr()
    assert main(["run", str(folder), "-q"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    error, *rest = captured.err.splitlines()
    assert error.startswith("error: ")
    assert len(rest) <= 1
    return error


def test_all_files_are_listed_by_the_manifest(artifact: Path) -> None:
    listed = layout.read_manifest(artifact)["files"]
    assert set(contents(artifact)) == {layout.MANIFEST, *listed}
    assert any(name.endswith(".o") for name in listed)


@pytest.mark.parametrize("bits", [3, pytest.param(60, marks=pytest.mark.long)])
def test_any_flipped_bit_of_any_file_is_refused(
    artifact: Path, copy: Path, bits: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """First, last and random bits of every file; `bits` random ones of each."""
    chance = random.Random(SEED)
    for name, data in contents(artifact).items():
        size = 8 * len(data)
        for bit in {0, size - 1, *(chance.randrange(size) for _ in range(bits))}:
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            (copy / name).write_bytes(changed)
            error = refusal(copy, capsys)
            assert error.startswith(f"error: {copy / name}: "), (name, bit)
        (copy / name).write_bytes(data)
    assert main(["run", str(copy), "-q"]) == 0


def test_any_flipped_bit_of_the_manifest_is_refused(artifact: Path, copy: Path) -> None:
    data = (artifact / layout.MANIFEST).read_bytes()
    chance = random.Random(SEED)
    for _ in range(300):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (copy / layout.MANIFEST).write_bytes(changed)
        with pytest.raises(TfgraphError) as error:
            tfgraph.load(copy)
        assert error.value.message.startswith(f"{copy / layout.MANIFEST}: damaged: ")
        assert error.value.hint == REBUILD


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("empty", "damaged: "),
        ("cut", "damaged: "),
        ("longer", "damaged: "),
        ("missing", "No such file or directory"),
        ("folder", "Is a directory"),
        ("pipe", "not a file"),
        ("dangling", "No such file or directory"),
        ("loop", "Too many levels of symbolic links"),
        ("device", "not a file"),
    ],
)
def test_any_file_that_is_not_what_it_was_is_refused(
    artifact: Path, copy: Path, how: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in contents(artifact).items():
        path = copy / name
        path.unlink()
        if how in ("empty", "cut", "longer"):
            written = {"empty": b"", "cut": data[: len(data) // 2], "longer": data + b"\n"}
            path.write_bytes(written[how])
        elif how == "folder":
            path.mkdir()
        elif how == "pipe":
            os.mkfifo(path)
        elif how in ("dangling", "loop", "device"):
            path.symlink_to({"dangling": "nothing", "loop": path.name, "device": "/dev/zero"}[how])
        error = refusal(copy, capsys)
        if name == layout.MANIFEST and how in ("missing", "dangling", "loop"):
            assert error == f"error: {copy} is not an artifact: it has no {name}"
        else:
            assert error.startswith(f"error: {path}: {reason}"), (name, how)
        path.rmdir() if how == "folder" else path.unlink(missing_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "folder", "pipe", "cut", "header"])
def test_weights_that_are_not_hashed_must_be_weights(artifact: Path, copy: Path, how: str) -> None:
    path = copy / layout.WEIGHTS
    data = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how != "missing":
        path.write_bytes(data[: len(data) // 2] if how == "cut" else b"\xff" * len(data))
    with pytest.raises(TfgraphError, match=rf"{layout.WEIGHTS}: "):
        tfgraph.load(copy, verify_weights=False)


def test_weights_of_every_function_are_as_large_as_its_code_reads(
    artifact: Path, tmp_path: Path
) -> None:
    manifest = json.loads((artifact / layout.MANIFEST).read_text())
    step = {key: manifest[key] for key in FUNCTION if key in manifest}
    first, *others = step["weights"]
    larger = {**first, "shape": [n + 1 for n in first["shape"]]}
    graph = layout.graph_of("step")
    files = {**manifest["files"], graph: manifest["files"][layout.GRAPH]}
    for i, changed in enumerate((larger, {**first, "name": "another"})):
        functions = {"step": {**step, "weights": [changed, *others]}}
        folder = tmp_path / f"{i}.tfgraph"
        edit_manifest(artifact, folder, files=files, functions=functions)
        (folder / graph).write_bytes((artifact / layout.GRAPH).read_bytes())
        with pytest.raises(TfgraphError, match=rf"'{changed['name']}' is missing, or not "):
            tfgraph.load(folder)


def test_what_is_no_damage(artifact: Path, tmp_path: Path) -> None:
    """Other files are never looked at, a link stands for the bytes that it names, and times and
    modes are not part of an artifact."""
    with tfgraph.load(artifact) as model:
        inputs = model.example({"batch": 1, "seq": 3})
        want = model(**inputs)["logits"].tobytes()
    linked = tmp_path / "linked.tfgraph"
    (linked / layout.KERNELS).mkdir(parents=True)
    for name in contents(artifact):
        (linked / name).symlink_to(artifact / name)
    more = Path(shutil.copytree(artifact, tmp_path / "more.tfgraph"))
    (more / layout.KERNELS / "extra.o").write_bytes(b"not code")
    (more / ".DS_Store").write_text("")
    os.mkfifo(more / "pipe")
    os.utime(more / layout.GRAPH, (0, 0))
    (more / layout.MANIFEST).chmod(0o400)
    for folder in (linked, more):
        with tfgraph.load(folder) as model:
            assert model(**inputs)["logits"].tobytes() == want


def test_moved_copied_and_linked(artifact: Path, tmp_path: Path) -> None:
    """It stands by itself: wherever it lies, whatever it is called, wherever one stands."""
    place = tmp_path / "a folder" / "Größe 模型 [1]*?.x"
    place.parent.mkdir()
    shutil.copytree(artifact, tmp_path / "copy")
    (tmp_path / "copy").rename(place)
    (tmp_path / "link").symlink_to(place)
    (tmp_path / "elsewhere").mkdir()
    run = "from tfgraph.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
    shown = [
        python("-c", run, "run", str(folder), "--json", cwd=cwd)
        for folder, cwd in (
            (artifact, None),
            (place, tmp_path / "elsewhere"),
            (Path("../link"), tmp_path / "elsewhere"),
            (Path("."), place),
        )
    ]
    assert [done.returncode for done in shown] == [0] * 4, [done.stderr for done in shown]
    assert len({done.stdout for done in shown}) == 1


# Formats of other versions


def test_an_older_format_is_refused_with_the_command_that_makes_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is run, in the model's folder, and the artifact then loads."""
    (tmp_path / "deep").mkdir()
    model = tmp_path / "deep" / "my model.tfg"
    model.write_text("graph g(%x: f32[n,8]) {\n  %y = softmax(%x)\n  return y=%y\n}\n")
    folder = tmp_path / "out.tfgraph"
    line = ["compile", str(model), "--no-verify", "-o", str(folder), "-q"]
    assert main([*line, "--mcpu", "x86-64-v3", "--passes", "fuse-add-norm,dce"]) == 0
    before = contents(folder)
    edit_manifest(folder, folder, format=0)
    command = (
        "tfgraph compile 'my model.tfg' --target cpu --mcpu x86-64-v3 --passes fuse-add-norm,dce "
        f"-o {folder}"
    )
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(folder)
    assert error.value.message == (
        f"{folder / layout.MANIFEST}: format 0; this tfgraph reads format 1"
    )
    assert error.value.hint == f"make it again: {command}"
    monkeypatch.chdir(model.parent)
    assert main([*shlex.split(command)[1:], "--no-verify", "-q"]) == 0
    assert contents(folder) == before


def test_of_a_graph_the_older_format_names_the_call(artifact: Path, tmp_path: Path) -> None:
    folder = edit_manifest(artifact, tmp_path / "old.tfgraph", format=0)
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(folder)
    assert error.value.hint == f"build its graph again: tfgraph.build(graph, 'cpu', '{folder}')"


def test_a_newer_format_names_the_version_it_needs(artifact: Path, tmp_path: Path) -> None:
    """Whatever else is in it."""
    tools = {"tfgraph": "7.1.0"}
    folder = edit_manifest(artifact, tmp_path / "new.tfgraph", format=2, tools=tools, files=None)
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(folder)
    assert error.value.message == (
        f"{folder / layout.MANIFEST}: format 2; this tfgraph reads format 1"
    )
    assert error.value.hint == "it needs tfgraph 7.1.0, which made it, or a newer one"


@pytest.mark.parametrize("tools", [None, [], "7.1.0", {}])
def test_a_newer_format_may_not_tell_its_version(
    artifact: Path, tmp_path: Path, tools: object
) -> None:
    folder = edit_manifest(artifact, tmp_path / "new.tfgraph", format=2, tools=tools)
    with pytest.raises(TfgraphError, match="format 2; this tfgraph reads format 1") as error:
        tfgraph.load(folder)
    assert error.value.hint == "it needs the tfgraph that made it, or a newer one"


@pytest.mark.parametrize("format_", [True, 1.0, "1", None, [1]])
def test_a_format_that_is_no_integer_is_damage(
    artifact: Path, tmp_path: Path, format_: object
) -> None:
    folder = edit_manifest(artifact, tmp_path / "odd.tfgraph", format=format_)
    with pytest.raises(TfgraphError) as error:
        tfgraph.load(folder)
    assert error.value.message == (
        f'{folder / layout.MANIFEST}: damaged: "format" is not an integer'
    )


def test_the_format_is_that_of_the_text_of_the_manifest(artifact: Path) -> None:
    """Every version can read what says which version it is: these stay where they are."""
    manifest = json.loads((artifact / layout.MANIFEST).read_text())
    assert (manifest["format"], manifest["tools"]["tfgraph"]) == (layout.VERSION, VERSION)
    assert {"sha256", "target", "command"} <= set(manifest)


@pytest.mark.parametrize("name", [layout.GRAPH, layout.PASSES, layout.GRAPH_BEFORE])
def test_files_beside_the_weights_are_hashed_in_any_case(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(TfgraphError, match=re.escape(str(copy / name))):
        tfgraph.load(copy, verify_weights=False)


@pytest.mark.parametrize("name", [layout.WEIGHTS, layout.GRAPH, layout.PASSES, layout.GRAPH_BEFORE])
def test_no_file_may_be_left_unlisted_and_so_unhashed(
    artifact: Path, tmp_path: Path, name: str
) -> None:
    files = json.loads((artifact / layout.MANIFEST).read_text())["files"]
    del files[name]
    folder = edit_manifest(artifact, tmp_path / "fewer.tfgraph", files=files)
    with pytest.raises(TfgraphError, match=f'manifest.json: damaged: "files" lists no {name}'):
        tfgraph.load(folder)


def test_each_function_s_graph_and_the_code_are_listed(artifact: Path, tmp_path: Path) -> None:
    manifest = json.loads((artifact / layout.MANIFEST).read_text())
    step = {key: manifest[key] for key in FUNCTION if key in manifest}
    no_code = {n: h for n, h in manifest["files"].items() if not n.endswith(".o")}
    for i, (changes, missing) in enumerate(
        [
            ({"functions": {"step": step}}, r"\"files\" lists no graph\.step\.tfg"),
            ({"files": no_code}, r"\"files\" lists no kernels/\*\.o"),
            ({"files": None}, "files: expected an object"),
            ({"files": list(no_code)}, "files: expected an object"),
        ]
    ):
        folder = edit_manifest(artifact, tmp_path / f"{i}.tfgraph", **changes)
        with pytest.raises(TfgraphError, match=f"manifest.json: damaged: {missing}"):
            tfgraph.load(folder)
