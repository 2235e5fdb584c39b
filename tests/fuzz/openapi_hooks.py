"""Hooks that give the fuzzer of the OpenAPI document the DocTypes of a site.

Loaded by Schemathesis, in its own process, by the variable SCHEMATHESIS_HOOKS.
"""

from __future__ import annotations

from typing import Any

import schemathesis

DOCTYPES = ("User", "Role", "Note", "Webhook", "API Key", "Email Delivery", "User Permission")


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> Any:
    """Have most paths name a DocType that there is; the others keep what was made up."""
    if path_parameters and "doctype" in path_parameters:
        made_up = str(path_parameters["doctype"])
        if len(made_up) % 4:
            path_parameters["doctype"] = DOCTYPES[sum(map(ord, made_up)) % len(DOCTYPES)]
    return path_parameters
