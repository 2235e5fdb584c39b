"""Faults at the front: encoding, headers, cookies, cross-site requests, pages and their files."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutation import Mutation

_HEADERS: Final = "web/response.py"
_GUARD: Final = "web/guard.py"
_APP: Final = "web/app.py"
_COOKIES: Final = "web/response.py"
_JSON_IN: Final = "web/json_input.py"

_IN_HEADERS: Final = "tests/web/test_security_headers.py::test_"
_IN_SOURCES: Final = "tests/web/pages/test_page_sources.py::test_"
_IN_GUARD: Final = "tests/web/test_guard.py::test_"
_HOSTILE: Final = "tests/access/test_hostile_values.py::test_"

ASVS_FRONT: Final = (
    Mutation(
        "a query is decoded twice",
        _GUARD,
        "parameters[name] = value",
        'parameters[name] = parse_qsl(f"x={value}")[0][1]',
        "tests/web/test_decoding.py::test_query_is_decoded_once",
    ),
    Mutation(
        "a path is decoded twice",
        "web/exchange.py",
        "return str((self.request.view_args or {})[name])",
        'return __import__("urllib.parse").parse.unquote((self.request.view_args or {})[name])',
        "tests/web/test_decoding.py::test_path_is_decoded_once",
    ),
    Mutation(
        "pages show values unescaped",
        "web/pages/rendering.py",
        "autoescape=True",
        "autoescape=False",
        _HOSTILE + "hostile_value_on_a_page_is_only_shown",
    ),
    Mutation(
        "a header may contain a line end",
        "web/response.py",
        r're.compile("[\r\n\0]")',
        're.compile("never in a header")',
        "tests/web/test_response.py::test_encoder_rejects_a_line_end_in_a_header",
    ),
    Mutation(
        "a name is put into a link unencoded",
        "web/pages/rendering.py",
        "return f\"{list_path(doctype)}/{quote(name, safe='')}\"",
        'return f"{list_path(doctype)}/{name}"',
        _HOSTILE + "hostile_name_in_a_link_is_encoded",
    ),
    Mutation(
        "quotes in JSON of a response are not escaped",
        "web/response.py",
        "return ENCODER.encode(value)",
        "return ENCODER.encode(value).replace(b'\\\\\"', b'\"')",
        _HOSTILE + "hostile_value_in_json_stays_one_string",
    ),
    Mutation(
        "a script makes HTML of a text",
        "web/pages/static/app.js",
        "  note.textContent = text;\n",
        "  note.innerHTML = text;\n",
        _IN_SOURCES + "scripts_make_no_html_or_code_from_text",
    ),
    Mutation(
        "a sign-in redirects to another site",
        "web/pages/rendering.py",
        r're.compile(r"/(?![/\\])[',
        're.compile(r"/[',
        "tests/web/pages/test_next_path.py::test_local_path_replaces_other_texts_by_the_desk",
    ),
    Mutation(
        "the content policy allows scripts from any origin",
        _HEADERS,
        "script-src 'self'; style-src 'self'",
        "script-src *; style-src *",
        _IN_HEADERS + "headers_have_the_one_strict_content_policy",
    ),
    Mutation(
        "a page may set its own base",
        _HEADERS,
        "base-uri 'none'; ",
        "",
        _IN_HEADERS + "headers_have_the_one_strict_content_policy",
    ),
    Mutation(
        "any site may frame a page",
        _HEADERS,
        "frame-ancestors 'none'",
        "frame-ancestors *",
        _IN_HEADERS + "headers_have_the_one_strict_content_policy",
    ),
    Mutation(
        "the content policy allows other sources by default",
        _HEADERS,
        "default-src 'none'",
        "default-src *",
        _IN_HEADERS + "headers_have_the_one_strict_content_policy",
    ),
    Mutation(
        "HSTS ends at once",
        _HEADERS,
        "max-age=31536000",
        "max-age=0",
        _IN_HEADERS + "headers_have_hsts_for_a_year_on_https_sites",
    ),
    Mutation(
        "content sniffing is allowed",
        _HEADERS,
        '    ("X-Content-Type-Options", "nosniff"),\n',
        "",
        _IN_HEADERS + "headers_forbid_content_sniffing",
    ),
    Mutation(
        "referrers are sent to other sites",
        _HEADERS,
        '("Referrer-Policy", "no-referrer")',
        '("Referrer-Policy", "unsafe-url")',
        _IN_HEADERS + "headers_send_no_referrer",
    ),
    Mutation(
        "responses may be cached",
        _HEADERS,
        '(CACHE_CONTROL, "no-store")',
        '(CACHE_CONTROL, "private")',
        _IN_HEADERS + "headers_allow_caching_of_assets_only",
    ),
    Mutation(
        "responses may be read by any origin",
        _HEADERS,
        "ALWAYS: Final[Headers] = (\n",
        'ALWAYS: Final[Headers] = (\n    ("Access-Control-Allow-Origin", "*"),\n',
        _IN_HEADERS + "headers_open_no_response_to_other_origins",
    ),
    Mutation(
        "responses name no charset",
        "web/response.py",
        '"application/json; charset=utf-8"',
        '"application/json"',
        _IN_HEADERS + "headers_name_content_type_and_charset",
    ),
    Mutation(
        "the session cookie is readable by scripts",
        _COOKIES,
        "HttpOnly; ",
        "",
        "tests/web/test_cookies.py::test_set_cookie_has_the_attributes_of_the_contract",
    ),
    Mutation(
        "the session cookie is sent by cross-site requests",
        _COOKIES,
        "SameSite=Lax",
        "SameSite=None",
        "tests/web/test_cookies.py::test_set_cookie_has_the_attributes_of_the_contract",
    ),
    Mutation(
        "the session cookie of an https site is not Secure",
        "web/exchange.py",
        "return site_is_https or over_tls if policy is None else policy",
        "return bool(policy)",
        "tests/web/test_cookies.py::test_is_secure_follows_the_policy_or_the_request",
    ),
    Mutation(
        "the response to a sign-in contains the sid",
        "web/routes/access.py",
        '            "user": signed_in.user,\n',
        '            "user": signed_in.user,\n            "sid": signed_in.sid,\n',
        "tests/web/routes/test_access.py::test_sign_in_returns_the_user_and_sets_the_cookie",
    ),
    Mutation(
        "the CSRF header is not required",
        _GUARD,
        "    if not request.headers.get(CSRF_HEADER):\n        raise CSRFError\n",
        "",
        _IN_GUARD + "guard_requires_the_csrf_header_for_unsafe_verbs",
    ),
    Mutation(
        "a body of any content type is read",
        _GUARD,
        'if kind.strip(" \\t").lower() != "application/json":',
        "if not kind:",
        _IN_GUARD + "guard_answers_415_for_other_content_types",
    ),
    Mutation(
        "a function may be called by GET",
        "web/routes/resource.py",
        '{"POST": Operation(self.call, body=arguments)},',
        '{"POST": Operation(self.call, body=arguments), '
        '"GET": Operation(self.call, body=arguments)},',
        "tests/web/routes/test_methods.py::test_function_requires_a_session_and_post",
    ),
    Mutation(
        "a query parameter may stand twice",
        _GUARD,
        "        if name in parameters:\n",
        "        if name in ():\n",
        _IN_GUARD + "guard_answers_400_for_a_bad_query_or_path",
    ),
    Mutation(
        "two credentials in one request are accepted",
        _GUARD,
        "(sids and keys)",
        "(sids and keys is sids)",
        _IN_GUARD + "guard_rejects_two_credentials",
    ),
    Mutation(
        "TRACE is answered",
        _GUARD,
        '"GET" if method == "HEAD" else method',
        '"GET" if method in ("HEAD", "TRACE") else method',
        _IN_HEADERS + "trace_is_405_everywhere",
    ),
    Mutation(
        "a key of a JSON object may stand twice",
        _JSON_IN,
        "        if key in members:\n",
        "        if key in ():\n",
        "tests/web/test_json_input.py::test_read_object_names_the_key_of_a_bad_value",
    ),
    Mutation(
        "integers are unlimited",
        _JSON_IN,
        "abs(value) > MAX_INTEGER",
        "abs(value) > MAX_INTEGER**9",
        "tests/web/test_json_input.py::test_read_object_names_the_key_of_a_bad_value",
    ),
    Mutation(
        "a value of another type is converted",
        _JSON_IN,
        "msgspec.convert(value, kind)",
        "msgspec.convert(value, kind, strict=False)",
        "tests/web/test_json_input.py::test_read_struct_names_missing_unknown_and_mistyped_keys",
    ),
    Mutation(
        "bodies are unlimited",
        "web/request.py",
        "        if self.received > lower_limit:\n",
        "        if self.received > lower_limit * 1000:\n",
        "tests/web/test_limited_body.py::test_limited_body_rejects_too_many_bytes_before_the_end",
    ),
    Mutation(
        "requests in progress are unlimited",
        _APP,
        "yield self._active_requests <= self._settings.max_requests",
        "yield True",
        "tests/web/test_app.py::test_app_answers_503_beyond_max_requests_and_frees_slots",
    ),
    Mutation(
        "a defect is shown to the client",
        _APP,
        "expected = InternalError(exchange.request_id)",
        'expected = InternalError(f"{exchange.request_id} {error}")',
        "tests/web/test_app.py::test_app_logs_a_defect_and_shows_only_the_request_id",
    ),
    Mutation(
        "a defect leaves no line in the log",
        _APP,
        '        self._log.error(\n            "web.request_failed", ',
        '        self._log.bind(\n            event="web.request_failed", ',
        "tests/web/test_app.py::test_app_logs_a_defect_and_shows_only_the_request_id",
    ),
    Mutation(
        "the line of a request does not name the user",
        _APP,
        "user=None if exchange.caller is None else exchange.caller.user,",
        "user=None,",
        "tests/access/test_refusals_logged.py::test_log_names_the_user_of_a_403",
    ),
    Mutation(
        "refused requests leave no line in the log",
        _APP,
        "        log = self._log.debug if route in MONITORED else self._log.info\n",
        "        if status in (400, 401, 403):\n            return\n"
        "        log = self._log.debug if route in MONITORED else self._log.info\n",
        "tests/access/test_refusals_logged.py::test_log_names_the_user_of_a_bypassed_check",
    ),
    Mutation(
        "forwarding headers of any peer are trusted",
        "web/exchange.py",
        "    return trust.every_peer or (peer is not None and _is_listed(trust, peer))\n",
        "    return True\n",
        "tests/web/test_client_address.py::test_client_address_follows_trusted_proxies_only",
    ),
    Mutation(
        "metrics are open to all addresses",
        "web/routes/health.py",
        "            is_loopback(exchange.peer)\n            and not",
        "            is_loopback('::1')\n            or not",
        "tests/web/routes/test_health.py::test_metrics_elsewhere_need_the_key_of_a_system_manager",
    ),
    Mutation(
        "metrics are open to web pages whose name resolves to this machine",
        "web/routes/health.py",
        '            and names_this_machine(request.headers.get("Host", ""))\n',
        "",
        "tests/web/routes/test_health.py"
        "::test_metrics_are_not_for_pages_whose_name_leads_to_this_machine",
    ),
    Mutation(
        "files outside of the assets are served",
        "web/pages/rendering.py",
        'asset = self._files.get(exchange.argument("name"))',
        'name = exchange.argument("name")\n'
        '        path = files(__package__).joinpath("static", name)\n'
        "        asset = self._files.get(name) or (\n"
        '            Asset(path.read_bytes(), "text/plain") if path.is_file() else None)',
        "tests/web/pages/test_assets.py::test_assets_are_the_only_files_served",
    ),
    Mutation(
        "an export is displayed instead of downloaded",
        "web/routes/resource.py",
        'f"attachment; filename*',
        'f"inline; filename*',
        "tests/web/routes/test_resource.py::test_export_is_an_attachment",
    ),
    Mutation(
        "a document name is put into a header unencoded",
        "web/routes/resource.py",
        "{quote(f'{doctype} {name}.json', safe='')}",
        "{doctype} {name}.json",
        "tests/web/routes/test_resource.py::test_export_is_an_attachment",
    ),
    Mutation(
        "the signed-in user is kept in browser storage",
        "web/pages/static/app.js",
        "sessionStorage.setItem(FLASH, text);",
        "sessionStorage.setItem(FLASH, text);\nlocalStorage.setItem(location, document.title);",
        _IN_SOURCES + "scripts_store_only_a_notice_a_run_number_and_a_choice",
    ),
    Mutation(
        "htmx keeps pages in the browser",
        "web/pages/templates/desk.html",
        '"historyCacheSize":0',
        '"historyCacheSize":10',
        _IN_SOURCES + "htmx_is_without_history_eval_and_other_sites",
    ),
    Mutation(
        "a typed password is shown",
        "web/pages/templates/login.html",
        'name="pwd" type="password"',
        'name="pwd" type="text"',
        _IN_SOURCES + "password_fields_are_hidden_and_named_for_managers",
    ),
    Mutation(
        "a password cannot be pasted",
        "web/pages/templates/login.html",
        '<input id="pwd"',
        '<input onpaste="return false" id="pwd"',
        _IN_SOURCES + "password_fields_allow_pasting",
    ),
    Mutation(
        "pages have no way to sign out",
        "web/pages/templates/desk.html",
        ' id="sign-out"',
        "",
        _IN_SOURCES + "templates_of_the_desk_offer_to_sign_out",
    ),
    Mutation(
        "a page embeds a plugin",
        "web/pages/templates/base.html",
        '<a class="skip"',
        '<embed src="/x.swf"><a class="skip"',
        _IN_SOURCES + "templates_need_no_plugin",
    ),
    Mutation(
        "a page loads a style sheet from another origin",
        "web/pages/templates/base.html",
        'href="{{ assets }}/style.css"',
        'href="https://cdn.example/style.css"',
        _IN_SOURCES + "templates_load_nothing_from_elsewhere",
    ),
    Mutation(
        "a response names the property that a script sets",
        "web/pages/static/document.js",
        "else values[input.name] = valueOf(input);",
        "else values[input.value] = valueOf(input);",
        _IN_SOURCES + "scripts_set_properties_named_by_the_form_only",
    ),
    Mutation(
        "a request has both a length and chunks",
        "web/http11.py",
        'if chunked and (lengths or request.http_version != b"1.1"):',
        'if chunked and not lengths and request.http_version != b"1.1":',
        "tests/web/test_framing.py::test_framing_that_is_ambiguous_ends_the_connection",
    ),
    Mutation(
        "a sign-out keeps site data in the browser",
        "web/routes/access.py",
        '("Clear-Site-Data", ',
        '("X-Nothing", ',
        "tests/web/routes/test_access.py::test_sign_out_ends_the_session_and_clears_the_cookie",
    ),
    Mutation(
        "a second session cookie is not cleared",
        "web/guard.py",
        "exchange.clears_cookies = two_sids or operation.ambiguous_as_guest",
        "exchange.clears_cookies = False",
        "tests/web/test_tossed_cookies.py::test_duplicate_cookies_redirect_user_to_sign_in",
    ),
    Mutation(
        "silent connections are not closed",
        "web/connections.py",
        "self._limits.connections and not self.close_longest_waiting():",
        "self._limits.connections:",
        "tests/web/test_flood.py::test_new_connection_closes_a_silent_one_at_the_limit",
    ),
)
