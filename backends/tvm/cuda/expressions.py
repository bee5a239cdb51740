"""C expressions as TVM prints them, parsed and printed again as a person would write them.

TVM puts every operation into parentheses and casts every number. `Expressions.tidy` leaves only
what C needs: a cast goes where the usual conversions of C do the same, parentheses where precedence
does. The order of operations stays as it is, so that every result keeps its bits. Text that it
cannot parse comes back unchanged. May import: numpy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0x[0-9a-fA-F.]+p[+-]?\d+f?(?:/\*[^*]*\*/)?|\d[\d.]*(?:e[+-]?\d+)?f?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[xyzw]|<[A-Z]\w*(?:, \w+)*>(?=\())?)"  # x, x.y or f<X, y>(
    r"|(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^!~?:,()\[\]]))"
)
_PRECEDENCE = {
    "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7, "<": 8, ">": 8, "<=": 8, ">=": 8,
    "<<": 9, ">>": 9, "+": 10, "-": 10, "*": 11, "/": 11, "%": 11,
}  # fmt: skip
_TERNARY, _UNARY, _ATOM = 1, 12, 13
_TRUTHS = ("<", ">", "<=", ">=", "==", "!=", "&&", "||")
_BITWISE = ("<<", ">>", "&", "|", "^")
_SHRINKING = (">>", "&", "/", "%")
"""What gives the same number before a cast of its left side from int to int64_t as after it."""
_TYPES = frozenset(
    {"bool", "float", "half", "nv_bfloat16"}
    | {"int", "uint", "int8_t", "uint8_t", "int32_t", "int64_t"}
)
_UNARY_TYPES = {"!": "bool", "&": "address"}
_NARROW = frozenset({"int", "uint", "bool", "int8_t", "uint8_t", "index"})
"""Types whose values int64_t holds; "index" is that of threadIdx.x and the like, never negative."""


@dataclass(frozen=True)
class _Text:
    """A printed expression: its text, how tightly it binds, its type where that is known.

    Of a cast, `inner` is what was cast; of `a + b`, `sign` is + and `operands` are a and b.
    """

    text: str
    binds: int
    type: str = ""
    inner: _Text | None = None
    sign: str = ""
    operands: tuple[_Text, ...] = ()

    def within(self, least: int) -> str:
        """The text, in parentheses unless it binds as tightly as that."""
        return self.text if self.binds >= least else f"({self.text})"


class _Unknown(Exception):
    """Not an expression that we know."""


class Expressions:
    """Tidies the expressions of one function, whose variables and arrays have these types."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._tokens: list[str] = []

    def tidy(self, text: str, wanted: str = "") -> str:
        """The expression, to be converted to the type `wanted`."""
        parsed = self._parse(text)
        return text if parsed is None else _converted(parsed, wanted).text

    def assign(self, target: str, value: str) -> str:
        """The statement `target = value;`, with += and *= where they say the same."""
        left, right = self._parse(target), self._parse(value)
        if left is None or right is None:
            return f"{target} = {value};"
        if right.sign in ("+", "*") and right.operands[0].text == left.text:
            return f"{left.text} {right.sign}= {right.operands[1].text};"
        return f"{left.text} = {_converted(right, left.type).text};"

    def call(self, name: str, arguments: str) -> str:
        """The call of a function, whose arguments stand in parentheses."""
        self._tokens = []
        try:
            self._tokens = _split(arguments)
            found = self._arguments()
        except _Unknown:
            return name + arguments
        return f"{name}({', '.join(argument.text for argument in found)})"

    def _parse(self, text: str) -> _Text | None:
        try:
            self._tokens = _split(text)
            parsed = self._ternary()
        except _Unknown:
            return None
        return None if self._tokens else parsed

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, wanted: str = "") -> str:
        if not self._tokens or (wanted and self._tokens[0] != wanted):
            raise _Unknown
        return self._tokens.pop(0)

    def _ternary(self) -> _Text:
        condition = self._binary(_PRECEDENCE["||"])
        if self._next() != "?":
            return condition
        self._take()
        yes = self._ternary()
        self._take(":")
        no = self._ternary()
        if no.text == "false":
            return _joined(condition, "&&", yes)
        text = f"{condition.within(2)} ? {yes.within(2)} : {no.within(1)}"
        return _Text(text, _TERNARY, yes.type if yes.type == no.type else "")

    def _binary(self, least: int) -> _Text:
        left = self._unary()
        while _PRECEDENCE.get(self._next(), 0) >= least:
            sign = self._take()
            right = self._binary(_PRECEDENCE[sign] + 1)
            left = _joined(left, sign, right)
        return left

    def _unary(self) -> _Text:
        if self._next() in ("-", "!", "~", "&"):
            sign, operand = self._take(), self._unary()
            text = f"{sign}{operand.within(_UNARY)}"
            return _Text(text, _UNARY, _UNARY_TYPES.get(sign, operand.type))
        if self._next() == "(":
            if self._tokens[1:3] and self._tokens[1] in _TYPES and self._tokens[2] == ")":
                del self._tokens[0]
                kind = self._take()
                self._take(")")
                return _cast(kind, self._unary())
            self._take()
            inside = self._ternary()
            self._take(")")
            return inside
        return self._atom()

    def _atom(self) -> _Text:
        token = self._take()
        if token[0].isdigit():
            return _number(token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise _Unknown
        if self._next() == "(":
            arguments = self._arguments()
            kind = arguments[0].type if token in ("min", "max") else ""
            return _Text(f"{token}({', '.join(a.text for a in arguments)})", _ATOM, kind)
        kind = "index" if "Idx." in token else self._types.get(token, "")
        if self._next() == "[":
            self._take()
            index = _converted(self._ternary(), "int64_t")
            self._take("]")
            return _Text(f"{token}[{index.text}]", _ATOM, kind)
        return _Text(token, _ATOM, kind)

    def _arguments(self) -> list[_Text]:
        self._take("(")
        found: list[_Text] = []
        while self._next() != ")":
            found.append(self._ternary())
            if self._next() != ")":
                self._take(",")
        self._take(")")
        if not found:
            raise _Unknown
        return found


def _split(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _Unknown
        tokens.append(match[0].strip())
        at = match.end()
    return tokens


def _number(token: str) -> _Text:
    if not token.startswith("0x"):
        return _Text(token, _ATOM, "int" if token.isdigit() else "")
    digits, is_float, _ = token.partition("f/*")
    if not is_float:
        return _Text(token, _ATOM)
    value = np.float32(float.fromhex(digits))
    plain = value == 0 or 1e-4 <= value < 1e7
    shortest = np.format_float_positional if plain else np.format_float_scientific
    return _Text(shortest(value, trim="0") + "f", _ATOM, "float")


def _cast(kind: str, operand: _Text) -> _Text:
    if kind == operand.type:
        return operand
    if kind == "bool" and operand.text in ("0", "1"):
        return _Text("true" if operand.text == "1" else "false", _ATOM, "bool")
    if kind == "uint" and operand.text == "4294967295":
        return _Text("0xffffffff", _ATOM, "uint")
    return _Text(f"({kind}){operand.within(_UNARY)}", _UNARY, kind, operand)


def _converted(value: _Text, wanted: str) -> _Text:
    """The value without casts that its conversion to `wanted` makes needless."""
    while value.inner is not None and value.type in ("int64_t", "int"):
        same = value.type == wanted and value.inner.type in _NARROW
        if not (same or (wanted == "int64_t" and value.inner.type == "index")):
            break
        value = value.inner
    return value


def _joined(left: _Text, sign: str, right: _Text) -> _Text:
    """left sign right; a cast to int64_t goes where the other operand is of that type already."""
    shift = sign in ("<<", ">>")
    if sign == "&&" and right.sign == "&&" and right.operands[0].text == left.text:
        return right
    if sign in _SHRINKING and left.type == "int64_t" and left.inner and left.inner.type == "int":
        divisor = _converted(right, "int64_t")
        if divisor.text.isdigit() and 0 < int(divisor.text) < 2**31:
            return _cast("int64_t", _joined(left.inner, sign, divisor))
    if shift or left.type == "int64_t":
        right = _converted(right, "int64_t")
    if right.type == "int64_t":
        left = _converted(left, "int64_t")
    kinds = {left.type, right.type}
    if sign in _TRUTHS:
        kind = "bool"
    elif shift:
        kind = left.type
    elif "int64_t" in kinds and kinds <= {"int64_t", *_NARROW}:
        kind = "int64_t"
    else:
        kind = left.type if kinds in ({"int"}, {"float"}) else ""
    binds = _PRECEDENCE[sign]
    least_left, least_right = binds, binds + 1
    if sign in _BITWISE:  # few people know where these stand
        least_left = least_right = _UNARY
    elif binds == _PRECEDENCE["*"] and left.sign != sign:  # (a / b) * c, (a * b) % c
        least_left = _UNARY
    text = f"{left.within(least_left)} {sign} {right.within(least_right)}"
    return _Text(text, binds, kind, sign=sign, operands=(left, right))
