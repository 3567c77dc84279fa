"""Does what the real `qmd` does, as far as its callers can see, without its runtime, models or speed.

Run through the executable that `installs.py` makes. Collections come from index.yml, the index is a JSON file where the
real one has its database, and both are read afresh by every process, so that an index is as stale as its last update.
"""

import json
import os
import re
import sys
import time
from hashlib import sha256
from pathlib import Path

import yaml

from fake_qmd import faults

VERSION = "2.8.3"
DEFAULT_LIMIT = 20
STRIP = 2
SNIPPET_UNITS = 300
SKIPPED = {"node_modules", "vendor", "dist", "build"}
FLAGS_WITH_VALUE = {"--index", "-n", "-c", "--collection", "--format", "--min-score"}


class Exit(Exception):
    """Ends the command with words on stderr."""

    def __init__(self, words, code=1):
        super().__init__(words)
        self.code = code


def parse(argv):
    """Flags (the last of each, all of -c), and words; after `--` everything is a word."""
    flags, collections, words = {}, [], []
    rest = iter(argv)
    for part in rest:
        if part == "--":
            words += rest
        elif part in FLAGS_WITH_VALUE:
            value = next(rest, "")
            if part in ("-c", "--collection"):
                collections.append(value)
            else:
                flags[part] = value
        elif part.startswith("-"):
            flags[part] = True
        else:
            words.append(part)
    return flags, collections, words


class Store:
    """index.yml and the index."""

    def __init__(self):
        folder = os.environ.get("QMD_CONFIG_DIR") or f"{os.environ['XDG_CONFIG_HOME']}/qmd"
        self.yml = Path(folder) / "index.yml"
        self.path = Path(os.environ["XDG_CACHE_HOME"]) / "qmd" / "index.sqlite"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.config = (yaml.safe_load(self.yml.read_text()) or {}) if self.yml.exists() else {}
        except yaml.YAMLError as error:
            raise Exit(f"Error: Failed to parse {self.yml}: YAMLParseError: {error}") from None
        self.documents, self.vectors, self.trash = self._load()

    def _load(self):
        if not self.path.exists():
            return {}, [], []
        try:
            held = json.loads(self.path.read_text())
        except ValueError:
            raise Exit("SqliteError: file is not a database\n    code: 'SQLITE_NOTADB'") from None
        return held["documents"], held["vectors"], held["trash"]

    @property
    def collections(self):
        return self.config.get("collections") or {}

    def save(self):
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"documents": self.documents, "vectors": self.vectors, "trash": self.trash}))
        fresh.replace(self.path)


def digest(text):
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def glob_regex(pattern):
    """What the patterns of this project need: braces, commas, `**/`, `*`."""
    opened = re.fullmatch(r"\{(.*)\}", pattern)
    pieces = {"**/": "(?:.*/)?", "*": "[^/]*", ",": "|"}
    parts = re.findall(r"\*\*/|\\.|.", opened[1] if opened else pattern)
    return "".join(pieces.get(part) or re.escape(part.removeprefix("\\")) for part in parts)


def found_files(collection):
    root = Path(collection["path"])
    regex = re.compile(glob_regex(collection.get("pattern", "**/*.md")))
    for folder, names, files in os.walk(root):
        names[:] = [
            n for n in names if not n.startswith(".") and n not in SKIPPED and not (Path(folder) / n).is_symlink()
        ]
        for name in files:
            path = Path(folder) / name
            relative = str(path.relative_to(root))
            if not name.startswith(".") and not path.is_symlink() and path.is_file() and regex.fullmatch(relative):
                yield relative, path.read_bytes().decode("utf-8", "replace")


def update(store, *_):
    print(f"Updating {len(store.collections)} collection(s)...\n")
    for number, (name, collection) in enumerate(store.collections.items(), 1):
        held = store.documents.setdefault(name, {})
        new = changed = unchanged = 0
        seen = set()
        for path, text in found_files(collection):
            seen.add(path)
            if not text.strip():
                # An emptied file keeps what was indexed of it.
                unchanged += path in held
            elif path not in held:
                new, held[path] = new + 1, text
            elif held[path] != text:
                store.trash.append(held[path])
                changed, held[path] = changed + 1, text
            else:
                unchanged += 1
        gone = [path for path in held if path not in seen]
        for path in gone:
            store.trash.append(held.pop(path))
        print(f"[{number}/{len(store.collections)}] {name} ({collection.get('pattern')})")
        print(f"\nIndexed: {new} new, {changed} updated, {unchanged} unchanged, {len(gone)} removed")
    store.save()
    print("\n✓ All collections updated.")


