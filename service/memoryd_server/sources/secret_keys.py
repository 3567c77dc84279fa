"""Keys of services, in the formats that the services publish. Pure.

A format is a prefix, the characters after it and how many there are at least. Formats with a mark elsewhere are among
the positions in `secret_forms`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from memoryd_server.sources.secret_values import is_placeholder


@dataclass(frozen=True, slots=True)
class ServiceKeys:
    """Formats of keys that have the same characters after their prefix, and at least `least` of them.

    `prefixes` are in lower case unless `exact_case` is set. If `mixed` is set, a key has a digit or a capital, which
    names of variables do not.
    """

    prefixes: tuple[str, ...]
    characters: str
    least: int
    mixed: bool = True
    exact_case: bool = False

    @property
    def pattern(self) -> str:
        """The pattern of these keys."""
        return rf"(?:{'|'.join(map(re.escape, self.prefixes))})[{self.characters}]{{{self.least},}}+"


_ALNUM, _WORD, _HEX, _BASE64 = "a-z0-9", r"a-z0-9_\-", "a-f0-9", "a-z0-9+/=_"
_DOTTED = r"a-z0-9_.=~\-"

SERVICE_KEYS: Final = (
    # The first ones are those of OpenClaw, of which any word of this length is masked.
    ServiceKeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hf_"), _ALNUM, 20, mixed=False),
    ServiceKeys(("github_pat_",), "a-z0-9_", 20, mixed=False),
    ServiceKeys(
        ("gsk_", "pplx-", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"), _WORD, 10, mixed=False
    ),
    ServiceKeys(("xapp-", "xoxc-", "xoxd-", "xoxe."), r"a-z0-9.%+/\-", 10, mixed=False),
    ServiceKeys(
        ("npm_", "sk_live_", "rk_live_", "sk_test_", "rk_test_", "sk_prod_", "rk_prod_"), _ALNUM, 10, mixed=False
    ),
    ServiceKeys(("glpat-", "gocspx-", "tvly-", "tvly-dev-", "whsec_"), _BASE64 + r"\-", 16, mixed=False),
    ServiceKeys(("aiza", "ya29.", "hvs.", "hvb.", "hvr.", "ya29"), _WORD, 20, mixed=False),
    ServiceKeys(
        (
            *("glcbt-", "gldt-", "glffct-", "glft-", "glimt-", "glagent-", "gloas-", "glptt-", "glrt-", "glsoat-"),
            *("gr1348941", "dckr_pat_", "dckr_oat_", "figd_", "sq0atp-", "sq0csp-", "fio-u-", "pscale_tkn_", "tfp_"),
            *("pscale_pw_", "pscale_oauth_", "tskey-", "duffel_live_", "duffel_test_", "sha256~", "sl.", "hrku-aa"),
            *("memoryd_", "pypi-", "1//0", "lsv2_pt_", "lsv2_sk_", "sntrys_", "vercel_", "fo1_", "sbp_", "csk-"),
            *(
                "sb_secret_",
                "v1.0-",
                "r8_",
                "pk-lf-",
                "sk-lf-",
                "xai-",
                "nvapi-",
                "fw_",
                "jina_",
                "apify_api_",
                "pcsk_",
            ),
            *("tgp_v1_", "dt0c01.", "rubygems_", "cio", "tk-us-", "eaaa", "rpa_", "phx_", "phc_", "secret_", "nfp_"),
            *("atctt3", "atatt3", "atbb", "sgp_", "ls__", "bb_live_", "crsr_", "pa-", "fpk_"),
        ),
        _DOTTED,
        20,
    ),
    ServiceKeys(
        (
            *("lin_api_", "lin_oauth_", "ntn_", "pnu_", "ico-", "glsa_", "api_org_", "shpat_", "shpca_", "shpss_"),
            *(
                "shppa_",
                "dapi",
                "dop_v1_",
                "doo_v1_",
                "dor_v1_",
                "pul-",
                "rdme_",
                "shippo_live_",
                "shippo_test_",
                "p8e-",
            ),
            *(
                "clojars_",
                "sntryu_",
                "xkeysib-",
                "xsmtpsib-",
                "nrak-",
                "nrjs-",
                "nrii-",
                "pmak-",
                "key-",
                "flwseck_test-",
            ),
            *("flwseck-", "sm_aat_", "sm_pat_", "sm_sat_", "ezak", "eztk", "s-s4t2ud-", "s-s4t2af-", "akcp", "cmvmd"),
            *("4b1d", "ltai", "mlsn.", "squ_", "sqp_", "sqa_", "re_", "oy2", "a3-"),
        ),
        _WORD,
        20,
    ),
    ServiceKeys(("glc_", "fm1a_", "fm1r_", "fm2_", "ops_eyj", "absk", "bedrock-api-key-", "eyjrijoi"), _BASE64, 30),
    ServiceKeys(("AGE-SECRET-KEY-1", "age-secret-key-1"), "0-9A-Za-z", 30, exact_case=True),
    ServiceKeys(("AKIA", "ASIA", "ABIA", "ACCA"), "0-9A-Z", 16, exact_case=True, mixed=False),
    ServiceKeys(("EAAM", "EAAC", "EAAG", "EAAB", "A21AA"), r"A-Za-z0-9_\-", 40, exact_case=True),
    ServiceKeys(("SK", "AC"), "a-f0-9", 32, exact_case=True),
    ServiceKeys(("API-",), "A-Z0-9", 26, exact_case=True),
)


KEY_PATTERNS: Final = tuple((keys, re.compile(keys.pattern)) for keys in SERVICE_KEYS)
_LONGEST_PLAIN = 12


def long_words(text: str) -> str:
    """Return the words of a text that are long enough for a key, separated by blanks. Most words are not."""
    return " ".join([word for word in text.split() if len(word) > _LONGEST_PLAIN])


def find_service_keys(text: str, lowered: str, words: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each key in the format of a service.

    `lowered` is `text` in lower case, and `words` the long words of `text`.
    """
    low_words = words.lower()
    for keys, pattern in KEY_PATTERNS:
        if not any(map((words if keys.exact_case else low_words).__contains__, keys.prefixes)):
            continue
        if pattern.search(words if keys.exact_case else low_words) is None:
            continue
        for match in pattern.finditer(text if keys.exact_case else lowered):
            start, end = match.span()
            if text[max(0, start - 1) : start].isalnum():
                continue
            if (not keys.mixed or _is_key(text[start:end])) and not is_placeholder(text[start:end]):
                yield start, end


_WORDS = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*[-_.]?\d{0,4}|(?:[A-Za-z]+[-_.])+v?\d[\d.]*")


def is_name(value: str) -> bool:
    """Return whether a value is a name of several words, perhaps with a number or version."""
    return _WORDS.fullmatch(value) is not None


def _is_key(value: str) -> bool:
    """Distinguish a key from a name of several words."""
    digits = sum(character.isdigit() for character in value)
    longest = max(map(len, re.split(r"[-_.]", value)))
    return digits > 1 and longest >= _LEAST_UNBROKEN_KEY and not is_name(value)


_LEAST_UNBROKEN_KEY = 10
