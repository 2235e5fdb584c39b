"""`ops.processes`: how many, and what part of the limits each has (O-42, O-43)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fw_actors.config import Config, ProcessPlace, load
from fw_actors.errors import ConfigurationError


def config_of(folder: Path, **sections: dict[str, object]) -> Config:
    (folder / "fw.json").write_text(json.dumps(sections))
    return load({}, folder)


@pytest.mark.parametrize("total", [1, 3, 16, 512])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_process_shares_add_up_to_the_limit(total: int, count: int) -> None:
    parts = [ProcessPlace(number + 1, count).share(total) for number in range(count)]
    assert sum(parts) == max(total, count)
    assert max(parts) - min(parts) <= 1


def test_process_count_is_one_by_default(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert config.processes == 1
    assert config.for_process(config.place) == config


def test_process_configuration_has_its_share_of_the_limits(tmp_path: Path) -> None:
    """B-235."""
    config = config_of(
        tmp_path,
        web={"maxRequests": 100},
        ops={"processes": 3, "deliveryConcurrency": 10, "perReceiverConcurrency": 4},
    )
    own = [config.for_process(ProcessPlace(number, 3)) for number in (1, 2, 3)]
    assert [each.place.number for each in own] == [1, 2, 3]
    assert [each.web.max_requests for each in own] == [34, 33, 33]
    assert [each.ops.delivery_concurrency for each in own] == [4, 3, 3]
    assert [each.ops.per_receiver_concurrency for each in own] == [2, 1, 1]


@pytest.mark.parametrize(
    "limits",
    [
        {"web": {"maxRequests": 2}},
        {"ops": {"deliveryConcurrency": 2}},
        {"ops": {"perReceiverConcurrency": 2}},
    ],
)
def test_process_count_above_a_limit_is_refused(
    tmp_path: Path, limits: dict[str, dict[str, object]]
) -> None:
    sections = {**limits, "ops": {**limits.get("ops", {}), "processes": 3}}
    with pytest.raises(ConfigurationError) as refused:
        config_of(tmp_path, **sections)
    [problem] = refused.value.problems
    [(section, keys)] = limits.items()
    [name] = keys
    assert f"ops.processes must not exceed {section}.{name}, which the processes share" in problem
    assert problem.endswith("3 is more than 2")
    sections["ops"]["processes"] = 2
    assert config_of(tmp_path, **sections).processes == 2


def test_process_count_auto_is_the_cores_within_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert config_of(tmp_path, ops={"processes": "auto"}).processes == 8
    few = {"processes": "auto", "perReceiverConcurrency": 3}
    assert config_of(tmp_path, ops=few).processes == 3


@pytest.mark.parametrize("value", [0, 65, -1, 1.5, True, None, "2", "all"])
def test_process_count_refuses_other_values(tmp_path: Path, value: object) -> None:
    """C-43."""
    with pytest.raises(ConfigurationError) as refused:
        config_of(tmp_path, ops={"processes": value})
    assert 'ops.processes must be a whole number from 1 to 64, or "auto"' in str(refused.value)
