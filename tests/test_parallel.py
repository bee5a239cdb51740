"""Work side by side: all of it is done, BLAS has one thread meanwhile, and its own afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tfgraph.parallel
from tfgraph.parallel import one_blas_thread, side_by_side

FOUND = tfgraph.parallel._openblas()


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfgraph.parallel, "default_threads", lambda: 2)


@pytest.mark.usefixtures("two_cores")
def test_results_come_in_order_and_from_several_threads() -> None:
    if FOUND is None:
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    meet = threading.Barrier(2, timeout=30)  # both are under way at once, or it breaks
    with side_by_side(5) as each:
        assert each(lambda i: (meet.wait(), i)[1], range(4)) == [0, 1, 2, 3]
        with pytest.raises(ZeroDivisionError):
            each(lambda i: 1 // i, [1, 0, 2])
        assert each(str, []) == []


def test_one_at_a_time_where_blas_keeps_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfgraph.parallel, "_openblas", lambda: None)
    with side_by_side(5) as each:
        assert set(each(lambda _: threading.get_ident(), range(4))) == {threading.get_ident()}


def test_blas_gets_its_threads_back() -> None:
    """Those of NumPy's wheel are found: else compiling is slow and nothing says so."""
    assert FOUND is not None or "openblas" not in str(np.show_config("dicts"))
    if FOUND is None:
        return
    count, use = FOUND
    before = count()
    use(2)
    try:
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            assert 1 / (count() - 1)
        assert count() == 2
        with one_blas_thread():
            with one_blas_thread():
                pass
            assert count() == 1, "whoever leaves first leaves the other's alone"
        assert count() == 2
    finally:
        use(before)
