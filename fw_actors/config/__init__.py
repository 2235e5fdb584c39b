"""One frozen, validated configuration from `fw.json`, `.env` and the process environment."""

from fw_actors.config.load import load, site_file
from fw_actors.config.model import (
    MAX_ARGON2,
    SITE_KEY_VARIABLES,
    Argon2,
    AuthPolicy,
    ClientCertificate,
    Config,
    Deployment,
    LoginPolicy,
    Mail,
    OpsPolicy,
    ProcessPlace,
    ProxyTrustPolicy,
    Secrets,
    SitePolicy,
    WebPolicy,
)

__all__ = [
    "MAX_ARGON2",
    "SITE_KEY_VARIABLES",
    "Argon2",
    "AuthPolicy",
    "ClientCertificate",
    "Config",
    "Deployment",
    "LoginPolicy",
    "Mail",
    "OpsPolicy",
    "ProcessPlace",
    "ProxyTrustPolicy",
    "Secrets",
    "SitePolicy",
    "WebPolicy",
    "load",
    "site_file",
]
