"""Passes over graphs: a pattern language, the engine that applies rules, one file a pass.

Imports ops, text and ir; backends and the API import this.
"""

from tfgraph.passes.cleanup import CommonSubexpressions, DeadCode
from tfgraph.passes.fold_constants import FoldConstants
from tfgraph.passes.fuse_add_norm import FuseAddNorm
from tfgraph.passes.fuse_attention import FuseAttention, MergeProjections
from tfgraph.passes.fuse_embedding import FuseEmbedding
from tfgraph.passes.fuse_gated_linear import FuseGatedLinear
from tfgraph.passes.fuse_linear_activation import FuseLinearActivation
from tfgraph.passes.fuse_rotary import FuseRotary
from tfgraph.passes.pattern import NoMatch, call, const, either, masked, opt, var
from tfgraph.passes.pipeline import (
    DEFAULT_PIPELINE,
    IMPORTED_PIPELINE,
    PASSES,
    Pass,
    PassReport,
    RulePass,
    add_rule,
    parse_pipeline,
    register_pass,
    run_pass,
    run_pipeline,
)
from tfgraph.passes.recover_activations import RecoverActivations
from tfgraph.passes.recover_bools import RecoverBools
from tfgraph.passes.recover_constants import RecoverConstants
from tfgraph.passes.recover_empty_rows import RecoverEmptyRows
from tfgraph.passes.recover_heads import RecoverHeads
from tfgraph.passes.recover_indices import RecoverIndices
from tfgraph.passes.recover_linear import RecoverLinear
from tfgraph.passes.recover_masks import RecoverMasks
from tfgraph.passes.recover_norms import RecoverNorms
from tfgraph.passes.recover_rotary import RecoverRotary
from tfgraph.passes.recover_rotary_parts import RecoverRotaryParts
from tfgraph.passes.rewrite import Declined, Rewrites, apply_rules
from tfgraph.passes.rule import Match, Rule, rule
from tfgraph.passes.simplify import Simplify
from tfgraph.passes.tap import Tap, find_taps, is_attention, tap_fused, with_taps

__all__ = [
    "DEFAULT_PIPELINE",
    "IMPORTED_PIPELINE",
    "PASSES",
    "CommonSubexpressions",
    "DeadCode",
    "Declined",
    "FoldConstants",
    "FuseAddNorm",
    "FuseAttention",
    "FuseEmbedding",
    "FuseGatedLinear",
    "FuseLinearActivation",
    "FuseRotary",
    "Match",
    "MergeProjections",
    "NoMatch",
    "Pass",
    "PassReport",
    "RecoverActivations",
    "RecoverBools",
    "RecoverConstants",
    "RecoverEmptyRows",
    "RecoverHeads",
    "RecoverIndices",
    "RecoverLinear",
    "RecoverMasks",
    "RecoverNorms",
    "RecoverRotary",
    "RecoverRotaryParts",
    "Rewrites",
    "Rule",
    "RulePass",
    "Simplify",
    "Tap",
    "add_rule",
    "apply_rules",
    "call",
    "const",
    "either",
    "find_taps",
    "is_attention",
    "masked",
    "opt",
    "parse_pipeline",
    "register_pass",
    "rule",
    "run_pass",
    "run_pipeline",
    "tap_fused",
    "var",
    "with_taps",
]
