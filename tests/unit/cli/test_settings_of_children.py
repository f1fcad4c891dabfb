import os

import pytest

from cli.config import join_models, load_settings
from cli.doctor import mask
from cli.exposure import check_exposure, is_loopback
from cli.local_keys import ensure_seal
from cli.processes import BROKER, FRONT, WORK, plan_processes
from core.errors import InvalidInput
from core.settings import Settings, child_environment, limit_spinning


def test_a_child_reads_the_very_settings(monkeypatch, tmp_path):
    settings = Settings(
        data_dir=tmp_path,
        redis_url="redis://:secret@host/1",
        auth=False,
        lease_s=1.5,
        models="a=/x,whisper-base",
        aligner="/y",
    )
    monkeypatch.setenv("SCRIPTORIUM_LEASE_S", "99")
    environment = child_environment(settings, log_format="json")
    for name, value in environment.items():
        if name.startswith("SCRIPTORIUM_"):
            monkeypatch.setenv(name, value)
    child = Settings()
    changed = {
        name: getattr(child, name)
        for name in Settings.model_fields
        if getattr(child, name) != getattr(settings, name)
    }
    assert changed == {"log_format": "json"}


def test_what_is_not_ours_is_passed_on_and_the_rest_of_ours_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("SCRIPTORIUM_TYPO", "1")
    environment = child_environment(Settings(data_dir=tmp_path))
    assert environment["AWS_REGION"] == "eu-central-1"
    assert "SCRIPTORIUM_TYPO" not in environment
    assert "SCRIPTORIUM_DATABASE_URL" not in environment


def test_options_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("SCRIPTORIUM_MODELS", "whisper-tiny")
    assert load_settings(models=None).models == "whisper-tiny"
    assert load_settings(models=join_models(["a", "b"])).models == "a,b"


def test_a_value_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.setenv("SCRIPTORIUM_LEASE_S", "-1")
    with pytest.raises(InvalidInput, match="SCRIPTORIUM_LEASE_S"):
        load_settings()


def test_cores_are_shared_among_recognising_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("cli.processes.num_cores", lambda: 8)
    specs = plan_processes(
        Settings(data_dir=tmp_path), adapters=["qwen3_asr", "whisper"], workers=2, listen_fd=7
    )
    threads = {s.name: s.environment["SCRIPTORIUM_THREADS"] for s in specs if "asr" in s.name}
    assert threads == {
        "asr-qwen3_asr": "4",
        "asr-qwen3_asr-2": "4",
        "asr-whisper": "4",
        "asr-whisper-2": "4",
    }


@pytest.mark.parametrize(
    ("device", "dealt"), [("auto", ["auto:0", "auto:1", "auto:2", "auto:3"]), ("cpu", ["cpu"] * 4)]
)
def test_gpus_are_dealt_out_unless_one_is_named(tmp_path, device, dealt):
    settings = Settings(data_dir=tmp_path, device=device)
    specs = plan_processes(settings, adapters=["x", "y"], workers=2, listen_fd=7)
    devices = [s.environment["SCRIPTORIUM_DEVICE"] for s in specs if "asr" in s.name]
    assert devices == dealt


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "auto:-1"])
def test_a_device_that_cannot_be_is_refused(monkeypatch, device):
    monkeypatch.setenv("SCRIPTORIUM_DEVICE", device)
    with pytest.raises(InvalidInput, match="SCRIPTORIUM_DEVICE"):
        load_settings()


def test_what_takes_work_in_ends_before_what_does_it(tmp_path):
    specs = plan_processes(Settings(data_dir=tmp_path), adapters=["x"], workers=1, listen_fd=7)
    assert {s.name for s in specs if s.stage == FRONT} == {"api", "beat"}
    assert {s.name for s in specs if s.stage == WORK} == {"media", "upkeep", "asr-x"}
    assert FRONT < WORK < BROKER


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_key(host):
    assert is_loopback(host)
    check_exposure(host, is_auth_on=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])  # noqa: S104
def test_a_network_is_never_served_without_keys(host):
    check_exposure(host, is_auth_on=True)
    with pytest.raises(InvalidInput, match="--no-auth"):
        check_exposure(host, is_auth_on=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (8000, "8000"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("https://user:secret@s3.example/", "https://user:***@s3.example/"),
    ],
)
def test_settings_are_shown_without_passwords(value, shown):
    assert mask(value) == shown


def test_secret_settings_are_shown_without_their_secrets():
    settings = Settings(
        database_url="postgresql://u:secret@db/x?password=secret", redis_url="redis://redis/0"
    )
    assert "secret" not in mask(settings.database_url)
    assert mask(settings.redis_url) == "redis://redis/0"
    assert mask(Settings(seal_keys="secret" * 6).seal_keys) == "***"


def test_a_key_that_seals_is_not_a_short_one():
    with pytest.raises(ValueError, match="32 characters"):
        Settings(seal_keys=f"{'a' * 32},short")


def test_the_embedded_database_gets_a_key_of_its_own_once(tmp_path):
    assert Settings(data_dir=tmp_path).sealer.mark is None
    ensure_seal(Settings(data_dir=tmp_path))
    mark = Settings(data_dir=tmp_path).sealer.mark
    ensure_seal(Settings(data_dir=tmp_path))
    assert Settings(data_dir=tmp_path).sealer.mark == mark is not None
    assert (tmp_path / "seal.key").stat().st_mode & 0o077 == 0

    (tmp_path / "seal.key").write_text("")
    with pytest.raises(InvalidInput, match="damaged"):
        _ = Settings(data_dir=tmp_path).sealer

    elsewhere = Settings(data_dir=tmp_path, database_url="postgresql://db/x")
    assert elsewhere.sealer.mark is None  # that database may have other users
    chosen = Settings(data_dir=tmp_path, seal_keys="a" * 32)
    ensure_seal(chosen)
    assert chosen.sealer.mark != mark


@pytest.mark.parametrize(
    ("chosen", "spins"),
    [
        ({}, "20000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, None),
    ],
)
def test_threads_spin_shortly_unless_the_operator_has_chosen(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], spins: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)

    limit_spinning()

    assert os.environ.get("GOMP_SPINCOUNT") == spins
