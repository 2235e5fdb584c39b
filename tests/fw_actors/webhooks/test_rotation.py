"""Rotation of a secret without a gap (B-350 to B-354)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest
import standardwebhooks
import svix.webhooks
import trio
from trio.testing import MockClock

from fw_actors.documents import rest
from fw_actors.documents.fields import iso
from fw_actors.errors import ValidationError
from fw_actors.webhooks.signing_keys import SecretRotation, end_rotation, rotate
from tests.fw_actors.actors.delivery_kit import SECRET, DeliverySite, delivering
from tests.fw_actors.actors.delivery_kit import RecordedPost as Got
from tests.fw_actors.actors.delivery_kit import ScriptedReceiver as Receiver

pytestmark = pytest.mark.usefixtures("on_both_stores")
NEW = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmU="
NEWEST = "whsec_bmV3ZXN0bmV3ZXN0bmV3ZXN0bmV3ZXN0bmV3ZXN0bmU="
HOUR = 3600.0
REFUSALS = (
    standardwebhooks.WebhookVerificationError,
    svix.webhooks.WebhookVerificationError,
)


async def turn(
    post: DeliverySite, name: str, secret: str = NEW, overlap: int = 2
) -> SecretRotation:
    site = post.site
    return await site.write(
        "Administrator", lambda fw: rotate(fw, site.audit, name, secret, overlap)
    )


async def next_post(post: DeliverySite, receiver: Receiver) -> Got:
    [delivery] = await post.emit()
    await post.settled(delivery)
    return receiver.posts[-1]


def verified(got: Got) -> list[str]:
    """Return the secrets with which both official libraries accept a request."""
    return [secret for secret in (SECRET, NEW, NEWEST) if all(_takes(secret, got))]


def _takes(secret: str, got: Got) -> Iterator[bool]:
    now = datetime.fromtimestamp(int(got.headers["webhook-timestamp"]), UTC)
    for library in (standardwebhooks.Webhook, svix.webhooks.Webhook):
        with patch("standardwebhooks.webhooks.datetime", wraps=datetime) as clock:
            clock.now.return_value = now  # the site has a clock of its own
            try:
                library(secret).verify(got.body, got.headers)
            except (
                standardwebhooks.WebhookVerificationError,
                svix.webhooks.WebhookVerificationError,
            ):
                yield False
            else:
                yield True


async def sweep(post: DeliverySite) -> int:
    site = post.site
    return await site.store.write(
        lambda tx: end_rotation(tx, lambda tx: site.handle(tx, "Administrator"), site.audit)
    )


async def audited(post: DeliverySite) -> list[str]:
    rows = await post.site.read(
        "Administrator",
        lambda fw: fw.get_all("Audit Event", [["action", "like", "webhook.%"]], ["action"]),
    )  # fmt: skip
    return [row["action"] for row in rows]


async def test_rotation_signs_with_both_secrets_until_overlap_ends(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The old secret stops signing before any sweep (B-351, B-352)."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name = await post.webhook()
        result = await turn(post, name)
        during = await next_post(post, receiver)
        await post.site.write(  # as if the hours had passed, at a poll each second
            "Administrator",
            lambda fw: fw.db.sql(
                "UPDATE doc_webhook SET old_secret_until = old_secret_until - :by",
                {"by": round((2 * HOUR - 10) * 1000)},
            ),
        )
        late = await next_post(post, receiver)
        await trio.sleep(10)
        after = await next_post(post, receiver)
        swept = [await sweep(post), await sweep(post)]
        hook = await post.site.read("Administrator", lambda fw: rest.read(fw, "Webhook", name))
        actions = await audited(post)
    assert result.webhook == name
    assert [verified(each) for each in (during, late, after)] == [
        [SECRET, NEW],
        [SECRET, NEW],
        [NEW],
    ]
    assert during.headers["webhook-signature"].count(" ") == 1
    assert swept == [1, 0]
    assert (hook["old_secret"], hook["old_secret_until"]) == (None, None)
    assert sorted(actions) == ["webhook.create", "webhook.rotate", "webhook.rotation_end"]


async def test_rotation_without_overlap_ends_old_secret_immediately(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A save of another secret also ends the old one (B-353)."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name = await post.webhook()
        await turn(post, name, overlap=0)
        alone = await next_post(post, receiver)
        await turn(post, name, NEWEST)
        await post.change(name, secret=SECRET)
        saved = await next_post(post, receiver)
    assert [verified(each) for each in (alone, saved)] == [[NEW], [SECRET]]


async def test_secret_is_not_written_alone_during_overlap(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """`db_set` writes one column, so that the old secret would go on signing (B-353)."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name = await post.webhook()

        async def write_alone(secret: str) -> None:
            await post.site.write(
                "Administrator", lambda fw: fw.get_doc("Webhook", name).db_set("secret", secret)
            )

        await write_alone(NEW)
        assert verified(await next_post(post, receiver)) == [NEW]
        await turn(post, name, NEWEST)
        with pytest.raises(ValidationError, match="change secret by save"):
            await write_alone(SECRET)
        assert verified(await next_post(post, receiver)) == [NEW, NEWEST]


