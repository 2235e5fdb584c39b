"""The rules as plain functions and tables: no I/O, no clock, no SQL.

The limits in this file are also stated by options of commands. They are here because this import
loads nothing else, so that help and completion do not load the service.
"""

from typing import Final

JOBS_LISTED: Final = 50
"""The number of jobs in a list, by default."""
MAX_JOBS_LISTED: Final = 500
"""The maximum number of jobs in a list."""
ATTEMPTS_LISTED: Final = 50
"""The number of attempts in a list, by default."""
MAX_KEY_DAYS: Final = 3650
"""The longest validity of an API key that a caller may ask for."""
LARGE_BODY_BYTES: Final = 1024 * 1024
"""The maximum size of a body over HTTP that may be large, and of a line in a file of events."""
MAX_OVERLAP_HOURS: Final = 720
"""The maximum number of hours for which a replaced secret of a Webhook also signs."""
