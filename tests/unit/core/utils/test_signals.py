from __future__ import annotations

import pytest

from gobblin_dagster.core.utils.signals import raise_hidden_interrupt


def failed_in(hidden: BaseException) -> Exception:
    """Return an error that came up while another exception was on its way."""
    try:
        try:
            raise hidden
        finally:
            raise ConnectionError("no connection")
    except ConnectionError as error:
        return error


def test_interrupt_that_an_error_took_the_place_of_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        raise_hidden_interrupt(failed_in(KeyboardInterrupt()))
    raise_hidden_interrupt(failed_in(ValueError()))
    raise_hidden_interrupt(failed_in(GeneratorExit()))


def test_interrupt_whose_end_is_recorded_meanwhile_goes_on_by_itself() -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as handled:
        raise_hidden_interrupt(failed_in(ValueError()), handled)
        with pytest.raises(SystemExit):
            raise_hidden_interrupt(failed_in(SystemExit()), handled)
