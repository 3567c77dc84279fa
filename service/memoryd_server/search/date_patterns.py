"""The patterns of dates in a query, each with its reader.

They apply one after the other. What a pattern reads is replaced by a placeholder, which hides it from the next ones.
The last patterns match placeholders: they read a part of a date, the days before or after it, and a range of two dates.
"""

import re
from collections.abc import Sequence
from typing import Final

from memoryd_server.search import date_readers as readers
from memoryd_server.search.date_readers import FILL, MARK, Reader
from memoryd_server.search.date_words import (
    AT_MOST,
    CJK_DAYS_AFTER,
    CJK_HALVES,
    CJK_PHRASES,
    CJK_SEASONS,
    CJK_THIRDS,
    CJK_UNITS,
    COUNTS,
    ENGLISH_SEASONS,
    MONTH_NUMBERS,
    ORDINALS,
    PHRASES,
    SEASONS,
    WEEKDAYS,
    either,
)

_MONTH_NAME = rf"(?:{either(MONTH_NUMBERS)})\b\.?"
_MONTH = rf"(?P<month>{either(MONTH_NUMBERS)})\b\.?"
_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th|er|º|\.)?(?![0-9])"
_UNTIL = r"(?P<until>[0-3]?[0-9])(?:st|nd|rd|th|er|º|\.(?![0-9]))?+(?![\w:])"
_YEAR = r"(?P<year>(?:19|20)[0-9]{2})(?![0-9])"
_OF = r"(?:\s+(?:of|de|del|d'))?"
_OF_YEAR = rf"(?:{_OF},?\s*{_YEAR})"
_UNIT = "(?P<unit>day|weekend|week|month|year)"
_COUNT = rf"[0-9]{{1,3}}|{either(COUNTS)}"
_INEXACT = rf"(?:a\s+)?(?:{either(AT_MOST)})"
_ARTICLE = r"(?:(?:the|dem|el|le|il)\s+)?"
_TO = (
    r"(?:\s*(?:[-\u2013\u2014~\u301c\uff5e至到]|から|부터|\.\.)\s*"
    rf"|\s+(?:to|through|thru|until|till|bis|au|al|hasta)\s+){_ARTICLE}"
)
_AND = rf"\s+(?:and|und|et|y|e)\s+{_ARTICLE}"
_BETWEEN = rf"\b(?:between|zwischen|entre|tra)\s+{_ARTICLE}"
_FROM = rf"\b(?:from|between|von|vom|zwischen|du|del|desde|entre)\s+{_ARTICLE}"

_DATE = f"{MARK}{FILL}*"
_NAMED = f"(?P<named>{_DATE})"

# Parts of a month or year, of which a month, a year or a placeholder follows.
_EARLY = r"(?P<early>early|anfang|début|(?:beginning|start)\s+of|principios\s+de)"
_MIDDLE = r"(?P<middle>mid|mitte|middle\s+of|mediados\s+de)"
_LATE = r"(?P<late>late|ende|fin|end\s+of|finales\s+de)"
_NUMBERED_PART = rf"(?P<ordinal>{either(ORDINALS)})\s+(?P<part>weekend|week|half)"
_EDGE = rf"(?P<edge>first|last|final)\s+(?:(?P<count>{_COUNT}|{_INEXACT})\s+)?(?P<length>day|week|month)(?P<plural>s)?"
_PART = rf"\b(?:(?:{_EARLY}|{_MIDDLE}|{_LATE})[\s-]+(?:in\s+)?|(?:{_NUMBERED_PART}|{_EDGE})\s+(?:of|in)\s+(?:the\s+)?)"
_ONLY_YEAR = r"(?P<only_year>(?:19|20)[0-9]{2})(?!\w|[.:/-][0-9])"
# Words that make "spring" and "fall" something else than a season.
_NO_SEASON = (
    r"(?!\s+(?:[0-9]|(?:boot|cloud|security|framework|mvc|data|cleaning|roll"
    r"|over|under|into|within|through|behind|apart|back|down|off|short|of|victim)\b))"
)

