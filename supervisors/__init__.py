"""Supervision: restart strategies, supervisors and their children, and the service's own tree."""

from fw_actors.runtime import RestartIntensity
from supervisors.children import ActorSpec, ChildSpec, actor_child, pool_child, task_child
from supervisors.strategies import Restart, Strategy
from supervisors.supervisor import Supervisor, SupervisorFailed, TooManyChildren
from supervisors.tree import DynamicSupervisor, dynamic_child, open_supervisor, supervisor_child
from supervisors.workers import worker_pool_child

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
