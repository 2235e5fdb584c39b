"""Faults of queries, documents, encryption, hashes, TLS, mail and receivers."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_VAULT: Final = "fw_actors/documents/vault.py"
_DIAL: Final = "fw_actors/http/dial.py"
_SMTP: Final = "fw_actors/mail/transports.py"
_JSON_IN: Final = "web/json_input.py"
_MODEL: Final = "fw_actors/config/model.py"

_TEST_SOURCE: Final = "tests/security/test_source.py::test_"
_TEST_VAULT: Final = "tests/fw_actors/documents/test_vault.py::test_"
_TEST_DIAL: Final = "tests/fw_actors/http/test_dial.py::test_"

ASVS_DATA: Final = (
    Mutation(
        "a filter value is put into the SQL text",
        "fw_actors/documents/query.py",
        '    "=": lambda column, value: column == value,\n',
        '    "=": lambda column, value: column == sa.literal_column(f"\'{value}\'"),\n',
        "tests/access/test_hostile_values.py::test_hostile_value_in_a_filter_is_only_compared",
    ),
    Mutation(
        "SQL of an app reaches beyond its transaction",
        "fw_actors/store/sqlite_engine.py",
        "        if self.active and action in self._REFUSED:\n",
        "        if self.active is None:\n",
        "tests/fw_actors/store/test_transaction.py::"
        "test_raw_sql_refuses_statements_beyond_transaction",
    ),
    Mutation(
        "a shell starts pg_dump",
        "fw_actors/store/backup.py",
        "        input=stdin.encode(),\n",
        "        shell=True,\n        input=stdin.encode(),\n",
        _TEST_SOURCE + "code_starts_no_shell",
    ),
    Mutation(
        "a regular expression is made of a header",
        "web/exchange.py",
        'return UNPRINTABLE.sub("?", text)',
        'return re.sub(text or "x", "?", text)',
        _TEST_SOURCE + "regular_expressions_are_constant",
    ),
    Mutation(
        "a number of a request is evaluated",
        _JSON_IN,
        "return int(text) if",
        "return eval(text) if",
        _TEST_SOURCE + "code_is_evaluated_only_by_operator_commands",
    ),
    Mutation(
        "a module reads pickles",
        "web/response.py",
        "import msgspec\n",
        "import pickle\n\nimport msgspec\n",
        _TEST_SOURCE + "code_uses_no_unsafe_deserializer",
    ),
    Mutation(
        "a module manages memory by hand",
        "web/response.py",
        "import msgspec\n",
        "import ctypes\n\nimport msgspec\n",
        _TEST_SOURCE + "code_imports_no_foreign_memory_module",
    ),
    Mutation(
        "a page is rendered from a string instead of a file",
        "web/pages/rendering.py",
        "self._environment.get_template(template)",
        "self._environment.from_string(template)",
        _TEST_SOURCE + "templates_are_files_of_the_package",
    ),
    Mutation(
        "a format string is made of input",
        _JSON_IN,
        'f"{field} must be a finite number."',
        'field.format("must be a finite number.")',
        _TEST_SOURCE + "format_strings_are_constant",
    ),
    Mutation(
        "a module has a source of randomness of its own",
        "fw_actors/rules/delivery.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport random\n",
        _TEST_SOURCE + "randomness_has_one_source",
    ),
    Mutation(
        "control characters pass into mail headers",
        "fw_actors/mail/message.py",
        "        raise UnsafeHeaderError(part)\n",
        "        return\n",
        "tests/fw_actors/mail/test_message.py::test_mail_header_refuses_control_characters",
    ),
    Mutation(
        "a receiver's URL holds control characters",
        "fw_actors/http/url.py",
        "    if _UNPRINTABLE.search(url):\n",
        "    if not url:\n",
        "tests/fw_actors/http/test_target.py::test_parse_endpoint_refuses_bad_url_with_reason",
    ),
    Mutation(
        "receivers may be called in clear text",
        "fw_actors/http/url.py",
        'if scheme == "http" and not (development or is_loopback(host)):',
        'if scheme == "http" and not host:',
        "tests/fw_actors/http/test_target.py::test_parse_endpoint_refuses_bad_url_with_reason",
    ),
    Mutation(
        "connections stay open",
        "fw_actors/http/exchange.py",
        "            self._socket.close()\n",
        "            self._socket.detach()\n",
        "tests/fw_actors/http/test_leaks.py::test_attempts_cut_off_at_any_time_leak_nothing",
    ),
    Mutation(
        "a required field may be empty",
        "fw_actors/documents/fields.py",
        '        return value is None or value == ""\n',
        "        return False\n",
        "tests/fw_actors/documents/test_checks.py::"
        "test_insert_refuses_invalid_value_and_names_field",
    ),
    Mutation(
        "unknown fields of a document pass",
        "fw_actors/documents/rest.py",
        "        else:\n            raise unknown_field(meta, key)\n    return values\n",
        "    return values\n",
        "tests/fw_actors/documents/test_rest.py::test_rest_insert_refuses_wrong_body_shape_and_names_key",
    ),
    Mutation(
        "a body may write fields of the service",
        "fw_actors/documents/rest.py",
        '            raise BadRequestError(f"{key} cannot be written.", field=key)\n',
        "            values[key] = value\n",
        "tests/fw_actors/documents/test_rest.py::"
        "test_rest_insert_refuses_wrong_body_shape_and_names_key",
    ),
    Mutation(
        "a Webhook for documents needs no event",
        "fw_actors/webhooks/subscriptions.py",
        "        if not any(values[event] for event in DOCUMENT_EVENTS):\n",
        "        if not values:\n",
        "tests/fw_actors/webhooks/test_webhook_rules.py::test_webhook_refusal_names_its_field",
    ),
    Mutation(
        "a document may skip a state",
        "fw_actors/documents/lifecycle.py",
        "            if stored.docstatus != status - 1:\n",
        "            if stored is None:\n",
        "tests/fw_actors/documents/test_lifecycle.py::test_document_verb_is_refused_in_wrong_state",
    ),
    Mutation(
        "a refused write is partly committed",
        "fw_actors/documents/lifecycle.py",
        "with fw.tx.savepoint() if savepoint else nullcontext():",
        "with nullcontext():",
        "tests/fw_actors/documents/test_lifecycle.py::test_hook_exception_rolls_back_insert",
    ),
    Mutation(
        "lists are unlimited",
        "fw_actors/documents/rest.py",
        "    if not 1 <= limit <= MAX_PAGE_SIZE:\n",
        "    if limit < 1:\n",
        "tests/fw_actors/documents/test_rest.py::test_rest_list_refuses_invalid_argument_and_names_it",
    ),
    Mutation(
        "secrets may be listed",
        "fw_actors/documents/query.py",
        "isinstance(field, Table) or field.secret or not self._sees(field)",
        "isinstance(field, Table) or not self._sees(field)",
        "tests/fw_actors/documents/test_query.py::test_list_refuses_secret_or_unknown_field",
    ),
    Mutation(
        "an event shows fields that are named like secrets",
        "fw_actors/rules/safe_output.py",
        'if fieldtype == "Password" or fieldname in _NAMES or fieldname.endswith(_SUFFIXES):',
        'if fieldtype == "Password":',
        "tests/fw_actors/rules/test_redaction.py::test_redaction_depends_on_type_name_and_permlevel",
    ),
    Mutation(
        "an app reads the key of the site",
        _MODEL,
        "return None if name == ",
        'return None if name == "not " + ',
        "tests/fw_actors/config/test_load.py::test_vault_key_is_no_secret_of_apps",
    ),
    Mutation(
        "a child process of an app inherits the secrets",
        "fw_cli/own_environment.py",
        "        del environ[name]\n",
        "        pass\n",
        "tests/fw_cli/test_evaluation.py::test_eval_subprocess_inherits_no_secret",
    ),
    Mutation(
        "development mode is the default",
        "fw_actors/config/load.py",
        'parsing.one_of("production", "development"), "production")',
        'parsing.one_of("production", "development"), "development")',
        "tests/fw_actors/config/test_load.py::test_config_has_the_defaults_of_the_contract",
    ),
    Mutation(
        "a sealed value may be opened in another field",
        _VAULT,
        'return f"{doctype}\\x00{field}\\x00{row}".encode()',
        'return b""',
        _TEST_VAULT + "vault_cipher_binds_sealed_value_to_column_and_row",
    ),
    Mutation(
        "values are sealed with one nonce",
        _VAULT,
        "nonce = self._entropy.bytes(_NONCE_BYTES)",
        "nonce = bytes(_NONCE_BYTES)",
        _TEST_VAULT + "vault_cipher_seals_equal_texts_differently",
    ),
    Mutation(
        "Vault values are only encoded",
        _VAULT,
        "sealed = self._cipher.encrypt(nonce, text.encode(), _binding(doctype, field, row))",
        "sealed = text.encode()",
        _TEST_VAULT + "vault_cipher_hides_plain_text",
    ),
    Mutation(
        "a second cipher is used",
        _VAULT,
        "from cryptography.hazmat.primitives.hashes import SHA256\n",
        "from cryptography.hazmat.primitives.ciphers.modes import ECB  # noqa: F401\n"
        "from cryptography.hazmat.primitives.hashes import SHA256\n",
        _TEST_SOURCE + "encryption_is_aes_gcm_by_one_library",
    ),
    Mutation(
        "tokens are kept as MD5",
        "fw_actors/rules/identifiers.py",
        "return hashlib.sha256(token",
        "return hashlib.md5(token",
        _TEST_SOURCE + "hashes_are_sha_256_and_blake2b_alone",
    ),
    Mutation(
        "requests to receivers are signed with SHA-1",
        "fw_actors/rules/signing.py",
        "hmac.new(key, digestmod=hashlib.sha256)",
        "hmac.new(key, digestmod=hashlib.sha1)",
        "tests/fw_actors/rules/test_signing.py::test_sign_is_hmac_sha256_of_id_timestamp_and_body",
    ),
    Mutation(
        "passwords are hashed by argon2i",
        "fw_actors/hashing/hasher.py",
        "self.argon2_hasher = argon2.PasswordHasher(\n",
        "self.argon2_hasher = argon2.PasswordHasher(\n            type=argon2.Type.I,\n",
        "tests/fw_actors/hashing/test_hasher.py::"
        "test_hash_is_argon2id_with_the_parameters_of_the_site",
    ),
    Mutation(
        "a hash costs 1 MiB by default",
        "fw_actors/config/load.py",
        "Argon2(19 * 1024, 2, 1)",
        "Argon2(1024, 1, 1)",
        "tests/fw_actors/config/test_load.py::test_config_has_the_defaults_of_the_contract",
    ),
    Mutation(
        "hashes of old parameters are not renewed",
        "fw_actors/hashing/hasher.py",
        "outdated=params != self._live",
        "outdated=False",
        "tests/fw_actors/hashing/test_hasher.py::test_hash_with_other_parameters_is_outdated",
    ),
    Mutation(
        "random bytes are zeros",
        "fw_actors/runtime/clock.py",
        "bytes = staticmethod(os.urandom)",
        "bytes = staticmethod(bytes)",
        "tests/fw_actors/runtime/test_entropy.py::"
        "test_system_entropy_gives_what_the_operating_system_gives",
    ),
    Mutation(
        "certificates of receivers are not verified",
        _DIAL,
        '    context.set_alpn_protocols(["http/1.1"])\n',
        '    context.set_alpn_protocols(["http/1.1"])\n'
        "    context.check_hostname = False\n    context.verify_mode = ssl.CERT_NONE\n",
        _TEST_DIAL + "system_trust_verifies_certificate_and_name",
    ),
    Mutation(
        "TLS 1.0 to receivers is allowed",
        _DIAL,
        '    context.set_alpn_protocols(["http/1.1"])\n',
        '    context.set_alpn_protocols(["http/1.1"])\n'
        "    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED\n",
        _TEST_DIAL + "system_trust_verifies_certificate_and_name",
    ),
    Mutation(
        "a redirect is followed",
        "fw_actors/http/sender.py",
        "        return post.reader.response(progress.times, progress.address)\n",
        "        answer = post.reader.response(progress.times, progress.address)\n"
        "        if answer.location is not None and not fresh:\n"
        "            return await self.post(\n"
        "                endpoint, body, make_headers, timeout=timeout, fresh=True\n            )\n"
        "        return answer\n",
        "tests/fw_actors/http/test_sender.py::"
        "test_redirect_is_not_followed_and_location_is_stripped",
    ),
    Mutation(
        "certificates of mail servers are not verified",
        _SMTP,
        "smtp.starttls(context=self._context)",
        "smtp.starttls(context=ssl._create_unverified_context())",
        "tests/fw_actors/mail/test_smtp.py::test_smtp_connection_verifies_certificate",
    ),
    Mutation(
        "STARTTLS is left out",
        _SMTP,
        "            smtp.starttls(context=self._context)\n",
        "            pass\n",
        "tests/fw_actors/mail/test_smtp.py::test_smtp_transport_requires_offered_starttls",
    ),
    Mutation(
        "the mail password is sent in clear text",
        _SMTP,
        "if not isinstance(connected, ssl.SSLSocket) and not is_loopback_peer(connected):",
        "if connected is None:",
        "tests/fw_actors/mail/test_smtp.py::test_smtp_auth_is_refused_in_clear_text",
    ),
    Mutation(
        "a hanging receiver occupies all slots",
        "fw_actors/rules/receivers.py",
        "        self.window = 1\n        self.slow = True\n",
        "        self.slow = False\n",
        "tests/fw_actors/rules/test_receiver_slots.py::"
        "test_receiver_slots_fall_to_one_on_slow_head",
    ),
    Mutation(
        "a rotation leaves values under the old key",
        "fw_actors/ops/stored_secrets.py",
        "moved(await self._store.write(partial(self._move, page)))",
        "moved(len(page))",
        "tests/fw_actors/ops/test_rekeying.py::"
        "test_rekeying_moves_all_secrets_and_changes_nothing_else",
    ),
    Mutation(
        "/proc shows the secrets",
        "fw_cli/own_environment.py",
        "not secret or _overwrite({os.fsencode(name) for name in secret})",
        "True",
        "tests/security/test_environment.py::test_service_environment_contains_no_secret",
    ),
    Mutation(
        "a host name resolves to a link-local address",
        "fw_actors/http/dial.py",
        "[address for address, refusal in refusals if refusal is None]",
        "list(addresses)",
        "tests/fw_actors/http/test_dial.py::test_dial_refuses_name_rebound_to_link_local_address",
    ),
    Mutation(
        "a host name resolves to a private address",
        "fw_actors/rules/outgoing.py",
        "if self.denies_private and not self._is_listed(address) and not is_public(address):",
        "if False:",
        "tests/fw_actors/http/test_dial.py::test_dial_refuses_name_rebound_to_private_address",
    ),
    Mutation(
        "each network is an allowed one",
        "fw_actors/rules/outgoing.py",
        "any(form in network for form in forms for network in self.allow)",
        "bool(forms)",
        "tests/fw_actors/rules/test_outgoing.py::test_denying_policy_refuses_unlisted_addresses",
    ),
    Mutation(
        "a search has no time limit",
        "fw_actors/store/query_limits.py",
        "self._deadline = inf if self._seconds is None else time.monotonic() + self._seconds",
        "self._deadline = inf",
        "tests/security/test_searches.py::test_search_over_time_limit_is_refused_with_reason",
    ),
    Mutation(
        "the rows of a list may hold any number of bytes",
        "fw_actors/documents/rest.py",
        ", start, max_bytes=MAX_LIST_BYTES)",
        ", start)",
        "tests/security/test_searches.py::test_list_of_long_texts_is_refused_with_limit_field",
    ),
    Mutation(
        "a flood keeps all slots of the hash queue",
        "fw_actors/rules/fair_queue.py",
        "largest = self._requester_to_displace(requester)",
        "largest = None",
        "tests/fw_actors/rules/test_fair_queue.py::"
        "test_fair_queue_displaces_newest_of_largest_requester",
    ),
)
