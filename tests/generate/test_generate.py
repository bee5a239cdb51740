"""Generation: cached, uncached and in pieces, batches, beams, states and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import CASES
from helpers.generating import DECODERS, VOCABULARY, YAML, compiled, model
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.runtime.beams import log_softmax
from tfgraph.runtime.source import Uncached, apart

PROMPTS = [[5, 6, 7], [9], [1, 2, 3, 4, 5, 6, 7, 8]]
SOURCES = {"encoder-decoder, no mask": [[5, 6, 7], [9, 0, 1], [3, 3, 3]]}


def prompts(name: str) -> list[list[int]]:
    return SOURCES.get(name, PROMPTS)


@pytest.mark.parametrize("name", YAML)
def test_greedy_is_the_argmax_of_the_whole_model(name: str) -> None:
    """Token by token, without a cache, state or batch."""
    run, prompt = compiled(name), prompts(name)[0]
    sources = [prompt] if "encoder" in name else None
    got = list(run.generate(prompt, max_tokens=12))
    row, whole = [0] if sources else prompt, Uncached(run, sources)
    want: list[int] = []
    for _ in range(12):
        row = [int(whole.feed([row])[0].argmax())]
        want += row
    assert got == want


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_with_and_without_a_cache(name: str, chunk: int | None) -> None:
    run = compiled(name)
    options: dict[str, Any] = {"max_tokens": 70, "temperature": 1.1, "top_p": 0.95, "seed": 3}
    kept = run.generate(prompts(name), check_cache=True, chunk=chunk, **options)
    tokens = list(kept)
    assert tokens == list(run.generate(prompts(name), cache=False, **options))
    assert kept.difference == 0.0
    assert kept.steps == len(tokens) == 70
    longest = 1 if "encoder" in name else 8
    assert kept.prefills == {None: [longest], 1: [1] * longest}.get(
        chunk, [3, 3, 2] if longest == 8 else [1]
    )


@pytest.mark.parametrize("name", YAML)
def test_a_row_of_a_batch_is_generated_as_alone(name: str) -> None:
    run = compiled(name)
    together = zip(*run.generate(prompts(name), max_tokens=20), strict=True)
    for prompt, tokens in zip(prompts(name), together, strict=True):
        assert list(run.generate(prompt, max_tokens=20)) == list(tokens)


def test_seeds() -> None:
    def drawn(seed: int) -> list[int]:
        return list(compiled("none").generate([1], max_tokens=20, temperature=1.0, seed=seed))

    assert drawn(1) == drawn(1) != drawn(2)


def test_stop_tokens_end_a_row_and_are_its_last() -> None:
    run = compiled("learned")
    free = list(run.generate(PROMPTS[0], max_tokens=20))
    stop = free[7]
    assert (
        list(run.generate(PROMPTS[0], max_tokens=20, stop=[stop])) == free[: free.index(stop) + 1]
    )
    rows = list(zip(*run.generate(PROMPTS, max_tokens=20, stop=[stop]), strict=True))
    for prompt, row in zip(PROMPTS, rows, strict=True):
        alone = list(run.generate(prompt, max_tokens=20, stop=[stop]))
        assert list(row) == alone + [None] * (len(row) - len(alone))


@pytest.mark.parametrize("name", ["learned", "encoder-decoder"])
def test_beams_as_wide_as_all_find_the_best(name: str) -> None:
    """Of all continuations of two tokens, each scored by the whole model."""
    run, prompt = compiled(name), PROMPTS[0]
    sources = [prompt] if "encoder" in name else None
    begun = [0] if sources else prompt

    def mean(tokens: tuple[int, int]) -> float:
        whole = Uncached(run, sources)
        first = log_softmax(whole.feed([begun]))[0, tokens[0]]
        return float(first + log_softmax(whole.feed([[tokens[0]]]))[0, tokens[1]]) / 2

    likely = log_softmax(Uncached(run, sources).feed([begun]))[0].argsort()[-12:]
    best = max(product(likely.tolist(), range(VOCABULARY)), key=mean)
    found = run.generate(prompt, max_tokens=2, beams=VOCABULARY, check_cache=True)
    assert tuple(found) == best
    assert found.difference == 0.0


def test_one_beam_is_greedy_and_beams_stop() -> None:
    run = compiled("learned")
    beams = run.generate(PROMPTS[0], max_tokens=15, beams=4)
    tokens = list(beams)
    assert tokens == list(run.generate(PROMPTS[0], max_tokens=15, beams=4, cache=False))
    stop = tokens[2]
    stopped = list(run.generate(PROMPTS[0], max_tokens=15, beams=4, stop=[stop]))
    assert stop not in stopped[:-1]


def test_two_conversations_take_turns() -> None:
    run = compiled("learned")
    one, other = run.new_state(), run.new_state(batch=2)
    alone = [run.new_state(), run.new_state(batch=2)]
    rng = np.random.default_rng(0)
    pieces = [rng.integers(0, VOCABULARY, (n, 33)) for n in (1, 2, 1, 2)]
    mixed = [state.feed(ids) for state, ids in zip((one, other, one, other), pieces, strict=True)]
    want = [alone[i].feed(ids) for i in (0, 1) for ids in pieces[i::2]]
    for got, expected in zip((mixed[0], mixed[2], mixed[1], mixed[3]), want, strict=True):
        assert got.tobytes() == expected.tobytes()


def test_padding_may_be_any_tokens() -> None:
    run = compiled("learned")
    row = np.array([[4, 5, 6]])
    want = run.new_state().feed(row)
    for padding in (0, VOCABULARY - 1):
        state = run.new_state(2, first=[0, 2])
        rows = np.array([[1, 2, 4, 5, 6], [padding, padding, 4, 5, 6]])
        assert state.feed(rows)[1].tobytes() == want[0].tobytes()


def test_fork_reorder_and_truncate() -> None:
    run = compiled("sinusoidal")
    rng = np.random.default_rng(1)
    ids, more = rng.integers(0, VOCABULARY, (3, 60)), rng.integers(0, VOCABULARY, (3, 9))
    state = run.new_state(3)
    state.feed(ids)
    assert (state.length, state.capacity) == (60, 64)
    forked = state.fork()
    want = state.feed(more)
    assert (state.length, state.capacity) == (69, 128)
    assert forked.feed(more).tobytes() == want.tobytes()
    state.truncate(60)
    assert state.feed(more).tobytes() == want.tobytes()
    state.truncate(60)
    state.reorder([2, 0, 2, 1])
    assert state.feed(more[[2, 0, 2, 1]]).tobytes() == want[[2, 0, 2, 1]].tobytes()
    forked.truncate(0)
    assert forked.feed(ids).tobytes() == run.new_state(3).feed(ids).tobytes()


def test_the_reference_generates_the_same() -> None:
    for name in ("learned", "encoder-decoder"):
        run = compiled(name, "numpy")
        slow = run.generate(PROMPTS[0], max_tokens=6, check_cache=True)
        assert list(slow) == list(compiled(name).generate(PROMPTS[0], max_tokens=6))
        assert slow.difference is not None
        assert_close(np.array([slow.difference]), np.zeros(1), length=24)


def test_it_ends_where_the_positions_do() -> None:
    run = compiled("encoder-decoder, no mask")  # 100 positions
    tokens = list(run.generate([1, 2], max_tokens=1000))
    assert len(tokens) == 100
    state = run.new_state(1, sources=[[1, 2]])
    state.feed(np.array([tokens]))
    with pytest.raises(TfgraphError, match="takes at most 100 tokens, and these would be 101"):
        state.feed(np.array([[0]]))
    assert list(run.generate([1, 2], max_tokens=0)) == []


def test_it_says_when_positions_end_it() -> None:
    """Padding takes positions too, so the short row ends with the long one."""
    run = compiled("learned")  # 150 positions
    short, whole = [1, 2], [1] * 148

    def ended(ids: Any, **options: Any) -> tuple[int, bool]:
        found = run.generate(ids, **options)
        return len(list(found)), found.out_of_positions

    assert ended(whole, max_tokens=3) == (3, False)
    assert ended(whole, max_tokens=4) == (3, True)
    assert ended([short, whole], max_tokens=9) == (3, True)
    assert ended(whole, max_tokens=9, beams=2) == (3, True)
    first = next(run.generate(whole))
    assert ended(whole, max_tokens=9, stop=[first]) == (1, False)
    best = list(run.generate(whole, max_tokens=3, beams=2))
    assert ended(whole, max_tokens=9, beams=2, stop=best[-1:])[1] is False


REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("learned", [5, VOCABULARY], {}, "input 'input_ids' holds 40, expected 0 to 39"),
    ("learned", [-1], {"cache": False}, "input 'input_ids' holds -1, expected 0 to 39"),
    ("learned", [], {}, "ids are [], expected integers, at least one"),
    ("learned", [[1], []], {}, "ids are [], expected integers, at least one"),
    ("learned", [1.5], {}, "ids are [1.5], expected integers, at least one"),
    ("learned", [1], {"beams": 0}, "beams is 0, expected at least 1"),
    ("learned", [[1], [2]], {"beams": 2}, "beams are for one prompt, and these are 2"),
    (
        "learned",
        [1],
        {"beams": 2, "temperature": 1, "repetition_penalty": 2.0},
        "beams go by the logits as they are, without temperature, repetition_penalty",
    ),
    ("learned", ["a"], {}, "ids are ['a'], expected integers, at least one"),
    ("learned", "a text", {}, "ids are 'a text', expected integers, at least one"),
    ("learned", 5, {}, "ids are 5, expected integers, at least one"),
    ("learned", [[1], 5], {}, "ids are 5, expected integers, at least one"),
    ("learned", [True], {}, "ids are [True], expected integers, at least one"),
    ("learned", [1], {"stop": ["a"]}, "stop are ['a'], expected integers"),
    ("learned", [1], {"stop": 5}, "stop are 5, expected integers"),
    ("learned", [1], {"max_tokens": 1.5}, "max_tokens is 1.5, expected an integer"),
    ("learned", [1], {"seed": -1}, "seed is -1, expected at least 0"),
    ("learned", [1], {"temperature": "1"}, "temperature is '1', expected a number"),
    ("learned", [1], {"top_k": 1.5}, "top_k is 1.5, expected an integer"),
    ("learned", [1] * 151, {}, "model takes at most 150 tokens, and these would be 151"),
    (
        "learned",
        [1] * 151,
        {"cache": False, "max_tokens": 0},
        "model takes at most 150 tokens, and these would be 151",
    ),
    ("learned", [1] * 190, {"beams": 3}, "model takes at most 150 tokens, and these would be 190"),
    ("learned", [[1], [2] * 160], {}, "model takes at most 150 tokens, and these would be 160"),
    ("encoder-decoder", [1], {"prefix": [0, 99]}, "prefix holds 99, expected 0 to 39"),
    ("encoder-decoder", [1], {"prefix": [-1]}, "prefix holds -1, expected 0 to 39"),
    ("encoder-decoder", [1], {"prefix": 5}, "prefix are 5, expected integers, at least one"),
    ("learned", [1], {"max_tokens": -1}, "max_tokens is -1, expected at least 0"),
    ("learned", [1], {"chunk": 0}, "chunk is 0, expected at least 1"),
    (
        "encoder-decoder, no mask",
        [[1, 2], [3]],
        {},
        "sources of 1 and 2 tokens, and model has no mask for the padding of the shorter",
    ),
]


@pytest.mark.parametrize(("name", "ids", "options", "message"), REFUSED)
def test_what_is_refused(name: str, ids: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TfgraphError) as error:
        list(compiled(name).generate(ids, **options))
    assert error.value.message == message


def test_states_refuse_what_makes_no_sense() -> None:
    run = compiled("learned")
    state = run.new_state(2)
    for call, message in (
        (lambda: state.feed(np.zeros((1, 3), np.int64)), "ids have shape [1, 3], expected [2, n]"),
        (lambda: state.feed(np.zeros((2, 0), np.int64)), "ids have shape [2, 0], expected [2, n]"),
        (lambda: state.truncate(1), "length is 1, expected 0 to 0"),
        (lambda: state.reorder([2]), "rows are [2], expected some of 0 to 1"),
        (lambda: state.reorder([]), "rows are [], expected some of 0 to 1"),
        (lambda: run.new_state(2, first=[1]), "first has shape [1], expected [2]"),
        (lambda: run.new_state(2, first=[1, -1]), "first is -1: "),
        (lambda: run.new_state(0), "batch is 0, expected 1 to 1024"),
        (lambda: run.new_state(1, sources=[[1]]), "model is no encoder-decoder"),
        (lambda: compiled("encoder-decoder").new_state(1), "model needs sources"),
    ):
        with pytest.raises(TfgraphError) as error:
            call()
        assert error.value.message.startswith(message)
    state.feed(np.ones((2, 3), np.int64))
    with pytest.raises(TfgraphError, match="holds 99"):
        state.feed(np.full((2, 3), 99))
    assert state.length == 3


def test_other_models_say_that_they_do_not_generate() -> None:
    with tfgraph.graph("g") as g:
        g.output("y", g.input("x", "f32", 2) * 2)
    run = tfgraph.compile(g.build(), "numpy")
    for call in (lambda: run.generate([1]), run.new_state):
        with pytest.raises(TfgraphError, match="g does not generate"):
            call()


@pytest.mark.parametrize("name", DECODERS)
def test_prompts_of_any_length(name: str) -> None:
    run = compiled(name)
    for length in (1, 2, 63, 64, 65, 100):
        prompt = (np.arange(length) % VOCABULARY).tolist()
        kept = run.generate(prompt, max_tokens=3, check_cache=True)
        assert len(list(kept)) == 3
        assert kept.difference == 0.0


def test_beams_that_stop_are_judged_by_the_mean() -> None:
    """Of all continuations of up to two tokens, each scored by the whole model, with a stop token
    for which the best sum is that of another than the best mean."""
    run, prompt = compiled("learned"), [5, 6, 7]
    ones = log_softmax(Uncached(run, None).feed([prompt]))[0]
    totals: dict[tuple[int, ...], float] = {}
    for first in range(VOCABULARY):
        whole = log_softmax(Uncached(run, None).feed([[*prompt, first]]))[0]
        totals |= {(first, second): ones[first] + whole[second] for second in range(VOCABULARY)}
    disagree = False
    for stop in range(VOCABULARY):
        ways = {way: total for way, total in totals.items() if way[0] != stop}
        ways[(stop,)] = ones[stop]
        best = max(ways, key=lambda way: ways[way] / len(way))
        if best != max(ways, key=lambda way: ways[way]):
            disagree = True
            break
    assert disagree
    assert tuple(run.generate(prompt, max_tokens=2, beams=VOCABULARY, stop=[stop])) == best


@pytest.mark.parametrize("name", ["learned", "encoder-decoder"])
def test_reordered_rows_keep_their_padding_and_their_source(name: str) -> None:
    """Each goes on as one that was alone all the time."""
    run, rng = compiled(name), np.random.default_rng(2)
    first, rows = [0, 3, 1], [2, 0, 1, 1]
    ids, more = rng.integers(0, VOCABULARY, (3, 6)), rng.integers(0, VOCABULARY, (4, 2))
    sources = [[5, 6], [9, 1, 3], [4]] if "encoder" in name else None
    state = run.new_state(3, first=first, sources=sources)
    state.feed(ids)
    state.reorder(rows)
    got = state.feed(more)
    for i, row in enumerate(rows):
        alone = run.new_state(1, sources=sources and [sources[row]])
        alone.feed(ids[row : row + 1, first[row] :])
        assert got[i].tobytes() == alone.feed(more[i : i + 1])[0].tobytes()


def test_the_difference_sees_what_is_not_finite() -> None:
    nan, inf = np.nan, np.inf
    for a, b, want in (
        ([1, 2], [1, 4], 2),
        ([1, nan], [2, nan], 1),
        ([1, nan], [1, 2], inf),
        ([1, 2], [nan, 2], inf),
        ([-inf, 2], [-inf, 2], 0),
        ([-inf, 2], [1, 2], inf),
        ([inf, 2], [-inf, 2], inf),
    ):
        assert apart(np.array([a], np.float32), np.array([b], np.float32)) == want, (a, b)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"beams": 2}])
@pytest.mark.parametrize("cache", [True, False])
def test_logits_that_are_not_finite_give_no_token(options: dict[str, Any], cache: bool) -> None:
    """Of weights with NaN in the row of one token, which is a row of the head as well."""
    made = model("learned")
    weights = made.load()
    table = next(name for name in weights if name.endswith("tokens"))
    weights[table] = weights[table].copy()
    weights[table][9] = np.nan
    run = tfgraph.compile(replace(made, weights=weights), "numpy")
    with pytest.raises(TfgraphError, match="no token can be chosen: the model's logits hold NaN"):
        list(run.generate([5, 9], max_tokens=2, cache=cache, **options))


def test_tokens_that_are_never_taken() -> None:
    """By any way of choosing; of the model's own, some not as the first."""
    run = compiled("learned")
    free = list(run.generate(PROMPTS[0], max_tokens=6))
    for options in ({}, {"beams": 3}, {"temperature": 2.0, "seed": 1}):
        chosen: dict[str, Any] = dict(options)
        found = list(run.generate(PROMPTS[0], max_tokens=6, suppress=range(4, 40), **chosen))
        assert set(found) <= {0, 1, 2, 3}
    every = run.generate(PROMPTS[0], max_tokens=6, suppress=free[:1], check_cache=True)
    assert free[0] not in list(every)
    assert every.difference == 0.0
    before = run.generation
    try:
        run.generation = replace(before, suppress_first=(free[0],))
        assert next(run.generate(PROMPTS[0])) != free[0]
        assert list(run.generate(PROMPTS[0], max_tokens=6, suppress=())) == free
    finally:
        run.generation = before
    with pytest.raises(TfgraphError, match="suppress holds 40, expected 0 to 39"):
        run.generate(PROMPTS[0], suppress=[40])


