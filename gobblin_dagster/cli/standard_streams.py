"""Standard input, output and error of a process whose caller closed some of them: cron and daemons do (`>&-`)."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Let each standard stream that is closed read nothing, or drop what is written.

    Call it before files are opened: the next file, perhaps the state store, would get the number of the stream, and
    what libraries and child processes print would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
        os.set_inheritable(opened, opened == number)
        stream = os.fdopen(opened, "w" if number else "r", encoding="utf-8")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
