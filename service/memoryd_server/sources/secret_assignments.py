"""Secrets that a name announces: `DB_PASS=...`, `"apiKey": "..."`, `<password>...`, `--token ...`, `пароль: ...`. Pure.

A pattern finds a word such as `password` or `key` and what connects its name with a value. The name, the end of the
value and whether it is a secret are then decided by code, because quotes, escapes and prose are beyond a pattern. Each
step has a limit, so the time is linear in the length of the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from memoryd_server.sources.secret_values import (
    Likelihood,
    is_label,
    is_message,
    is_pin,
    is_placeholder,
    is_plain_word,
    is_prose_word,
    is_reference,
    is_switch,
    likelihood,
    looks_chosen,
    looks_generated,
    looks_random,
    words_of,
)

_ASCII_WORDS: Final = (
    *("pass", "pwd", "pw", "secret", "token", "key", "cred", "auth", "cookie", "session", "sid", "psk", "pin", "otp"),
    *("puk", "sig", "salt", "_pat", "dsn", "license", "kennwort", "contrasena", "clave", "senha", "mdp", "wachtwoord"),
    *("haslo", "heslo", "parola", "sifre", "losenord", "salasana", "adgangs", "jelszo", "lozinka", "geslo"),
    *("mot de passe", "identified by"),
)
_FOREIGN_WORDS: Final = (
    *("contraseña", "hasło", "şifre", "lösenord", "jelszó", "slaptažodis", "пароль", "пароля", "κωδικός", "סיסמה"),
    *("पासवर्ड", "mật khẩu"),
)
# Languages that are written without blanks: the name is the word itself, and its value is in ASCII.
_UNSPACED_WORDS: Final = ("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호", "รหัสผ่าน")

# What follows the name. Lower case; each part has a limit.
_QUOTE_NEXT = r"(?=\\{0,16}[\"'`])"
_TYPED = r":\s?[&']{0,2}[a-z][\w.]{0,40}(?:[<\[][\w., |]{0,40}[>\]])?(?:\s?\|\s?\w{1,20}){0,2}\??\s?=(?![=>])"
_ABOUT = (
    r"(?:(?:\s\d{1,2}|\s?\([^()\n]{1,30}\)|\s\[[^\[\]\n]{1,30}\]"
    r"|\s(?:for|of|to|für|de|pour|del|da|do|dla|van|til|von|zum|zur)\s[^\s:=\"'<>,;]{1,40}(?:\s[^\s:=\"'<>,;]{1,40}){0,2})(?=\s?[:=]))?"
)
_OPERATOR = rf"{_TYPED}|(?:\|\||\?\?)=|[:?+]?={{1,3}}>?|->|<-|→|:(?!:|//)"
_TAIL = (
    r"(?:"
    r"(?P<element>(?:\s[\w:.-]{1,30}\s?=\s?\"[^\"<>]{0,60}\"){0,3}\s{0,2}>(?:\s{0,8}<value>)?)"
    r"|(?P<elements></[\w:]{1,20}>\s{0,8}<[\w:]{1,20}>)"
    r"|(?P<pair>\s{0,4}[,{]?\s{0,16}\\{0,16}[\"']?(?:value|default)\\{0,16}[\"']?\s{0,4}[:=]\s{0,4})"
    rf"|(?P<assign>(?:{_ABOUT}\s{{0,8}}(?:{_OPERATOR})(?:(?:\*\*|__|[*_])(?=\s))?\s{{0,8}}(?:[|>][+-]?\s{{1,16}})?))"
    r"|(?P<is>s?\s(?:for\s\S{1,30}\s)?(?:(?:is|was|has\sbeen|will\sbe)?\s?(?:changed|set|reset|now|rotated)?\s?(?:to|as)|is\snow|is|was"
    r"|lautet|ist|es|est|è|jest|är|er|[-\u2013\u2014])\s?:?\s|s\s|\s?(?:是|為|为|は|은|는)\s?:?\s?)"
    r"|(?P<cell>\s?\|\s?)"
    rf"|(?P<call>\(\s?{_QUOTE_NEXT})"
    rf"|(?P<item>,\s{{0,4}}{_QUOTE_NEXT})"
    rf"|(?P<blank>\s{{1,8}}{_QUOTE_NEXT})"
    r"|(?P<option>\s{1,8}(?=\S))"
    r")"
)
_CLOSED = r"(?:\\{0,16}[\"'`]|[*_\])}]){0,4}"


_CONNECTED = re.compile(rf"(?P<rest>(?:[a-z0-9_]|-(?=[a-z0-9_])){{0,24}}+){_CLOSED}{_TAIL}")
_CONNECTED_ABROAD = re.compile(rf"(?P<rest>){_CLOSED}{_TAIL}")

_MOST_OPTION = 32
_WITH_DIGIT = re.compile(r"[^\s\d]{0,64}+\d")
# Commands that set a variable or a setting, and options.
_SETTER = re.compile(r"(?:\b(?:set|setx|env|setenv|config)\s(?:-\w{1,9}\s)?)[\w./:-]{0,30}$")
_OPTION_BEFORE = re.compile(r"(?:-|\b(?:set|setx|env|setenv|config)\s)[\w./:\s-]{0,30}$")
_MOST_NAME = 64
_MOST_VALUE = 512
_LONG_VALUE = 64
_OPEN = re.compile(r"(?P<prefix>[fFbBrRuUlLnN@$]{0,2})(?P<escape>\\{0,16})(?P<quote>[\"`]{3}|'''|[\"'`])")
# Full-width punctuation ends a value.
_RUN = re.compile(
    r"(?:[^\s\"'`,;&|<>)}\]\\\uff0c\uff1b\u3002\u3001\uff08\uff09\uff01\uff1f]|\\(?![\"'nrt])|(?<=\w)'(?=\w)"
    r"|[,;&|)}\]<>](?![\s\"'`,;&|)}\]<>]|\Z|[\w.-]{1,40}\s?[=:>]|/)){1,512}+"
)
_QUALIFIERS = (
    *("api", "access", "auth", "secret", "private", "bot", "license", "encryption", "refresh", "session", "master"),
    *("account", "bearer", "client", "signing", "deploy", "service", "recovery", "security"),
)
_MOST_QUALIFIER = 12
_NAMED = re.compile(r"(?:name|key)\\{0,16}\s?[=:]\s?\\{0,16}[\"']?$")


@dataclass(frozen=True, slots=True)
class _Value:
    """A value at `start` to `end`. `prefix` is that of its string literal, such as `f`."""

    text: str
    start: int
    end: int
    quoted: bool
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class _Context:
    """What is known of a name and its connection to a value."""

    name: str
    likelihood: Likelihood
    kind: str
    operator: str
    is_flag: bool


def find_assigned(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each secret that a name announces. `lowered` is `text` in lower case."""
    yield from _find(_ASCII_WORDS, _CONNECTED, text, lowered)
    if not text.isascii():
        yield from _find((*_FOREIGN_WORDS, *_UNSPACED_WORDS), _CONNECTED_ABROAD, text, lowered)


