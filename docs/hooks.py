"""Fills in what the site takes from the code: options of commands, error codes, the module tree."""

import ast
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs calls this for every page."""
    for name, write in {
        "commands": write_commands,
        "codes": write_codes,
        "tree": write_tree,
    }.items():
        if f"<!-- {name} -->" in markdown:
            markdown = markdown.replace(f"<!-- {name} -->", write())
    return markdown


def write_commands() -> str:
    """A section for each command, from the same help texts as `--help`."""
    import typer

    from glassrank.cli import make_app

    commands = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    return "\n".join(_write_command(name, command) for name, command in sorted(commands.items()))


def _write_command(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(["glassrank", name, *(_placeholder(each) for each in arguments)])
    lines = [f"## {name}", "", _one_line(command.help), "", f"    {usage} [OPTIONS]", ""]
    rows = [(f"`{_placeholder(each)}`", each.help, "") for each in arguments]
    rows += [
        (
            ", ".join(f"`{flag}`" for flag in [*each.opts, *each.secondary_opts]),
            each.help,
            _default(each),
        )
        for each in options
        if not getattr(each, "hidden", False)
    ]
    lines += ["| option | meaning | default |", "|---|---|---|"]
    lines += [f"| {flags} | {_one_line(about)} | {default} |" for flags, about, default in rows]
    return "\n".join([*lines, ""])


def _placeholder(argument: Any) -> str:
    shown = str(argument.name).upper() + ("…" if argument.nargs == -1 else "")
    return shown if argument.required else f"[{shown}]"


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "required"
    if callable(value) or value is None or value is False or value in ((), []):
        return ""
    return f"`{value}`"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", r"\|").replace("[", r"\[")


def write_codes() -> str:
    """A table of the codes of our errors."""
    from glassrank.errors import ERROR_CODES

    rows = [f"| `{code}` | {meaning} |" for code, meaning in ERROR_CODES.items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def write_tree() -> str:
    """A table for each package: its modules, with the first sentence of each docstring."""
    package = ROOT / "glassrank"
    folders: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        about = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0]
        folder = path.parent.relative_to(ROOT).as_posix()
        if path.name != "__init__.py":
            folders.setdefault(folder, []).append(f"| `{path.name}` | {_one_line(about)} |")
    return "\n".join(
        f"### `{folder}/`\n\n| module | role |\n|---|---|\n" + "\n".join(rows) + "\n"
        for folder, rows in folders.items()
    )
