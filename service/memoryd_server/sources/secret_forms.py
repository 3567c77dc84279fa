"""Secrets that are recognized by their position: headers, URLs, cookies, command lines, web tokens. Pure.

`FORMS` lists the positions: a pattern with a group `secret` and a condition that distinguishes a secret from ordinary
text in the same position. A pattern takes linear time for any text: each repetition has a limit or is possessive.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from memoryd_server.sources.secret_keys import is_name
from memoryd_server.sources.secret_values import (
    is_label,
    is_placeholder,
    is_plain_word,
    is_prose_word,
    looks_chosen,
    looks_random,
)


@dataclass(frozen=True, slots=True)
class FormMatch:
    """A match of a form. The pattern sees `text` in lower case; the groups are as they were written."""

    text: str
    match: re.Match[str]

    def __getitem__(self, group: str) -> str:
        """Return the text of a group; empty if it did not take part in the match."""
        start, end = self.match.span(group)
        return self.text[start:end] if start >= 0 else ""

    @property
    def secret(self) -> str:
        """The possible secret."""
        return self["secret"]

    def command(self, count: int = 240) -> str:
        """Return the part of the command line before the match, in lower case, of at most `count` characters."""
        start = self.match.start()
        return _COMMAND_ENDS.split(self.text[max(0, start - count) : start].lower())[-1]


_COMMAND_ENDS = re.compile(r"[|;\n]|&&")
Judge = Callable[[FormMatch], bool]


def is_given(candidate: FormMatch) -> bool:
    """Return whether a value is given, and not a placeholder for one."""
    return not is_placeholder(candidate.secret)


@dataclass(frozen=True, slots=True)
class SecretForm:
    """One form of secret: the group `secret` of `pattern`, if `is_secret` accepts the match.

    Only texts that contain one of `hints`, in lower case, are searched. Most texts contain none, and a substring search
    is about a hundred times as fast as a pattern. Patterns see
    the text in lower case. If `in_long_word` is set, a secret is in a long word, and texts without one
    are not searched.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    is_secret: Judge = is_given
    in_long_word: bool = False


_LEAST_UNBROKEN = 16


def _is_openai_like(candidate: FormMatch) -> bool:
    """Distinguish a key from words joined by hyphens, such as `sk-learn-style-names`."""
    unbroken = max(len(piece) for piece in re.split(r"[-_]", candidate.secret))
    return is_unlike_words(candidate.secret) or unbroken >= _LEAST_UNBROKEN


def is_unlike_words(value: str) -> bool:
    """Return whether a value has a digit or a capital."""
    return any(character.isdigit() or character.isupper() for character in value)


_NUMBER = re.compile(r"\d{1,6}")
_HTTP_CLIENT = re.compile(r"\b(?:curl|wget|https?|xh|httpie)\b")


def _is_user_password(candidate: FormMatch) -> bool:
    """Distinguish `curl -u name:password` from `docker run -u 1000:1000` and `--user nginx:nginx`."""
    name, secret = candidate["name"], candidate.secret
    if is_placeholder(secret) or name.startswith("$") or (_NUMBER.fullmatch(secret) and _NUMBER.fullmatch(name)):
        return False
    ordinary = is_plain_word(secret) or candidate["joint"] == "" or candidate["option"] not in ("-u", "--user")
    return not ordinary or _HTTP_CLIENT.search(candidate.command()) is not None


_OPTIONS: Final = {
    "-p": re.compile(
        r"\b(?:mysql\w*|mariadb\w*|sshpass|(?:docker|podman|nerdctl|oc|cf|az|registry|helm)\b[^|;]{0,80}?\blogin|7z\w?|rar"
        r"|mongo(?:sh|dump|restore|export|import)?|twine|psexec|vncviewer)\b"
    ),
    "-P": re.compile(r"\b(?:unzip|zip|sqlcmd|bcp|osql|mosquitto_\w+|ipmitool)\b"),
    "-N": re.compile(r"\bssh-keygen\b"),
    "-k": re.compile(r"\bopenssl\b"),
    "-a": re.compile(r"\b(?:redis-cli|valkey-cli)\b"),
    "-w": re.compile(r"\b(?:ldap\w+|security)\b"),
    "/p": re.compile(r"\b(?:xfreerdp|mstsc|schtasks)\b"),
    "/pass": re.compile(r"\bcmdkey\b"),
}
_JOINED_OPTION = re.compile(r"\b(?:mysql\w*|mariadb\w*|sshpass|7z\w?|rar|mongo\w*|xfreerdp|cmdkey)\b")
_MYSQL = re.compile(r"\b(?:mysql|mariadb)")


