"""What distinguishes a secret from an ordinary word in the same position: judgements of names and of values. Pure.

    A name is split into words: `dbPassword`, `DB_PASSWORD` and `db.password` are the same words. Its last words
    decide how
likely its value is a secret. A value is a secret unless it is a placeholder, a reference to a variable, a type, a
status, or prose.
"""

import re
from enum import IntEnum
from typing import Final


class Likelihood(IntEnum):
    """How likely the value of a name is a secret."""

    NONE = 0
    WEAK = 1
    """A secret only if the value looks random: `key`, `token`, `auth`."""
    QUALIFIED = 2
    """A secret unless the value is a short plain word: `api_key`, `access_token`."""
    STRONG = 3
    """A secret unless the value is clearly something else: `password`, `client_secret`."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STRONG: Final = _words(
    """
    password passwords passwd passwort passphrase passcode pass pwd pw psk secret secrets kennwort kenwort losungswort
    contraseña contrasena clave senha mdp motdepasse passe wachtwoord hasło haslo heslo parola şifre sifre
    lösenord losenord salasana adgangskode adgangsord passord jelszó jelszo lozinka geslo slaptažodis parole пароль
    пароля парол κωδικός סיסמה 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호
    पासवर्ड รหัสผ่าน requirepass masterauth storepass keypass mnemonic passin passout identified
    """
)
_STRONG_ENDS = ("password", "passwd", "passwort", "passphrase", "secret", "pwd", "passcode", "contraseña", "dbpass")
_NO_PASS = _words("surrogatepass bypass compass trespass encompass surpass overpass underpass")
_STEPS = _words(
    """
    first second third one two single multi low high band next last all render depth shadow forward backward optimizer
    optimization compiler analysis lint shader return through each per final pre post geometry lighting color boarding
    ski season day mountain hall inline lowering fusion ast ir gc sweep mark did does can will should must to tests
    """
)
_TOKEN_QUALIFIERS = _words(
    """
    api access auth secret private bot refresh bearer client app admin service storage subscription deploy
    license encryption encrypt signing sign webhook user master shared hmac jwt account id identity oauth personal
    security push write ingest integration csrf xsrf function host decryption cipher crypto ssh gpg pgp ssl tls aes
    rsa
    vault root login github gitlab slack stripe openai anthropic google aws azure telegram discord npm pypi registry
    docker unseal recovery sentry cloudflare twilio sendgrid gcp hf
    """
)
_TOKENS_AND_KEYS = _words("key keys token tokens")
_JOINED = re.compile(
    r"(?:api|access|secret|private|auth|encryption|master|account|license|refresh|bot|session|bearer|client|"
    r"sharedaccess|signing|subscription|service|storage|security)(?:key|token)s?"
)
_UNRELATED = _words(
    """
    public primary foreign sort partition cache range hash index row column map dict lookup unique composite object
    routing group shift arrow hot enter next page continuation cursor pagination prompt completion max min total count
    session existing pull num stop eos bos pad unk cls sep mask input output reasoning cached thinking first second last
    key-value idempotency
    """
)
_WEAK: Final = _words(
    """
    credential credentials creds cred auth authtoken cookie sessionid sid phpsessid jsessionid sessid sess
    signature sig
    salt dsn license pat bearer webhook session csrf
    """
)
_PINS = _words("pin otp tan totp mfa puk")
_NEUTRAL_ENDS = _words(
    """
    value text plain plaintext raw string str b64 base64 prod production staging stage dev test old new current
    default
    admin root user main primary secondary backup live base env confirm confirmation again repeat hex utf8 is
    """
)
_SWITCHES = _words(
    """
    forgot forgotten invalid wrong incorrect missing bad reset show hide has is no not require requires required allow
    enable disable use validate check verify need needs change update expired weak valid enter type choose
    """
)
_IN_NAMES = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[^\W\d_A-Z]+|[A-Z][^\W\d_A-Z]+")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without digits and separators."""
    return [word.lower() for word in _IN_NAMES.findall(name)]


