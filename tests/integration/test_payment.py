"""The list of payments over the routes: amounts of the file, catch trials of this
moment, files, and who may read it.
"""

import httpx

from frontend.auth import make_account
from frontend.context import Context
from frontend.store.statuses import PlatformStatus
from tests.bundles import rows_of
from tests.studies import OWNER, Study, study

SPEC = """\
targets: [red, green, blue, cyan, pink]
samplers: {Random: {}}
html: {max_queries: 4}
checks: {catch: 50%, on_failure: screen_out, tolerate: 0}
recruitment: {platform: prolific, completion_code: C0DE77, screen_out_code: OUT77}
payment: {currency: EUR, reward: 2.40, screened_out: 0.30, bonus: [{amount: 0.60, catch_accuracy: 100%}]}
"""


async def take_part(one: Study, name: str, *, right: bool = True, finish: bool = True) -> None:
    """Answer every query; catch trials as they should be, or wrongly."""
    arrival = await one.arrive(PROLIFIC_PID=name, SESSION_ID=f"s-{name}")
    while "token" in (query := await one.query(arrival)):
        own = [foot for foot in (query["left"], query["right"]) if foot == query["head"]]
        other = query["left"] + query["right"] - own[0] if own else query["left"]
        await one.answer({"token": query["token"], "winner": own[0] if own and right else other})
    if finish:
        headers = {"X-Salmon-Session": arrival["session"]}
        await one.client.post(f"/e/{one.slug}/finish", json={"given": 4}, headers=headers)


async def test_the_list_follows_from_people_the_platform_and_the_file(
    client: httpx.AsyncClient, context: Context
) -> None:
    one = await study(client, context, SPEC, "paid")
    await take_part(one, "careful")
    await take_part(one, "careless", right=False)
    await take_part(one, "late")
    await take_part(one, "lost", finish=False)
    await one.arrive(PROLIFIC_PID="looked", SESSION_ID="s-looked")
    experiment = (await context.catalogue.find("paid")).id
    arrivals = await context.store.export_reader.read_arrivals(experiment)
    note = context.store.participants.note_platform_status
    await note(experiment, arrivals["prolific:late"], PlatformStatus.TIMED_OUT, 5)
    base = "/api/experiments/paid/payment"
    reply = (await client.get(base, auth=OWNER)).raise_for_status().json()
    assert (reply["currency"], reply["platform"], reply["fresh"]) == ("EUR", "prolific", True)
    assert [(row["platform_id"], row["action"], row["amount"]) for row in reply["rows"]] == [
        ("careful", "pay", "2.40"),
        ("careful", "bonus", "0.60"),
        ("careless", "screened out", "0.30"),
        ("late", "pay by hand", "2.40"),
        ("late", "bonus", "0.60"),
        ("lost", "pay by hand", "2.40"),
        ("looked", "nothing", None),
    ]
    sums = {each["action"]: (each["count"], each["amount"]) for each in reply["sums"]}
    assert (sums["pay"], sums["bonus"], sums["pay by hand"]) == ((1, "2.40"), (2, "1.20"), (2, "4.80"))
    approve = await client.get(f"{base}/approve.csv", auth=OWNER)
    assert (approve.text, approve.headers["content-type"]) == ("careful\n", "text/csv; charset=utf-8")
    assert (await client.get(f"{base}/bonus.csv", auth=OWNER)).text == "careful,0.60\nlate,0.60\n"
    rows = rows_of((await client.get(f"{base}/all.csv", auth=OWNER)).content)
    assert [row["assignment"] for row in rows][:3] == ["s-careful", "s-careful", "s-careless"]
    await note(experiment, arrivals["prolific:careful"], PlatformStatus.APPROVED, 9)
    assert (await client.get(f"{base}/approve.csv", auth=OWNER)).text == "", "nobody is paid twice"


async def test_only_who_may_change_the_experiment_reads_the_list(client: httpx.AsyncClient, context: Context) -> None:
    await study(client, context, SPEC, "private")
    stranger = ("stranger", "another good password")
    await make_account(context, *stranger)
    for path in ("payment", "payment/approve.csv", "payment/bonus.csv", "payment/all.csv"):
        for auth in (None, stranger):
            reply = await client.get(f"/api/experiments/private/{path}", auth=auth)
            assert reply.status_code in {401, 404}, path
    unknown = await client.get("/api/experiments/private/payment/reject.csv", auth=OWNER)
    assert unknown.status_code == 422
