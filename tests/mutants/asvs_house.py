"""Faults of logs, files, deployment and packages."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_TEST_LOGS: Final = "tests/supervisors/service/test_logs.py::test_"
_TEST_DEPLOY: Final = "tests/deploy/test_deploy.py::test_"
_TEST_PROXY: Final = "tests/deploy/test_proxy_policy.py::test_"

ASVS_HOUSE: Final = (
    Mutation(
        "times in the log name no zone",
        "supervisors/service/logs.py",
        '.replace("+00:00", "Z")',
        '.replace("+00:00", "")',
        _TEST_LOGS + "json_entry_has_time_level_event_and_fields",
    ),
    Mutation(
        "a line of the log has no request id",
        "web/app.py",
        '            "web.request",\n            request_id=exchange.request_id,\n',
        '            "web.request",\n',
        "tests/web/test_request_metrics.py::test_request_log_is_one_line_without_query_and_body",
    ),
    Mutation(
        "fields that are named like secrets are logged",
        "supervisors/service/logs.py",
        "    if is_secret(name) and value is not None:\n",
        "    if value == SCRUBBED:\n",
        _TEST_LOGS + "log_scrubs_fields_with_secret_names_at_any_depth",
    ),
    Mutation(
        "control characters are logged as they are",
        "supervisors/service/logs.py",
        "(line if line.isascii() and line.isprintable() else escaped(line)) + below",
        "line + below",
        _TEST_LOGS + "log_escapes_line_ends_and_terminal_commands",
    ),
    Mutation(
        "a JSON line of the log is no JSON",
        "supervisors/service/logs.py",
        "return _to_ascii_json({",
        "return str({",
        _TEST_LOGS + "json_entry_decodes_to_the_logged_value",
    ),
    Mutation(
        "the log file is readable by all users",
        "supervisors/service/background.py",
        "os.O_CLOEXEC, 0o600)",
        "os.O_CLOEXEC, 0o644)",
        "tests/supervisors/service/test_background.py::test_background_log_is_private_and_appended",
    ),
    Mutation(
        "the database file is readable by all users",
        "fw_actors/store/trio_sqlite.py",
        "os.O_CLOEXEC, 0o600)",
        "os.O_CLOEXEC, 0o644)",
        "tests/fw_actors/store/test_sqlite.py::test_sqlite_files_and_folder_are_private_to_owner",
    ),
    Mutation(
        "the image runs as root",
        "deploy/Dockerfile",
        "USER fw\n",
        "USER root\n",
        _TEST_DEPLOY + "image_runs_as_own_user_and_checks_readiness",
    ),
    Mutation(
        "the proxy passes on forwarding headers of clients",
        "deploy/nginx.conf",
        "X-Forwarded-For $remote_addr",
        "X-Forwarded-For $proxy_add_x_forwarded_for",
        _TEST_DEPLOY + "proxy_overwrites_forwarding_headers_of_client",
    ),
    Mutation(
        "the proxy allows TLS 1.0",
        "deploy/nginx.conf",
        "ssl_protocols TLSv1.2 TLSv1.3;",
        "ssl_protocols TLSv1 TLSv1.2 TLSv1.3;",
        _TEST_PROXY + "proxy_allows_only_tls_1_2_and_1_3",
    ),
    Mutation(
        "the proxy serves in clear text",
        "deploy/nginx.conf",
        "        return 301 https://$server_name$request_uri;\n",
        "        proxy_pass http://fw;\n",
        _TEST_PROXY + "proxy_serves_nothing_in_clear_text",
    ),
    Mutation(
        "the proxy redirects API requests to https",
        "deploy/nginx.conf",
        "    location /api/ {\n        return 403;\n    }\n",
        "",
        _TEST_PROXY + "proxy_refuses_plain_http_to_api",
    ),
    Mutation(
        "the proxy offers suites without forward secrecy",
        "deploy/nginx.conf",
        "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;",
        "ssl_ciphers HIGH:!aNULL;",
        _TEST_PROXY + "proxy_offers_only_forward_secret_authenticated_suites",
    ),
    Mutation(
        "Audit Events may be changed",
        "fw_actors/documents/core.py",
        'name="Audit Event", naming="random", read_only=True',
        'name="Audit Event", naming="random", read_only=False',
        "tests/fw_actors/ops/test_audit.py::test_audit_event_cannot_be_inserted_as_a_document",
    ),
    Mutation(
        "the database gets the service's key",
        "deploy/compose.yaml",
        "    env_file: database.env\n",
        "    env_file: secrets.env\n",
        _TEST_DEPLOY + "composition_keeps_key_from_database_container",
    ),
    Mutation(
        "the wheel holds the tests",
        "pyproject.toml",
        '"web"]\n\n[tool.hatch.build.targets.wheel.force-include]',
        '"web", "tests"]\n\n[tool.hatch.build.targets.wheel.force-include]',
        "tests/scripts/test_wheel.py::test_wheel_contains_only_five_packages",
    ),
    Mutation(
        "the database has a known default password",
        "deploy/compose.yaml",
        "      POSTGRES_USER: fw\n",
        "      POSTGRES_USER: fw\n      POSTGRES_PASSWORD: fw\n",
        "tests/deploy/test_credentials.py::test_deployed_files_contain_no_password",
    ),
    Mutation(
        "libraries are not audited",
        "scripts/check",
        "check 'security of the libraries' libraries_are_secure\n",
        "",
        "tests/scripts/test_audit.py::test_check_script_audits_pinned_libraries",
    ),
    Mutation(
        "a release has no bill of materials",
        ".github/workflows/release.yml",
        "--format cyclonedx-json --output dist/sbom.cdx.json",
        "--progress-spinner off",
        "tests/scripts/test_audit.py::test_release_includes_sbom_of_constraints",
    ),
    Mutation(
        "secrets of the configuration are not scrubbed",
        "fw_actors/rules/safe_output.py",
        're.compile("|".join(map(re.escape, self.forms)))',
        're.compile("never a secret")',
        "tests/fw_actors/rules/test_scrubbing.py::test_scrub_known_finds_usual_encodings",
    ),
    Mutation(
        "the wheel contains no pins",
        "pyproject.toml",
        '"constraints.txt" = "fw_actors/constraints.txt"',
        '"constraints.txt" = "fw_actors/pins.txt"',
        "tests/scripts/test_wheel.py::test_wheel_contains_pins_of_exactly_its_needs",
    ),
    Mutation(
        "libraries are installed without their hashes",
        "scripts/venv.bash",
        'install_by all --no-deps --require-hashes --requirement "$root/constraints-dev.txt"',
        'install_by all --no-deps --requirement "$root/constraints-dev.txt"',
        "tests/scripts/test_scripts.py::test_scripts_install_by_hashes_only",
    ),
)
