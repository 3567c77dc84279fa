"""A corpus of secrets in the spellings of transcripts, code, logs, shells, settings and URLs. Every secret is made up.

The passwords are combined with every spelling in turn, so that a spelling is tried with several kinds of password:
plain words, digits, signs, blanks, escapes. The keys of services are in `service_keys`.
"""

import base64
import json
from dataclasses import dataclass

from service_keys import ALNUM, BASE64, DIGITS, HEX, LOWER, SERVICE_KEYS, URLSAFE, chars, uuid


@dataclass(frozen=True)
class Example:
    """A text, and the secret in it that no output may contain."""

    kind: str
    text: str
    secret: str


def _base64(text):
    return base64.b64encode(text.encode()).decode()


def _jwt():
    claims = [{"alg": "HS256", "typ": "JWT"}, {"sub": chars(DIGITS, 9), "exp": 1893456000}]
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in claims]
    return ".".join((*parts, chars(URLSAFE, 43)))


def _pem_body(lines=3, joint="\n"):
    return joint.join(chars(BASE64, 64) for _ in range(lines))


_IN_USE = (
    "I rotated it to {} yesterday",
    "client = Client({!r})",
    "export X={}",
    "- {}, as in the ticket",
    '{{"value": "{}"}}',
    "WARN rejected credential={} status=401",
)

PASSWORDS = (
    "hunter2",
    "S3cr3t!pass",
    "correct-horse-battery",
    "Tr0ub4dor&3",
    "$ecretPa55",
    "P@ssw0rd!2024",
    "xK9#mQ2vL",
    "letmein99",
    "Sommer2026!",
    "qwerty12345",
    "b7Xq-92kd-PPl0",
    "9f86d081884c7d65",
    "ZxCv_4821",
    "M0ntag.Fr3itag",
    "aG9yc2UyMDI2Cg==",
)
# Spellings of a name and a value in which any password can be written.
ASSIGNMENTS = (
    "DB_PASS={}",
    "export MYSQL_PWD={}",
    "PASSWORD={}",
    "REDIS_PASSWORD={} node server.js",
    "password={}",
    "password = {}",
    "password: {}",
    "  smtp_password: {}",
    "spring.datasource.password={}",
    "db.user=app\ndb.password={}\ndb.pool=5",
    "[database]\nhost = db1\npasswd = {}\nport = 5432",
    "requirepass: {}",
    "Password: {}",
    "**Password:** {}",
    "- Passwort: {}",
    "Kennwort: {}",
    "contraseña: {}",
    "mot de passe : {}",
    "senha: {}",
    "wachtwoord: {}",
    "пароль: {}",
    "密码\uff1a{}",
    "密碼: {}",
    "パスワード\uff1a{}",
    "비밀번호: {}",
    "hasło: {}",
    "şifre: {}",
    "user: bob, pass: {}",
    "username=bob password={}",
    "login bob / pw: {}",
    "docker run -e POSTGRES_PASSWORD={} postgres:16",
    "kubectl create secret generic db --from-literal=password={}",
    "helm upgrade x ./chart --set auth.rootPassword={}",
    "mysqldump --user=root --password={} shop",
    "vault kv put secret/db --password {}",
    "app --admin-password {} --port 8080",
    "--db-pass={}",
    "keytool -list -storepass {} -keystore a.jks",
    "java -Djavax.net.ssl.keyStorePassword={} -jar a.jar",
    "openssl rsa -in key.pem -passin pass:{}",
    "sshpass -p {} ssh root@10.0.0.7",
    "mysql -u root -p{} shop",
    "redis-cli -h cache -a {} ping",
    "docker login -u bob -p {} registry.example",
    "machine git.example login bob password {}",
    "ALTER USER app WITH PASSWORD '{}';",
    "CREATE USER 'app'@'%' IDENTIFIED BY '{}';",
    'config["password"] = "{}"',
    "$conf['db']['password'] = '{}';",
    "'password' => '{}',",
    '"password" : "{}"',
    '{{"user":"bob","password":"{}","port":1}}',
    "{{'db_password': '{}'}}",
    '{{\\"password\\":\\"{}\\"}}',
    'let password = "{}";',
    "const dbPassword = `{}`;",
    'password := "{}"',
    'password: "{}"',
    "PASSWORD='{}'",
    'define("DB_PASSWORD", "{}");',
    'client.setPassword("{}")',
    'requests.get(url, auth=("bob", "{}"))',
    "<password>{}</password>",
    '<Password encrypted="false">{}</Password>',
    '<add key="DbPassword" value="{}" />',
    '<property name="connection.password">{}</property>',
    '<user name="bob" password="{}"/>',
    "- name: DB_PASSWORD\n  value: {}",
    '{{"name": "DB_PASSWORD", "value": "{}"}}',
    "| password | {} |",
    "Server=db1;Database=shop;User Id=app;Password={};Encrypt=true",
    "Driver={{ODBC Driver 18}};Server=db1;UID=app;PWD={};",
    "jdbc:mysql://db1:3306/shop?user=app&password={}&useSSL=false",
    "".join(chr(ord(each) + 0xFEE0) for each in "password=") + "{}",
    "pass\u200bword={}",
    "pass\u00adword: {}",
    "INFO login attempt user=bob password={} ip=10.0.0.7",
    "the password is `{}` for now",
    "wget --http-user=bob --http-password={} https://x.example/f",
    "net use Z: /user:bob password:{}",
)
# Those in which a quoted value may have blanks and escapes.
QUOTED = (
    'password = "{}"',
    "PASSWORD='{}'",
    '{{"password": "{}"}}',
    "'passphrase' => '{}',",
    'export DB_PASS="{}"',
    'app --password "{}" start',
    "<password>{}</password>",
    'passphrase: "{}"',
)
PHRASES = ("correct horse battery staple", "hunter2 space", "blau 17 Regen!", "Zug nach 8 Uhr")
ESCAPED = ('hun\\"ter22', "back\\\\slash9", "tab\\tbed77")


