// Sends waiting answers when the connection returns, and while the page is left, hidden or closed.

/**
 * @param {import("./outbox.js").Outbox} outbox
 * @param {import("./api.js").Api} api
 */
export function sendWhenLeaving(outbox, api) {
  const sendNow = () => outbox.waiting > 0 && api.beacon(outbox.unsent);
  addEventListener("online", () => outbox.flush());
  addEventListener("pagehide", sendNow);
  addEventListener("visibilitychange", () => document.visibilityState === "hidden" && sendNow());
  addEventListener("beforeunload", (event) => outbox.failing && event.preventDefault());
}
