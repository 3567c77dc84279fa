"""The notes that the inspector shows in the tests and in the screenshots: those of docs/sample-workspace, and more."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "docs" / "sample-workspace"
# The setting `maxFileBytes` of the daemon; a larger file cannot be indexed.
MAX_FILE_BYTES = 20_000
FAILED = "memory/meeting-transcript.md"
EXCLUDED = "memory/drafts/pricing.md"
EXCLUDED_RULE = ".memoryignore:2: memory/drafts/"
IGNORE = "# Not for the agent\nmemory/drafts/\n*.private.md\n"

# Every payload sets this property of `window` if it runs.
EXECUTED = "hostileNoteExecuted"
_SET = f"window.{EXECUTED}=1"
PAYLOADS = (
    f"<script>{_SET}</script>",
    f'<img src="x" onerror="{_SET}">',
    f'<svg onload="{_SET}"><animate onbegin="{_SET}" attributeName="x"></svg>',
    f'"><iframe srcdoc="<script>parent.{EXECUTED}=1</script>"></iframe>',
    f"[a link](javascript:{_SET})",
    f"![an image](https://tracker.invalid/pixel.png) [elsewhere](https://tracker.invalid/?{EXECUTED})",
    f'<style>@import "https://tracker.invalid/a.css";</style><math><mi xlink:href="javascript:{_SET}">x</mi></math>',
    f"{{{{constructor.constructor('{_SET}')()}}}} ${{{_SET}}}",
    "The invoice is \u202egpj.exe\u202c, and the name \u2066\u202ea\u2069\u200b ends here.\u0000",
)
# Names that break out of an attribute or an element if they are written into HTML.
HOSTILE_NAME = f"memory/hostile/<img src=x onerror={_SET}>.md"
HOSTILE_QUOTES = f"""memory/hostile/"'><svg onload={_SET}>#&?x=%3Cb%3E.md"""
HOSTILE_FAILED = f"memory/hostile/failed <img src=x onerror={_SET}>.md"
HOSTILE_CALLER = f"<img src=x onerror={_SET}>"
HOSTILE_RULE = f"memory/<img src=x onerror={_SET}>/"

# What the team of the sample workspace wrote on ordinary days, most recent first.
_DAYS = (
    (1, "Priya finished the export of monthly sums; Mira checks the numbers of Port Vell against the old report."),
    (1, "The release of today moved to Thursday, because the booking widget failed in Safari 18."),
    (2, "Hauke asks whether berths can be held for a rally of 30 boats. Answer: yes, with group holds from 2.9 on."),
    (4, "Support: two customers could not pay with Twint; the provider had an outage between 09:10 and 09:40."),
    (4, "Decision: refunds below 10 euros are paid without a question. Owner Aiko."),
    (5, "Jonas measured the availability map: 38 ms for a large harbour, down from 61 ms."),
    (8, "Call with the harbour master of Onomichi: the pilot is extended by a year. The mail is in Aiko's inbox."),
    (9, "The tide forecast was an hour late after the clock change; tide-sync now stores UTC only."),
    (11, "Retrospective: fewer alerts at night. The alert for the replica is removed; it never led to an action."),
    (12, "Mira met the insurance broker in Porto. The offer covers damage by wrong berth lengths."),
    (15, "Backups: the restore drill took 19 minutes. The runbook is updated."),
    (15, "Booking numbers of the test system begin with TX from now on."),
    (18, "Load test of the group holds: 40 harbours, no double bookings, p95 at 310 ms."),
    (19, "Aiko drew the new calendar. Jonas wants the week to begin on Monday everywhere."),
    (22, "ERR_CACHE_4017 occurred once on staging after the schema change; the purge of one harbour was enough."),
    (23, "Flensburg renewed its contract for three years. Hauke wants invoices in German."),
    (26, "Release 2.8.0: group holds behind a switch, new calendar for everyone."),
    (29, "The accountant needs the VAT numbers of all harbours by the end of the month."),
    (30, "Customer of booking TP-48812 was charged twice. Refunded; cause: a retry after ERR_PAY_3110."),
    (33, "Payment retries use the idempotency key of the booking, so a retry cannot charge twice."),
    (36, "Interview with two harbours about winter storage: both want it, neither would pay extra."),
    (40, "Priya moved to Goa; her working hours are 07:00 to 11:00 UTC."),
    (41, "Onboarding of Zea: the plan of the marina is a scan, so the berths are entered by hand."),
    (44, "Zea is online. First booking after 26 minutes."),
    (47, "Postmortem of the outage of the status page: the domain expired. Renewal is automatic now."),
    (51, "Mira decided: no mobile app for harbour masters this year; the website must work on a phone."),
    (55, "The summer peak was 212 bookings a minute. The queue did not grow."),
    (60, "Jonas is on holiday for two weeks. Incidents go to Priya, then to Mira."),
    (66, "Limassol asks for berths by draught, not only by length. Noted for 2.9."),
    (71, "The hold of a berth lasts 20 minutes at weekends; measured effect: 3 % more bookings."),
    (78, "Aiko collected 41 support requests about cancellation; a third did not find the button."),
    (85, "The harbour master of Batumi retired. The new contact is Nino, mornings only."),
)