def _url(password):
    return password.replace("%", "%25").replace("@", "%40").replace("#", "%23").replace("&", "%26").replace("/", "%2F")


URLS = (
    "postgres://app:{}@db.example:5432/shop",
    "postgresql+asyncpg://app:{}@db.example/shop",
    "mongodb+srv://root:{}@cluster0.ab1cd.mongodb.net/?retryWrites=true",
    "redis://:{}@cache:6379/0",
    "amqps://svc:{}@mq.example/vhost",
    "mysql://root:{}@127.0.0.1/shop",
    "ftp://bob:{}@ftp.example/pub",
    "https://bob:{}@git.example/team/app.git",
    "smtp://mailer:{}@smtp.example:587",
    "curl -u admin:{} https://x.example",
    "curl -uadmin:{} https://x.example",
    "curl --user 'admin:{}' https://x.example",
    "curl --proxy-user bob:{} https://x.example",
    "https://x.example/login?user=bob&password={}",
    "smbclient //nas/share -U bob%{}",
    "db.example:5432:shop:app:{}",
)


def _headers():
    """Spellings of random tokens in headers, each as (kind, text, secret)."""
    alnum, hexa, mixed = chars(ALNUM, 40), chars(HEX, 40), chars(URLSAFE, 32)
    basic = _base64(f"bob:{chars(ALNUM, 14)}")
    digest = chars(HEX, 32)
    yield "bearer", f"Authorization: Bearer {alnum}", alnum
    yield "bearer", f"curl -H 'authorization: bearer {mixed}' https://x.example", mixed
    yield "bearer", f'headers = {{"Authorization": "Bearer {hexa}"}}', hexa
    yield "bearer", f'{{\\"Authorization\\": \\"Bearer {alnum}\\"}}', alnum
    yield "bearer", f"Authorization=Bearer {(jwt := _jwt())}", jwt
    yield "basic", f"Authorization: Basic {basic}", basic
    yield "basic", f"-H 'Proxy-Authorization: Basic {basic}'", basic
    yield "header", f"Authorization: token {hexa}", hexa
    yield "header", f"Authorization: {alnum}", alnum
    yield "header", f"Authorization: ApiKey {mixed}", mixed
    yield "header", f"Authorization: SSWS 00{alnum}", alnum
    yield "header", f"Authorization: Splunk {uuid()}", None
    yield "header", f"Authorization: Negotiate {chars(BASE64, 200)}", None
    yield (
        "digest",
        f'Authorization: Digest username="bob", realm="x", nonce="{chars(HEX, 16)}", uri="/", response="{digest}"',
        digest,
    )
    yield (
        "signature",
        (
            f"Authorization: AWS4-HMAC-SHA256 Credential=ABCD/20260208/eu-west-1/s3/aws4_request, SignedHeaders=host, "
            f"Signature={hexa}"
        ),
        hexa,
    )
    yield "signature", f'Authorization: Hawk id="dh37", ts="1353832234", nonce="j4h3g2", mac="{alnum}="', alnum
    yield "signature", f'Authorization: OAuth oauth_consumer_key="ck", oauth_token="{alnum}"', alnum


