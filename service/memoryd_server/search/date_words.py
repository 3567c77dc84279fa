"""The words of which dates consist: months, weekdays, seasons, numbers and periods, in a few languages."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

_T = TypeVar("_T")

_MONTHS: Final[Sequence[tuple[str, ...]]] = (
    ("january", "jan", "januar", "janvier", "enero", "gennaio", "janeiro"),
    ("february", "feb", "februar", "février", "febrero", "febbraio", "fevereiro"),
    ("march", "mar", "märz", "mars", "marzo", "março"),
    ("april", "apr", "avril", "abril", "aprile"),
    ("may", "mai", "mayo", "maggio", "maio"),
    ("june", "jun", "juni", "juin", "junio", "giugno", "junho"),
    ("july", "jul", "juli", "juillet", "julio", "luglio", "julho"),
    ("august", "aug", "août", "agosto"),
    ("september", "sep", "sept", "septembre", "septiembre", "settembre", "setembro"),
    ("october", "oct", "oktober", "okt", "octobre", "octubre", "ottobre", "outubro"),
    ("november", "nov", "novembre", "noviembre", "novembro"),
    ("december", "dec", "dezember", "dez", "décembre", "diciembre", "dicembre", "dezembro"),
)
MONTH_NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
)
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
AMBIGUOUS_MONTHS: Final = frozenset({"may", "march", "mar", "mars", "Mars"})
"""Names of months that are also words. Without a year they need a capital, or a preposition before them."""

_COUNTS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
COUNTS: Final[Mapping[str, int]] = MappingProxyType({word: number for number, word in enumerate(_COUNTS, 1)})
ABOUT: Final[Mapping[str, int]] = MappingProxyType({"couple of": 2, "few": 3})
"""Inexact counts, as they are read before "ago"."""
AT_MOST: Final[Mapping[str, int]] = MappingProxyType({"couple of": 3, "few": 5, "several": 7})
"""Inexact counts, and the most days, weeks or months that they mean where a range begins or ends with them."""
ORDINALS: Final[Mapping[str, int]] = MappingProxyType(
    {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}
    | dict.fromkeys(("last", "final", "latter"), -1)
)
"""Positions in a month or year, counted from 1; -1 is the last."""

SEASONS: Final[Mapping[str, int]] = MappingProxyType(
    dict.fromkeys(("spring", "frühling", "frühjahr", "printemps", "primavera"), 3)
    | dict.fromkeys(("summer", "sommer", "été", "verano", "verão"), 6)
    | dict.fromkeys(("autumn", "fall", "herbst", "automne", "otoño", "autunno", "outono"), 9)
    | dict.fromkeys(("winter", "hiver", "invierno", "inverno"), 12)
)
"""The first month of each season on the northern hemisphere, by its name."""
ENGLISH_SEASONS: Final = ("spring", "summer", "autumn", "fall", "winter")
CJK_SEASONS: Final[Mapping[str, int]] = MappingProxyType({"春": 3, "夏": 6, "秋": 9, "冬": 12})

CJK_THIRDS: Final[Mapping[str, int]] = MappingProxyType(
    dict.fromkeys(("上旬", "初旬", "初め", "初頭"), 0)
    | dict.fromkeys(("中旬", "半ば", "中頃", "中ごろ"), 1)
    | dict.fromkeys(("下旬", "末", "底", "終わり"), 2)
)
CJK_HALVES: Final[Mapping[str, int]] = MappingProxyType(
    dict.fromkeys(("前半", "上半期", "上半年", "上半月"), 0) | dict.fromkeys(("後半", "下半期", "下半年", "下半月"), 1)
)
CJK_UNITS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("日間", "日", "天", "일"), "day")
    | dict.fromkeys(("週間", "周间", "週", "周", "星期", "주"), "week")
    | dict.fromkeys(("か月", "ヶ月", "カ月", "ケ月", "ヵ月", "個月", "个月", "개월"), "month")
    | dict.fromkeys(("年間", "年", "년"), "year")
)
CJK_DAYS_AFTER: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"前日": ("day", -1), "翌日": ("day", 1), "次の日": ("day", 1)}
    | dict.fromkeys(("前の週", "前週"), ("week", -1))
    | dict.fromkeys(("次の週", "翌週"), ("week", 1))
)
"""Periods next to a date: the unit, and how many units after the date it is."""
CJK_ORDINALS: Final[Mapping[str, int]] = MappingProxyType({digit: at for at, digit in enumerate("一二三四", 1)})

PHRASES: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    dict.fromkeys(("today", "tonight", "heute", "hoy", "oggi", "aujourd'hui"), ("day", 0))
    | dict.fromkeys(("yesterday", "last night", "gestern", "ayer", "anoche", "ieri"), ("day", 1))
    | dict.fromkeys(("day before yesterday", "vorgestern", "anteayer", "avant-hier"), ("day", 2))
    | dict.fromkeys(("diese woche", "cette semaine", "esta semana"), ("week", 0))
    | dict.fromkeys(("letzte woche", "semaine dernière", "semana pasada"), ("week", 1))
    | dict.fromkeys(("diesen monat", "ce mois-ci", "este mes"), ("month", 0))
    | dict.fromkeys(("letzten monat", "mois dernier", "mes pasado"), ("month", 1))
    | dict.fromkeys(("dieses jahr", "cette année", "este año"), ("year", 0))
    | dict.fromkeys(("letztes jahr", "an dernier", "année dernière", "año pasado"), ("year", 1))
)
"""Periods by the name that they have relative to today: the unit, and how many units ago it is."""
CJK_PHRASES: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    dict.fromkeys(("今日", "本日", "今朝", "今天", "오늘"), ("day", 0))
    | dict.fromkeys(("昨日", "昨夜", "昨晩", "きのう", "昨天", "昨晚", "어제"), ("day", 1))
    | dict.fromkeys(("一昨日", "おととい", "前天", "그저께"), ("day", 2))
    | dict.fromkeys(("今週末",), ("weekend", 0))
    | dict.fromkeys(("先週末", "上周末", "上週末"), ("weekend", 1))
    | dict.fromkeys(("今週", "本周", "本週", "这周", "這週", "이번 주"), ("week", 0))
    | dict.fromkeys(("先週", "上周", "上週", "上星期", "上个星期", "上個星期", "지난주", "지난 주"), ("week", 1))
    | dict.fromkeys(("先々週", "上上周", "上上週"), ("week", 2))
    | dict.fromkeys(("今月", "本月", "这个月", "這個月", "이번 달"), ("month", 0))
    | dict.fromkeys(("先月", "上个月", "上個月", "지난달", "지난 달"), ("month", 1))
    | dict.fromkeys(("先々月",), ("month", 2))
    | dict.fromkeys(("今年", "올해"), ("year", 0))
    | dict.fromkeys(("去年", "昨年", "작년"), ("year", 1))
    | dict.fromkeys(("一昨年", "おととし"), ("year", 2))
)
"""`PHRASES` of languages that do not separate words, or add endings to them."""


def month_number(name: str) -> int:
    """Return the number of the month that has this name, in any case.

    Raises:
        ValueError: no month has this name. A pattern that ignores case also matches letters that are similar to those
            of a name, such as the dotless i.
    """
    return _looked_up(MONTH_NUMBERS, name)


def season_start(name: str) -> int:
    """Return the first month of the season that has this name, in any case. Raises ValueError if none has it."""
    return _looked_up(SEASONS, name)


def phrase_of(text: str) -> tuple[str, int]:
    """Return the period of a phrase of `PHRASES`, in any case and with any space. Raises ValueError if none is it."""
    return _looked_up(PHRASES, text)


def count_of(text: str, inexact: Mapping[str, int] = ABOUT) -> int:
    """Return the number that digits or words are; `inexact` has other words. Raises ValueError if they are none."""
    name = " ".join(text.casefold().split())
    if name in {"a", "an", "the"}:
        return 1
    return inexact.get(name.removeprefix("a ")) or COUNTS.get(name) or int(name)


def either(words: Mapping[str, object] | Sequence[str]) -> str:
    """Return a regular expression that matches each of the words, with any space between their parts."""
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in longest_first)


def _looked_up(words: Mapping[str, _T], text: str) -> _T:
    name = " ".join(text.casefold().split())
    if name not in words:
        raise ValueError(f"{name!r} is not a known word")
    return words[name]


_WORDS_OF_LETTERS = re.compile(r"[^\W\d_]+")
LAST_WORDS: Final = frozenset(_WORDS_OF_LETTERS.findall(phrase)[-1] for phrase in PHRASES)
"""The last word of each of `PHRASES`, one of which a text with a phrase contains."""
