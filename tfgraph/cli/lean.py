"""`run`, `generate` and `inspect --attention` of an artifact past typer: nothing is imported that a
machine which only runs artifacts lacks.

Typer brings pydantic, and takes as long to start as a small model takes to run. What the parser
here does not understand, mistakes and `--help` included, is left to typer, which explains it; where
typer is not installed, what can be said without it is said here. May import: the standard library,
source, execute, generating, attention, errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tfgraph.cli.source import is_artifact
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.cli.session import Session


class _NotPlain(Exception):
    """The arguments are not those of a plain run."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _NotPlain(message)


def common_parser() -> argparse.ArgumentParser:
    """The options that every verb has, by the names that typer knows them by."""
    made = _Parser(add_help=False, allow_abbrev=False)
    made.add_argument("model")
    made.add_argument("--plugin", action="append")  # nothing of it concerns an artifact
    for flags in (["--json"], ["--verbose", "-v"], ["--quiet", "-q"], ["--no-color"]):
        made.add_argument(*flags, action="store_true")  # read by `Output.of`
    return made


def parser() -> argparse.ArgumentParser:
    """The options that `run` and `generate` have."""
    made = common_parser()
    made.add_argument("--seed", type=_number(0))
    made.add_argument("--threads", type=_number(1))
    made.add_argument("--verify-weights", action=argparse.BooleanOptionalAction, default=True)
    return made


def run_parser() -> argparse.ArgumentParser:
    """The options of `run` that an artifact takes."""
    made = parser()
    made.add_argument("--input", action="append")
    made.add_argument("--dim", action="append")
    made.add_argument("--text", action="append")
    made.add_argument("--prefix")
    made.add_argument("--save", type=Path)
    made.set_defaults(seed=0)
    return made


def generate_parser() -> argparse.ArgumentParser:
    """The options of `generate`."""
    made = parser()
    for text in ("--ids", "--text", "--prefix", "--stop", "--suppress"):
        made.add_argument(text)
    made.add_argument("--input", action="append")
    for number in ("--temperature", "--top-p", "--min-p", "--repetition-penalty"):
        made.add_argument(number, type=float)
    made.add_argument("--top-k", type=int)
    made.add_argument("--max-tokens", type=_number(0), default=32)
    made.add_argument("--beams", type=_number(1), default=1)
    made.add_argument("--chunk", type=_number(1))
    made.add_argument("--greedy", action="store_true")
    made.add_argument("--cache", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("--check-cache", action="store_true")
    return made


def attention_parser() -> argparse.ArgumentParser:
    """The options of `inspect --attention`."""
    made = common_parser()
    made.add_argument("--attention", action="store_true", required=True)
    for text in ("--ids", "--text", "--prefix", "--token"):
        made.add_argument(text)
    made.add_argument("--layer", type=_number(0))
    made.add_argument("--top", type=_number(1), default=5)
    return made


def run_lean(arguments: Sequence[str], session: Session) -> int | None:
    """Do what the arguments ask of an artifact; None where they ask for anything else."""
    if list(arguments) == ["--version"]:
        from tfgraph.runtime.version import VERSION

        print(f"tfgraph {VERSION}")
        return 0
    found = _VERBS.get(arguments[0]) if arguments else None
    if found is None or (arguments[0] == "inspect" and "--attention" not in arguments):
        return None
    make_parser, act = found
    alone = find_spec("typer") is None
    try:
        given = make_parser().parse_args(arguments[1:])
    except _NotPlain as mistake:
        if alone and not {"-h", "--help"} & set(arguments):
            hint = "docs/cli.md lists its options"
            raise TfgraphError(f"{arguments[0]}: {mistake}", hint=hint) from None
        return None
    if not is_artifact(given.model):
        if alone and not Path(given.model).exists() and ":" not in given.model:
            raise TfgraphError(f"{given.model}: no such artifact")
        return None
    session.start_log()
    return act(session, given)


def _run(session: Session, given: Any) -> int:
    from tfgraph.cli.execute import Request, run_artifact

    request = Request(
        given.input, given.dim, given.save, given.seed, text=given.text, prefix=given.prefix
    )
    return run_artifact(session, given.model, request, given.threads, given.verify_weights)


def _generate(session: Session, given: Any) -> int:
    from tfgraph.cli.generating import Request, generate_artifact

    request = Request(**{f.name: getattr(given, f.name) for f in fields(Request)})
    return generate_artifact(session, given.model, request, given.threads, given.verify_weights)


def _attention(session: Session, given: Any) -> int:
    from tfgraph.cli.attention import Request, attention_of_artifact

    request = Request(**{f.name: getattr(given, f.name) for f in fields(Request)})
    return attention_of_artifact(session, given.model, request)


_VERBS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], int]]] = {
    "run": (run_parser, _run),
    "generate": (generate_parser, _generate),
    "inspect": (attention_parser, _attention),
}


def _number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(text)
        return int(text)

    return read
