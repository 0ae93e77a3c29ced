"""Approvals and bonuses at Prolific: shown first, bounded, and paid once, whatever happens to the replies."""

import asyncio

import httpx
import pytest

from frontend.app import create_app
from frontend.context import Context
from tests.people import PASSWORD, MakeAccount
from tests.prolific import (
    KEY,
    PAGE,
    Send,
    StandIn,
    experiment_id,
    finished,
    paid,
    published,
    sentence,
)
from tests.studies import OWNER


async def test_approving_shows_the_sum_and_pays_once(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "approved")
    people = await finished(colors, prolific, made, 101, 102)
    prolific.submit(made, 103)  # nobody of this id was here
    (late,) = await finished(colors, prolific, made, 104)
    prolific.submissions[f"{104 + 0xABC000:024x}"]["status"] = "TIMED-OUT"
    what = {"action": "approve", "participants": [*people, late, "nobodynobody"]}
    plan = await send("POST", f"{PAGE.format('approved')}/payments/plan", json=what)
    shown = plan.raise_for_status().json()
    assert (shown["count"], shown["sum"], shown["currency"], shown["problem"]) == (2, 300, "GBP", "")
    assert {row["participant"]: row["why"] for row in shown["left_out"]} == {
        late: "Prolific says timed out: decide about it there.",
        "nobodynobody": "Nothing is known of a submission at Prolific.",
    }
    assert prolific.approvals == []
    body = {**what, "key": KEY + "a", "count": 2, "sum": 150}
    other = await send("POST", f"{PAGE.format('approved')}/payments", json=body)
    assert (other.status_code, "the page showed" in sentence(other)) == (409, True)
    assert prolific.approvals == []
    for _ in range(2):
        done = await send("POST", f"{PAGE.format('approved')}/payments", json=body | {"sum": 300})
        assert done.status_code == 200, done.text
        (row,) = done.json()["payments"]
        assert (row["state"], row["count"], row["sum"], row["open"]) == ("done", 2, 300, False)
    assert sorted(prolific.approvals) == sorted(each for each in prolific.submissions if each[-1] in "56")
    again = {"action": "approve", "participants": people}
    left = (await send("POST", f"{PAGE.format('approved')}/payments/plan", json=again)).json()
    assert (left["count"], {row["why"] for row in left["left_out"]}) == (0, {"It is approved already."})
    assert {row["participant"] for row in left["left_out"]} == set(people)
    log = [each["what"] for each in (await send("GET", "/api/log")).json()]
    assert {"Prolific: approve ordered", "Prolific: approve confirmed"} <= set(log)


async def test_an_approval_whose_reply_is_lost_is_continued(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "lost-approval")
    people = await finished(colors, prolific, made, 111, 112)
    prolific.lose.add("bulk-approve")
    what = {"action": "approve", "participants": people}
    lost = await paid(send, "lost-approval", what)
    assert (lost.status_code, "nothing is paid twice" in sentence(lost)) == (502, True)
    (row,) = (await send("GET", PAGE.format("lost-approval"))).json()["payments"]
    assert (row["state"], row["open"]) == ("begun", True)
    prolific.asked.clear()
    checked = await send("POST", f"{PAGE.format('lost-approval')}/payments/{row['key']}/check")
    assert checked.json()["payments"][0]["state"] == "done"
    assert "POST /api/v1/submissions/bulk-approve/" not in prolific.asked  # nothing waited any more
    assert len(prolific.approvals) == 2


@pytest.mark.parametrize("lost", ["bonus-payments", "pay"])
async def test_a_bonus_whose_reply_is_lost_is_paid_once(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn, lost: str
) -> None:
    name = f"lost-{lost}"
    colors, made = await published(client, context, send, name)
    one, two = await finished(colors, prolific, made, 121, 122)
    what = {"action": "bonus", "bonuses": {one: 100, two: 25}}
    prolific.lose.add("POST /api/v1/submissions/bonus-payments/" if lost == "bonus-payments" else "/pay/")
    assert (await paid(send, name, what)).status_code == 502
    for _ in range(3):
        reply = await paid(send, name, what)
        assert reply.status_code == 200, reply.text
    assert sorted(amount for _, amount in prolific.paid) == [0.25, 1.0]
    assert reply.json()["committed"] == 10 * 150 + 125
    left = await send("POST", f"{PAGE.format(name)}/payments/plan", json=what)
    assert (left.json()["count"], len(left.json()["left_out"])) == (0, 2)


