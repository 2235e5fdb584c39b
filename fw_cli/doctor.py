"""`fw doctor`: checks a site, and prints lines for people or JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.output import as_json, counted, show_json

if TYPE_CHECKING:
    from fw_actors.rules.findings import Finding, Section

_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red"}
_INDENT: Final = 11


@click.command()
@as_json
@click.pass_obj
def doctor(context: CommandContext, as_json: bool) -> None:
    """Check the site: each line is ok, a warning or a problem, with its remedy.

    Checks configuration, public URL, cookie and proxy, accounts, the mail transport (it connects
    and signs in, but sends nothing), webhooks, stored secrets, queues, database, disk, clock and
    service. Staging and production have equal policy fingerprints if their policies are equal.
    Exits 0 with warnings, 1 with problems.
    """
    from fw_actors.rules.findings import Level, count, report

    sections = [section.reworded(context.scrubber.scrub_known) for section in _examine(context)]
    if as_json:
        show_json(report(sections))
    else:
        for section in sections:
            _show(section)
    problems = count(sections, Level.PROBLEM)
    warnings = count(sections, Level.WARNING)
    if not as_json:
        click.echo(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    if problems:
        raise CommandFailed(f"the doctor found {counted(problems, 'problem')}")


def _examine(context: CommandContext) -> Sequence[Section]:
    from fw_actors import __version__
    from fw_actors.errors import ConfigurationError, DatabaseUnreachableError, OverloadedError
    from fw_actors.ops.doctor import (
        evaluate_configuration,
        evaluate_front,
        examine,
        not_answering,
        not_opened,
    )
    from fw_cli.service_state import service_state
    from supervisors.service.doctor import evaluate_service, service_facts
    from supervisors.service.site_files import UnusableDataFolder

    opened: Sequence[Section]
    try:
        config = context.config
        service = service_state(config)
        first = evaluate_configuration(config)
        try:
            opened = context.on_site(lambda site: examine(site, service))
        except OverloadedError as error:
            opened = [not_answering(error.message, config.sqlite_file)]
        except DatabaseUnreachableError as error:
            opened = [not_answering(str(error), config.sqlite_file)]
        except ConfigurationError as error:
            first, opened = not_opened(error.problems), []
        return [
            first,
            evaluate_front(config),
            *opened,
            evaluate_service(service_facts(config, __version__)),
        ]
    except ConfigurationError as error:
        return [not_opened(error.problems)]
    except UnusableDataFolder as error:
        return [not_opened([str(error)])]


def _show(section: Section) -> None:
    click.secho(section.title, bold=True)
    for finding in section.findings:
        _show_finding(finding)
    click.echo()


def _show_finding(finding: Finding) -> None:
    from fw_actors.rules.safe_output import escaped

    level = finding.level.value
    label = click.style(f"{level:<{_INDENT - 2}}", fg=_COLOURS[level])
    click.echo(f"  {label}{escaped(finding.text)}")
    if finding.todo:
        click.echo(" " * _INDENT + f"-> {escaped(finding.todo)}")
