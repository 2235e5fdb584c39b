"""Operation of a site: its assembly, audit, mail queue, sweeps, doctor."""
