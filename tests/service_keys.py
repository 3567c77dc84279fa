"""Made-up keys in the formats that services publish, with random characters from a fixed seed.

Prefixes are put together here, so that no scanner takes this file for one that leaks.
"""

import random

_RANDOM = random.Random(17)
LOWER = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
HEX = "0123456789abcdef"
ALNUM = LOWER + LOWER.upper() + DIGITS
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"


def chars(alphabet, count):
    """Random characters, the first and last of which are letters or digits, with at least one digit in the middle."""
    ends = [each for each in alphabet if each.isalnum()]
    middle = "".join(_RANDOM.choice(alphabet) for _ in range(count - 3))
    return f"{_RANDOM.choice(ends)}{_RANDOM.choice(DIGITS)}{middle}{_RANDOM.choice(ends)}"


def uuid():
    return "-".join(chars(HEX, count) for count in (8, 4, 4, 4, 12))


# By service: the key of the format that the service publishes.
SERVICE_KEYS = {
    "1Password service account": "ops_eyJ" + chars(BASE64, 260),
    "1Password secret key": "A3-" + "-".join(chars(ALNUM[26:].upper(), n) for n in (6, 6, 5, 5, 5, 5)),
    "Adobe": "p8" + "e-" + chars(LOWER + DIGITS, 32),
    "age": "AGE-SECRET-" + "KEY-1" + chars("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "Airtable": "pat" + chars(ALNUM, 14) + "." + chars(HEX, 64),
    "Alibaba": "LT" + "AI" + chars(ALNUM, 20),
    "Anthropic": "sk-" + "ant-api03-" + chars(URLSAFE, 93) + "AA",
    "Artifactory": "AK" + "Cp" + chars(ALNUM, 69),
    "Asana": "2/" + chars(DIGITS, 16) + "/" + chars(DIGITS, 16) + ":" + chars(HEX, 32),
    "Atlassian": "AT" + "ATT3" + chars(URLSAFE + "=", 186),
    "AWS key id": "AKIA" + chars("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16).translate({48: 50, 49: 51, 56: 52, 57: 53}),
    "AWS temporary key id": "AS" + "IA" + "Q3EGRIFX5WNZ2LTY",
    "AWS Bedrock": "AB" + "SK" + chars(BASE64, 120),
    "Azure client secret": chars(ALNUM, 3) + "8Q" + "~" + chars(URLSAFE + ".~", 33),
    "Brevo": "xkey" + "sib-" + chars(HEX, 64) + "-" + chars(ALNUM, 16),
    "Cloudflare origin": "v1." + "0-" + chars(HEX, 24) + "-" + chars(HEX, 146),
    "Clojars": "CLO" + "JARS_" + chars(HEX, 60),
    "Databricks": "da" + "pi" + chars(HEX, 32),
    "DigitalOcean": "do" + "o_v1_" + chars(HEX, 64),
    "Discord bot": "MT" + chars(ALNUM, 24) + "." + chars(ALNUM, 6) + "." + chars(URLSAFE, 38),
    "Docker Hub": "dckr" + "_pat_" + chars(URLSAFE, 27),
    "Doppler": "dp" + ".pt." + chars(ALNUM, 43),
    "Dropbox": "sl" + "." + chars(URLSAFE, 135),
    "Duffel": "duf" + "fel_live_" + chars(URLSAFE, 43),
    "Dynatrace": "dt0" + "c01." + chars(ALNUM[26:], 24) + "." + chars(ALNUM[26:], 64),
    "EasyPost": "EZ" + "AK" + chars(ALNUM, 54),
    "Facebook": "EA" + "AM" + chars(ALNUM, 120),
    "Figma": "fi" + "gd_" + chars(URLSAFE, 40),
    "Flutterwave": "FLW" + "SECK_TEST-" + chars(HEX, 32) + "-X",
    "Fly.io": "fm" + "2_" + chars(BASE64, 120),
    "GitHub": "gh" + "p_" + chars(ALNUM, 36),
    "GitHub app": "gh" + "s_" + chars(ALNUM, 36),
    "GitHub, fine-grained": "github" + "_pat_" + chars(ALNUM, 22) + "_" + chars(ALNUM, 59),
    "GitLab": "gl" + "pat-" + chars(URLSAFE, 20),
    "GitLab deploy": "gl" + "dt-" + chars(URLSAFE, 20),
    "GitLab runner": "gl" + "rt-" + chars(URLSAFE, 20),
    "GitLab trigger": "gl" + "ptt-" + chars(HEX, 40),
    "Google": "AI" + "za" + chars(URLSAFE, 35),
    "Google OAuth": "ya" + "29." + chars(URLSAFE, 60),
    "Google client secret": "GOC" + "SPX-" + chars(URLSAFE, 28),
    "Google refresh": "1/" + "/0" + chars(URLSAFE, 60),
    "Grafana": "gl" + "sa_" + chars(ALNUM, 32) + "_" + chars(HEX, 8),
    "Grafana Cloud": "gl" + "c_" + chars(BASE64, 60),
    "Groq": "gs" + "k_" + chars(ALNUM, 52),
    "Harness": "pat." + chars(ALNUM, 22) + "." + chars(ALNUM, 24) + "." + chars(ALNUM, 20),
    "Heroku": "HR" + "KU-AA" + chars(URLSAFE, 58),
    "Hugging Face": "h" + "f_" + chars(ALNUM, 34),
    "Infracost": "ic" + "o-" + chars(ALNUM, 32),
    "Langfuse": "sk-" + "lf-" + uuid(),
    "LangSmith": "ls" + "v2_pt_" + chars(HEX, 32) + "_" + chars(HEX, 10),
    "Linear": "lin" + "_api_" + chars(ALNUM, 40),
    "Mailchimp": chars(HEX, 32) + "-us" + "12",
    "Mailgun": "key" + "-" + chars(HEX, 32),
    "MaxMind": chars(ALNUM, 6) + "_" + chars(ALNUM, 29) + "_m" + "mk",
    "memoryd": "memory" + "d_" + chars(URLSAFE, 43),
    "Mapbox": "sk" + ".ey" + "J" + chars(ALNUM, 60) + "." + chars(URLSAFE, 22),
    "Netlify": "nf" + "p_" + chars(ALNUM, 36),
    "New Relic": "NR" + "AK-" + chars(ALNUM[26:], 27).upper(),
    "Notion": "nt" + "n_" + chars(DIGITS, 11) + chars(ALNUM, 35),
    "npm": "np" + "m_" + chars(ALNUM, 36),
    "NuGet": "oy" + "2" + chars(LOWER + "234567", 43),
    "Octopus": "API" + "-" + chars(ALNUM[26:].upper(), 26),
    "OpenAI": "sk-" + "proj-" + chars(URLSAFE, 74) + "T3Blb" + "kFJ" + chars(URLSAFE, 74),
    "OpenRouter": "sk-" + "or-v1-" + chars(HEX, 64),
    "OpenShift": "sha" + "256~" + chars(URLSAFE, 43),
    "PayPal": "A21" + "AA" + chars(URLSAFE, 90),
    "Perplexity": "pp" + "lx-" + chars(ALNUM, 48),
    "PlanetScale": "psc" + "ale_tkn_" + chars(URLSAFE, 43),
    "Postman": "PM" + "AK-" + chars(HEX, 24) + "-" + chars(HEX, 34),
    "Prefect": "pn" + "u_" + chars(ALNUM, 36),
    "Pulumi": "pu" + "l-" + chars(HEX, 40),
    "PyPI": "py" + "pi-AgEIcHlwaS5vcmc" + chars(URLSAFE, 90),
    "ReadMe": "rd" + "me_" + chars(ALNUM[:26] + DIGITS, 70),
    "Replicate": "r" + "8_" + chars(ALNUM, 37),
    "RubyGems": "ruby" + "gems_" + chars(HEX, 48),
    "SendGrid": "S" + "G." + chars(URLSAFE, 22) + "." + chars(URLSAFE, 43),
    "Sentry": "sntry" + "u_" + chars(HEX, 64),
    "Shippo": "ship" + "po_live_" + chars(HEX, 40),
    "Shopify": "shp" + "at_" + chars(HEX, 32),
    "Slack bot": "xo" + "xb-" + chars(DIGITS, 12) + "-" + chars(DIGITS, 12) + "-" + chars(ALNUM, 24),
    "Slack app": "xa" + "pp-1-A" + chars(ALNUM[26:].upper(), 10) + "-" + chars(DIGITS, 13) + "-" + chars(HEX, 64),
    "Slack refresh": "xo" + "xe-1-" + chars(ALNUM[26:].upper(), 146),
    "Square": "sq0" + "atp-" + chars(URLSAFE, 22),
    "Stripe": "sk" + "_live_" + chars(ALNUM, 24),
    "Stripe, restricted": "rk" + "_test_" + chars(ALNUM, 24),
    "Stripe webhook": "wh" + "sec_" + chars(ALNUM, 32),
    "Supabase": "sb" + "p_" + chars(HEX, 40),
    "Tailscale": "ts" + "key-auth-" + chars(ALNUM, 17) + "-" + chars(ALNUM, 32),
    "Tavily": "tv" + "ly-dev-" + chars(ALNUM, 32),
    "Telegram": chars(DIGITS, 10).replace("0", "4") + ":AA" + chars(URLSAFE, 33),
    "Terraform Cloud": chars(ALNUM, 14) + ".atlas" + "v1." + chars(URLSAFE, 66),
    "Twilio": "S" + "K" + chars(HEX, 32),
    "Typeform": "tf" + "p_" + chars(URLSAFE, 59),
    "Vault": "hv" + "s." + chars(URLSAFE, 95),
    "Vault, batch": "hv" + "b." + chars(URLSAFE, 140),
    "Voyage": "pa" + "-" + chars(URLSAFE, 43),
    "xAI": "xa" + "i-" + chars(ALNUM, 80),
}
