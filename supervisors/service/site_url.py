"""Where a site is reached, for a process that does not serve it itself: a worker, a command."""

from __future__ import annotations

from fw_actors.config import Config
from supervisors.service import pidfile
from supervisors.service.places import Places
from web.server import url_of


def site_url(config: Config) -> str:
    """Return what links begin with, without a slash at the end.

    The public URL; without one the address that the serving process is bound to, or would be
    (interface §8, Links and mail).
    """
    deployment = config.deployment
    if deployment.public_url is not None:
        return deployment.public_url
    serving = pidfile.read(Places(config.folder).pid)
    if serving is not None and serving.url is not None:
        return serving.url
    return url_of(deployment.bind_host, deployment.bind_port)
