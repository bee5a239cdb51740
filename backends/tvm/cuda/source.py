"""TVM's CUDA C as a file that people read: a header, each kernel under a comment that says what it
computes and which lines of the graph it runs, no declarations, no preamble but what is used.

May import: nothing of ours but statements, kernel, launch and arch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfgraph.backends.tvm.cuda.arch import CudaArch
from tfgraph.backends.tvm.cuda.kernel import REMARK
from tfgraph.backends.tvm.cuda.launch import Kernel
from tfgraph.backends.tvm.cuda.prelude import prelude
from tfgraph.backends.tvm.cuda.statements import WIDTH, rewrite

_SIGNATURE = re.compile(
    r'extern "C" __global__ void __launch_bounds__\((?P<threads>\d+)\) '
    r"(?P<name>\w+)\((?P<parameters>[^;{]*?)\)\s*"
    r"(?:;|\{\n(?P<body>.*?)^\}$)",
    re.MULTILINE | re.DOTALL,
)
_WRITES = re.compile(r"^ *[\w<>]+\(\(&\((\w+)\[")
"""A call whose first argument is an address: there functions of the prelude write."""
_UNUSED = (
    # A part of TVM's preamble, and what has to occur in the code for it to be of use.
    (r"#if defined\(__CUDA_ARCH__\) && \(__CUDA_ARCH__ < 700\)\n.*?#endif\n", r"$^"),
    (r"#if \(\(\(__CUDACC_VER_MAJOR__ == 11\).*?#endif\n", "TVM_ENABLE_L2_PREFETCH"),
    (r"#ifdef _WIN32\n.*?#endif\n", r"\buint\b|\buchar\b|\bushort\b"),
    (r"  #include <cuda/std/type_traits>\n  namespace std \{\n.*?\n  \}\n", "std::"),
    (
        r"  // NVRTC uses asm.*?#define __asm__ .*?#define __volatile__ .*?#endif\n",
        "__asm__|volatile",
    ),
    (r"  #include <type_traits>\n", "std::"),
    (r"  #include <cuda\.h>\n", r"\bCU|\bcu[A-Z]|std::"),
)
_NARROW = (
    # TVM's preamble for floats of 16 bits, to its end; and what is left of it, by what occurs in
    # the code: kernels compute in float32.
    re.compile(
        r"#if !defined\(__CUDA_ARCH__\) \|\| \(__CUDA_ARCH__ >= (?:530|800)\)\n#include <cuda_"
        r".*?(?=#if \(\(\(__CUDACC_VER_MAJOR__ == 11\) && \(__CUDACC_VER_MINOR__ >= 4)",
        re.DOTALL,
    ),
    {
        r"\bhalf\b": "#include <cuda_fp16.h>",
        r"\bnv_bfloat16\b": "#include <cuda_bf16.h>",
        "CUDART_": "#include <math_constants.h>",
    },
)


def readable(
    code: str,
    archs: Sequence[CudaArch],
    kernels: Sequence[Kernel],
    comments: Mapping[str, Sequence[str]],
) -> tuple[str, list[Kernel]]:
    """The same program for people, and its kernels with the parameters' names in it.

    `comments` has lines to put above the kernels of a PrimFunc, by its name.
    """
    known = {kernel.name: kernel for kernel in kernels}

    def define(match: re.Match[str]) -> str:
        if match["body"] is None:
            return ""
        kernel, text = _definition(match, known[match["name"]])
        known[match["name"]] = kernel
        comment = [f"// {line}".rstrip() for line in comments.get(kernel.function, ())]
        return "\n".join([*comment, text])

    at = code.index('extern "C"')
    definitions = _SIGNATURE.sub(define, code[at:]).strip()
    narrow, headers = _NARROW
    used = [f"{line}\n" for word, line in headers.items() if re.search(word, definitions)]
    preamble = narrow.sub("".join(used), code[:at])
    for part, user in _UNUSED:
        if not re.search(user, definitions):
            preamble = re.sub(part, "", preamble, flags=re.DOTALL)
    found = [known[kernel.name] for kernel in kernels]
    parts = [_header(archs, found), preamble.strip(), prelude(definitions), definitions]
    text = "\n\n".join(filter(None, parts))
    return re.sub(r"\n{3,}", "\n\n", text) + "\n", found


def _definition(match: re.Match[str], kernel: Kernel) -> tuple[Kernel, str]:
    """One kernel, with the names of its arrays in place of those of their pointers."""
    code = re.sub(rf"^ *{REMARK}.*$", "", match[0], flags=re.MULTILINE)
    names = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code))
    plain = {name: re.sub(r"_ptr(_\d+)?$", r"\1", name) for name in names}
    renamed = {name: new for name, new in plain.items() if new and new not in names}

    def rename(text: str) -> str:
        return re.sub(r"\w+", lambda m: renamed.get(m[0], m[0]), text)

    kernel = replace(kernel, parameters=tuple((rename(n), t) for n, t in kernel.parameters))
    parameters = [item.strip() for item in rename(match["parameters"]).split(",")]
    body = rename(match["body"]).splitlines()
    typed = [(re.split(r"[* ]", item)[0], item.split()[-1]) for item in parameters]
    assigned = [line.partition(" = ")[0] for line in body if " = " in line and REMARK not in line]
    written = {name for target in assigned for name in re.findall(r"\w+", target.partition("[")[0])}
    written |= {call[1] for line in body if (call := _WRITES.match(line))}
    parameters = [
        f"const {item}" if "*" in item and name not in written else item
        for item, (_, name) in zip(parameters, typed, strict=True)
    ]
    lines = rewrite(typed, body)
    # 1 block a multiprocessor is enough: left to itself, ptxas spills registers to fit more.
    head = f'extern "C" __launch_bounds__({match["threads"]}, 1) __global__ void'
    return kernel, "\n".join([head, _signature(kernel.name, parameters), *lines, "}"])


def _signature(name: str, parameters: Sequence[str]) -> str:
    line = f"{name}({', '.join(parameters)}) {{"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n    " + ",\n    ".join(parameters) + ") {"


def _header(archs: Sequence[CudaArch], kernels: Sequence[Kernel]) -> str:
    named = ", ".join(f"{arch.name} ({arch.generation})" for arch in archs)
    lines = [
        f"CUDA C generated by tfgraph for {named}.",
        "",
        "Kernels, with the extents of the grid and of the block:",
    ]
    for kernel in kernels:
        grid = ", ".join(_without_ones(kernel.grid))
        block = ", ".join(_without_ones(tuple(map(str, kernel.block))))
        when = f"  if {kernel.when}" if kernel.when else ""
        lines.append(f"  {kernel.name}  [{grid}] x [{block}]{when}")
    lines += ["", "First come the integer types, for nvcc and for NVRTC."]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _without_ones(extents: Sequence[str]) -> list[str]:
    """Extents without the ones at the end, at least the first."""
    kept = list(extents)
    while len(kept) > 1 and kept[-1] == "1":
        kept.pop()
    return kept
