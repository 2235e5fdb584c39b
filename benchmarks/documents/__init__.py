"""The suite `documents`: writes, reads and lists of documents against bare sqlite3."""
