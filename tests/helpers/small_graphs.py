"""Graphs as text, whose memory is plain to count."""

from __future__ import annotations

CHAIN = """
graph g(%x: f32[n,4]) {
  %a = relu(%x)
  %b = neg(%a)
  %c = matmul(%b, %w)
  %d = add(%c, %scale)
  %e = sum(%d) {axis=1}
  return a=%a, e=%e
}
weights {
  %w: f32[4,100]
  %scale: f32[100]
}
"""
