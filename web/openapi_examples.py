"""Examples of requests, for the OpenAPI document: by the struct of a body, and by DocType."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_DELIVERY: Final = "msg_0ERY3MdDymCD6voUNaEJ865OlxR"
_WEBHOOK: Final = "3f9c1a7b2e"
_RUN: Final = "9a4e2f10c7d35b680f1e2d3c"
_VERSION: Final = "2026-01-02T03:04:05.678Z"
_PASSWORD: Final = "a passphrase of four words"
_TOKEN: Final = "the text after #token= in the link"

BODIES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "NoArguments": {},
        "SignInRequest": {"usr": "ada@example.org", "pwd": _PASSWORD},
        "ForgotPasswordRequest": {"usr": "ada@example.org"},
        "TokenRequest": {"token": _TOKEN},
        "ResetPasswordRequest": {"token": _TOKEN, "password": _PASSWORD},
        "AcceptInviteRequest": {"token": _TOKEN, "password": _PASSWORD, "fullName": "Ada Byron"},
        "ProfileRequest": {"fullName": "Ada Byron", "language": "en"},
        "PasswordRequest": {"current": _PASSWORD, "password": "another decent passphrase"},
        "HandleRequest": {"id": "b7c1f2a9"},
        "KeyRequest": {"label": "billing", "days": 90},
        "KeyNameRequest": {"name": "fwk_4f8sK2mPq9Zx"},
        "InviteRequest": {
            "email": "ida@example.org",
            "name": "ida",
            "fullName": "Ida Rhodes",
            "roles": ["Event Publisher"],
        },
        "UserRequest": {"user": "ida"},
        "RevokeSessionsRequest": {"user": "ida", "keys": True},
        "VersionRequest": {"modified": _VERSION},
        "RenameRequest": {"name": "Minutes 2026"},
        "EmitRequest": {
            "name": "order.paid",
            "data": {"order": "SO-00001", "total": 12.5},
            "options": {
                "key": "SO-00001",
                "reference": {"doctype": "Sales Order", "name": "SO-00001"},
            },
        },
        "EmitManyRequest": {
            "events": [
                {"name": "order.paid", "data": {"order": f"SO-0000{n}"}, "options": {"key": str(n)}}
                for n in (1, 2)
            ]
        },
        "ReplayRequest": {"delivery": _DELIVERY},
        "ReplayManyRequest": {
            "filters": [["status", "=", "Failed"], ["creation", ">", "2026-01-02T03:04:05.678Z"]]
        },
        "ProgressRequest": {"run": _RUN},
        "AttemptsRequest": {"webhook": _WEBHOOK, "result": "failed", "limit": 50},
        "ExplainRequest": {"delivery": _DELIVERY},
        "CancelDeliveryRequest": {"delivery": _DELIVERY},
        "EraseRequest": {"delivery": _DELIVERY},
        "RotateRequest": {"webhook": _WEBHOOK, "overlap": 24},
        "TestRequest": {"webhook": _WEBHOOK},
        "PauseRequest": {"webhook": _WEBHOOK, "seconds": 3600},
        "ResumeRequest": {"webhook": _WEBHOOK},
        "ListJobsRequest": {"queue": "mail", "limit": 50},
        "JobRequest": {"job": 17},
        "MatchingJobsRequest": {"queue": "mail"},
        "ReceiverRequest": {"receiver": "https://receiver.example:443"},
        "ActorRequest": {"actor": "dispatcher"},
    }
)
"""Each fits the struct of its name."""

DOCUMENTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "Webhook": {
            "title": "Orders to billing",
            "url": "https://receiver.example/orders",
            "event_type": "Custom",
            "custom_event": "order.paid",
            "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        },
        "User": {
            "name": "ida",
            "email": "ida@example.org",
            "fullName": "Ida Rhodes",
            "roles": [{"role": "Event Publisher"}],
        },
        "Role": {"name": "Clerk"},
    }
)
"""New documents of built-in DocTypes."""

PARAMETERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "doctype": "Webhook",
        "name": "3f9c1a7b2e",
        "modified": _VERSION,
        "fields": '["name", "modified"]',  # what every DocType has
        "filters": '[["creation", ">", "2026-01-02T03:04:05.678Z"]]',
        "order_by": "creation desc",
        "limit": 20,
        "start": 0,
        "path": "shop.orders.close_order",
        "delivery": _DELIVERY,
        "run": _RUN,
        "webhook": _WEBHOOK,
        "result": "failed",
        "responseStatus": 503,
        "error": "did not answer",
        "since": "2026-01-02T03:04:05.678Z",
        "until": "2026-01-03T03:04:05.678Z",
        "before": f"1767323045678.1.{_DELIVERY}",
        "jobs.list.get before": 4711,
        "queue": "mail",
        "state": "failed",
        "function": "recovery",
        "user": "ida",
    }
)
