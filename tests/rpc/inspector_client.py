"""The inspector as a browser uses it: its cookie, its origin, and its calls."""

import json

import httpx

from rpc.http_client import address_of

SIGN_IN = "/inspector/sign-in"
WATCH = "/inspector/watch"


def page(running, **options):
    """A browser on the page of a daemon, which sends the page's origin and has no cookie yet."""
    url = running.daemon.edges.http_url
    return httpx.AsyncClient(base_url=url, headers={"origin": url}, trust_env=False, timeout=30, **options)


async def sign_in(browser, token, **headers):
    return await browser.post(SIGN_IN, json={"token": token}, headers=headers)


async def call(browser, method, request=None, **headers):
    return await browser.post(f"/inspector/call/{method}", json=request or {}, headers=headers)


async def is_signed_in(browser):
    return (await call(browser, "ListAgents")).status_code == 200


def error(response):
    """The status and the reason of a refused request."""
    return response.status_code, response.json()["error"]["reason"]


def cookie_name(running):
    return f"memoryd-inspector-{address_of(running)[1]}"


def attributes(response):
    """The attributes of the only cookie that a response sets, in lower case; and its name and value."""
    (cookie,) = response.headers.get_list("set-cookie")
    pair, *rest = cookie.split("; ")
    return pair.partition("=")[::2], {attribute.lower() for attribute in rest}


async def events(response):
    """The events of a watch that has begun, until the daemon ends it."""
    async for line in response.aiter_lines():
        if line:
            assert line.startswith("data: ")
            yield json.loads(line.removeprefix("data: "))
