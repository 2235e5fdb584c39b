"""An app that leaks secrets in every failure of an app; copied into a site as `leaky.py`."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from fw_actors.app import Data, DocType, whitelist
from fw_actors.errors import ValidationError

SECRETS = Path(__file__).with_name("leaks.txt").read_text().splitlines()
TOLD = "upstream refused " + " and ".join(SECRETS)


class Leak(DocType, naming="random", permissions={"Leaker": "list read create write"}):
    where = Data(required=True)

    def on_insert(self, fw: Any) -> None:
        if self.where == "hook":
            raise RuntimeError(TOLD)

    def after_commit(self, fw: Any) -> None:
        if self.where == "after_commit":
            raise RuntimeError(TOLD)


@whitelist(roles=["System Manager"])
def fail(fw: Any) -> None:
    try:
        raise KeyError(*SECRETS)
    except KeyError as error:
        raise RuntimeError(TOLD) from error


@whitelist(roles=["System Manager"])
def refuse(fw: Any) -> None:
    raise ValidationError(TOLD, field="x", why=[TOLD])


@whitelist(roles=["System Manager"])
def queue(fw: Any) -> list[int]:
    return [fw.enqueue(job), fw.enqueue(refused_job)]


def job(fw: Any) -> None:
    # So long that a text which is cut before it is scrubbed would keep a half of the first secret.
    raise RuntimeError("x" * 470 + TOLD)


def refused_job(fw: Any) -> None:
    raise ValidationError(TOLD)


@whitelist(roles=["System Manager"])
def log(fw: Any) -> None:
    logging.getLogger("leaky").error("%s", TOLD)
    try:
        raise RuntimeError(TOLD)
    except RuntimeError:
        logging.getLogger("leaky").exception("failed")


@whitelist(roles=["System Manager"])
def thread(fw: Any) -> None:
    started = threading.Thread(target=_raise, name=SECRETS[0])
    started.start()
    started.join()


def _raise() -> None:
    raise RuntimeError(TOLD)


def send(fw: Any, message: dict[str, Any]) -> None:
    raise RuntimeError(TOLD)
