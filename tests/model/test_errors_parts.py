"""Mistakes in local layers, encoders of their own, stems, poolers and further kinds of positions,
each at its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfgraph.errors import TfgraphError, render
from tfgraph.model import read_model

SMALL = "layers: 2\nwidth: 16\nheads: 2\nvocabulary: 9\n"
DECODER = SMALL + "kind: decoder\npositions: rotary\n"


def errors_of(folder: Path, content: str) -> list[str]:
    """The first lines of the errors, without the file's name."""
    path = folder / "model.yaml"
    path.write_text(content)
    with pytest.raises(TfgraphError) as caught:
        read_model(path)
    every = [caught.value, *caught.value.related]
    return [render(e).splitlines()[0].replace(f"{path}:", "").replace("error: ", "") for e in every]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (DECODER + "local: {pattern: [full], left: 3}\n",
         "7:18: local.pattern: no layer is local"),
        (DECODER + "local: {pattern: []}\n", None),
        (DECODER + "local: {pattern: [local, far]}\n",
         "7:26: local.pattern[1]: expected local or full, got 'far'"),
        (DECODER + "local: {pattern: [local, full]}\n",
         "7:8: local: local layers need a window (left or right), or positions"),
        (DECODER + "local: {pattern: [local], lefft: 3}\n", "7:27: local.lefft: unknown key"),
        (DECODER + "local: {pattern: [local], left: 3}\nshare_layers: true\n",
         "7:8: local: all layers are the same"),
        (DECODER + "local: {pattern: [local], positions: {kind: learned, max: 9}}\n",
         "7:38: local.positions: local layers have their own positions only where all are rotary, "
         "not learned"),
        (DECODER + "local: {pattern: [local], positions: {kind: rotary, bass: 9}}\n",
         "7:53: local.positions.bass: unknown key"),
        (DECODER + "local: {pattern: [local], positions: {kind: rotary, size: 3}}\n",
         "7:59: local.positions.size: rotary positions turn pairs, and 3 is odd"),
        ("layers: 1024\nwidth: 8\nexperts: {count: 33, active: 2}\n",
         "3:18: experts.count: 33792 experts in 1024 layers; at most 8192"),
        ("layers: 20\nwidth: 8\nkind: encoder-decoder\nexperts: {count: 1000, active: 2}\n",
         "4:18: experts.count: 40000 experts in 40 layers; at most 8192"),
        (SMALL + "encoder: {layers: 3}\n", "5:10: encoder: is for an encoder-decoder"),
        (SMALL + "kind: encoder-decoder\nencoder: {heads: 3}\n",
         "6:18: encoder.heads: 3 heads do not divide the width 16"),
        (SMALL + "kind: encoder-decoder\nencoder: {depth: 3}\n",
         "6:11: encoder.depth: unknown key"),
        (SMALL + "kind: encoder-decoder\nencoder: {positions: learned}\n",
         "6:22: encoder.positions: learned positions need a number of rows"),
        ("layers: 1\nwidth: 8\nstem: {kind: image, channels: 3, height: 9, patch: 4}\n",
         "3:42: stem.height: 9 pixels are not whole patches of 4"),
        ("layers: 1\nwidth: 8\nstem: {kind: image, channels: 3}\n", None),
        ("layers: 1\nwidth: 8\nstem: {kind: image, channels: 3, height: 8, patch: 4}\n"
         "positions: {kind: learned, max: 4}\n",
         "4:33: positions.max: an image makes 5 vectors, and there are 4 positions"),
        ("layers: 1\nwidth: 8\nstem: {kind: image, channels: 3, height: 8, patch: 4}\n"
         "symbols: {seq: {max: 3}}\n", "4:16: symbols.seq: unknown symbol"),
        ("layers: 1\nwidth: 8\nstem: {kind: audio, channels: 3, patch: 4}\n",
         "3:41: stem.patch: is for an image"),
        (SMALL + "stem: {kind: audio, channels: 3}\n",
         "5:7: stem: takes the place of a vocabulary"),
        (SMALL + "stem: {kind: audio, channels: 3}\nkind: encoder-decoder\nmask: padding\n",
         "7:7: mask: what a stem makes has no padding"),
        (SMALL + "kind: decoder\nconvolution: gelu\n", "6:14: convolution: is for an encoder"),
        (SMALL + "pooler: {kind: middle}\n",
         "5:16: pooler.kind: expected first, end, last or mean, got 'middle'"),
        (SMALL + "pooler: {token: 3}\n", "5:17: pooler.token: is for end and last"),
        (SMALL + "pooler: {kind: end, padding_id: 0}\n", "5:33: pooler.padding_id: is for last"),
        (SMALL + "pooler: {kind: last, token: 3, padding_id: 0}\n",
         "5:44: pooler.padding_id: the last token is given by its id"),
        ("layers: 2\nwidth: 16\npooler: {kind: last, token: 3}\n",
         "3:9: pooler: tokens are told by their ids"),
        (SMALL + "kind: encoder-decoder\npooler: {kind: mean}\n",
         "6:16: pooler.kind: mean is for one stack"),
        (SMALL + "decoder_start: 1\n",
         "5:16: decoder_start: is for an encoder-decoder whose encoder reads tokens"),
        (SMALL + "kind: encoder-decoder\ndecoder_start: 9\n",
         "6:16: decoder_start: 9 is no token of the vocabulary"),
        (SMALL + "kind: encoder-decoder\ndecoder_start: 1\nhead: lm\n",
         "6:16: decoder_start: a language model reads what it has made"),
        (SMALL + "kind: encoder-decoder\ndecoder_start: 1\nsymbols: {target: {max: 4}}\n",
         "7:19: symbols.target: unknown symbol"),
        (SMALL + "head: {kind: span, labels: 2}\n",
         "5:7: head: labels are for a classifier"),
        (SMALL + "head: {kind: span, probabilities: true}\n",
         "5:35: head.probabilities: is for lm, mlm, classifier, token_classifier and detector"),
        (SMALL + "head: {kind: mlm, labels: 2}\n",
         "5:27: head.labels: labels are of what a pooler makes"),
        (SMALL + "norm: {first: false}\n",
         "5:15: norm.first: a layer with its norms post does not begin with one"),
        (SMALL + "attention: {qk_norm_over: width}\n",
         "5:27: attention.qk_norm_over: there is no qk_norm"),
        (SMALL + "embedding: {project_back: true}\n",
         "5:27: embedding.project_back: the embedding has the width 16"),
        (SMALL + "kind: encoder-decoder\nfinal_norm: above\n",
         "6:13: final_norm: is for one stack, with a norm"),
        (SMALL + "positions: {kind: disentangled, buckets: 5}\n",
         "5:42: positions.buckets: expected an even number of at least 4"),
        (SMALL + "positions: {kind: disentangled, buckets: 32, max_distance: 16}\n",
         "5:60: positions.max_distance: expected more than 17, where buckets grow"),
        (SMALL + "positions: {kind: disentangled, terms: [c2p, c2p]}\n",
         "5:40: positions.terms: expected c2p, p2c, or both"),
        (SMALL + "kind: decoder\npositions: disentangled\n",
         "6:12: positions: disentangled positions are for an encoder"),
        (SMALL + "positions: {kind: rotary, terms: [c2p]}\n",
         "5:34: positions.terms: is for disentangled positions"),
        (SMALL + "positions: {kind: learned, max: 9, masked: true}\n",
         "5:44: positions.masked: needs a padding mask, in a model of one stack"),
        (SMALL + "positions: {kind: learned, max: 9, max_distance: 64}\n",
         "5:50: positions.max_distance: is for relative positions"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: longrope, original: 8, short: [1],\n"
         "  long: [1, 2, 3, 4]}}\n",
         "5:73: positions.scaling.short: 1 factors, expected one for each of the 4 pairs"),
        (SMALL + "positions: {kind: rotary, base: 1, scaling: {kind: yarn, factor: 4, "
         "original: 8}}\n", "5:33: positions.base: expected more than 1 with yarn"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: yarn, factor: 4, original: 8, "
         "low: 40}}\n", "5:78: positions.scaling.low: expected less than high"),
        (SMALL + "positions: {kind: rotary, scaling: {kind: linear}}\n",
         "5:36: positions.scaling: linear needs factor"),
        (SMALL + "head: {kind: detector, tied: true}\n", "5:30: head.tied: is for lm and mlm"),
        (SMALL + "head: token_classifier\n",
         "5:7: head: a classifier needs labels, the number of classes"),
    ],
)  # fmt: skip
def test_one_mistake(tmp_path: Path, content: str, expected: str | None) -> None:
    found = errors_of(tmp_path, content)
    if expected is None:  # several at once
        assert len(found) >= 1
        assert all(line[0].isdigit() for line in found)
    else:
        assert found == [expected]