def _is_option_value(candidate: FormMatch) -> bool:
    """Return whether an option of one letter is that of a password, which depends on the command."""
    secret, command = candidate.secret, candidate.command()
    option = candidate["option"].partition(":")[0]
    known = _OPTIONS.get(option)
    if known is None or is_placeholder(secret) or secret.startswith("-"):
        return False
    name = next(reversed([found[0] for found in known.finditer(command)]), "")
    if candidate["joint"] == "":
        return option in ("-p", "/p", "/pass") and _JOINED_OPTION.search(name) is not None
    # MySQL takes no password after a blank: it asks for one, and the next word is a database.
    return bool(name) and _MYSQL.search(name) is None and _NUMBER.fullmatch(secret) is None


_PORT = re.compile(r"\d{1,5}(?:/.*)?")


def _is_url_password(candidate: FormMatch) -> bool:
    return is_given(candidate) and _PORT.fullmatch(candidate.secret) is None


def _is_url_token(candidate: FormMatch) -> bool:
    return is_given(candidate) and looks_random(candidate.secret)


def _is_header_value(candidate: FormMatch) -> bool:
    secret = candidate.secret
    if is_placeholder(secret) or is_prose_word(secret):
        return False
    return looks_random(secret) or (bool(candidate["scheme"]) and (len(secret) >= _LEAST_UNBROKEN or "=" in secret))


def _is_bearer(candidate: FormMatch) -> bool:
    return is_given(candidate) and (candidate.secret.isalnum() or not is_name(candidate.secret))


def _is_random(candidate: FormMatch) -> bool:
    return is_given(candidate) and looks_random(candidate.secret)


def _is_marked(candidate: FormMatch) -> bool:
    """Distinguish a key with a mark inside it from a dotted name."""
    first, _, last = candidate.secret.partition(".")
    return is_given(candidate) and (first[:1] not in ("m", "n", "o") or any(c.isdigit() for c in last[-27:]))


def _is_argument(candidate: FormMatch) -> bool:
    secret = candidate.secret
    quoted = candidate["first"][:1] in ("'", '"')
    return is_given(candidate) and (
        quoted or (not is_plain_word(secret) and not is_label(secret) and " " not in secret)
    )


def _is_chosen(candidate: FormMatch) -> bool:
    return is_given(candidate) and looks_chosen(candidate.secret)


def _is_bot_token(candidate: FormMatch) -> bool:
    start = candidate.match.start()
    before = candidate.text[max(0, start - 3) : start].lower()
    follows = before[-1:].isalnum() or before.endswith("_")
    return is_unlike_words(candidate["token"]) and (not follows or before == "bot")


_SCHEMES = (
    "bearer|basic|token|bot|api-?key|key|ssws|splunk|negotiate|ntlm|genie(?:key)?|oauth|digest|hawk|hmac|jwt|mac|aws"
    "|sharedkey(?:lite)?|sharedaccesssignature|aws4-hmac-sha256|pve(?:api)?token|vapid|signature"
)
_PARAMETERS = (
    r"\w[\w-]{0,30}\s?=\s?(?:\\{0,16}\"[^\"\\]{0,512}\\{0,16}\"|[^\s\",;']{1,1024}+)(?:,\s{0,4}|(?=[\s\"';]|\Z))"
)
_NOT_IN_URL = r"\s\"'<>`"

