"""The container files name what exists: services, commands, settings, queues, packages."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import adapters.loading  # noqa: F401 - registers every family
import cli.main
from adapters.registry import resolve_adapter
from core import queues
from core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_every_process_of_the_service_is_there() -> None:
    assert {SERVICES[name]["command"][0] for name in OURS} == {"api", "beat", "migrate", "worker"}
    assert {"postgres", "redis", "s3"} == set(SERVICES) - set(OURS)


@pytest.mark.parametrize("service", OURS)
def test_the_command_is_one_of_the_command_line(service: str) -> None:
    group = get_command(cli.main.app)
    name, *arguments = SERVICES[service]["command"]

    command = group.commands[name]  # type: ignore[attr-defined]

    # Raises for an unknown option or a value of the wrong type.
    assert command.make_context(name, arguments) is not None


@pytest.mark.parametrize("service", OURS)
def test_its_variables_are_settings(service: str) -> None:
    fields = {f"SCRIPTORIUM_{name.upper()}" for name in Settings.model_fields}
    given = {name for name in SERVICES[service]["environment"] if name.startswith("SCRIPTORIUM_")}

    assert given <= fields
    assert {"SCRIPTORIUM_DATABASE_URL", "SCRIPTORIUM_REDIS_URL", "SCRIPTORIUM_STORAGE_URL"} <= given


@pytest.mark.parametrize(
    ("profile", "architectures"),
    [
        ("cpu", ["WhisperForConditionalGeneration"]),
        ("gpu", ["WhisperForConditionalGeneration", "Qwen3ASRForConditionalGeneration"]),
    ],
)
def test_somebody_listens_on_every_queue(profile: str, architectures: list[str]) -> None:
    listened = {
        queue
        for name in OURS
        if SERVICES[name].get("profiles", [profile]) == [profile]
        for option, value in zip(SERVICES[name]["command"], SERVICES[name]["command"][1:])  # noqa: B905
        if option == "--queues"
        for queue in value.split(",")
    }
    families = [
        resolve_adapter([name]).describe({"architectures": [name]}) for name in architectures
    ]

    assert listened == {
        queues.MEDIA_QUEUE,
        queues.DELIVERY_QUEUE,
        queues.MAINTENANCE_QUEUE,
        *(queues.asr_queue(family.name) for family in families),
    }


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_it_waits_only_for_services_that_tell_when_they_are_ready(service: str) -> None:
    for name, how in SERVICES[service].get("depends_on", {}).items():
        match how["condition"]:
            case "service_healthy":
                assert "healthcheck" in SERVICES[name]
            case "service_completed_successfully":
                assert SERVICES[name]["restart"].startswith("on-failure")
            case condition:
                pytest.fail(f"{service} does not wait for {name}: {condition}")


@pytest.mark.parametrize("service", sorted(set(SERVICES) - {"migrate"}))
def test_it_comes_back_after_a_crash(service: str) -> None:
    assert SERVICES[service]["restart"] == "unless-stopped"


def test_every_worker_has_a_health_check_of_its_own_name() -> None:
    for name in OURS:
        command = SERVICES[name]["command"]
        if command[0] == "worker":
            assert command[1:3] == ["--name", SERVICES[name]["environment"]["WORKER_NAME"]]
            assert "$$WORKER_NAME@$$HOSTNAME" in SERVICES[name]["healthcheck"]["test"][1]


def test_volumes_are_declared_and_used() -> None:
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
    }

    assert used == set(COMPOSE["volumes"])


def test_the_example_has_every_variable_and_no_secret() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    example = dict(
        line.split("=", 1)
        for line in (ROOT / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )

    assert set(re.findall(r"\$\{(\w+)", text)) == set(example)
    assert not any(value for name, value in example.items() if "PASSWORD" in name or "KEY" in name)


def test_the_images_that_are_built_exist_and_run_as_nobody_in_particular() -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    parents = {name: parent for parent, name in stages}

    for name in OURS:
        target = SERVICES[name]["build"]["target"]
        assert SERVICES[name]["image"].endswith(f":{target}")
        assert parents[target] == "runtime"
    runtime = DOCKERFILE.split("AS runtime")[1].split("\nFROM ")[0]
    assert "\nUSER scriptorium\n" in runtime
    assert "\nSTOPSIGNAL SIGTERM\n" in runtime


def test_what_is_installed_is_all_of_the_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = set(re.findall(r"^!(\w+)/$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    written = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}

    assert packages == written
    assert copied == written