def likelihood(name: str) -> Likelihood:
    """Return how likely the value of this name is a secret. Only the last 64 characters of the name count."""
    words = words_of(name[-64:])
    while len(words) > 1 and words[-1] in _NEUTRAL_ENDS:
        words.pop()
    last, before = words[-1] if words else "", words[:-1]
    if _is_strong_name(last, before[-1] if before else ""):
        return Likelihood.STRONG
    if last in _TOKENS_AND_KEYS:
        return _of_token(name, before)
    if _JOINED.fullmatch(last) or last.endswith(_QUALIFIED_ENDS):
        return Likelihood.QUALIFIED
    is_weak = last in _WEAK or last in _PINS or last.endswith(("token", "sessid", "pass"))
    return Likelihood.WEAK if is_weak and last not in _NO_PASS else Likelihood.NONE


_QUALIFIED_ENDS = ("apikey", "authtoken", "accesstoken", "accesskey", "secretkey", "privatekey")


def _is_strong_name(last: str, before: str) -> bool:
    if last == "pass":
        return before not in _STEPS
    if last == "secret":
        return before not in ("existing", "pull")
    return last in _STRONG or (last.endswith((*_STRONG_ENDS, "pass")) and last not in _NO_PASS)


def _of_token(name: str, before: list[str]) -> Likelihood:
    if before[-1:] == ["session"] and name.lower().rstrip("s").endswith("token"):
        return Likelihood.QUALIFIED
    if _UNRELATED.intersection(before[-2:]):
        return Likelihood.NONE
    qualified = before and (before[-1] in _TOKEN_QUALIFIERS or name.isupper())
    return Likelihood.QUALIFIED if qualified else Likelihood.WEAK


def is_switch(name: str) -> bool:
    """Return whether a name has a word of a message or an option, such as `invalidPassword` or `require_password`."""
    return not _SWITCHES.isdisjoint(words_of(name)[:-1])


def is_pin(name: str) -> bool:
    """Return whether a name is that of a short number, such as a one-time password."""
    return not _PINS.isdisjoint(words_of(name)[-1:])


_VARIABLE = (
    r"\$\$?(?:[{(].*|env:.*|[A-Z_]+(?:_?\d{1,2})?|[a-z_][A-Za-z_]*\d?(?:(?:->|\.|\[|::).*)?|\d)"
    r"|%\w{1,40}%|%\(?\w{0,40}\)?[sdrv]|[#@]\{.*|@[A-Z_]+@|__[A-Z_]+__|:[a-z_]+|@[a-z_]+|![A-Z_]+!|\?|&[a-z_]+"
)
_LEET_VARIABLE = re.compile(
    r"\$(?:ecret|uper|ecur|afe|trong|ummer|pring|ommer|unshine|ystem|ales|tar|esame|chatz)", re.IGNORECASE
)
_STAND_INS = (
    r"<[^>]*>?|[({\[]+[\w. ,-]*[)}\]]*|\{\{.*|\[[\w -]*\]?|\\[nrt]"
    r"|(?:os\.environ|os\.getenv|process\.env|env|ENV|settings|config|self|this|args|secrets)[.\[(].*"
    r"|(?:op|vault|keyring|arn|secretref|file|env|ref|awssm|gcpsm|akv)://?.*|arn:aws.*|ENC\[.*|projects/.*|![A-Za-z]+"
    r"|your[-_ ].*|[-_*.#•●xX?]{2,}|\W"
)
_PLACEHOLDER = re.compile(rf"{_STAND_INS}|{_VARIABLE}", re.DOTALL)
_HIDDEN_PART = re.compile(r"[xX]{4}|\*{3}|\.{3}|…|•{3}|<[a-z_ -]+>|\$?\{[A-Za-z_.]+\}|\{\{")
_TEMPLATE_WORDS = _words(
    """
    your yours insert replace replaceme placeholder example sample dummy redacted masked hidden removed changeme
    changeit todo fixme tbd foobar lorem stdin prompt
    """
)
_STATUS: Final = _words(
    """
    string str text bytes char varchar none null nil true false undefined number integer int boolean bool object array
    any unknown required optional hidden redacted empty blank token tokens key keys password passwords passwd passwort
    passphrase secret secrets pass pwd value values changed missing invalid expired unset valid incorrect wrong
    correct
    rejected accepted revoked reset updated rotated generated stored encrypted hashed protected unchanged disabled
    enabled
    yes no on off ok okay default auto always never set not-set n/a na todo test example prompt ask basic bearer
    digest
    bcrypt argon2 argon2id scrypt md5 sha1 sha256 sha512 plain plaintext strong weak username user login email field
    obrigatória obrigatório necessario obbligatoria verplicht wymagane gerekli обязательно обязательное неверный
    obligatoria obligatoire erforderlich abgelaufen falsch ungültig requis requise obligatorio geändert leer keines
    x-oauth-basic x-access-token oauth2
    minimum maximum length failed success successful denied granted created deleted removed
    """
)
_VARIABLES = _words(
    """
    value input line raw text data arg args kwargs body req request form user event ctx obj item res response result
    params param config cfg conf settings self this opts options env props state payload attrs kw fields row record
    raise return throw yield print continue break assert else account match m s p x v val tmp new old current next
    await lambda new_value get getattr secrets os process me
    """
)
_CREDENTIAL_WORDS = _words(
    """
    password passwords passwd pwd pw pass passphrase secret secrets token tokens key keys apikey credential credentials
    auth hash hashed passwort kennwort contraseña cookie session
    """
)
_TYPES = _words("str string option optional vec bytes buffer data int uint u8 u16 any char uuid text type schema field")
_PROSE = _words(
    """
    a an and are argument as ask at be but by can check could does flag flags for from has i if in instead is it may
    must needs not of on option options or parameter please same see should so that the then they this to use value
    was
    we what when which will with you your my our their his her its only add just do don't never always bitte siehe der
    die das ist nicht voir le la les el los las ver см im per only all any both each some there here where who
    """
)
_INTERFACE = _words(
    """
    required invalid enter must characters field forgot reset wrong incorrect length please your choose confirm
    minimum
    least cannot should mismatch match matches contain contains short long failed expired uses used stored optional
    hidden bitte zeichen eingeben obligatoire caracteres
    """
)


