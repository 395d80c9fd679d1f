"""One node alone is on top, and a better mark never gets a worse score."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from extender.scoring.ladder import TOP, ladder

marks = st.lists(st.just(-np.inf) | st.integers(-5, 5).map(float), max_size=30)


@given(values=marks, seed=st.integers(0, 99))
def test_the_top_is_unique_and_the_order_is_kept(values: list[float], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(values))
    scores = ladder(np.array(values), order)
    fitting = [i for i, value in enumerate(values) if value > -np.inf]
    assert all(scores[i] == 0 for i in range(len(values)) if i not in fitting)
    assert sum(score == TOP for score in scores) == bool(fitting)
    if fitting:
        top = scores.index(TOP)
        best = [i for i in fitting if values[i] == max(values)]
        assert top == min(best, key=lambda i: order[i])
        for one in fitting:
            for other in fitting:
                if values[one] < values[other]:
                    assert scores[one] <= scores[other]
                elif values[one] == values[other] and top not in (one, other):
                    assert scores[one] == scores[other]
