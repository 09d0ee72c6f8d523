"""When a level was proven, and how old that may become."""

from zvault.config.schema import Backup
from zvault.core.integrity.verification import LevelProof
from zvault.daemon.metrics.verification import collect_verification


def test_each_level_that_has_an_interval_has_its_age():
    backup = Backup.model_validate(
        {"source": "tank", "vault": "cold", "every": "1w", "verify": {"every": "30d", "full": "365d"}}
    )
    found = {metric.name: metric for metric in collect_verification({"tank": backup}, {}, {}, 0.0)}
    ages = {sample.labels["level"]: sample.value for sample in found["zvault_verify_max_age_seconds"].samples}
    # Each run proves GUIDs: a weekly backup's are a week old, and that is no verification that somebody missed.
    assert ages == {"sample": 30 * 86400, "full": 365 * 86400}
    away = collect_verification({"tank": backup}, {}, {}, 0.0, {"cold"})
    assert [metric.samples for metric in away if metric.name == "zvault_verify_max_age_seconds"] == [[]]


def test_a_proof_that_is_dated_later_than_now_is_of_no_known_time():
    backup = Backup.model_validate({"source": "tank", "vault": "cold"})
    proofs = {
        "sample": LevelProof(proven=900),
        "full": LevelProof(proven=10**9),
        "drill": LevelProof(proven=1200),
    }
    found = {
        metric.name: metric for metric in collect_verification({"tank": backup}, {"tank": proofs}, {}, 1000.0)
    }
    times = {
        sample.labels["level"]: sample.value for sample in found["zvault_verified_timestamp_seconds"].samples
    }
    assert times == {"sample": 900, "drill": 1000}
