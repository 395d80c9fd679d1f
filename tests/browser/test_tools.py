"""The tools of the other tests here: they must be able to fail."""

from __future__ import annotations

import pytest

from tests.browser.conftest import OpenPage, Picture

GOOD = "<html lang=en><title>Good</title><main><h1>Good</h1><label>Name <input></label></main>"
BAD = "<html lang=en><title>Bad</title><main><h1>Bad</h1><input></main>"


def test_axe_sees_a_missing_label(open_page: OpenPage, axe: object, picture: Picture) -> None:
    assert callable(axe)
    page = open_page()
    page.set_content(GOOD)
    axe(page)
    page.set_content(BAD)
    with pytest.raises(AssertionError, match="label"):
        axe(page)
    assert picture(page, "tools").stat().st_size > 1000
