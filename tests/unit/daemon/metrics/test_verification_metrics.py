"""How old a proof may become, by level."""

from zvault.config.schema import Backup
from zvault.daemon.metrics.verification import verify_metrics


def test_each_level_that_has_an_interval_has_its_age():
    backup = Backup.model_validate(
        {"source": "tank", "vault": "cold", "every": "1w", "verify": {"every": "30d", "full": "365d"}}
    )
    found = {metric.name: metric for metric in verify_metrics({"tank": backup}, {}, {})}
    ages = {sample.labels["level"]: sample.value for sample in found["zvault_verify_max_age_seconds"].samples}
    # Each run proves GUIDs: a weekly backup's are a week old, and that is no verification that somebody missed.
    assert ages == {"sample": 30 * 86400, "full": 365 * 86400}