def embed(store, *_):
    wanted = {digest(text) for held in store.documents.values() for text in held.values()}
    if wanted <= set(store.vectors):
        return print("✓ All content hashes already have embeddings.")
    store.vectors = sorted(wanted)
    store.save()
    return print(
        f"\x1b[?25l██████ 100%\x1b[?25h\n✓ Done! Embedded {len(wanted)} chunks from {len(wanted)} documents in 0s"
    )


def cleanup(store, *_):
    """What was changed or removed is kept until this."""
    store.trash = []
    store.save()
    print("✓ FTS compacted, database vacuumed")


def pending(store):
    return sum(digest(text) not in store.vectors for held in store.documents.values() for text in held.values())


def status(store, *_):
    total = sum(map(len, store.documents.values()))
    waiting = pending(store)
    print(f"QMD Status\n\nIndex: {store.path}\n\nDocuments\n  Total:    {total} files indexed")
    print(f"  Vectors:  {total - waiting} embedded")
    if waiting:
        print(f"  Pending:  {waiting} need embedding (run 'qmd embed')")


def words_of(question):
    return [word.lower() for word in re.findall(r"[^\W_]+", question)]


def terms_of(question):
    """The words and phrases that a document has to have, and those that it may not have."""
    terms = re.findall(r'(-(?=["\w]))?(?:"([^"]*)"?|([^\s"]+))', question)
    split = [(minus, " ".join(words_of(phrase or word))) for minus, phrase, word in terms]
    return [text for minus, text in split if text and not minus], [text for minus, text in split if text and minus]


def scope(store, names):
    for name in names:
        if name not in store.collections:
            raise Exit(f"Collection not found: {name}")
    return names or list(store.documents)


def score(count, documents):
    """0 for a word that half of the documents hold, as BM25 gives it."""
    return 0 if count * STRIP >= documents else round(0.3 + 0.6 * (1 - count / documents), 2)


def matches(store, names, question):
    """(collection, path, text) of the documents that hold all the words and none of those with a minus."""
    wanted, excluded = terms_of(question)
    documents = [(name, path, text) for name in names for path, text in store.documents.get(name, {}).items()]
    return [
        hit
        for hit in documents
        if wanted and all(holds(hit, w) for w in wanted) and not any(holds(hit, w) for w in excluded)
    ]


def holds(document, term):
    """CJK is indexed by character, so that a phrase of it is found anywhere; other words from their beginning."""
    _, path, text = document
    whole = " ".join(words_of(f"{path} {text}"))
    return term in whole if not term.isascii() else f" {term}" in f" {whole}"


def row(name, path, text, question, value):
    lines = text.split("\n")
    words = words_of(question)
    counts = [sum(word in line.lower() for word in words) for line in lines]
    best = counts.index(max(counts)) if any(counts) else 0
    start = max(0, best - 1)
    shown = lines[start : best + 3]
    body = "\n".join(shown)
    cut = body if len(body) <= SNIPPET_UNITS else body[: SNIPPET_UNITS - 3] + "..."
    heading = next((line.lstrip("# ") for line in lines if re.match(r"#{1,2} ", line)), Path(path).stem)
    header = f"@@ -{start + 1},{len(shown)} @@ ({start} before, {len(lines) - start - len(shown)} after)"
    return {
        "docid": f"#{digest(text)[:6]}",
        "score": value,
        "file": f"qmd://{name}/{path}",
        "line": best + 1,
        "title": heading,
        "snippet": f"{header}\n{cut}",
    }


def results(rows):
    print(json.dumps(rows, indent=2, ensure_ascii=False) if rows else "[]")


def search(store, names, limit, question, _):
    documents = max(1, sum(map(len, store.documents.values())))
    hits = matches(store, names, question)
    results([row(*hit, question, score(len(hits), documents)) for hit in hits[:limit]])


