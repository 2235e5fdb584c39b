"""An API key as its owner and a System Manager see it. Its secret's hash rests elsewhere."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data, Link
from fw_actors.documents.time_fields import Datetime


class APIKey(DocType, name="API Key", naming="given"):
    """Made by `core.services.api_keys.createMyAPIKey` alone; its name is the key's public part.

    A System Manager may delete one, which ends it at once.
    """

    user = Link(options="User", required=True, read_only=True)
    label = Data(required=True, read_only=True)
    expires = Datetime(read_only=True)
    last_used = Datetime(read_only=True)
