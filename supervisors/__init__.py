"""Supervision: restart strategies, supervisors and their children, and the service's own tree."""

from supervisors.children import ChildSpec, actor_child, pool_child, task_child
from supervisors.strategies import Restart, RestartIntensity, Strategy
from supervisors.supervisor import Supervisor, SupervisorFailed
from supervisors.tree import open_supervisor, supervisor_child

__all__ = [
    "ChildSpec",
    "Restart",
    "RestartIntensity",
    "Strategy",
    "Supervisor",
    "SupervisorFailed",
    "actor_child",
    "open_supervisor",
    "pool_child",
    "supervisor_child",
    "task_child",
]