def _find(words: tuple[str, ...], pattern: re.Pattern[str], text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for word in words:
        at = lowered.find(word)
        while at >= 0:
            after = at + len(word)
            match = pattern.match(lowered, after)
            found = None if match is None else _secret(word, at, match, text, lowered)
            if found is not None:
                start, end, is_secret = found
                if is_secret:
                    yield start, end
                # A long value is not searched for the same word: it would be read once for each.
                if is_secret or end - start > _LONG_VALUE:
                    after = end
            at = lowered.find(word, after)


def _secret(word: str, at: int, match: re.Match[str], text: str, lowered: str) -> tuple[int, int, bool] | None:
    """Return where the value is that a word at a position announces, and whether it is a secret; None without one."""
    if match.lastgroup == "option" and not _may_be_option(at, match.end(), lowered):
        return None
    context = _context(word, at, match, text, lowered)
    if context is None:
        return None
    value = _xml_value(text, match.end()) if context.kind.startswith("element") else _value(text, match.end())
    if value is not None and word in _UNSPACED_WORDS:
        value = _ascii_part(value)
    return None if value is None else (value.start, value.end, _is_secret(context, value, text))


def _may_be_option(at: int, value: int, lowered: str) -> bool:
    """Return whether a word with only a blank after it can announce a value."""
    before = max(0, at - _MOST_OPTION)
    return _WITH_DIGIT.match(lowered, value) is not None or _OPTION_BEFORE.search(lowered, before, at) is not None


def _context(word: str, at: int, match: re.Match[str], text: str, lowered: str) -> _Context | None:
    """Return the context of a match; None if its name is not that of a secret, or is not connected to a value."""
    start = at
    if word in _UNSPACED_WORDS:
        name = word
    else:
        while start > 0 and at - start < _MOST_NAME and (text[start - 1].isalnum() or text[start - 1] in "_-."):
            start -= 1
        name = text[start : match.end("rest")]
    before = text[start - 1 : start]
    is_flag = name.startswith("-")
    name = name.lstrip("-.")
    if word in ("key", "token") and lowered[start - 1 : start] in (" ", "-") and not is_flag:
        name = _qualified(name, lowered, start)
    kind = match.lastgroup or ""
    found = Likelihood.STRONG if word == "identified by" else likelihood(name)
    if found is Likelihood.NONE:
        return None
    operator = match[kind].strip()
    if before == "<" and text[start - 2 : start - 1] in ("P", "?"):
        return None
    if kind == "element" and not (before in ("<", ":") or _NAMED.search(lowered, max(0, start - 16), start)):
        return None
    if operator == ":" and before == ":" and not match[kind].endswith(" "):
        return None
    if kind in ("option", "blank") and not is_flag and _SETTER.search(lowered, max(0, start - _MOST_OPTION), start):
        kind, is_flag = "setting", True
    if kind == "option" and not is_flag:
        kind = "word"
    return _Context(name, found, kind, operator, is_flag)


def _qualified(name: str, lowered: str, start: int) -> str:
    """Return a name with the word before it, as in `access token`."""
    before = lowered[max(0, start - _MOST_QUALIFIER) : start - 1]
    return next((f"{word} {name}" for word in _QUALIFIERS if before.endswith(word)), name)


def _value(text: str, at: int) -> _Value | None:
    """Return the quoted or unquoted value at a position; None if there is none."""
    opened = _OPEN.match(text, at)
    if opened is not None:
        start = opened.end()
        end = _quoted_end(text, start, opened["quote"], len(opened["escape"]))
        if end is not None:
            return _Value(text[start:end], start, end, quoted=True, prefix=opened["prefix"]) if end > start else None
        at = start
    run = _RUN.match(text, at)
    if run is None:
        return None
    value = run[0].rstrip(".,;:")
    return _Value(value, at, at + len(value), quoted=False) if value else None


def _ascii_part(value: _Value) -> _Value:
    """Return the part of a value before the first character of a script without blanks, unless it begins with one."""
    length = next((at for at, character in enumerate(value.text) if not character.isascii()), len(value.text))
    return replace(value, text=value.text[:length], end=value.start + length) if length else value


def _quoted_end(text: str, start: int, quote: str, escapes: int) -> int | None:
    """Return where a quoted value ends; None if its quote is not closed within the limit.

    `escapes` is the number of backslashes before the opening quote: as many are before the closing one.
    """
    limit = min(len(text), start + _MOST_VALUE)
    at = start
    while (at := text.find(quote, at, limit)) >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        count = at - before
        if escapes == 0 and at > start and text.startswith(quote, at + len(quote)):
            # A doubled quote is one of the value.
            at += len(quote)
        elif (count % 2 == 0) if escapes == 0 else (count <= escapes):
            return before if escapes else at
        at += 1
    return None


def _xml_value(text: str, start: int) -> _Value | None:
    if text.startswith("<![CDATA[", start):
        start += len("<![CDATA[")
        end = text.find("]]>", start, start + _MOST_VALUE)
    else:
        end = text.find("<", start, start + _MOST_VALUE)
    if end < 0 or not (value := text[start:end].strip()):
        return None
    start = text.index(value, start)
    return _Value(value, start, start + len(value), quoted=True)


_LOOSE = frozenset({"is", "cell", "item", "call", "blank", "word"})


def _is_secret(context: _Context, value: _Value, text: str) -> bool:
    is_short = context.likelihood is Likelihood.WEAK and len(value.text) < _LEAST_WEAK and not value.text.isdigit()
    if is_short or _is_stand_in(context, value, text):
        return False
    if context.kind in _LOOSE and not context.is_flag:
        return _is_loose_secret(context, value, text)
    if is_pin(context.name):
        return _is_pin_value(value.text)
    if not value.quoted and _is_expression(context, value, text):
        return False
    return _is_likely_secret(context, value)


def _is_likely_secret(context: _Context, value: _Value) -> bool:
    if context.likelihood is Likelihood.STRONG:
        return _is_strong_secret(context, value)
    if context.likelihood is Likelihood.QUALIFIED:
        return _is_qualified_secret(value.text)
    if words_of(context.name)[-1:] == ["session"]:
        return len(value.text) >= _LEAST_PLAIN_KEY and looks_random(value.text) and _UUID.fullmatch(value.text) is None
    return looks_random(value.text) or (words_of(context.name)[-1:] == ["token"] and _is_long_word(value.text))


def _is_long_word(value: str) -> bool:
    """Return whether a value has more letters without a capital or a sign between them than words of a language."""
    return len(value) >= _LEAST_LONG_WORD and value.isalnum() and len(words_of(value)) == 1 and not is_label(value)


_LEAST_LONG_WORD = 22
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _is_stand_in(context: _Context, value: _Value, text: str) -> bool:
    """Return whether a value only stands for one, or is already masked."""
    shown = value.text
    return (
        is_placeholder(shown)
        or is_placeholder(shown.strip())
        or text[value.end : value.end + 1] == "…"
        or (context.name in _UNSPACED_WORDS and not shown[0].isascii())
        or (shown[0] == "?" and text[value.start - 1] == ":")  # ${NAME:?message}
        or ("f" in value.prefix.lower() and "{" in shown)
        or (value.quoted and _IS_OUTSIDE.match(shown) is not None)
        or (value.quoted and " " in shown and text[value.start - 2 : value.start] == "=`")  # NAME=`command`
        or (context.kind == "setting" and is_plain_word(shown))
    )


# The text between two quoted strings, of which the first ends after the name: "password=" + value + "..."
_IS_OUTSIDE = re.compile(r"\s*(?:[,)\]};]|\s[+.%&|?])")


def _is_expression(context: _Context, value: _Value, text: str) -> bool:
    """Return whether an unquoted value is code or the beginning of a sentence."""
    spaced = context.kind == "assign" and not context.name.isupper() and text[value.start - 1 : value.start] == " "
    compared = context.operator.startswith("==")
    return compared or _is_prose(context, value, text) or is_reference(value.text, spaced=spaced)


def _is_pin_value(value: str) -> bool:
    return value.isdigit() and _FEWEST_DIGITS <= len(value) <= _MOST_PIN


def _is_loose_secret(context: _Context, value: _Value, text: str) -> bool:
    """Judge a value that is connected to its name by `is`, a blank, a comma, a parenthesis or a column of a table."""
    shown, is_strong = value.text, context.likelihood is Likelihood.STRONG
    if context.likelihood is Likelihood.WEAK:
        return _is_loose_token(context, shown)
    if not value.quoted:
        chosen = looks_generated(shown) or (is_strong and looks_chosen(shown))
        return (chosen or context.kind == "cell") and not is_reference(shown, spaced=True) and _is_code(context, shown)
    if " " in shown:
        return context.kind == "is" and is_strong and _has_digit(shown) and not is_message(shown)
    if "/" in shown or is_label(shown) or is_switch(context.name):
        return False
    if is_strong and (
        (context.kind == "is" and not shown.isalpha())
        or (context.kind == "blank" and _declares(context.name, text, value.start))
    ):
        return True
    return _is_code(context, shown)


def _is_loose_token(context: _Context, shown: str) -> bool:
    if context.kind == "is" and is_pin(context.name):
        return _is_pin_value(shown)
    is_long = len(shown) >= _LEAST_LONG and shown.isalnum() and words_of(context.name)[-1:] == ["token"]
    is_loose = context.kind in ("blank", "call", "item") or (is_long and context.kind in ("word", "is"))
    return is_loose and looks_generated(shown)


def _is_code(context: _Context, shown: str) -> bool:
    """Return whether a value has a digit, and looks random if its name is not that of a password."""
    return _has_digit(shown) and (context.likelihood is Likelihood.STRONG or looks_random(shown))


def _has_digit(value: str) -> bool:
    return any(character.isdigit() for character in value)


_SQL = re.compile(r"\b(?:with|by|encrypted|identified|set)\s{1,4}(?:encrypted\s)?password\s{1,4}.?$", re.IGNORECASE)


def _declares(name: str, text: str, start: int) -> bool:
    """Return whether a name followed by a quoted value is that of a statement of SQL."""
    return name == "identified by" or _SQL.search(text, max(0, start - 32), start) is not None


def _is_prose(context: _Context, value: _Value, text: str) -> bool:
    """Return whether an unquoted value is the beginning of a sentence."""
    if not context.operator.endswith(":") and not context.is_flag:
        return False
    if is_prose_word(value.text):
        return True
    if context.is_flag or not is_plain_word(value.text):
        return False
    if not value.text.isascii() and ord(value.text[0]) > _FIRST_UNSPACED:
        return True
    following = _RUN.match(text, value.end + 1)
    if following is None or text[value.end : value.end + 1] not in (" ", ",", ".", ";", ":"):
        return False
    word = following[0]
    return (word[0].islower() or word[0].isdigit()) and not word.endswith((":", "=")) and "=" not in word


# From here on, most scripts have no blanks between words.
_FIRST_UNSPACED = 0x0E00
_FEWEST_DIGITS = 4
_MOST_PIN = 8
_LEAST_STRONG = 3
_LEAST_WEAK = 8
_LEAST_LONG = 20
_LEAST_QUALIFIED = 6
_LEAST_PLAIN_KEY = 16


def _is_place(value: str) -> bool:
    return value.startswith(("/", "./", "~/", "C:\\")) or "://" in value


def _is_strong_secret(context: _Context, value: _Value) -> bool:
    shown, is_plain, is_pass = value.text, is_plain_word(value.text), context.name.lower() == "pass"
    if shown.isdigit():
        return len(shown) >= _FEWEST_DIGITS and not is_pass
    spoken = " " in shown.strip() and (is_message(shown) or is_switch(context.name))
    named = value.quoted and (is_label(shown) or (is_plain and is_switch(context.name)))
    if spoken or named or _is_place(shown) or (is_pass and is_plain):
        return False
    return len(shown) >= _LEAST_STRONG or context.operator == "="


def _is_qualified_secret(value: str) -> bool:
    if " " in value.strip() or len(value) < _LEAST_QUALIFIED or _is_place(value) or is_label(value):
        return False
    is_mixed = value.isalnum() or value.lower() != value
    return _has_digit(value) or (len(value) >= _LEAST_PLAIN_KEY and is_mixed)
