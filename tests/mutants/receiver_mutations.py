"""Faults of what a Webhook's owner controls, of troubles of receivers, and of outgoing requests."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

RECEIVERS: Final = (
    Mutation(
        "two processes tell of one dead receiver twice",
        "fw_actors/webhooks/receiver_notices.py",
        "if not self._take(fw.tx, TroubleAct.NOTICE, found, since):",
        "if self._take(fw.tx, TroubleAct.NOTICE, found, since) is None:",
        "tests/fw_actors/webhooks/test_receiver_notices.py",
    ),
    Mutation(
        "a failing Webhook is told of itself",
        "fw_actors/webhooks/custom_events.py",
        "if each.webhook != skipped",
        "if each.webhook != ''",
        "tests/fw_actors/webhooks/test_receiver_notices.py",
    ),
    Mutation(
        "each claim has the whole rate of a Webhook",
        "fw_actors/webhooks/pacing.py",
        "until=allowance.used_after(found.leased)",
        "until=allowance.used_after(0)",
        "tests/fw_actors/webhooks/test_rate_limit.py",
    ),
    Mutation(
        "a document has two deliveries in flight",
        "fw_actors/store/ordered_jobs.py",
        "if first][: limit - leased]",
        "][: limit - leased]",
        "tests/fw_actors/webhooks/test_ordering.py",
    ),
    Mutation(
        "the next delivery of a document is never released",
        "fw_actors/store/ordered_jobs.py",
        "        return tx.run(_RELEASE, given=rows_as_json(given), now=tx.now)\n    return sum(",
        "        return 0\n    return sum(",
        "tests/fw_actors/webhooks/test_ordering.py",
    ),
    Mutation(
        "a paused Webhook is sent to",
        "fw_actors/webhooks/claims.py",
        "hook.paused_until > tx.now:",
        "hook.paused_until < 0:",
        "tests/fw_actors/webhooks/test_pauses.py",
    ),
    Mutation(
        "an old secret signs for ever",
        "fw_actors/webhooks/signing_keys.py",
        " or now >= hook.old_until:",
        ":",
        "tests/fw_actors/webhooks/test_rotation.py",
    ),
    Mutation(
        "an erased delivery keeps what the receiver answered",
        "fw_actors/webhooks/erasure.py",
        "        forget_answers(tx, deliveries)\n",
        "        pass\n",
        "tests/fw_actors/webhooks/test_erasure.py",
    ),
    Mutation(
        "a connection is shared whatever certificate it has shown",
        "fw_actors/http/url.py",
        "            route = route._replace(certificate=self.certificate)\n",
        "            pass\n",
        "tests/fw_actors/http/test_client_certificates.py",
    ),
    Mutation(
        "a name may lead to a link-local address",
        "fw_actors/http/dial.py",
        "        allowed = self._allowed(origin, addresses)\n",
        "        allowed = addresses\n",
        "tests/fw_actors/http/test_dial.py",
    ),
    Mutation(
        "an overlap does not begin",
        "fw_actors/webhooks/signing_keys.py",
        "if hook.old_secret is None or",
        "if hook.old_secret is not None or",
    ),
    Mutation(
        "what is in progress is erased",
        "fw_actors/webhooks/erasure.py",
        "    if status not in FINAL:\n",
        "    if False:\n",
    ),
    Mutation(
        "what was erased is sent again",
        "fw_actors/webhooks/replay.py",
        "        if erased is not None:\n",
        "        if False:\n",
    ),
    Mutation(
        "who may not erase leaves no Audit Event",
        "fw_actors/webhooks/erasure.py",
        "        audit.deny(fw, delivery)\n",
        "        pass\n",
    ),
    Mutation(
        "a claim looks at the free slots alone, and not at the rate",
        "fw_actors/webhooks/pacing.py",
        "most = min(free, allowance.requests)",
        "most = free",
    ),
    Mutation(
        "the deliveries of a document are claimed in any order",
        "fw_actors/store/ordered_jobs.py",
        "and_(not_(_begun(JOB)), behind_earlier)",
        "and_(_begun(JOB), behind_earlier)",
    ),
    Mutation(
        "to resume a Webhook does not end its pause",
        "fw_actors/webhooks/pacing.py",
        "        _write(fw.tx, WebhookPause(webhook))\n",
        "        _write(fw.tx, before)\n",
        "tests/fw_actors/webhooks/test_pauses.py",
    ),
    Mutation(
        "nobody is told of a new device",
        "fw_actors/access/sessions.py",
        "        return bool(known)\n",
        "        return False\n",
    ),
    Mutation(
        "a Webhook that failures have disabled stays enabled",
        "fw_actors/webhooks/receiver_notices.py",
        "doc.__dict__.update(enabled=0, ",
        "doc.__dict__.update(",
        "tests/fw_actors/webhooks/test_receiver_notices.py",
    ),
    Mutation(
        "nobody is told by mail that a Webhook was disabled",
        "fw_actors/webhooks/receiver_notices.py",
        "        self._mail(fw, Template.WEBHOOK_DISABLED, found, since)\n",
        "",
    ),
    Mutation(
        "bodies are kept for as long as their deliveries",
        "fw_actors/webhooks/erasure.py",
        "    if days == 0:\n",
        "    if days >= 0:\n",
        "tests/fw_actors/webhooks/test_erasure.py",
    ),
    Mutation(
        "this machine may be sent to by its public address",
        "fw_actors/http/dial.py",
        "            self._refuse_own_machine(origin, sock)\n",
        "            pass\n",
        "tests/fw_actors/http/test_dial.py",
    ),
    Mutation(
        "an IPv6 form of a private IPv4 address is public",
        "fw_actors/rules/outgoing.py",
        "    return address.ipv4_mapped or address.sixtofour or address\n",
        "    return address\n",
        "tests/fw_actors/rules/test_outgoing.py",
    ),
    Mutation(
        "a proxy is given an address that the policy denies",
        "fw_actors/http/dial.py",
        "            self._allowed(origin, await self._addresses(origin))\n",
        "            pass\n",
        "tests/fw_actors/http/test_proxy.py",
    ),
    Mutation(
        "connections go past the proxy",
        "fw_actors/http/dial.py",
        "if self._proxy is not None and self._proxy.carries(origin.host):",
        "if self._proxy is not None and not self._proxy.carries(origin.host):",
        "tests/fw_actors/http/test_proxy.py",
    ),
    Mutation(
        "no client certificate is shown",
        "fw_actors/http/dial.py",
        "        if origin.certificate:\n",
        "        if False:\n",
        "tests/fw_actors/http/test_client_certificates.py",
    ),
)