def _cookies_and_keys():
    alnum, hexa, mixed = chars(ALNUM, 40), chars(HEX, 40), chars(URLSAFE, 32)
    for name in ("X-Api-Key", "X-Auth-Token", "PRIVATE-TOKEN", "api-key", "X-Vault-Token", "x-goog-api-key", "Apikey"):
        yield "header", f"{name}: {mixed}", mixed
    yield "header", f'curl -H "X-API-Key: {hexa}" https://x.example/v1', hexa
    yield "header", f"X-Amz-Security-Token: {alnum}{alnum}", alnum
    yield "cookie", f"Cookie: session={alnum}; theme=dark", alnum
    yield "cookie", f"Set-Cookie: sid={hexa}; Path=/; HttpOnly", hexa
    yield "cookie", f"cookie: connect.sid=s%3A{mixed}.{alnum}", mixed
    yield "cookie", f"PHPSESSID={chars(LOWER + DIGITS, 26)}", None
    yield "cookie", f"JSESSIONID={chars(HEX, 32).upper()}; lang=de", None
    yield "cookie", f'curl -b "sessionid={alnum}" https://x.example', alnum


def _addresses():
    alnum, hexa, mixed = chars(ALNUM, 40), chars(HEX, 40), chars(URLSAFE, 32)
    telegram = SERVICE_KEYS["Telegram"]
    yield "telegram URL", f"https://api.telegram.org/bot{telegram}/getMe", telegram
    yield "telegram URL", f"GET https://api.telegram.org/file/bot{telegram}/photos/file_1.jpg", telegram
    yield "telegram URL", f"POST /bot{telegram.replace(':', '%3A')}/sendMessage HTTP/1.1", telegram.partition(":")[2]
    for name in (
        "token",
        "access_token",
        "api_key",
        "apikey",
        "key",
        "auth",
        "sig",
        "X-Amz-Signature",
        "client_secret",
    ):
        yield "query", f"https://x.example/v1/list?page=2&{name}={hexa}&limit=10", hexa
    yield "fragment", f"https://x.example/cb#access_token={alnum}&token_type=bearer", alnum
    yield (
        "Azure SAS",
        f"https://a.blob.core.windows.net/c/f?sv=2022-11-02&se=2026-01-01&sig={chars(ALNUM, 43)}%3D",
        None,
    )
    yield "Azure storage", f"AccountName=acc;AccountKey={chars(BASE64, 86)}==;EndpointSuffix=core.windows.net", None
    yield "Azure bus", f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey={alnum}=", alnum
    yield "token URL", f"git clone https://{alnum}@git.example/team/app.git", alnum
    yield "token URL", f"https://oauth2:{mixed}@gitlab.example/team/app.git", mixed
    yield "token URL", f"https://x-access-token:{alnum}@github.com/o/r", alnum
    yield "token URL", f"https://{alnum}:x-oauth-basic@github.com/o/r", alnum
    yield "DSN", f"https://{chars(HEX, 32)}@o12345.ingest.sentry.io/678", None
    yield (
        "webhook",
        f"https://hooks.slack.com/services/T0{chars(ALNUM[36:], 8)}/B0{chars(ALNUM[36:], 8)}/{alnum}",
        alnum,
    )
    yield "webhook", f"https://discord.com/api/webhooks/{chars(DIGITS, 18)}/{mixed}{mixed}", mixed
    yield "webhook", f"https://x.webhook.office.com/webhookb2/{uuid()}@{uuid()}/IncomingWebhook/{hexa}/{uuid()}", hexa


def _settings():
    alnum = chars(ALNUM, 40)
    basic = _base64(f"bob:{chars(ALNUM, 14)}")
    yield "npmrc", f"//registry.npmjs.org/:_authToken={uuid()}", None
    yield "npmrc", f"_auth={basic}", basic
    yield "pypirc", f"[pypi]\nusername = __token__\npassword = {alnum}", alnum
    yield "docker auth", f'{{"auths": {{"r.example": {{"auth": "{basic}"}}}}}}', basic
    yield "kubernetes", f"apiVersion: v1\nkind: Secret\ndata:\n  password: {_base64(alnum)}", _base64(alnum)
    yield "JWT", f"the session was {(jwt := _jwt())} at noon", jwt
    yield "JWT", f"?id_token={(jwt := _jwt())}", jwt
    yield "JWT", f'"jwt":"{(jwt := _jwt())}"', jwt
    for name in ("AWS_SECRET_ACCESS_KEY=", "aws_secret_access_key = ", "secretAccessKey: ", '"SecretAccessKey": "'):
        key = chars(BASE64, 40)
        yield "AWS", f"{name}{key}{name[-1:].strip('= :')}", key


