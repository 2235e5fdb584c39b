"""`fw completion`: the shell script that completes commands and options."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")
_UNQUOTED = "COMPREPLY+=($value)"
_QUOTED = """if [[ ${COMP_WORDS[COMP_CWORD]} == [\\"\\']* ]]; then
                COMPREPLY+=("$value")
            else
                COMPREPLY+=("$(printf %q "$value")")
            fi"""
"""The other shells quote what they insert. Bash does not, and `System Manager` became two words."""


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes fw's commands, options and their values.

    For bash: echo 'eval "$(fw completion bash)"' >> ~/.bashrc; for zsh the same with zsh and
    ~/.zshrc; for fish: fw completion fish > ~/.config/fish/completions/fw.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root()
    script = kind(root.command, {}, "fw", "_FW_COMPLETE")
    # Not source(): for bash it runs a bash of this machine, but the script may be for another.
    text = script.source_template % script.source_vars()
    click.echo(text.replace(_UNQUOTED, _QUOTED))