_AFTER_WORDS = ".,;:!?)}]`'\""


def is_masked(value: str) -> bool:
    """Return whether a value is a masked secret."""
    return value.startswith("***") or "…" in value


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder: a variable, a word such as `required`, or a masked secret."""
    if is_masked(value) or _HIDDEN_PART.search(value):
        return True
    if _PLACEHOLDER.fullmatch(value):
        return not _LEET_VARIABLE.match(value)
    if value.rstrip(_AFTER_WORDS).lower() in _STATUS:
        return True
    if any(character.isdigit() for character in value):
        return False
    words = words_of(value)
    return not _TEMPLATE_WORDS.isdisjoint(words) or ("my" in words and not _CREDENTIAL_WORDS.isdisjoint(words))


def is_prose_word(value: str) -> bool:
    """Return whether a value is one of the words that follow a name in a sentence."""
    return value.rstrip(".,;:!?)").lower() in _PROSE


_PLAIN = re.compile(r"[^\W\d_](?:[^\W\d_]|['\u2019-])*[.,;:!?)]*")


def is_plain_word(value: str) -> bool:
    """Return whether a value is a word of letters, perhaps with punctuation after it."""
    return _PLAIN.fullmatch(value) is not None


def is_message(value: str) -> bool:
    """Return whether a quoted value with blanks is a sentence of a user interface and not a passphrase."""
    words = re.findall(r"[^\W\d_]+", value.lower())
    names_itself = not _CREDENTIAL_WORDS.isdisjoint(words) and not any(character.isdigit() for character in value)
    return names_itself or not words or not _INTERFACE.isdisjoint(words)


_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def is_label(value: str) -> bool:
    """Return whether a value is itself the name of a credential, such as `userPassword` or `access_token`."""
    if _ENVIRONMENT_NAME.fullmatch(value) is not None:
        return not _CREDENTIAL_WORDS.isdisjoint(words_of(value))
    return (
        not _CREDENTIAL_WORDS.isdisjoint(words_of(value))
        and re.fullmatch(r"[\w.:\- ]*", value) is not None
        and not any(character.isdigit() for character in value)
    )


_CHAIN = re.compile(r"[&*!]?[^\W\d]\w*(?:(?:\.|->|::|\?\.|!\.)[^\W\d]\w*)*")
_PART = re.compile(r"_*+[A-Za-z]++\d?(?:_++[A-Za-z]*+\d?)*+")


def is_reference(value: str, *, spaced: bool) -> bool:
    """Return whether an unquoted value is an expression of code.

    `spaced` is whether blanks are around the separator, as in code but not in shells.
    """
    chain = _CHAIN.match(value)
    if chain is None:
        return value[0] in "({[<\"'`|"
    parts = re.split(r"\.|->|::|\?\.", chain[0].lstrip("&*!"))
    if value[chain.end() :].startswith(("(", "[", "{", "<", ")")) and chain[0][-1:].isalpha():
        return _PART.fullmatch(parts[-1]) is not None
    if chain.end() < len(value.rstrip(",;)}]>|!?")) or not all(_PART.fullmatch(part) for part in parts):
        return False
    words = words_of(chain[0])
    is_known = not _KNOWN_IN_CODE.isdisjoint(words) and (spaced or chain[0][-1:].isalpha())
    return len(parts) > 1 or is_known or (spaced and len(words) > 1)


_KNOWN_IN_CODE = _CREDENTIAL_WORDS | _TYPES | _VARIABLES


_NOT_RANDOM = re.compile(
    r"\d{2,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|v?\d+(?:\.\d+)+\S*|(?:https?|file|s3|gs|git|ssh)://.*|[.~]?/.*|\w+@[\w.]+"
    r"|(?:[A-Za-z]+[-_.:/ ])*[A-Za-z]+[-_.:/]?\d{0,4}|(?:[A-Za-z]+|\d{1,6})(?:[-_.:/](?:[A-Za-z]+\d{0,2}|\d{1,6}))*"
)
_TURN = re.compile(r"[A-Za-z]\d|\d[A-Za-z]")
_LEAST_RANDOM = 8
_LEAST_LETTERS = 20


def looks_random(value: str) -> bool:
    """Return whether a value looks random: letters mixed with digits, or long and in mixed case. Paths do not."""
    if len(value) < _LEAST_RANDOM or not value.isascii() or " " in value:
        return False
    if ("/" in value and "+" not in value and "=" not in value) or _NOT_RANDOM.fullmatch(value):
        return False
    has_digit = any(character.isdigit() for character in value)
    if has_digit and any(character.isalpha() for character in value):
        return len(_TURN.findall(value)) > 1 or _SIGN.search(value) is not None
    mixed = value.lower() != value and value.upper() != value
    return len(value) >= _LEAST_LETTERS and mixed and len(words_of(value)) > len(value) // 5


_SIGN = re.compile(r"[!@#$%^&*+=~]")


def looks_generated(value: str) -> bool:
    """Return whether a value in plain prose is a key or token: letters with several digits between them."""
    value = value.rstrip(".,;:!?)")
    if len(value) < _LEAST_RANDOM or not value.isascii() or _NOT_RANDOM.fullmatch(value) or "://" in value:
        return False
    turns = len(_TURN.findall(value))
    return turns > _FEW_TURNS or (turns > 0 and _SIGN.search(value) is not None and value.lower() != value)


_FEW_TURNS = 2
_ALGORITHM = re.compile(
    r"(?:hmac|sha|aes|rsa|utf|iso|rfc|md|base|ed|argon|pbkdf|bcrypt|scrypt|p|x|http|h|cve|ascii|ipv|oauth|web|v|gpt|issue)"
    r"[-_]?\d.*|\d.*",
    re.IGNORECASE,
)
_LEAST_CHOSEN = 7


def looks_chosen(value: str) -> bool:
    """Return whether a value in plain prose is a password: letters with digits, and a capital or a sign."""
    core = value.rstrip(".,;:)")
    if len(core) < _LEAST_CHOSEN or not core.isascii() or "://" in core or "/" in core or _ALGORITHM.fullmatch(core):
        return False
    has_digit = any(character.isdigit() for character in core)
    has_letter = any(character.isalpha() for character in core)
    return has_digit and has_letter and (core.lower() != core or _SIGN.search(core) is not None)