def _names():
    alnum, hexa, mixed = chars(ALNUM, 40), chars(HEX, 40), chars(URLSAFE, 32)
    for name in ("api key", "API-Key", "access token", "bot token", "Secret key", "auth token", "license key"):
        yield "words", f"my {name}: {alnum}", alnum
        yield "words", f"the {name} is {mixed}, keep it", mixed
    for name in (
        "apiKey",
        "clientSecret",
        "client_secret",
        "refreshToken",
        "authToken",
        "encryption_key",
        "SECRET_KEY",
    ):
        yield "code", f'{name} = "{alnum}"', alnum
        yield "code", f"{name}: '{hexa}',", hexa
    for name in (
        "GITLAB_TOKEN",
        "STRIPE_KEY",
        "APP_SECRET",
        "SESSION_SECRET",
        "CLOUDFLARE_API_KEY",
        "SENTRY_AUTH_TOKEN",
    ):
        yield "environment", f"{name}={mixed}", mixed
        yield "environment", f'$env:{name} = "{hexa}"', hexa
        yield "environment", f"set {name}={alnum}", alnum
    for flag in ("--token", "--api-key", "--access-token", "--secret", "--client-secret", "--auth-token"):
        yield "flag", f"tool {flag} {mixed} push", mixed
        yield "flag", f"tool {flag}={alnum} push", alnum


def _files():
    alnum, hexa, mixed = chars(ALNUM, 40), chars(HEX, 40), chars(URLSAFE, 32)
    yield "GPG", "gpg --batch --passphrase s3same-Open -d f.gpg", "s3same-Open"
    yield "OTP", f"otpauth://totp/x:bob?secret={(seed := chars('ABCDEFGHIJKLMNOPQRSTUVWXYZ234567', 32))}&issuer=x", seed
    yield "WireGuard", f"[Interface]\nPrivateKey = {(key := chars(BASE64, 43))}=\nListenPort = 51820", key
    yield "WLAN", 'network={ ssid="home" psk="blau-17-Regen" }', "blau-17-Regen"
    yield "Terraform", f'variable "api_token" {{ default = "{mixed}" }}', mixed
    yield "TOML", f'[auth]\ntoken = "{hexa}"', hexa
    yield "ini", f"[default]\naws_session_token={alnum}{alnum}", alnum
    yield "netrc", f"machine api.example login bob password {alnum}", alnum
    yield "list", f"maps;api_key={alnum};eu", alnum


_KEY_KINDS = ("PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")


def _private_keys():
    for kind in _KEY_KINDS:
        for name, joint in (
            ("", "\n"),
            (" in one line", " "),
            (" with escaped breaks", "\\n"),
            (", indented", "\n    "),
        ):
            body = _pem_body(joint=joint)
            yield f"private key{name}", f"-----BEGIN {kind}-----{joint}{body}{joint}-----END {kind}-----", body
    body = _pem_body(joint="\\n")
    yield "private key", f'"private_key": "-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----\\n"', body
    for kind, joint in (("RSA PRIVATE KEY", "\n"), ("PRIVATE KEY", "\\n"), ("EC PRIVATE KEY", " ")):
        body = _pem_body(joint=joint)
        yield "private key without its beginning", f"$ tail key.pem{joint}{body}{joint}-----END {kind}-----", body
        yield "private key without its end", f"-----BEGIN {kind}-----{joint}{body}{joint}and so on", body
    body = chars(BASE64, 64)
    yield (
        "private key",
        f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{body}\nPrivate-MAC: {chars(HEX, 64)}",
        body,
    )


def _spellings():
    for part in (_headers, _cookies_and_keys, _addresses, _settings, _names, _files, _private_keys):
        yield from part()


def _core(text, secret):
    """The secret; if it is not given, the longest piece of the text."""
    return secret or max((piece for word in text.split() for piece in word.split("=")), key=len)


def _assembled():
    for at, (service, key) in enumerate(SERVICE_KEYS.items()):
        yield Example(f"key of {service}", _IN_USE[at % len(_IN_USE)].format(key), key)
    for at, form in enumerate(ASSIGNMENTS):
        for step in (0, 4):
            password = PASSWORDS[(at + step) % len(PASSWORDS)]
            yield Example("assignment", form.format(password), password)
    for at, form in enumerate(QUOTED):
        for value in (PHRASES[at % len(PHRASES)], ESCAPED[at % len(ESCAPED)]):
            yield Example("quoted value", form.format(value), value)
    for at, form in enumerate(URLS):
        password = _url(PASSWORDS[(at * 2) % len(PASSWORDS)])
        yield Example("password in a URL", form.format(password), password)
    for kind, text, secret in _spellings():
        yield Example(kind, text, _core(text, secret))
    for service in ("GitHub", "OpenAI", "Slack bot"):
        key = SERVICE_KEYS[service]
        yield Example("zero-width", f"it is {key[:9]}\u200b{key[9:]}.", key[12:40])
        wide = "".join(chr(ord(each) + 0xFEE0) for each in key)
        yield Example("full width", f"it is {wide} .", wide)


EXAMPLES = tuple(_assembled())
