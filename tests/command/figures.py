"""What tests measured with ``record_property(FIGURE, …)``, shown at the end of a run: a plugin of those folders."""

from __future__ import annotations

import pytest

FIGURE = "figure"


def register(config: pytest.Config) -> None:
    """Show figures at the end of this run, once."""
    if not config.pluginmanager.has_plugin(FIGURE):
        config.pluginmanager.register(_Figures(), FIGURE)


class _Figures:
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show what was measured, also when all tests passed."""
        reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        found = [
            (report.nodeid, value) for report in reports for name, value in report.user_properties if name == FIGURE
        ]
        if found:
            terminalreporter.section("figures")
        for nodeid, value in found:
            terminalreporter.write_line(f"{nodeid.rpartition('::')[2]}: {value}")