_DUPLICATES = (
    (6, "Postponed: berth prices of Port Vell change in spring, not now. Mira tells the harbour by phone."),
    (7, "Port Vell: the berth prices change in spring, not now. Mira has told the harbour by phone."),
)

_TALK = (
    ("user", "Which harbour did we promise the winter rates to?"),
    ("assistant", "Port Vell and Zea. Both are promised ten percent off from November to February."),
    ("user", "And who tells the accountant about the winter rates?"),
    ("assistant", "Mira does, before the end of the month."),
)

HISTORY = (
    "- Coffee: flat white with oat milk. Allergic to hazelnuts.",
    "- Coffee: espresso since spring. Allergic to hazelnuts.",
    "- Coffee: espresso, no sugar. Allergic to hazelnuts and almonds.",
)
"""A line of MEMORY.md, and the texts that edits replace it with."""


def write_notes(workspace, now=None):
    """Write the notes of the agent `main`; the dates of its daily notes end yesterday."""
    now = now or datetime.now(UTC)
    shutil.copytree(SAMPLE, workspace)
    memory = workspace / "memory"
    notes = {}
    for age, text in sorted(_DAYS + _DUPLICATES):
        notes.setdefault(now - timedelta(days=age), []).append(f"- {text}\n")
    for day, lines in notes.items():
        title = f"{day:%Y-%m-%d}"
        (memory / f"{title}.md").write_text(f"# {title}\n\n{''.join(lines)}")
    (memory / "projects" / "winter-storage.md").write_text(
        "# Winter storage\n\n- Boats stay ashore from November to March. <!-- project: winter -->\n"
        "- The crane of Flensburg lifts 12 tons; longer masts have to be taken down first.\n"
    )
    (workspace / FAILED).write_text("# Meeting\n\n" + "Jonas: the replica is behind again.\n" * 800)
    (workspace / ".memoryignore").write_text(IGNORE)
    (memory / "drafts").mkdir()
    (workspace / EXCLUDED).write_text("# Prices\n\nA draft: winter storage costs 4 euros a day per metre.\n")
    (memory / "mira.private.md").write_text("- Private: nothing of this is for the agent.\n")


def date_files(folder, now=None):
    """Give each Markdown file and transcript a time of modification in the 60 days before `now`."""
    now = now or datetime.now(UTC)
    files = [*folder.rglob("*.md"), *folder.rglob("*.jsonl")]
    for number, file in enumerate(sorted(files)):
        modified = (now - timedelta(days=1 + 7 * number % 60)).timestamp()
        os.utime(file, (modified, modified))


def write_long_note(workspace):
    """Write a note of several chunks, of which the last has the only text about a lighthouse."""
    sections = [
        f"## Berth {number}\n\n" + f"The berth {number} is checked for rust and rope. " * 12 for number in range(12)
    ]
    last = "## The lighthouse\n\nThe lighthouse keeper is called Eivind.\n"
    folder = workspace / "memory" / "projects"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "berths.md").write_text("# Berths\n\n" + "\n\n".join([*sections, last]))


def write_hostile_notes(workspace):
    """Write notes and names that run a script if the page inserts them as HTML."""
    for name, word in ((HOSTILE_NAME, "zanzibar"), (HOSTILE_QUOTES, "quotations")):
        file = workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"- {word} {number}: {payload}" for number, payload in enumerate(PAYLOADS)]
        file.write_text(f"---\ntitle: {PAYLOADS[1]}\n---\n# {PAYLOADS[0]}\n\n" + "\n".join(lines) + "\n")
    (workspace / HOSTILE_FAILED).write_text(PAYLOADS[1] * MAX_FILE_BYTES)
    with (workspace / ".memoryignore").open("a") as rules:
        rules.write(f"{HOSTILE_RULE}\n")
    (workspace / HOSTILE_RULE).mkdir()
    (workspace / HOSTILE_RULE / "a.md").write_text("not indexed\n")
    with (workspace / "MEMORY.md").open("a") as memory:
        memory.write(f"\n- zanzibar in the long-term memory: {' '.join(PAYLOADS[:6])}\n")


def write_transcript(state, agent="main"):
    """Write the transcript of one session."""
    folder = state / "agents" / agent / "sessions"
    folder.mkdir(parents=True)
    records = [{"type": "session", "version": 3}]
    records += [{"type": "message", "message": {"role": role, "content": text}} for role, text in _TALK]
    (folder / "winter-rates.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def write_numbered(workspace, count, word):
    """Write small notes that all have `word`."""
    folder = workspace / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{word}-{number:03}.md").write_text(f"The {word} number {number} lifts containers.\n")
