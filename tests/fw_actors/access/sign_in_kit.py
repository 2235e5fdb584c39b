"""Sign-ins of tests, without actors."""

from __future__ import annotations

from typing import Any

from fw_actors.access.passwords import PasswordChanges
from fw_actors.access.sign_in import Admitted, SignedIn, SignIn, SignInAttempt, Throttled
from fw_actors.actors.lockout import AttemptLog
from fw_actors.actors.metrics import Counter as Outcomes
from fw_actors.errors import FwError, TooManyRequestsError
from fw_actors.hashing import Hasher
from tests.accounts_kit import PASSWORD
from tests.fw_actors.virtual_site_kit import VirtualSite
from tests.mail_kit import RecordingLog
from tests.site_kit import dependencies_of


class SignInClient:
    """Signs in by the use case, without the front end and the actors."""

    def __init__(self, site: VirtualSite, hasher: Hasher | None = None) -> None:
        opened = site.site
        self.site = site
        self.hasher = hasher or opened.hasher
        self.sign_in = SignIn(dependencies_of(opened, self.hasher))
        self.changes = PasswordChanges(dependencies_of(opened, self.hasher), opened.passwords)
        self.log = RecordingLog()
        self.attempt_log = AttemptLog(Outcomes(()), self.log)

    async def admit(self, usr: str, pwd: str = "wrong", **given: Any) -> Admitted | FwError:
        attempt = make_attempt(usr, pwd, **given)
        admitted = await self.sign_in.admit(self.sign_in.identify(attempt))
        return admitted if isinstance(admitted, Admitted) else TooManyRequestsError(admitted.wait)

    async def enter(
        self, usr: str = "ada", pwd: str = PASSWORD, **given: Any
    ) -> SignedIn | FwError:
        attempt = make_attempt(usr, pwd, **given)
        admitted = await self.sign_in.admit(self.sign_in.identify(attempt))
        if isinstance(admitted, Throttled):
            return TooManyRequestsError(admitted.wait)
        return await self.sign_in.verify(attempt, admitted)

    async def result_of(self, *args: str, **given: Any) -> str | int:
        """Return the user that is signed in, the seconds to wait of a 429, or 401."""
        answer = await self.enter(*args, **given)
        if isinstance(answer, SignedIn):
            return answer.user
        return answer.retry_after if isinstance(answer, TooManyRequestsError) else answer.status


def make_attempt(
    usr: str, pwd: str, address: str = "192.0.2.1", old_sid: str | None = None
) -> SignInAttempt:
    return SignInAttempt(usr, pwd, address, "a browser", old_sid, "request")
