"""The field domain: graphs over integers modulo primes, where equality is exact.

Schwartz and Zippel: two different polynomials of degree d agree at a random point of a field of p
elements with probability at most d / p. So one draw of random inputs tells two graphs apart that
compute different rational functions, with no tolerance. Functions that are no polynomials are drawn
at random: equal operands give equal results, and nothing else is known of them.
"""

from tfgraph.ops.field.arrays import FieldArray
from tfgraph.ops.field.draw import Draw, NotInField, Redraw

__all__ = ["Draw", "FieldArray", "NotInField", "Redraw"]
