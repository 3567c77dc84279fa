"""`memoryd completion`: print the script that completes the command in a shell."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    bash: add `eval "$(memoryd completion bash)"` to ~/.bashrc

    zsh: add `eval "$(memoryd completion zsh)"` to ~/.zshrc, after compinit

    fish: memoryd completion fish > ~/.config/fish/completions/memoryd.fish
    """
    root = ctx.find_root().command
    found = get_completion_class(shell)
    if found is None:
        raise AssertionError(f"click has no completion for {shell}")
    click.echo(found(root, {}, "memoryd", "_MEMORYD_COMPLETE").source())
