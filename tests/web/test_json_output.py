"""What responses contain is JSON in UTF-8 (H-10)."""

from __future__ import annotations

import pytest

from web.response import encode


def test_encode_writes_text_as_utf_8() -> None:
    assert encode({"a": "ü☃"}) == '{"a":"ü☃"}'.encode()


def test_encode_raises_for_values_without_a_json_form() -> None:
    with pytest.raises(TypeError):
        encode({"a": object()})
