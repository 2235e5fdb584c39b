"""The hour that the console's graphs begin with (O-224)."""

from __future__ import annotations

from fw_actors.actors.console_view import MAX_SAMPLES, ConsoleHistory, ConsoleSample, rates_of


def test_console_history_drops_samples_older_than_an_hour() -> None:
    history = ConsoleHistory()
    for at in range(MAX_SAMPLES + 2):
        history.add(ConsoleSample(at, 0.0, 0, 0, 0.0))
    kept = history.samples()
    assert (len(kept), kept[0].at, kept[-1].at) == (360, 2, MAX_SAMPLES + 1)


def test_rates_of_are_per_second_and_never_negative() -> None:
    assert rates_of((100, 100), (150, 7)) == (5.0, 0.0)
