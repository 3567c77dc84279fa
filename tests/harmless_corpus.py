"""A corpus of lines without a secret that look like ones: code, logs, shells, settings, URLs and prose."""

CODE = r"""
def login(username: str, password: str) -> Token:
password: Optional[str] = None
password: String,
let password: &str = args.password.as_ref();
apiKey?: string;
readonly accessToken: string | undefined;
password = getpass.getpass("Password: ")
password = os.environ["DB_PASSWORD"]
const token = process.env.GITHUB_TOKEN;
const token = await fetchToken(user);
token := os.Getenv("VAULT_TOKEN")
self.password = password
this.apiKey = apiKey;
password=password, username=username
if (password !== confirmPassword) {
if not password: raise ValueError("password is required")
return bcrypt.checkpw(password.encode(), user.password_hash)
token = tokens[index + 1]
for token in tokenizer.encode(text):
next_token = logits.argmax(dim=-1)
max_tokens=4096, temperature=0.2
"max_tokens": 1024, "total_tokens": 12873
{"prompt_tokens": 812, "completion_tokens": 64}
{"token": "the", "logprob": -0.0123}
key = lambda item: item[1]
sorted(rows, key=lambda r: r.created_at)
map.get(key) ?? defaultValue
for key, value in settings.items():
primary_key=True, nullable=False
PRIMARY KEY (user_id, key)
FOREIGN KEY (token_id) REFERENCES tokens(id)
password VARCHAR(255) NOT NULL,
password_hash TEXT NOT NULL
SELECT id, password FROM users WHERE token = $1
UPDATE users SET password = :password WHERE id = :id
INSERT INTO tokens (id, key) VALUES (?, ?)
api_key = settings.OPENAI_API_KEY
api_key=config.get("api_key")
secret = secrets.token_urlsafe(32)
public static final String PASSWORD = "password";
private String password;
#[serde(rename = "apiKey")] api_key: String,
@Value("${spring.datasource.password}") String password;
password: { type: String, required: true },
password: z.string().min(8).max(64),
password = forms.CharField(widget=forms.PasswordInput)
<input type="password" name="password" id="password" placeholder="Password">
<label for="password">Password</label>
<a href="/reset-password?lang=en">Forgot your password?</a>
<password></password>
.password-field { color: #3b82f6; border-color: #e5e7eb; }
--token-color: #ff8800; --key-width: 12px;
re.compile(r"password=(\S+)")
/(?:api[_-]?key|token)\s*[:=]\s*["']?[A-Za-z0-9]{20,}/i
case Key.Enter: submit(); break;
KeyError: 'password'
keyboard.press(Key.ctrl_l)
cache_key = f"user:{user_id}:profile"
cache.set("user:1234:profile", value, timeout=300)
partition_key="customer_id", sort_key="created_at"
def test_password_is_hashed_with_bcrypt():
assert token_count("hello world") == 2
raise AuthenticationError("invalid token")
logger.info("password changed for user %s", user.id)
console.log(`token: ${token}`);
print(f"password={password}")
headers = {"Authorization": f"Bearer {token}"}
"Authorization": "Bearer " + accessToken,
Authorization: Bearer ${{ secrets.DEPLOY_TOKEN }}
Authorization: Bearer <your-token>
req.headers["X-Api-Key"] = cfg.apiKey
auth=(user, password)
session = requests.Session()
const session = await getServerSession(authOptions)
type Credentials struct { Username, Password string }
type Secret = { name: string; key: string }
import { signToken, verifyToken } from "./token";
from app.auth import create_access_token, hash_password
password_validation.validate_password(password, user)
GRANT SELECT ON users TO app_reader
let first_pass = compile(&module);
pass
"""
SHELL = r"""
export PGPASSWORD="$DB_PASS"
export API_KEY=${API_KEY:-}
PASSWORD=$(openssl rand -base64 24)
DB_PASS=`cat /run/secrets/db_pass`
docker run -e POSTGRES_PASSWORD=$POSTGRES_PASSWORD postgres:16
docker run --rm -u 1000:1000 -v $PWD:/src -p 8080:80 node:20
docker run --user nginx:nginx -p 127.0.0.1:5432:5432 img
curl -u "$USER:$PASS" https://x.example
curl -u admin https://x.example
mysql -u root -p shop < dump.sql
mysql -h db -P 3306 -u app --password="$MYSQL_PWD"
mkdir -p src/components/password
ssh -p 2222 -i ~/.ssh/id_ed25519 deploy@host
redis-cli -h localhost -p 6379 ping
git clone git@github.com:org/repo.git
git remote set-url origin ssh://git@gitlab.example:2222/org/repo.git
git commit -m "Rotate tokens; fix password reset"
git show 3f5a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39
gh secret set API_TOKEN --body "$TOKEN"
kubectl get secret db-credentials -o yaml
kubectl create secret generic db --from-file=password=./password.txt
echo "$PASSWORD" | docker login -u bob --password-stdin
op read op://vault/database/password
aws secretsmanager get-secret-value --secret-id prod/db/password
vault kv get -field=password secret/db
pass show email/work
passwd bob
chmod 600 ~/.pgpass ~/.netrc
tar -xzf node-v20.11.1-linux-x64.tar.gz
npm install @types/node@20.11.5 left-pad@^1.3.0
pip install tokenizers==0.15.2 keyring>=24.3
sha256sum: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
set PASSWORD=%PASSWORD%
$env:TOKEN = $env:GITHUB_TOKEN
sudo -u postgres psql -c "\du"
make -j8 test KEY=value
ssh-keygen -t ed25519 -C "bob@example.org"
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2m0Vx4yqPfqv4Yb1Xh5n0k2f7a8b9c0d1e2f3g4h5i bob@host
find . -name "*.key" -print
sort -t: -k2,2 -u names.txt
"""
SETTINGS = r"""
password: ${DB_PASSWORD}
password: "{{ vault_db_password }}"
password: !vault |
password: <password>
password: ********
api_key: YOUR_API_KEY
apiKey: "<your-api-key>"
API_KEY=your_api_key_here
SECRET_KEY=changeme
token: xxxxxxxxxxxxxxxx
token: ${{ secrets.GITHUB_TOKEN }}
OPENAI_API_KEY=sk-...
password: null
password_file: /run/secrets/db_password
DB_PASSWORD_FILE=/run/secrets/db_password
tls_key: /etc/ssl/private/server.key
key: value
"key": "value"
sort_key: created_at
keymap: us-intl
key_id: 42
public_key: ssh-rsa
secretName: db-credentials
secretKeyRef: { name: db, key: password }
existingSecret: my-release-postgresql
valueFrom: arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf
password_min_length = 12
password_policy: strong
require_password = yes
PasswordAuthentication no
auth: none
authorization: required
session_timeout = 3600
token_ttl: 15m
token_url: https://auth.example/oauth2/token
pass_rate: 0.97
integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==
"version": "4.17.21", "resolved": "https://registry.example/lodash/-/lodash-4.17.21.tgz"
checksum = "c8a3a4bd4c5a8d0e3f2b1a09f8e7d6c5b4a3f2e1d0c9b8a7968574635241302f"
image: registry.example/team/app@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"password": "Must be at least 8 characters long"
"forgot_password": "Forgot your password?"
"password": ["This field is required."]
"invalidPassword": "Wrong password, please try again."
client_id: 1234567890-abcdef.apps.googleusercontent.com
"""
LOGS = r"""
2026-02-08T12:30:45.123Z INFO auth: password changed for user 4711
[12:30:45] Failed password for invalid user admin from 203.0.113.7 port 51234 ssh2
Accepted publickey for deploy from 10.0.0.5 port 50212 ssh2: ED25519 SHA256:uNiVztksCsDhcc0u9e8BgrJXVGD
ERROR token expired at 2026-02-08T12:30:45Z
WARN: token limit reached: 128000 of 128000
tokens: 1,234 in / 567 out, cost: $0.0123
PASS tests/unit/test_login.py::test_wrong_password
PASS: 12, FAIL: 0, SKIP: 3
pass: 12 fail: 0
401 Unauthorized: missing bearer token
Error: Bearer token is malformed
request_id=550e8400-e29b-41d4-a716-446655440000 duration=12ms
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7
commit 3f5a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39 (HEAD -> main, tag: v1.2.3)
GET /static/app.3f5a9c1e.js?v=20260208 HTTP/1.1 200
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
memoryd_search_seconds_bucket{le="0.1"} 42
memoryd_embedding_provider_requests_total 17
cache miss for key user:1234:profile
deadlock on key (42, 'abc')
duplicate key value violates unique constraint "users_email_key"
Key (email)=(bob@example.org) already exists.
session opened for user root by (uid=0)
Enter password:
[sudo] password for bob:
Password: required
Password must contain at least one digit
pid=12345 rss=266MB key=latency
build 1700000000: compiled 1284 modules in 4.2s
Segmentation fault at 0x00007ffd4b3e2a10
Set-Cookie: HttpOnly; Secure; SameSite=Lax
"""
PROSE = r"""
My password is too long for that form.
Please rotate the token before Friday, and reset your password.
The secret to good bread is time.
Secret: add a pinch of salt.
The key: patience and time.
Password: see the vault entry of the team.
Passwort: bitte im Tresor nachsehen
Das Passwort ist abgelaufen, bitte ändern.
Mot de passe : voir le coffre
La contraseña es obligatoria.
пароль: см. хранилище
秘密: 我喜欢她
The API key is stored in the keychain, not in the file.
We pay per token: about 3 cents for 1000 tokens.
A bearer of bad news came at 12:30.
It says "token: invalid", so I logged in again.
Use a password manager such as KeePassXC 2.7.6 or Bitwarden.
The public key is in docs/keys.md, the private one on the card.
Her secret admirer wrote on 2026-02-08.
The cookie: a short history of biscuits
Basic authentication is off; digest is on.
Authorization: only admins may do that.
mail bob@example.org or call +49 30 1234567
Meet at 10:30, room 4:12, bring the key
My pass: the mountain pass near Davos
Pin the version to 1.2.3 and pass the flag.
"""
URLS = r"""
http://localhost:8080/a@b
https://x.example/a?b=c&page=2&key=name
https://user@host.example/path
https://medium.com/@bob/how-tokens-work-3f5a9c1e8b7d
https://x.example/search?q=password+reset&sort=key
https://github.com/org/repo/blob/3f5a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39/README.md#L12-L30
https://x.example/items?page_token=&max_tokens=5
postgres://localhost:5432/shop
postgres://app@localhost/shop
postgres://user:password@localhost:5432/db
postgres://${DB_USER}:${DB_PASS}@db:5432/shop
redis://localhost:6379/0
mongodb://<user>:<password>@cluster0.example/db
https://cdn.example/npm/@scope/pkg@1.2.3/dist/index.min.js
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
s3://bucket/secret-santa/2026/list.csv
https://docs.example/tokens#access-token
https://fonts.googleapis.com/css2?family=Inter:wght@400;700&display=swap
https://x.example:8443/oauth/authorize?client_id=web&response_type=code&scope=read
magnet:?xt=urn:btih:3f5a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39&dn=x
"""
OTHER = r"""
550e8400-e29b-41d4-a716-446655440000
sk-learn-style-names and task-list-of-things
risk-management-plan, desk-lamp, ask-me-anything
C:\Users\keys\readme.txt
/usr/share/keyrings/archive-keyring.gpg
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
memory/2026-02-08.md#L12-L30
Python 3.11.9 (main, Apr 2 2024, 08:25:04) [GCC 13.2.0]
numpy==1.26.4 --hash=sha256:2a02aba9ed12e4ac4eb3ea9421c420301a0c6460d9830d74a9df87efa4912010
| key | value |
| password | string | The password of the user. |
- [ ] rotate token; - [x] hash password
U+1F511 key emoji
12:30:45.678901234
"""


def _lines(*texts):
    return tuple(line for text in texts for line in text.split("\n") if line.strip())


FULL_WIDTH = "密码\uff1a请输入密码\nパスワード\uff1a必須です"

LINES = _lines(CODE, SHELL, SETTINGS, LOGS, PROSE, URLS, OTHER, FULL_WIDTH)
