"""Programs that stand in Slurm's place: shell scripts named as they are, in a folder of PATH. Not a test module."""

from __future__ import annotations

from pathlib import Path


def put_program(folder: Path, body: str, name: str = "scontrol") -> Path:
    """Make a program of the lines of a shell script, which finds the system's own programs; return it."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")
    program.chmod(0o755)
    return program
