"""Access scopes: the documents that a user is limited to. Source: spec, Webhook rule 3."""

from __future__ import annotations

from fw_actors.documents.document import DocType
from fw_actors.documents.fields import Data, Link


class UserPermission(DocType, name="User Permission", naming="random"):
    """One document that a user may see. Rows of one user and DocType add up.

    A user with any row is scoped: of each DocType in `allow`, and of documents that link to it,
    only what the rows name is within reach; Webhook and Webhook Delivery are out of reach.
    """

    unique_together = (("allow", "for_value", "user"),)

    user = Link(options="User", required=True)
    allow = Data(required=True)
    for_value = Data(required=True)
