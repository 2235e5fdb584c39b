"""Checks each part of a site and reports problems with their remedies (O-130).

In each module thin functions collect `facts`, and pure functions evaluate them.
"""

from fw_actors.ops.doctor.access import evaluate_configuration, not_opened
from fw_actors.ops.doctor.examination import examine
from fw_actors.ops.doctor.system import evaluate_front

__all__ = ["evaluate_configuration", "evaluate_front", "examine", "not_opened"]
