// Names that scripts written for the first Salmon expect, kept true while the page goes on. Loaded only for such scripts.

Object.assign(window, { head: null, left: null, max_queries: 0, num_queries: 0, puid: "", right: null, targets: [] });

/** Show another query; nothing is stored of the one on the screen. */
window.getquery = () => document.dispatchEvent(new CustomEvent("salmon:getquery"));

document.addEventListener("salmon:arrived", ({ detail }) => Object.assign(window, detail));
document.addEventListener("salmon:query", ({ detail: { head, left, right } }) => Object.assign(window, { head, left, right }));
document.addEventListener("salmon:answer", ({ detail }) => Object.assign(window, { num_queries: detail.given }));
