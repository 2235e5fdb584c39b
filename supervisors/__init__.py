"""Supervision: restart strategies, supervisors and their children, and the service's own tree.

The names are imported on use: a command that only checks whether a service runs needs no runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fw_actors.runtime import RestartIntensity
    from supervisors.children import ActorSpec, ChildSpec, actor_child, pool_child, task_child
    from supervisors.strategies import Restart, Strategy
    from supervisors.supervisor import Supervisor, SupervisorFailed, TooManyChildren
    from supervisors.tree import DynamicSupervisor, dynamic_child, open_supervisor, supervisor_child
    from supervisors.workers import worker_pool_child

_MODULES: Final = {
    "ActorSpec": "supervisors.children",
    "ChildSpec": "supervisors.children",
    "DynamicSupervisor": "supervisors.tree",
    "Restart": "supervisors.strategies",
    "RestartIntensity": "fw_actors.runtime",
    "Strategy": "supervisors.strategies",
    "Supervisor": "supervisors.supervisor",
    "SupervisorFailed": "supervisors.supervisor",
    "TooManyChildren": "supervisors.supervisor",
    "actor_child": "supervisors.children",
    "dynamic_child": "supervisors.tree",
    "open_supervisor": "supervisors.tree",
    "pool_child": "supervisors.children",
    "supervisor_child": "supervisors.tree",
    "task_child": "supervisors.children",
    "worker_pool_child": "supervisors.workers",
}


def __getattr__(name: str) -> Any:
    """Import a name of the package at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


__all__ = [
    "ActorSpec",
    "ChildSpec",
    "DynamicSupervisor",
    "Restart",
    "RestartIntensity",
    "Strategy",
    "Supervisor",
    "SupervisorFailed",
    "TooManyChildren",
    "actor_child",
    "dynamic_child",
    "open_supervisor",
    "pool_child",
    "supervisor_child",
    "task_child",
    "worker_pool_child",
]
