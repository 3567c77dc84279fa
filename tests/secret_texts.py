"""Secrets in the forms in which people paste them, all made up, and ordinary text that looks alike.

The prefixes are put together here, so that no scanner takes this file for one that leaks.
"""

_LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7"
_HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"
_KEY_LINES = (
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
    "VJTUt9Us8cKjMzEfYyjiWA4R4fM2bS1GB4t7NXp98C3SC6dV",
)


def _pem(kind, joint):
    return joint.join((f"-----BEGIN {kind}-----", *_KEY_LINES, f"-----END {kind}-----"))


def _with_prefix(prefix, secret=_LETTERS):
    return f"use {prefix}{secret} for it", f"{prefix}{secret}"


# By form: the text, and the secret in it.
SECRETS = {
    "an environment variable": (f"export OPENAI_API_KEY={_LETTERS}", _LETTERS),
    "a quoted assignment": ("db_password = 'tr0ub4dor-and-3'", "tr0ub4dor-and-3"),
    "a line of YAML": ("password: hunter2hunter2", "hunter2hunter2"),
    "an AWS secret": (
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEY",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEY",
    ),
    "words with a colon": (f"my api key: {_LETTERS}", _LETTERS),
    "a field of JSON": (f'{{"apiKey": "{_LETTERS}"}}', _LETTERS),
    "a field of escaped JSON": (f'{{\\"client_secret\\":\\"{_LETTERS}\\"}}', _LETTERS),
    "a field of a Python dict": (f"{{'refresh_token': '{_LETTERS}'}}", _LETTERS),
    "a flag": (f"run --api-key {_LETTERS} now", _LETTERS),
    "a flag with an equals sign": ("mysql --password=correct-horse-battery", "correct-horse-battery"),
    "curl's user": ("curl -u admin:pa55w0rd-of-ours https://x.example", "pa55w0rd-of-ours"),
    "a bearer header": (f"Authorization: Bearer {_LETTERS}", _LETTERS),
    "a basic header": ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
    "a bearer token": (f"it sends Bearer {_LETTERS}", _LETTERS),
    "a cookie": (f"Cookie: session={_LETTERS}", _LETTERS),
    "a database's address": ("postgres://bob:s3cr3t-w0rd@db.example/x", "s3cr3t-w0rd"),
    "a signed address": (f"https://x.example/y?sig={_LETTERS}", _LETTERS),
    "a netrc line": ("machine x.example login bob password pa55w0rd-of-ours", "pa55w0rd-of-ours"),
    "a Slack webhook": (f"https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/{_LETTERS}", _LETTERS),
    "a private key": (_pem("PRIVATE KEY", "\n"), _KEY_LINES[0]),
    "an RSA key in one line": (_pem("RSA PRIVATE KEY", " "), _KEY_LINES[1]),
    "an OpenSSH key with escaped breaks": (_pem("OPENSSH PRIVATE KEY", "\\n"), _KEY_LINES[0]),
    "a private key that is cut short": (_pem("EC PRIVATE KEY", "\n").partition("-----END")[0], _KEY_LINES[1]),
    "OpenAI": _with_prefix("sk" + "-"),
    "Anthropic": _with_prefix("sk" + "-ant-api03-"),
    "Stripe": _with_prefix("sk" + "_live_"),
    "GitHub": _with_prefix("gh" + "p_"),
    "a GitHub app": _with_prefix("gh" + "s_"),
    "GitHub, fine-grained": _with_prefix("github" + "_pat_"),
    "GitLab": _with_prefix("gl" + "pat-"),
    "Slack": _with_prefix("xo" + "xb-1234567890-"),
    "a Slack app": _with_prefix("xa" + "pp-1-"),
    "Groq": _with_prefix("gs" + "k_"),
    "Google": _with_prefix("AI" + "za"),
    "Google OAuth": _with_prefix("ya" + "29."),
    "Perplexity": _with_prefix("pp" + "lx-"),
    "npm": _with_prefix("np" + "m_"),
    "PyPI": _with_prefix("py" + "pi-", _LETTERS * 2),
    "Hugging Face": _with_prefix("h" + "f_"),
    "DigitalOcean": _with_prefix("do" + "p_v1_", _HEX),
    "Vault": _with_prefix("hv" + "s."),
    "SendGrid": _with_prefix("S" + "G.", f"{_LETTERS}.{_LETTERS}"),
    "Shopify": _with_prefix("shp" + "at_", _HEX),
    "an AWS key id": _with_prefix("AK" + "IA", "IOSFODNN7EXAMPLE"),
    "a JSON web token": _with_prefix("ey" + "J", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w"),
    "a Telegram bot": (f"bot 123456789:{_LETTERS}", f"123456789:{_LETTERS}"),
    "an age key": _with_prefix("AGE-SECRET-" + "KEY-1", "QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2),
}

INNOCENT = (
    "nothing secret here",
    "-----END PRIVATE KEY----- is how a key ends",
    "my password is hunter2",
    "the token of my love",
    "The key: patience and time.",
    "secret: I love her",
    "Password: see the vault",
    "password: required",
    "password: ********",
    "the password must be changed",
    "token count: 128",
    "max_tokens=4096",
    '{"max_tokens": 5, "token_count": "12"}',
    "sorted(xs, key=len)",
    "sorted(words, key=lambda w: w.size)",
    "primary_key=True",
    "a key=value store",
    "key == value",
    "std::key::value",
    "monkey: George",
    "turkey=5kg",
    "keyboard: ANSI",
    "API_KEY=$OPENAI_API_KEY",
    "API_KEY=${OPENAI_API_KEY}",
    "api_key=os.environ['X']",
    "token = secrets.token_hex(16)",
    "password=<password>",
    "api_key: your-api-key",
    "the --token option",
    "pass --password when it asks",
    "risk-management-plan",
    "sk-learn-style-names",
    "task-list-of-things",
    "Bearer of bad news",
    "npm_config_registry",
    "2026-02-08T12:30:45Z",
    "1700000000: started",
    "commit 3f5a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39",
    "550e8400-e29b-41d4-a716-446655440000",
    "http://localhost:8080/a@b",
    "https://x.example/a?b=c&page=2",
    "mail bob@example.org or call +49 30 1234567",
    "memory/2026-02-08.md#L12-L30",
    "/usr/share/keyrings/archive.gpg",
    "The Cookie: a short history",
    "-----BEGIN CERTIFICATE-----",
    "see section 4:12 and 17:45",
    "秘密: 我喜欢她",
    "C:\\Users\\keys\\readme.txt",
    'he wrote "the key": and stopped',
)
