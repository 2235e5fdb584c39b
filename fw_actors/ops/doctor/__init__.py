"""Checks each part of a site and reports problems with their remedies (O-130).

In each module thin functions collect `facts`, and pure functions evaluate them.
"""

from fw_actors.ops.doctor.access import judge_configuration, not_opened
from fw_actors.ops.doctor.examination import examine
from fw_actors.ops.doctor.system import judge_front

__all__ = ["examine", "judge_configuration", "judge_front", "not_opened"]
