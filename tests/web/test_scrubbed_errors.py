"""Errors show no secret of the site, and confirm no guess of one (C-85)."""

from __future__ import annotations

import pytest

from fw_actors.errors import NotFoundError
from fw_actors.rules.safe_output import Scrubber
from tests.web.client import AppClient
from tests.web.fakes import SID, FakeDocuments, FakeGateway, app_of

SECRET = "letmein/99"
GUESSES = [SECRET, "letmeinX99"]


@pytest.fixture
def client(gateway: FakeGateway, documents: FakeDocuments) -> AppClient:
    return AppClient(app_of(gateway, scrubber=Scrubber([SECRET])))


async def test_error_hides_a_secret_that_the_request_does_not_contain(
    client: AppClient, gateway: FakeGateway
) -> None:
    gateway.refuse = NotFoundError(f"The server refused {SECRET}.")
    answer = await client.ask("POST", "/api/resource/Note", {"name": "a"}, sid=SID)
    assert answer.json["error"]["message"] == "The server refused [scrubbed]."


@pytest.mark.parametrize("guess", GUESSES)
async def test_error_repeats_a_guess_in_the_query_whether_it_is_right_or_not(
    client: AppClient, guess: str
) -> None:
    encoded = guess.replace("/", "%2F")
    answer = await client.ask("GET", f"/api/boot?{encoded}=1")
    assert answer.json["error"] == {
        "type": "BadRequestError",
        "message": f"Unknown query parameter '{guess}'.",
        "extra": {"field": guess},
    }


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("form", ["plain", "escaped", "other case"])
async def test_error_repeats_a_guess_in_the_body_whether_it_is_right_or_not(
    client: AppClient, guess: str, form: str
) -> None:
    sent = {
        "plain": guess,
        "escaped": "".join(f"\\u{ord(letter):04x}" for letter in guess),
        "other case": guess.upper(),
    }[form]
    answer = await client.ask("POST", "/api/login", f'{{"usr": "a", "{sent}": 1}}'.encode())
    assert answer.status == 400
    shown = guess.upper() if form == "other case" else guess
    assert answer.json["error"]["extra"] == {"field": shown}


@pytest.mark.parametrize("guess", ["letmein99", "letmeinX99"])
@pytest.mark.parametrize("form", ["plain", "escaped", "absolute"])
async def test_error_repeats_a_guess_in_the_path_whether_it_is_right_or_not(
    gateway: FakeGateway, documents: FakeDocuments, guess: str, form: str
) -> None:
    """A name of a document in the path is part of the request (C-85)."""
    client = AppClient(app_of(gateway, scrubber=Scrubber(["letmein99"])))
    gateway.refuse = NotFoundError(f"There is no Note {guess}.")
    path = f"/api/resource/Note/{guess}"
    target = {
        "plain": path,
        "escaped": path.replace("letm", "%6Cetm"),
        "absolute": f"http://fw.example.test{path}",
    }[form]
    answer = await client.ask("GET", target, sid=SID)
    assert answer.json["error"]["message"] == f"There is no Note {guess}."


async def test_error_cuts_a_long_name_of_the_request(client: AppClient) -> None:
    long = "x" * 2000
    for answer in (
        await client.ask("GET", f"/api/boot?{long}=1"),
        await client.ask("POST", "/api/login", {"usr": "a", long: 1}),
    ):
        assert answer.json["error"]["extra"] == {"field": "x" * 140}
        assert len(answer.body) < 500