FORMS: Final[tuple[SecretForm, ...]] = (
    # Authorization: Bearer ..., Authorization: Digest username="...", ...
    SecretForm(
        ("authorization",),
        re.compile(
            r"authorization(?:\\{0,16}[\"'])?\s{0,4}[:=,]\s{0,4}(?:\\{0,16}[\"'])?(?:(?P<scheme>"
            rf"{_SCHEMES})\s{{1,4}})?(?P<secret>(?:{_PARAMETERS}){{1,24}}+|[a-z0-9._\-+=/~:|!%]{{3,}}+)"
        ),
        _is_header_value,
    ),
    SecretForm(("bearer",), re.compile(r"\bbearer\s{1,4}(?P<secret>[a-z0-9._\-+=/~]{18,}+)"), _is_bearer),
    SecretForm(("basic",), re.compile(r"\bbasic\s{1,4}(?P<secret>[a-z0-9+/=]{12,}+)"), _is_random),
    SecretForm(
        ("cookie", " -b"),
        re.compile(
            r"(?:cookie[\"']?\s?:\s?[\"']?|\s-b\s[\"']?)"
            r"(?P<secret>(?:[\w.%-]{1,64}=[^\s;\"'=]{8,1024}+={0,2};?\s?){1,64}+)"
        ),
    ),
    # postgres://name:...@host; a password with a slash only where no path can follow a port.
    SecretForm(
        ("://",),
        re.compile(rf"://[^/:@?#{_NOT_IN_URL}]{{0,256}}+:(?P<secret>[^/{_NOT_IN_URL}]{{1,512}})@"),
        _is_url_password,
    ),
    SecretForm(
        ("://",),
        re.compile(
            rf"(?<!http)(?<!https)://[^/:@?#{_NOT_IN_URL}]{{0,128}}+:(?P<secret>[^@{_NOT_IN_URL}]{{1,128}}+)@(?=[a-z0-9\[])"
        ),
        _is_url_password,
    ),
    # https://TOKEN@host
    SecretForm(
        ("://",),
        re.compile(rf"://(?P<secret>[^/:@?#{_NOT_IN_URL}]{{16,256}}+)(?::[^/@{_NOT_IN_URL}]{{0,64}})?@"),
        _is_url_token,
    ),
    SecretForm(
        ("sig", "auth", "code", "key", "pass", "pw"),
        re.compile(
            r"[?&#;](?:[\w-]{0,24}signature|sig|auth|authkey|auth_?token|code|pw|key|x-amz-credential)="
            r"(?P<secret>[^&\s\"'#<>]{8,1024}+)"
        ),
        _is_random,
    ),
    # .netrc
    SecretForm(("login",), re.compile(r"\blogin\s{1,4}\S{1,100}+\s{1,4}password\s{1,4}(?P<secret>[^\s\"'`]{1,256}+)")),
    # A line of .pgpass
    SecretForm(
        (":54", ":*:"),
        re.compile(r"(?<!\S)[\w.*-]{1,100}+:(?:\d{2,5}|\*):[\w.*-]{1,64}+:[\w.*-]{1,64}+:(?P<secret>[^\s:]{3,256}+)"),
    ),
    # Lines of settings and of routers that have a blank between name and value.
    SecretForm(
        ("requirepass", "masterauth", "secret", "password"),
        re.compile(r"\b(?:requirepass|masterauth|(?:password|secret)\s[0-9])\s(?P<secret>[^\s\"']{4,256}+)"),
    ),
    SecretForm(
        ("hooks.slack.com", "webhook"),
        re.compile(
            r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|/api(?:/v\d{1,2})?/webhooks|office\.com/webhookb2"
            r"|/incomingwebhook|hooks\.zapier\.com/hooks/catch|/webhook/v1)/(?P<secret>[a-z0-9_/@-]{20,1024}+)"
        ),
    ),
    # curl -u name:...; a run of "=" is part of the separator, or of the name if there is no other name.
    SecretForm(
        ("-u", "-su", "-ku", "-fu", "-lu", "-vu", "-iu", "-user", "-a ", "-auth"),
        re.compile(
            r"(?<!\S)(?P<option>-[a-z]{0,4}u|--user|--proxy-user|-a|--auth)(?P<joint>[\s=]{0,8}+)(?P<open>[\"'])?(?P<name>[^\s:\"']{1,100}+):"
            r"(?P<secret>(?(open)[^\"']{1,256}|[^\s\"'`]{1,256}))"
        ),
        _is_user_password,
    ),
    # smbclient -U name%...
    SecretForm(("-u ",), re.compile(r"(?<!\S)-u\s[\"']?[\w.\\/-]{1,64}+%(?P<secret>[^\s\"']{2,256}+)")),
    # mysql -p...; the command decides what the option means.
    SecretForm(
        ("-p", "-a", "-w", "-n", "-k", "/p:"),
        re.compile(
            r"(?<!\S)(?P<option>-[pawnk]|/p(?:ass)?:)(?P<joint>\s?)(?P<quote>[\"'])?"
            r"(?P<secret>(?(quote)[^\"']{1,256}|[^\s\"'|;&<>]{1,256}))"
        ),
        _is_option_value,
    ),
    SecretForm((" pass:",), re.compile(r"\s-?pass(?:in|out)?(?:\s|=)pass:(?P<secret>[^\s\"']{2,256}+)")),
    # echo ... | sudo -S
    SecretForm(
        ("echo", "printf"),
        re.compile(
            r"\b(?:echo|printf)\s(?:-\w{1,4}\s)?(?P<quote>[\"']?)(?P<secret>[^\"'|\n$]{2,128})(?P=quote)\s?\|\s?"
            r"(?:sudo\s(?:-s|chpasswd)|chpasswd|[^|\n]{0,200}-stdin)"
        ),
    ),
    # Commands that take a password by its position
    SecretForm(
        ("htpasswd", "net use", "sqlplus", ":oracle:", "securestring", "snmp-server"),
        re.compile(
            r"(?:\bhtpasswd\s-\w{0,4}b\w{0,4}\s\S{1,128}+\s\S{1,64}+\s|\bnet\suser\s\S{1,64}+\s|\bnet\suse\s\S{1,128}+\s"
            r"(?:\\\\\S{1,128}+\s)?(?=\S{1,64}+\s/user:)|(?:\bsqlplus\s(?:-\w\s)?|:oracle:\w{1,8}:)\w{1,64}+/(?=[^\s@]{1,64}@)"
            r"|securestring\s(?:-\w{1,16}\s)?(?=[\"'])|\bsnmp-server\scommunity\s)[\"']?(?P<secret>[^\s@/*\"'][^\s@/\"']{2,128}+)"
        ),
    ),
    # A password in the address that a command connects to
    SecretForm(
        ("ssh ", "sftp ", "scp ", "ftp "),
        re.compile(r"\b(?:ssh|s?ftp|scp)\s[\w.-]{1,64}+:(?P<secret>[^\s@/:]{2,128}+)@[\w.-]"),
    ),
    # A name and a password after a word for both
    SecretForm(
        ("cred", "login", "user", "zugang", "daten", "identifiants"),
        re.compile(
            r"\b(?:cred(?:ential)?s?|zugangsdaten|logindaten|anmeldedaten|zugang|credenciales|identifiants|credenziali|login|user(?:name)?\s?/\s?(?:pass(?:word)?|pw))(?:\s?:|\sare|\sis)?\s[\w.@-]{1,64}+\s?[:/]\s?"
            r"(?P<secret>[^\s\"'`]{6,128}+)"
        ),
        _is_chosen,
    ),
    # A name and a password before a host, and the code of a wireless network
    SecretForm(
        ("@",),
        re.compile(r"(?<![\w/:.@%-])[\w.-]{1,32}+:(?P<secret>[^\s:@/\"'<>`]{5,64}+)@(?=[a-z0-9])"),
        _is_chosen,
    ),
    SecretForm(("wifi:",), re.compile(r"wifi:\S{0,128}?;p:(?P<secret>[^;\s]{4,64}+);")),
    # Codes of a second factor
    SecretForm(
        ("code",),
        re.compile(
            r"\b(?:verification|security|2fa|mfa|authentication|login|one-time|sms|confirmation|auth)[ -](?:pass)?code"
            r"(?:\sis)?\s?[:=]?\s(?P<secret>\d{3}[ -]?\d{3}|\d{4,8})\b"
        ),
    ),
    # Arguments of functions, as in `basic_auth("name", "...")` and `jwt.sign(payload, "...")`
    SecretForm(
        ("auth", "login", "credential", "mysqli", "getconnection", "jwt"),
        re.compile(
            r"\b(?:(?:auth\s?=\s?|\w{0,16}basic_?auth|login|authenticate|auth|(?:network)?credentials?)\(\s?"
            r"|(?:mysqli(?:_connect)?|getconnection)\(\s?(?:[\"'][^\"']{0,100}[\"']|[\w.]{1,40})\s?,\s?|\.auth\s=\s\("
            r"|jwt\.(?:sign|verify|encode|decode)\()(?P<first>[\"'][^\"']{0,100}[\"']|[\w.]{1,40})"
            r"\s?,\s{0,4}(?P<quote>[\"'])(?P<secret>[^\"']{2,256})(?P=quote)\s?[,)]"
        ),
        _is_argument,
    ),
    # Twelve or more words that restore a wallet
    SecretForm(
        ("mnemonic", "seed phrase", "recovery phrase", "seedphrase"),
        re.compile(
            r"(?:mnemonic|(?:seed|recovery)\s?phrase)[\"'*_]{0,4}\s?(?:is|[:=])?\s?[\"'`*]{0,2}"
            r"(?P<secret>[a-z]{3,8}(?:\s[a-z]{3,8}){11,23})"
        ),
    ),
    SecretForm(("sk-",), re.compile(r"(?<![a-z0-9])(?P<secret>sk-[a-z0-9_-]{8,}+)"), _is_openai_like),
    SecretForm(
        ("eyj",),
        re.compile(
            r"(?<![a-z0-9_-])(?P<secret>(?:eyj|sk\.eyj|pk\.eyj)[a-z0-9_-]{8,}+\.[a-z0-9_-]{8,}+(?:\.[a-z0-9_-]*+){0,3})"
        ),
    ),
    # Services with a mark in the middle or at the end of their keys
    SecretForm(
        (".", "_mmk", "-us", "a3-", "2/"),
        re.compile(
            r"(?<![a-z0-9])(?P<secret>[a-z0-9]{14}\.atlasv1\.[a-z0-9_=-]{60,}+|[a-z0-9_~.]{3}\dq~[a-z0-9_~.-]{31,}+"
            r"|[a-z0-9]{6}_[a-z0-9]{29}_mmk|[a-f0-9]{32}-us\d{1,2}\b|[ps]at\.[\w-]{20,24}\.[a-z0-9]{20,28}\.[a-z0-9]{18,24}"
            r"|pat[a-z0-9]{14}\.[a-f0-9]{60,}+|sg\.[\w-]{16,64}+\.[\w-]{16,}+|[mno][\w-]{23,27}\.[\w-]{6,7}\.[\w-]{27,}+"
            r"|(?:dp\.(?:pt|st|ct|sa|scim|audit)\.)[a-z0-9]{30,}+|2/\d{15,16}/\d{15,16}:[a-f0-9]{32}"
            r"|a3-[a-z0-9]{6}-[a-z0-9]{6,11}(?:-[a-z0-9]{5}){3,5})"
        ),
        _is_marked,
        in_long_word=True,
    ),
    # Telegram bots
    SecretForm(
        (":", "%3a"),
        re.compile(r"(?P<secret>\d{6,16}+(?::|%3a)(?P<token>[a-z0-9_-]{20,}+))"),
        _is_bot_token,
        in_long_word=True,
    ),
)


def find_forms(text: str, lowered: str, long_words: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each secret in one of `FORMS`.

    `lowered` is `text` in lower case, and `long_words` the long words of `lowered`.
    """
    for form in FORMS:
        if not any(map(lowered.__contains__, form.hints)):
            continue
        if form.in_long_word and form.pattern.search(long_words) is None:
            continue
        for match in form.pattern.finditer(lowered):
            start, end = match.span("secret")
            # Text before an ellipsis is the beginning of a masked secret.
            if form.is_secret(FormMatch(text, match)) and text[end : end + 1] != "…":
                yield start, end
