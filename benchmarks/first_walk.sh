#!/usr/bin/env bash
# Goes the way of a new user from a fresh clone, and says after each step how many seconds have passed:
#     bash benchmarks/first_walk.sh
# Five simulated people answer; everything goes into a temporary folder, which is removed.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
port=${PORT:-8631}
server=
finish() {
    if [ -n "$server" ]; then
        kill -INT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap finish EXIT
began=$(date +%s)
say() { echo "$(($(date +%s) - began)) s: $1"; }

git clone -q "$source" "$folder/salmon"
cd "$folder/salmon"
say "cloned"
requirements/install serve >"$folder/install.log" 2>&1
say "installed"
.venv/bin/salmon serve --port "$port" --data salmon-data >"$folder/serve.log" 2>&1 &
server=$!
until grep -q "invitation=" "$folder/serve.log"; do
    kill -0 "$server"
    sleep 0.3
done
say "the server prints the link to the console"
.venv/bin/salmon user add ada --data salmon-data <<<"correct horse battery" >/dev/null
.venv/bin/salmon example eggs --data salmon-data >"$folder/links"
link=$(sed -n 's/^For participants: //p' "$folder/links")
say "an experiment is open"
.venv/bin/python - "$link" <<'PYTHON'
import asyncio
import sys

from salmon.client import PageSession, ServedQuery, connections


async def main() -> None:
    async with connections(1) as client:
        for person in range(5):
            page = await PageSession.open(client, f"{sys.argv[1]}?puid=p{person}")
            given = 0
            while isinstance(query := await page.ask(given + 1), ServedQuery):
                nearer = min(query.left, query.right, key=lambda foot: abs(foot - query.head))
                await page.answer(query, nearer, rt_ms=800)
                given += 1


asyncio.run(main())
PYTHON
say "five simulated people have given 60 answers each"
curl -sf -u "ada:correct horse battery" -o responses.csv "http://localhost:$port/api/experiments/eggs/exports/responses.csv"
say "exported $(($(wc -l <responses.csv) - 1)) answers"
.venv/bin/salmon fit responses.csv -o eggs.csv --dim 1 >"$folder/fit.log"
say "fitted and drawn: $(ls eggs-map.png)"