async def test_a_bonus_that_nobody_confirms_is_never_sent_again_by_itself(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "slow")
    (one,) = await finished(colors, prolific, made, 131)
    prolific.pays = False  # Prolific takes its time
    prolific.lose.add("/pay/")
    what = {"action": "bonus", "bonuses": {one: 100}}
    assert (await paid(send, "slow", what)).status_code == 502
    key = (await send("GET", PAGE.format("slow"))).json()["payments"][0]["key"]
    for _ in range(2):
        checked = await send("POST", f"{PAGE.format('slow')}/payments/{key}/check")
        assert (checked.status_code, "not confirmed" in sentence(checked)) == (409, True)
    early = await send("DELETE", f"{PAGE.format('slow')}/payments/{key}")
    assert (early.status_code, "Wait 30 minutes" in sentence(early)) == (409, True)
    later = context.settings.model_copy()
    app = create_app(later, context.store)
    object.__setattr__(app.state.context, "now_ms", lambda: context.now_ms() + 31 * 60_000)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client_later:
        given_up = await client_later.delete(f"{PAGE.format('slow')}/payments/{key}", auth=OWNER)
    assert given_up.json()["payments"][0]["state"] == "refused"
    assert (await paid(send, "slow", what, key=KEY + "2")).status_code == 200
    assert len(prolific.paid) == 2  # the second was ordered by a person who had looked


async def test_what_prolific_refuses_is_free_again(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "refused-bonus")
    (one,) = await finished(colors, prolific, made, 141)
    what = {"action": "bonus", "bonuses": {one: 100}}
    prolific.refuse["/pay/"] = (400, {"error": {"detail": "The balance is too low."}})
    refused = await paid(send, "refused-bonus", what)
    assert (refused.status_code, "The balance is too low." in sentence(refused)) == (502, True)
    assert (await send("GET", PAGE.format("refused-bonus"))).json()["committed"] == 1500
    again = await paid(send, "refused-bonus", what)
    assert (again.status_code, "refused this payment" in sentence(again)) == (409, True)
    prolific.refuse.clear()
    assert (await paid(send, "refused-bonus", what, key=KEY + "2")).status_code == 200
    assert prolific.paid == [(next(iter(prolific.submissions)), 1.0)]


async def test_bonuses_end_at_the_limit_also_when_sent_at_once(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "limit")
    one, two, three = await finished(colors, prolific, made, 151, 152, 153)
    above = {"action": "bonus", "bonuses": {one: 501}}
    plan = (await send("POST", f"{PAGE.format('limit')}/payments/plan", json=above)).json()
    assert "spend_at_most is 20.00" in plan["problem"]
    assert (await paid(send, "limit", above)).status_code == 409
    bodies = [
        {"action": "bonus", "bonuses": {who: 300}, "key": f"{KEY}{place}", "count": 1, "sum": 300}
        for place, who in enumerate((one, one, two, three))
    ]
    replies = await asyncio.gather(*(send("POST", f"{PAGE.format('limit')}/payments", json=body) for body in bodies))
    assert sorted(reply.status_code for reply in replies) == [200, 409, 409, 409]
    assert sum(amount for _, amount in prolific.paid) == 3.0


async def test_only_who_may_change_the_experiment_pays_and_by_their_own_token(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn, fresh: MakeAccount
) -> None:
    colors, made = await published(client, context, send, "mine")
    people = await finished(colors, prolific, made, 161)
    dora = await fresh("dora")
    await context.store.experiments.share(await experiment_id(context, "mine"), {dora.id: "edit"})
    plan = await client.post(
        f"{PAGE.format('mine')}/payments/plan",
        json={"action": "approve", "participants": people},
        auth=("dora", PASSWORD),
    )
    assert (plan.status_code, "no token" in sentence(plan)) == (409, True)
    token = (await send("POST", "/api/account/tokens", json={"label": "x", "scope": "write"})).json()["token"]
    body = {"action": "approve", "participants": people, "key": KEY + "t", "count": 1, "sum": 150}
    by_script = await client.post(
        f"{PAGE.format('mine')}/payments", json=body, headers={"Authorization": f"Bearer {token}"}
    )
    assert by_script.status_code == 403
    assert prolific.approvals == []


async def test_amounts_in_another_currency_than_the_studys_are_refused(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    colors, made = await published(client, context, send, "dollars", **{"currency: GBP": "currency: USD"})
    (one,) = await finished(colors, prolific, made, 181)
    reply = await send(
        "POST", f"{PAGE.format('dollars')}/payments/plan", json={"action": "bonus", "bonuses": {one: 10}}
    )
    assert "Prolific pays this study in GBP, and the file says USD" in reply.json()["problem"]
    assert (await paid(send, "dollars", {"action": "bonus", "bonuses": {one: 10}})).status_code == 409
    assert prolific.paid == []


async def test_a_bonus_that_prolific_shows_already_is_not_paid_again(
    client: httpx.AsyncClient, context: Context, send: Send, prolific: StandIn
) -> None:
    """As after an import: the store knows nothing of what was paid before."""
    colors, made = await published(client, context, send, "paid-elsewhere")
    (one,) = await finished(colors, prolific, made, 191)
    prolific.submissions[f"{191 + 0xABC000:024x}"]["bonus_payments"] = [100]
    what = {"action": "bonus", "bonuses": {one: 100}}
    plan = (await send("POST", f"{PAGE.format('paid-elsewhere')}/payments/plan", json=what)).json()
    assert (plan["count"], plan["left_out"][0]["why"]) == (0, "Prolific shows a bonus for it already.")
    assert (await paid(send, "paid-elsewhere", what)).status_code == 409