def test_what_is_encoded_need_not_be_tokens() -> None:
    """Sound by the name of its input: with a cache and without, in a batch as alone, by beams."""
    run = tfgraph.compile(CASES / "whisper", "numpy")
    sound = np.random.default_rng(0).standard_normal((2, 8, 24)).astype(np.float32)
    both = run.generate({"input_features": sound}, max_tokens=5, check_cache=True)
    first, second = zip(*both, strict=True)
    assert both.difference == 0.0
    for row, tokens in enumerate((first, second)):
        alone = {"input_features": sound[row : row + 1]}
        assert list(run.generate(alone, max_tokens=5)) == list(tokens)
    ids = np.array([[3]])
    logits = run(input_features=sound[:1], decoder_input_ids=ids)["logits"][0, -1]
    assert first[0] == logits.argmax()
    alone = {"input_features": sound[:1]}
    assert len(list(run.generate(alone, max_tokens=3, beams=2, check_cache=True))) == 3
    for given, message in (
        ([1, 2], "whisper encodes no tokens, but input_features"),
        ({}, "inputs of the encoder have rows: none"),
        ({"features": sound}, "features"),
        ({"input_features": sound[:0]}, "have rows: 0 of input_features"),
    ):
        with pytest.raises(TfgraphError, match=message):
            run.generate(given)  # type: ignore[arg-type]
    with pytest.raises(TfgraphError, match="is no encoder-decoder: its prompts are tokens"):
        compiled("learned").generate({"input_features": sound})
