"""Examines a site and says of each part whether it is well, and what to do (O-130).

A module a part: `facts` are gathered by a thin function, and judged by a plain one.
"""

from fw_actors.ops.doctor.access import judge_configuration, not_opened
from fw_actors.ops.doctor.examination import examine
from fw_actors.ops.doctor.system import judge_front

__all__ = ["examine", "judge_configuration", "judge_front", "not_opened"]