async def test_rotation_survives_other_webhook_changes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name = await post.webhook()
        await turn(post, name)
        await post.change(name, timeout=20)
        assert verified(await next_post(post, receiver)) == [SECRET, NEW]


async def test_second_rotation_ends_oldest_secret(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name = await post.webhook()
        await turn(post, name)
        await turn(post, name, NEWEST)
        assert verified(await next_post(post, receiver)) == [NEW, NEWEST]


@pytest.mark.parametrize(
    ("secret", "overlap", "field"),
    [(NEW, 721, "overlap"), (NEW, -1, "overlap"), (SECRET, 1, "secret"), ("", 1, "secret"),
     ("whsec_?", 0, "secret")],
)  # fmt: skip
async def test_rotation_refuses_invalid_values_with_field(
    tmp_path: Path, autojump_clock: MockClock, secret: str, overlap: int, field: str
) -> None:
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        with pytest.raises(ValidationError) as refusal:
            await turn(post, name, secret, overlap)
    assert refusal.value.extra["field"] == field


async def test_rotation_accepts_longest_overlap(tmp_path: Path, autojump_clock: MockClock) -> None:
    """`overlap` is at most 720 hours (B-350)."""
    async with delivering(tmp_path, Receiver(["200"])) as post:
        result = await turn(post, await post.webhook(), overlap=720)
        assert result.old_until == iso(post.site.clock.now() + 720 * 3_600_000)


async def test_rotation_without_overlap_replaces_unreadable_secret(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """One that cannot be decrypted cannot go on signing, and blocks no rotation without it."""
    receiver = Receiver(["200"])
    async with delivering(tmp_path, receiver) as post:
        name = await post.webhook()
        damage = "UPDATE doc_webhook SET secret = 'damaged'"
        await post.site.store.write(lambda tx: tx.raw(damage))
        with pytest.raises(ValidationError, match="Rotate without an overlap") as refusal:
            await turn(post, name, NEW, 1)
        assert refusal.value.extra["field"] == "overlap"
        await turn(post, name, NEW, 0)
        assert verified(await next_post(post, receiver)) == [NEW]


async def test_rotation_seals_and_hides_old_secret(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The old secret cannot be written by HTTP (B-354)."""
    async with delivering(tmp_path, Receiver(["200"])) as post:
        name = await post.webhook()
        await turn(post, name)
        hook = await post.site.read("Administrator", lambda fw: rest.read(fw, "Webhook", name))
        [row] = await post.site.read(
            "Administrator", lambda fw: fw.db.sql("SELECT old_secret FROM doc_webhook")
        )
        with pytest.raises(Exception, match="old_secret"):
            await post.change(name, old_secret="mine")
    assert hook["old_secret"] == {"configured": True}
    assert SECRET not in row["old_secret"]
