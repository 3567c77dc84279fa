"""The texts of a flush: safe for every custom text, and dated in the requested time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from memoryd_server.sessions.flush import (
    _SAFETY_HINTS,
    _SILENT_HINT,
    SILENT_REPLY,
    FlushInputs,
    FlushPolicy,
    decide_flush,
)

NOON = datetime(2026, 2, 8, 12, 0, tzinfo=UTC)


def decided(now=NOON, zone="", policy_zone="UTC", prompt=None, system_prompt=None):
    policy = FlushPolicy(True, 20_000, 4_000, 0, prompt, system_prompt, policy_zone)
    return decide_flush(FlushInputs(now=now, time_zone=zone), policy)


def utc(*fields):
    return datetime(*fields, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "zone", "day"),
    [
        (utc(2026, 2, 8, 23, 59), "UTC", "2026-02-08"),
        (utc(2026, 2, 9, 0, 0), "UTC", "2026-02-09"),
        (utc(2026, 2, 8, 23, 30), "Europe/Berlin", "2026-02-09"),
        (utc(2026, 2, 9, 4, 59), "America/New_York", "2026-02-08"),
        (utc(2026, 2, 9, 5, 0), "America/New_York", "2026-02-09"),
        (utc(2026, 2, 8, 10, 0), "Pacific/Kiritimati", "2026-02-09"),
        (utc(2026, 2, 9, 10, 59), "Pacific/Pago_Pago", "2026-02-08"),
        (utc(2026, 2, 8, 18, 15), "Asia/Kathmandu", "2026-02-09"),
        (utc(2026, 2, 8, 18, 14), "Asia/Kathmandu", "2026-02-08"),
        # Clocks go forward, and back.
        (utc(2026, 3, 29, 21, 59), "Europe/Berlin", "2026-03-29"),
        (utc(2026, 3, 29, 22, 0), "Europe/Berlin", "2026-03-30"),
        (utc(2026, 10, 25, 22, 59), "Europe/Berlin", "2026-10-25"),
        (utc(2026, 10, 25, 23, 0), "Europe/Berlin", "2026-10-26"),
        # A leap day, and the turn of the year.
        (utc(2028, 2, 29, 0, 30), "UTC", "2028-02-29"),
        (utc(2028, 2, 29, 0, 30), "America/New_York", "2028-02-28"),
        (utc(2026, 12, 31, 23, 30), "Asia/Tokyo", "2027-01-01"),
    ],
)
def test_the_log_is_that_of_the_day_in_the_zone(now, zone, day):
    decision = decided(now, zone)
    assert decision.target_path == f"memory/{day}.md"
    assert f"memory/{day}.md" in decision.prompts.user
    assert f"memory/{day}.md" in decision.prompts.system


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/New_York", "2026-03-08", 23),
        ("America/New_York", "2026-11-01", 25),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        # Its clocks go forward at midnight, so that the day begins at one o'clock.
        ("Africa/Cairo", "2026-04-24", 23),
        ("Asia/Kolkata", "2028-02-29", 24),
        ("UTC", "2100-02-28", 24),
    ],
)
def test_every_minute_of_a_day_has_that_day_s_log_however_long_the_day_is(zone, day, hours):
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    quarters = [noon + timedelta(minutes=15 * n) for n in range(-4 * 24, 4 * 24)]
    of_the_day = [now for now in quarters if decided(now, zone).target_path == f"memory/{day}.md"]
    assert len(of_the_day) == hours * 4
    assert of_the_day[-1] - of_the_day[0] == timedelta(hours=hours, minutes=-15)


def test_the_hour_that_comes_twice_is_distinguished_by_its_offset():
    first, again = (decided(utc(2026, 10, 25, hour, 30), "Europe/Berlin").prompts.user for hour in (0, 1))
    assert first.endswith("Current time: 2026-10-25 02:30+02:00 (Europe/Berlin)")
    assert again.endswith("Current time: 2026-10-25 02:30+01:00 (Europe/Berlin)")


def test_the_day_does_not_depend_on_the_zone_that_the_clock_is_given_in():
    from_utc = decided(utc(2026, 2, 8, 23, 30), "Europe/Berlin")
    moved = utc(2026, 2, 8, 23, 30).astimezone(from_utc.inputs.now.tzinfo)
    assert decided(moved, "Europe/Berlin").target_path == from_utc.target_path


def test_without_a_zone_the_one_of_the_settings_counts():
    assert decided(utc(2026, 2, 8, 23, 30), "", "Europe/Berlin").target_path == "memory/2026-02-09.md"


@pytest.mark.parametrize("zone", ["Nope/Zone", "../etc/passwd", "/etc/localtime", "America", "a\0b", "x" * 5000])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(ValueError, match="unknown time zone"):
        decided(zone=zone)


def test_a_naive_clock_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        decided(datetime(2026, 2, 8))  # noqa: DTZ001 -- the point


def test_a_clock_without_a_day_in_the_zone_is_refused():
    with pytest.raises(ValueError, match="no date"):
        decided(utc(1, 1, 1), "America/New_York")


def check_complete(text):
    assert "YYYY-MM-DD" not in text
    assert SILENT_REPLY in text
    for hint in _SAFETY_HINTS:
        assert text.count(hint.replace("YYYY-MM-DD", "2026-02-08")) == 1


@pytest.mark.parametrize("custom", [None, "", " \n", "Write notes.", "Write to memory/YYYY-MM-DD.md (YYYY-MM-DD)."])
def test_every_text_has_each_safety_hint_once_and_names_the_silent_reply(custom):
    prompts = decided(prompt=custom, system_prompt=custom).prompts
    check_complete(prompts.user)
    check_complete(prompts.system)


def test_a_hint_that_a_custom_text_has_is_not_said_again():
    custom = "Do it. " + "\n".join(_SAFETY_HINTS).upper().replace("YYYY", "yyyy").replace(" ", "\n")
    user = decided(prompt=custom).prompts.user
    assert not any(hint.replace("YYYY-MM-DD", "2026-02-08") in user for hint in _SAFETY_HINTS)


def test_the_silent_reply_is_explained_only_where_the_text_does_not_name_it():
    assert _SILENT_HINT in decided(prompt="Write.").prompts.user
    assert _SILENT_HINT not in decided(prompt="Write, else NO_REPLY.").prompts.user


def test_a_custom_text_stays_as_it_is_before_the_hints():
    custom = "Keep {braces} and %s, 100 %."
    prompts = decided(prompt=custom, system_prompt=custom).prompts
    assert prompts.user.startswith(custom + "\n")
    assert prompts.system.startswith(custom + "\n")


def test_every_date_of_both_texts_is_filled_in():
    text = "YYYY-MM-DD, memory/YYYY-MM-DD.md, YYYY-MM-DDTHH"
    prompts = decided(prompt=text, system_prompt=text).prompts
    for filled in (prompts.user, prompts.system):
        assert filled.startswith("2026-02-08, memory/2026-02-08.md, 2026-02-08THH")


def test_the_user_text_ends_with_the_time_in_the_zone():
    assert decided(zone="Europe/Berlin").prompts.user.splitlines()[-1] == (
        "Current time: 2026-02-08 13:00+01:00 (Europe/Berlin)"
    )
    assert "Current time:" not in decided().prompts.system


def test_a_time_that_the_text_has_is_not_said_again():
    user = decided(prompt="Current time: noon").prompts.user
    assert user.count("Current time:") == 1


def test_the_prompt_names_the_silent_reply():
    assert decided().prompts.silent_reply == "NO_REPLY"
