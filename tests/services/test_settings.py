"""A bad setting stops start-up by its name and value."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.errors import SettingsError
from services.settings import RoomSettings, Settings, read_room_settings, read_settings


class OvenSettings(RoomSettings, frozen=True, kw_only=True):
    shelves: int = 2
    heat_c: float = 180.0
    fan: bool = False
    label: str


def test_without_any_variable_the_defaults_hold():
    assert read_settings({"HOME": "/root", "PATH": "/bin"}) == Settings()


def test_variables_become_typed_values():
    environ = {
        "PERPETUNE_NATS_URL": "nats://127.0.0.1:1",
        "PERPETUNE_CONNECT_TIMEOUT_S": "2.5",
        "PERPETUNE_RUN_DIR": "/tmp/r",
    }
    settings = read_settings(environ)
    assert settings.nats_url == "nats://127.0.0.1:1"
    assert settings.connect_timeout_s == 2.5
    assert settings.blobs_path == Path("/tmp/r/blobs")
    assert settings.traces_path == Path("/tmp/r/traces")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PERPETUNE_CONNECT_TIMEOUT_S", "soon", "float"),
        ("PERPETUNE_CONNECT_TIMEOUT_S", "0", "over 0"),
        ("PERPETUNE_CONNECT_TIMEOUT_S", "nan", "over 0"),
        ("PERPETUNE_LOG_LEVEL", "loud", "debug, info, warning, error"),
        ("PERPETUNE_NATS_URLS", "x", "is no setting"),
    ],
)
def test_a_bad_or_unknown_setting_is_named_with_its_value(name, value, why):
    with pytest.raises(SettingsError) as caught:
        read_settings({name: value})
    said = str(caught.value)
    assert f"{name}={value!r}" in said
    assert why in said
    assert "\n" not in said


def test_settings_of_another_room_are_not_this_ones_business():
    read_settings({"PERPETUNE_EVALUATOR_SHELVES": "x"})


def test_a_room_reads_its_own_settings():
    environ = {
        "PERPETUNE_EVALUATOR_LABEL": "a",
        "PERPETUNE_EVALUATOR_SHELVES": "3",
        "PERPETUNE_EVALUATOR_FAN": "true",
    }
    assert read_room_settings(OvenSettings, "evaluator", environ) == OvenSettings(
        label="a", shelves=3, fan=True
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"SHELVES": "x", "LABEL": "a"}, "PERPETUNE_EVALUATOR_SHELVES='x'"),
        ({"LABEL": "a", "COLOUR": "red"}, "PERPETUNE_EVALUATOR_COLOUR='red' is no setting"),
        ({}, "label"),
    ],
)
def test_a_rooms_bad_setting_is_named(given, said):
    environ = {f"PERPETUNE_EVALUATOR_{name}": value for name, value in given.items()}
    with pytest.raises(SettingsError, match=said):
        read_room_settings(OvenSettings, "evaluator", environ)


def test_a_room_with_a_bad_setting_ends_with_one_line_and_a_code():
    script = (
        "import sys; from services.main import run_room;"
        "sys.exit(run_room('kitchen', lambda ports, settings: None))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PERPETUNE_LOG_LEVEL": "loud"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "PERPETUNE_LOG_LEVEL='loud'" in line
