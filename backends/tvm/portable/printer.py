"""The text of a lowered kernel in one of the languages: a walk over TVM's statements.

Cells of one element become variables, and constants where they are stored once; names are those of
the kernel, with a number where another of that name is in sight. What the generic kernels are made
of is known here; anything else is refused by name. May import: tvm, languages.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from tfgraph.backends.tvm.portable.languages import Language, Parameter, Unwritable

_ATOM, _UNARY, _TERNARY = 20, 15, 1
_BINARY = {
    tirx.Mul: ("*", 14),
    tirx.Div: ("/", 14),
    tirx.Mod: ("%", 14),
    tirx.Add: ("+", 13),
    tirx.Sub: ("-", 13),
    tirx.LT: ("<", 11),
    tirx.LE: ("<=", 11),
    tirx.GT: (">", 11),
    tirx.GE: (">=", 11),
    tirx.EQ: ("==", 10),
    tirx.NE: ("!=", 10),
    tirx.And: ("&&", 5),
    tirx.Or: ("||", 4),
}
_EXTREMA = {tirx.Min: "min", tirx.Max: "max"}
_ROUNDED_DOWN = {tirx.FloorDiv: ("floor_div", tirx.Div), tirx.FloorMod: ("floor_mod", tirx.Mod)}
_BITWISE = {tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|"}

Text = tuple[str, int]
"""An expression and how closely it binds."""


class Printer:
    """Prints one device function, whose threads stand in a row of blocks."""

    def __init__(self, language: Language, function: Any) -> None:
        self._language, self._function = language, function
        self._name = str(function.attrs["global_symbol"])
        self._names: dict[Any, str] = {}
        """Variables and arrays, those in memory by their pointers, with their names in the text."""
        self._pointers: dict[Any, Any] = {}
        self._scopes: list[set[str]] = [set()]
        self._scalars: set[Any] = set()
        self._memory: set[Any] = set()
        self._stores: Counter[Any] = Counter()
        self._threads: dict[str, Any] = {}
        self._block, self._blocks = 1, 0
        self._lines: list[str] = []

    def print(self) -> tuple[str, tuple[Parameter, ...]]:
        """The kernel's text, and its parameters in order. Raises Unwritable."""
        self._survey()
        parameters = tuple(self._parameters())
        if sum(p.array for p in parameters) > (most := self._language.most_arrays):
            raise Unwritable(f"a kernel would read and write more than {most} arrays")
        self._statement(self._function.body, 1)
        head = self._language.head(self._name, self._block, parameters)
        return "\n".join([*head, *self._lines, "}"]), parameters

    def _survey(self) -> None:
        """Find the pointer of each array that is given, and count what is stored in each."""
        body = self._function.body
        stored: list[Any] = []

        def declared(node: Any) -> None:
            data = node.data
            self._pointers[node.buffer] = data.args[0] if isinstance(data, Call) else data

        tvm_ffi.structural_walk(
            body,
            [(tirx.DeclBuffer, declared), (tirx.BufferStore, lambda n: stored.append(n.buffer))],
            order="post",
        )
        self._stores.update(map(self._array, stored))

    def _array(self, buffer: Any) -> Any:
        """What stands for an array, whatever shape it is seen under."""
        while buffer in self._pointers:
            buffer = self._pointers[buffer]
        return buffer

    def _parameters(self) -> list[Parameter]:
        scalars = [p for p in self._function.params if not _pointee(p)]
        for p in scalars:  # these keep their names, which the extents of grids hold too
            self._names[p] = str(p.name)
            self._scopes[0].add(str(p.name))
        found: list[Parameter] = []
        for p in self._function.params:
            dtype = _pointee(p)
            if dtype is None:
                found.append(Parameter(self._names[p], _dtype(p), False))
                continue
            self._memory.add(p)
            base = str(p.name).removesuffix("_ptr")
            name = self._new(p, self._language.array_name(self._name, base))
            found.append(Parameter(name, dtype, True, self._stores[p] > 0))
        return found

    # Statements

    def _statement(self, stmt: Any, depth: int) -> None:
        statements = list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else [stmt]
        skip = False
        for this, following in itertools.zip_longest(statements, statements[1:]):
            skip = not skip and self._one(this, following, depth)

    def _one(self, stmt: Any, following: Any, depth: int) -> bool:
        """Print a statement; whether the one that follows is printed with it."""
        match stmt:
            case tirx.SeqStmt():
                self._statement(stmt, depth)
            case tirx.AttrStmt():
                if stmt.attr_key == "thread_extent":
                    self._bind(str(stmt.node.thread_tag), stmt.node.var, stmt.value)
                self._statement(stmt.body, depth)
            case tirx.DeclBuffer():
                pass  # its pointer has a name already
            case tirx.AllocBuffer():
                return self._allocate(stmt.buffer, following, depth)
            case tirx.BufferStore():
                self._line(depth, self._assignment(stmt))
            case tirx.IfThenElse():
                self._line(depth, f"if ({self._expr(stmt.condition)}) {{")
                self._inner(stmt.then_case, depth)
                if stmt.else_case is not None:
                    self._line(depth, "} else {")
                    self._inner(stmt.else_case, depth)
                self._line(depth, "}")
            case tirx.While():
                self._line(depth, f"while ({self._expr(stmt.condition)}) {{")
                self._inner(stmt.body, depth)
                self._line(depth, "}")
            case tirx.For():
                self._loop(stmt, depth)
            case tirx.Evaluate() if isinstance(stmt.value, tirx.IntImm):
                pass
            case _:
                raise Unwritable(f"no statement of it is a {type(stmt).__name__}")
        return False

    def _assignment(self, stmt: Any) -> str:
        element = self._element(stmt.buffer, stmt.indices)
        if isinstance(stmt.value, tirx.Add) and self._expr(stmt.value.a) == element:
            return f"{element} += {self._expr(stmt.value.b, _BINARY[tirx.Add][1] + 1, True)};"
        value = self._expr(stmt.value, beside=True)
        if self._array(stmt.buffer) in self._memory:
            value = self._language.store(str(stmt.buffer.dtype), value)
        return f"{element} = {value};"

    def _bind(self, tag: str, variable: Any, extent: Any) -> None:
        if tag not in ("blockIdx.x", "threadIdx.x"):
            raise Unwritable(f"its threads are bound to {tag}")
        self._threads[tag] = variable
        if tag == "threadIdx.x":
            self._block = int(extent)
        elif isinstance(extent, tirx.IntImm):
            self._blocks = int(extent)

    def _allocate(self, buffer: Any, following: Any, depth: int) -> bool:
        """Declare an array in registers, with its first value where that comes next."""
        dtype, size = str(buffer.dtype), math.prod(map(int, buffer.shape))
        if size != 1:
            name = self._new(buffer, str(buffer.name))
            self._line(depth, self._language.array(name, dtype, size))
            return False
        self._scalars.add(buffer)
        value = None
        if isinstance(following, tirx.BufferStore) and following.buffer.same_as(buffer):
            value = self._expr(following.value, beside=True)
        constant = value is not None and self._stores[buffer] == 1
        name = self._new(buffer, str(buffer.name))
        self._line(depth, self._language.declare(name, dtype, value, constant))
        return value is not None

    def _loop(self, stmt: Any, depth: int) -> None:
        if stmt.kind != tirx.ForKind.SERIAL or stmt.thread_binding is not None:
            raise Unwritable("a loop of it is not serial")
        start, end = (self._expr(e, beside=True) for e in (stmt.min, stmt.min + stmt.extent))
        self._scopes.append(set())
        base = str(stmt.loop_var.name)
        name = self._new(stmt.loop_var, "k" if base == "v" else base)  # v: nobody has named it
        self._line(depth, self._language.loop(name, _dtype(stmt.loop_var), start, end))
        self._inner(stmt.body, depth)
        self._scopes.pop()
        self._line(depth, "}")

    def _inner(self, stmt: Any, depth: int) -> None:
        self._scopes.append(set())
        self._statement(stmt, depth + 1)
        self._scopes.pop()

    def _line(self, depth: int, text: str) -> None:
        self._lines.append("  " * depth + text)

    def _new(self, variable: Any, wanted: str) -> str:
        """A name for a variable, which no other in sight has."""
        taken = set().union(*self._scopes)
        names = itertools.chain([wanted], (f"{wanted}_{n}" for n in itertools.count(2)))
        name = next(n for n in names if n not in taken)
        self._names[variable] = name
        self._scopes[-1].add(name)
        return name

    # Expressions

    def _expr(self, e: Any, least: int = 0, beside: bool = False) -> str:
        """The text of an expression, in parentheses unless it binds at least as closely; `beside`
        another of its type."""
        text, binds = self._text(e, beside)
        return f"({text})" if binds < least else text

    def _text(self, e: Any, beside: bool) -> Text:
        kind = type(e)
        if kind in _BINARY:
            return self._binary(e)
        match e:
            case tirx.IntImm():
                text = self._language.integer(int(e.value), _dtype(e), beside)
                return text, _UNARY if text[0] in "-(" and not text.endswith(")") else _ATOM
            case tirx.FloatImm():
                return self._real(e), _ATOM if float(e.value) >= 0 else _UNARY
            case tirx.Var() | tirx.Cast() if self._is_thread_of_one_block(e):
                return self._language.thread(_dtype(e), self._block), _UNARY
            case tirx.Var():
                return self._variable(e), _ATOM
            case TensorLoad():
                text = self._element(e.source, e.indices)
                if self._array(e.source) in self._memory:
                    text = self._language.load(_dtype(e), text)
                return text, _BINARY[tirx.NE][1] if " != " in text else _ATOM
            case tirx.Cast():
                return self._cast(e)
            case tirx.Not():
                return f"!{self._expr(e.a, _UNARY)}", _UNARY
            case tirx.Select():
                return self._choice(e.condition, e.true_value, e.false_value)
            case Call():
                return self._call(e)
            case _ if kind in _EXTREMA:
                return f"{_EXTREMA[kind]}({self._expr(e.a)}, {self._expr(e.b)})", _ATOM
            case _ if kind in _BITWISE:
                return f"{self._expr(e.a, _ATOM)} {_BITWISE[kind]} {self._expr(e.b, _ATOM)}", 3
            case _ if kind in _ROUNDED_DOWN:
                name, plain = _ROUNDED_DOWN[kind]
                if _natural(e.a) and _natural(e.b):
                    return self._binary(plain(e.a, e.b))
                return f"{name}({self._expr(e.a)}, {self._expr(e.b)})", _ATOM
            case _:
                raise Unwritable(f"it holds a {kind.__name__}")

    def _binary(self, e: Any) -> Text:
        if self._is_thread(e):
            return self._language.thread(_dtype(e), self._block), _UNARY
        sign, binds = _BINARY[type(e)]
        if self._language.finite and sign == "==" and _is_lowest(e.b):
            sign, binds = (
                "<=",
                _BINARY[tirx.LE][1],
            )  # what a caller gave may be infinite all the same
        if sign in ("&&", "||"):  # some languages want them, and people like them
            sides = (
                self._expr(x, _BINARY[tirx.EQ][1] if type(x) is not type(e) else binds)
                for x in (e.a, e.b)
            )
            return f" {sign} ".join(sides), binds
        literal = isinstance(e.a, tirx.IntImm) and isinstance(e.b, tirx.IntImm)
        left = self._expr(e.a, binds + (binds < _BINARY[tirx.Add][1]), beside=not literal)
        right = self._expr(e.b, binds + 1, beside=not literal)
        if binds == _BINARY[tirx.Mul][1] and sign != "*" and isinstance(e.a, tirx.Mul):
            left = self._expr(e.a, _UNARY)  # (a * b) / c
        return f"{left} {sign} {right}", binds

    def _is_thread(self, e: Any) -> bool:
        """Whether it is block * threads + thread."""
        if not (isinstance(e, tirx.Add) and isinstance(e.a, tirx.Mul) and len(self._threads) == 2):
            return False
        block, thread = self._threads["blockIdx.x"], self._threads["threadIdx.x"]
        parts = [x.value if isinstance(x, tirx.Cast) else x for x in (e.a.a, e.b)]
        count = isinstance(e.a.b, tirx.IntImm) and int(e.a.b.value) == self._block
        return count and parts[0].same_as(block) and parts[1].same_as(thread)

    def _is_thread_of_one_block(self, e: Any) -> bool:
        """Whether it is the number of a thread, where there is no block but the first."""
        thread = self._threads.get("threadIdx.x")
        inner = e.value if isinstance(e, tirx.Cast) else e
        return self._blocks == 1 and thread is not None and inner.same_as(thread)

    def _variable(self, e: Any) -> str:
        if e not in self._names:
            raise Unwritable(f"it reads {e.name} in another way than for the number of a thread")
        return self._names[e]

    def _real(self, e: Any) -> str:
        if _dtype(e) != "float32":
            raise Unwritable(f"{self._language.title} has no {_dtype(e)} here")
        return self._language.real(float(e.value))

    def _element(self, buffer: Any, indices: Any) -> str:
        if len(indices) != 1:
            raise Unwritable("an array of it is not flat")
        name = self._names[self._array(buffer)]
        return name if buffer in self._scalars else f"{name}[{self._expr(indices[0])}]"

    def _cast(self, e: Any) -> Text:
        wanted, given = _dtype(e), _dtype(e.value)
        if self._language.type(wanted) == self._language.type(given):
            return self._text(e.value, False)
        return self._language.cast(wanted, self._expr(e.value, _UNARY)), _UNARY

    def _choice(self, condition: Any, yes: Any, no: Any) -> Text:
        if not self._language.ternary:
            return f"select({self._expr(no)}, {self._expr(yes)}, {self._expr(condition)})", _ATOM
        text = (
            f"{self._expr(condition, _TERNARY + 1)} ? {self._expr(yes, _TERNARY + 1)}"
            f" : {self._expr(no, _TERNARY)}"
        )
        return text, _TERNARY

    def _call(self, e: Any) -> Text:
        name = str(getattr(e.op, "name", e.op)).rpartition(".")[2]
        if name == "reinterpret":
            return self._language.bits(_dtype(e), self._expr(e.args[0])), _ATOM
        if name == "if_then_else":
            return self._choice(*e.args)
        if name not in self._language.functions:
            raise Unwritable(f"{self._language.title} has no {name} here")
        arguments = ", ".join(self._expr(x) for x in e.args)
        return f"{self._language.functions[name]}({arguments})", _ATOM


def _dtype(e: Any) -> str:
    return str(e.ty.dtype)


def _pointee(parameter: Any) -> str | None:
    """The element type of a pointer; None of a number."""
    element = getattr(parameter.ty, "element_type", None)
    return None if element is None else str(element.dtype)


def _is_lowest(e: Any) -> bool:
    return isinstance(e, tirx.FloatImm) and float(e.value) == -math.inf


def _natural(e: Any) -> bool:
    """Whether an expression of sizes is never negative, by its form."""
    if isinstance(e, tirx.IntImm):
        return int(e.value) >= 0
    if isinstance(e, tirx.Add | tirx.Mul | tirx.Min | tirx.Max | tirx.FloorDiv | tirx.FloorMod):
        return _natural(e.a) and _natural(e.b)
    return isinstance(e, tirx.Var)