def by_meaning(store, names, limit, question, _):
    """Shares of words: enough to find what says the same in part."""
    refuse_models_in_ci()
    waiting, total = pending(store), sum(map(len, store.documents.values()))
    if waiting:
        share = round(100 * waiting / total)
        print(
            f"Warning: {waiting} documents ({share}%) need embeddings. Run 'qmd embed' for better results.",
            file=sys.stderr,
        )
    words = set(words_of(question))
    scored = []
    for name in names:
        for path, text in store.documents.get(name, {}).items():
            common = words & set(words_of(text))
            if common and digest(text) in store.vectors:
                scored.append((round(len(common) / len(words), 2), (name, path, text)))
    scored.sort(key=lambda pair: -pair[0])
    print("\x1b[?25lExpanding query...\n├─ lex: memory\nReranking 5 chunks...\x1b[?25h", file=sys.stderr)
    results([row(*hit, question, value) for value, hit in scored[:limit]])


def query(store, names, limit, question, flags):
    lines = [line.strip() for line in question.splitlines() if line.strip()]
    typed = [re.fullmatch(r"(lex|vec|hyde|intent):\s*(.*)", line, re.IGNORECASE) for line in lines]
    if all(typed):
        return fused(store, names, limit, [(line[1].lower(), line[2]) for line in typed], flags)
    if len(lines) > 1:
        raise Exit("Error: Line 1 is missing a lex:/vec:/hyde:/intent: prefix. Each line must start with one.")
    return by_meaning(store, names, limit, question, flags)


def fused(store, names, limit, lines, flags):
    """The documents of each lex line, by the sum of their reciprocal ranks."""
    if any(kind != "lex" for kind, _ in lines):
        raise Exit("Error: this fake knows only lex lines")
    if any(text.count('"') % 2 for _, text in lines):
        raise Exit(
            'Error: Line 1 (lex): Lex query has an unmatched double quote ("). Add the closing quote or remove it.'
        )
    print(f"Structured search: {len(lines)} queries\n├─ lex: {lines[0][1]}\n└─ Searching...", file=sys.stderr)
    documents = max(1, sum(map(len, store.documents.values())))
    sums, lists = {}, {}
    for at, (_, text) in enumerate(lines):
        hits = matches(store, names, text)
        for rank, hit in enumerate(hits, 1):
            sums[hit] = sums.get(hit, 0) + (1 if at else 2) / (60 + rank)
            lists.setdefault(hit, []).append(
                {"source": "fts", "query": text, "backendScore": score(len(hits), documents)}
            )
    ignores_flag = faults.version().startswith("2.0.")
    if sums and ("--no-rerank" not in flags or ignores_flag):
        refuse_models_in_ci()
    best = sorted(sums, key=lambda hit: -sums[hit])[:limit]
    rows = [row(*hit, lines[0][1], round(1 / rank, 2)) for rank, hit in enumerate(best, 1)]
    if "--explain" in flags:
        rows = [
            {**each, "explain": {"rrf": {"contributions": lists[hit]}}} for each, hit in zip(rows, best, strict=True)
        ]
    return results(rows)


def refuse_models_in_ci():
    if os.environ.get("CI"):
        raise Exit("Error: LLM operations are disabled in CI (set CI=true)")


SEARCHES = {"search": search, "vsearch": by_meaning, "query": query}
VERBS = {"update": update, "embed": embed, "status": status, "cleanup": cleanup}


def dispatch(argv):
    flags, names, words = parse(argv)
    if flags.get("--version"):
        return print(f"qmd {faults.version() or VERSION} (fa4e000)")
    verb, *rest = words or [""]
    faults.before(verb)
    if verb in VERBS:
        return VERBS[verb](Store())
    if verb not in SEARCHES:
        raise Exit(f"Unknown command: {verb}")
    question = " ".join(rest).strip()
    if not question:
        raise Exit(f"Usage: qmd {verb} [options] <query>")
    store = Store()
    limit = flags.get("-n", "")
    limit = int(limit) if limit.isdigit() and int(limit) else DEFAULT_LIMIT
    faults.around(verb, lambda: SEARCHES[verb](store, scope(store, names), limit, question, flags))
    return None


def main():
    time.sleep(faults.slowness())
    try:
        dispatch(sys.argv[1:])
    except Exit as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)
