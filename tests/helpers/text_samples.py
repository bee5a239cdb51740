"""A graph as text that uses most of the notation, and a place in a file."""

from __future__ import annotations

from tfgraph.errors import Location

HERE = Location("model.yaml", 7, 6)

ENCODER = """\
graph e(%ids: i64[batch,seq] = ids(1000), %keep: i64[batch,seq] = prefix(), %h: f32[batch,seq,8]) {
  symbol batch: 1..64, example 2
  symbol seq: 1..512
  constraint batch + seq <= 512
  %0 = embedding(%ids, %embeddings.weight) : f32[batch,seq,8]
  %1 = mul(%0, 2*sqrt(2)) : f32[batch,seq,8]
  %sum, %2 = add_layer_norm(%1, %h, %"s/1", _, %"s/1") {eps=1e-06, keep_sum=true} : \
f32[batch,seq,8], f32[batch,seq,8]
  %3 = transpose(%2) {perm=[0, 2, 1]} : f32[batch,8,seq]
  %scores = matmul(%sum, %3) : f32[batch,seq,seq]
  %5 = mask(%scores, causal() & padding(%keep)) : f32[batch,seq,seq]
  %6 = softmax(%5) {axis=-1} : f32[batch,seq,seq]
  %7 = linear_activation(%2, %w) {activation="gelu"} : f32[batch,seq,4]
  return probabilities=%6, %7, "a b"=%sum
}
weights {
  %embeddings.weight : f32[1000,8] = normal(0.02)
  %"s/1" : f32[8] = ones()
  %w : f32[8,4] = normal(rsqrt(8))
}
"""
