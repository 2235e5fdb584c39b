"""A row and its text are read from one value together, for any content of the text."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from fw_actors.store import FramedRow, FramedRows, StatementError, Tx, read_frames
from tests.fw_actors.store.conftest import OpenStore

TEXTS = {
    1: "plain",
    2: None,
    3: "",
    4: "two\nlines\n",
    5: "é, 😀 and \u2028",
    6: '\n6\n[7,3,"x"]\nabc\n7\n',  # the ends of frames, and a frame of its own
    7: "\\ ' \" \t \x7f",
    8: "x" * 100_000,
}
LABELS = {key: None if key == 3 else f"label {key} \n ' \" \\ é" for key in TEXTS}


class LabelledRow(FramedRow):
    label: str | None


_DECODER = msgspec.json.Decoder(LabelledRow)


def framed(tx: Tx, *, down: bool = False) -> bytes | None:
    """Store the rows; return them as frames."""
    tx.run(sa.text("CREATE TABLE framed (id INTEGER PRIMARY KEY, label TEXT, words TEXT)"))
    table = sa.table("framed", *map(sa.column, ("id", "label", "words")))
    for key, words in TEXTS.items():
        tx.run(sa.insert(table).values(id=key, label=LABELS[key], words=words))
    rows = sa.select(table).order_by(table.c.id.desc() if down else table.c.id).subquery()
    columns = (rows.c.id, sa.cast(rows.c.words, sa.Text), sa.cast(rows.c.label, sa.Text))
    value: bytes | None = tx.scalar(sa.select(FramedRows(*columns)))
    empty = tx.scalar(sa.select(FramedRows(*columns)).where(rows.c.id < 0))
    assert empty is None
    return value


@pytest.mark.parametrize("down", [False, True])
async def test_read_frames_pairs_text_with_row(open_store: OpenStore, down: bool) -> None:
    async with open_store(inline=True) as store:
        value = await store.write(lambda tx: framed(tx, down=down))
    assert value is not None
    found = {row.key: (row.size, row.label, text) for row, text in read_frames(value, _DECODER)}
    assert found == {
        key: (
            None if words is None else len(words.encode()),
            LABELS[key],
            (words or "").encode(),
        )
        for key, words in TEXTS.items()
    }


async def test_read_frames_yields_whole_frames_of_truncated_value(open_store: OpenStore) -> None:
    async with open_store(inline=True) as store:
        value = await store.write(framed)
    assert value is not None
    short = value[: value.index(b"x" * 1000)]
    whole = dict(TEXTS)
    for end in range(len(short)):
        got: dict[int, bytes] = {}
        try:
            for row, text in read_frames(short[:end], _DECODER):
                got[row.key] = text
        except StatementError:
            pass
        else:
            assert end == 0 or short[:end].endswith(b"\n%d\n" % max(got))
        assert all(text == (whole[key] or "").encode() for key, text in got.items())


@pytest.mark.parametrize(
    "value",
    [
        b"[1,1,null]\na\n2\n",  # another row's key
        b"[1,2,null]\na\n1\n",  # a size that is too large
        b"[1,0,null]\na\n1\n",  # too small
        b"[1,null,null]\na\n1\n",
        b"[1,1]\na\n1\n",
        b"[1,1,null]",
        b"[1,1,null]\n",
        b"x",
    ],
)
def test_read_frames_refuses_inconsistent_frame(value: bytes) -> None:
    with pytest.raises(StatementError, match="do not fit together"):
        list(read_frames(value, _DECODER))