# Space is matched possessively where a particle may follow it that more space may follow.
_CJK_YEAR = r"(?P<year>[0-9]{4})\s*[年년]\s*+"
_CJK_MONTH = r"(?P<month>[0-9]{1,2})\s*[月월]\s*+"
_CJK_DAY = r"(?P<day>[0-9]{1,2})\s*[日号號일]"
_CJK_OF = r"\s*+(?:[の的]\s*+)?"
_CJK_PART = (
    rf"{_CJK_OF}(?:(?P<third>{either(CJK_THIRDS)})(?!て)|(?P<half>{either(CJK_HALVES)})"
    r"|第\s*(?P<week>[1-4一二三四])\s*[週周])"
)
# Some names of people and places begin with a season.
_CJK_SEASON = rf"(?:{either(CJK_SEASONS)})(?![目葉叶田日山川野節节])"
_CJK_UNIT = rf"(?P<unit>{either(CJK_UNITS)})"
_CJK_TO = r"(?:[-\u2013~\u301c\uff5e至到]|から|부터)\s*"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


# What is written in numbers, the least ambiguous first.
_NUMBERS: Final[Sequence[tuple[re.Pattern[str], Reader]]] = (
    (
        _pattern(r"(?<![0-9])(?P<year>[0-9]{4})([-/.])(?P<month>[0-9]{1,2})\2(?P<day>[0-9]{1,2})(?![0-9])"),
        readers.numbered_day,
    ),
    (
        _pattern(
            rf"(?<![0-9])(?:{_CJK_YEAR})?{_CJK_MONTH}(?P<day>[0-9]{{1,2}})\s*+(?:[日号號일]\s*+)?{_CJK_TO}"
            r"(?P<until>[0-9]{1,2})\s*[日号號일]"
        ),
        readers.numbered_days,
    ),
    (_pattern(_CJK_YEAR + _CJK_MONTH + _CJK_DAY), readers.numbered_day),
    (_pattern(rf"(?<![0-9])(?:{_CJK_YEAR}(?:の\s*+)?)?{_CJK_MONTH}{_CJK_PART}"), readers.part_of_cjk_month),
    (_pattern(_CJK_YEAR + _CJK_MONTH), readers.numbered_month),
    (_pattern(rf"(?<![0-9]){_CJK_MONTH}{_CJK_DAY}"), readers.yearless_day),
    (_pattern(rf"(?<![0-9])(?P<only_year>[0-9]{{4}})\s*年{_CJK_PART}"), readers.part_of_year),
    (
        _pattern(rf"(?<![0-9])(?P<only_year>[0-9]{{4}})\s*年{_CJK_OF}(?P<season>{_CJK_SEASON})"),
        readers.season_of_year,
    ),
    (
        _pattern(r"(?<![0-9.])(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>(?:19|20)[0-9]{2})(?![0-9])"),
        readers.numbered_day,
    ),
    (
        _pattern(r"(?<![0-9-])(?P<year>(?:19|20)[0-9]{2})-(?P<month>[01][0-9])(?![0-9年년-])"),
        readers.numbered_month,
    ),
)
_NAMES: Final[Sequence[tuple[re.Pattern[str], Reader]]] = (
    (
        _pattern(rf"{_BETWEEN}{_MONTH}\s+(?:the\s+)?{_DAY}{_AND}{_UNTIL}(?!{_OF}\s*{_MONTH_NAME})(?:,?\s*{_YEAR})?"),
        readers.named_days,
    ),
    (
        _pattern(
            rf"\b(?!mars\b){_MONTH}\s+(?:the\s+)?{_DAY}{_TO}{_UNTIL}(?!{_OF}\s*{_MONTH_NAME}|\s?[ap]\.?m\b)"
            rf"(?:,?\s*{_YEAR})?"
        ),
        readers.named_days,
    ),
    (_pattern(rf"{_BETWEEN}{_DAY}{_AND}{_UNTIL}{_OF}\s*{_MONTH}{_OF_YEAR}?"), readers.named_days),
    (_pattern(rf"(?<![\w.]){_DAY}{_TO}{_UNTIL}{_OF}\s*{_MONTH}{_OF_YEAR}?"), readers.named_days_first),
    (_pattern(rf"{_PART}{_MONTH}(?:{_OF_YEAR}|(?![\w']|\s+[0-9]))"), readers.part_of_month),
    (_pattern(_PART + _ONLY_YEAR), readers.part_of_year),
    (_pattern(rf"(?<![\w.]){_DAY}{_OF}\s*{_MONTH}{_OF_YEAR}?"), readers.named_day),
    (_pattern(rf"\b(?!mars\b){_MONTH}\s+(?:the\s+)?{_DAY}(?!:)(?:,?\s*{_YEAR})?"), readers.named_day),
    (_pattern(rf"\b{_MONTH}{_OF_YEAR}"), readers.named_month),
    (_pattern(rf"\b(?:in|during|last|this)\s+{_MONTH}(?P<year>(?!))?(?![\w'])"), readers.named_month),
    (
        _pattern(
            rf"\b(?P<season>{either(SEASONS)}){_OF},?\s+(?P<year>(?:19|20)[0-9]{{2}})"
            r"(?:\s?[/\u2013-]\s?(?P<next>(?:[0-9]{2})?[0-9]{2}))?(?!\w|[.:][0-9])"
        ),
        readers.named_season,
    ),
)
# What is relative to today.
_PHRASES: Final[Sequence[tuple[re.Pattern[str], Reader]]] = (
    # Some words for today also mean nowadays.
    (_pattern(rf"(?<!\w)(?<!noch\s)(?:{either(PHRASES)})(?!\w|\s+en\s+día)"), readers.phrase),
    (_pattern(rf"(?<!即使在)(?<!即便在)(?:{either(CJK_PHRASES)})(?!子|날|では|でも|に至)"), readers.cjk_phrase),
    (_pattern(rf"\b(?:last|past|previous|on)\s+(?P<weekday>{either(WEEKDAYS)})\b"), readers.weekday),
    (
        _pattern(rf"\b(?P<which>this|last|past|previous)\s+(?P<season>{either(ENGLISH_SEASONS)})\b{_NO_SEASON}"),
        readers.relative_season,
    ),
    (
        _pattern(
            rf"\b(?:last|past|previous)\s+(?P<count>{_COUNT}|{_INEXACT})\s+(?P<unit>day|week|month)s?\b(?!\s+of\b)"
        ),
        readers.until_today,
    ),
    (
        _pattern(r"\b(?P<which>this|last|past|previous)\s+(?P<unit>weekend|week|month|year)\b(?!\s+of\b)"),
        readers.period,
    ),
    (_pattern(rf"\b(?P<count>an?|{_INEXACT}|{_COUNT})\s+{_UNIT}s?\s+ago\b"), readers.ago),
    (_pattern(rf"(?<![0-9])(?P<count>[0-9]{{1,3}})\s*{_CJK_UNIT}\s*以?(?:前|전)(?![後后])"), readers.ago),
    (
        _pattern(rf"(?:過去|过去|最近|直近|この|지난)\s*(?P<count>[0-9]{{1,3}})\s*{_CJK_UNIT}"),
        readers.until_today,
    ),
)
_COMPOUNDS: Final[Sequence[tuple[re.Pattern[str], Reader]]] = (
    (_pattern(_PART + _NAMED), readers.part_of_date),
    (_pattern(rf"{_NAMED}{_CJK_PART}"), readers.part_of_date),
    (_pattern(rf"\b(?P<season>{either(ENGLISH_SEASONS)})\s+(?:of\s+)?{_NAMED}"), readers.season_of_date),
    (_pattern(rf"{_NAMED}'s\s+(?P<season>{either(ENGLISH_SEASONS)})\b"), readers.season_of_date),
    (_pattern(rf"{_NAMED}{_CJK_OF}(?P<season>{_CJK_SEASON})"), readers.season_of_date),
    (
        _pattern(
            rf"(?:\b(?P<count>an?|the|{_COUNT}|{_INEXACT})\s+)?\b(?P<unit>day|weekend|week|month)(?P<plural>s)?\s+"
            rf"(?:(?P<before>before|preceding|prior\s+to)|after|following|(?P<around>of))\s+(?:the\s+)?{_NAMED}"
        ),
        readers.near_date,
    ),
    (_pattern(rf"{_NAMED}{_CJK_OF}(?P<relation>{either(CJK_DAYS_AFTER)})"), readers.cjk_near_date),
    (
        _pattern(rf"{_FROM}(?P<start>{_DATE}|{_MONTH_NAME})(?:{_TO}|{_AND})(?P<end>{_DATE}|{_MONTH_NAME}(?![\w']))"),
        readers.date_range,
    ),
    (_pattern(rf"(?P<start>{_DATE}|\b{_MONTH_NAME}){_TO}(?P<end>{_DATE})"), readers.date_range),
)
PATTERNS: Final[Sequence[tuple[re.Pattern[str], Reader]]] = (*_NUMBERS, *_NAMES, *_PHRASES, *_COMPOUNDS)
"""The patterns in the order in which they apply."""
