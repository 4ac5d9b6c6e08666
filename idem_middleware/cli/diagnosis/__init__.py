"""An operator's closing checklist: what to check of a table and of a configuration, and how to mend what is wrong."""

from __future__ import annotations

from idem_middleware.cli.diagnosis.configuration import check_configuration
from idem_middleware.cli.diagnosis.findings import Circumstances, Finding, Light, worst
from idem_middleware.cli.diagnosis.tables import check_table_of

__all__ = ["Circumstances", "Finding", "Light", "check_configuration", "check_table_of", "worst"]
