// The editor of an experiment's file: CodeMirror with YAML, marks of the checker, and help from the schema.

import {
  EditorSelection,
  EditorState,
  EditorView,
  HighlightStyle,
  autocompletion,
  bracketMatching,
  codeFolding,
  completionKeymap,
  defaultKeymap,
  drawSelection,
  foldGutter,
  foldKeymap,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSelectionMatches,
  highlightSpecialChars,
  history,
  historyKeymap,
  hoverTooltip,
  indentOnInput,
  indentUnit,
  isolateHistory,
  keymap,
  lineNumbers,
  lintGutter,
  lintKeymap,
  search,
  searchKeymap,
  setDiagnostics,
  syntaxHighlighting,
  tags,
  yaml,
} from "../vendor/codemirror-6.43.15.esm.min.js";

import { h } from "./dom.js";
import { completionsAt, meaningAt } from "./spec_schema.js";

const COLOURS = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--code-key)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-text)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword, tags.labelName, tags.typeName], color: "var(--code-value)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.separator, tags.squareBracket, tags.brace, tags.punctuation, tags.meta], color: "var(--quiet)" },
]);

export class Editor {
  #view;
  #schema = null;

  /** Show a text in an element. `oninput` is called after every change; `nonce` lets CodeMirror add its styles. */
  constructor(place, { value = "", label, nonce, readOnly = false, oninput }) {
    this.#view = new EditorView({
      parent: place,
      state: EditorState.create({
        doc: value,
        extensions: [
          EditorView.cspNonce.of(nonce),
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", autocapitalize: "off", tabindex: "0" }),
          EditorState.readOnly.of(readOnly),
          EditorView.lineWrapping,
          EditorView.updateListener.of((update) => update.docChanged && oninput(this.value)),
          yaml(),
          syntaxHighlighting(COLOURS),
          indentUnit.of("  "),
          EditorState.tabSize.of(2),
          lineNumbers(),
          highlightActiveLineGutter(),
          highlightActiveLine(),
          highlightSpecialChars(),
          drawSelection(),
          history(),
          foldGutter({ markerDOM: foldMarker }),
          codeFolding({ placeholderText: "…" }),
          indentOnInput(),
          bracketMatching(),
          highlightSelectionMatches(),
          search({ top: true }),
          lintGutter(),
          autocompletion({ override: [(context) => this.#complete(context)], icons: false }),
          hoverTooltip((view, position) => this.#explain(view, position)),
          // Tab keeps its meaning: it moves to the next element. Ctrl+] indents.
          keymap.of([...completionKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...lintKeymap, ...defaultKeymap]),
        ],
      }),
    });
  }

  get value() {
    return this.#view.state.doc.toString();
  }

  set schema(schema) {
    this.#schema = schema;
  }

  /** Replace the text in one step, which one undo takes back. Only what differs is touched, so the caret stays. */
  replace(text) {
    const before = this.value;
    if (before === text) return;
    let from = 0;
    while (from < before.length && before[from] === text[from]) from += 1;
    let end = 0;
    while (end < Math.min(before.length, text.length) - from && before.at(-1 - end) === text.at(-1 - end)) end += 1;
    this.#view.dispatch({
      changes: { from, to: before.length - end, insert: text.slice(from, text.length - end) },
      annotations: isolateHistory.of("full"),
    });
  }

  /** Mark problems {line, column, message, hint, suggestion, warning} where they are. */
  mark(problems) {
    const marks = problems.filter(({ line }) => line > 0).map((problem) => {
      const { from, to } = this.#rangeOf(problem);
      return {
        from,
        to,
        severity: problem.warning ? "warning" : "error",
        message: [problem.message, problem.hint].filter(Boolean).join(" "),
        actions: problem.suggestion
          ? [{ name: `Write ${problem.suggestion}`, apply: (view, start, end) => this.#write(start, end, problem.suggestion) }]
          : [],
      };
    });
    this.#view.dispatch(setDiagnostics(this.#view.state, marks));
    this.#view.contentDOM.setAttribute("aria-invalid", String(problems.some(({ warning }) => !warning)));
  }

  /** Write what a problem suggests in its place. */
  fix(problem) {
    const { from, to } = this.#rangeOf(problem);
    this.#write(from, to, problem.suggestion);
    this.#view.focus();
  }

  /** Move the caret to a line and column, and show it. */
  goTo(line, column) {
    const { doc } = this.#view.state;
    const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
    const position = Math.min(found.from + Math.max(0, column - 1), found.to);
    this.#view.dispatch({
      selection: EditorSelection.cursor(position),
      effects: EditorView.scrollIntoView(position, { y: "center" }),
    });
    this.#view.focus();
  }

  /** Return the line on which a problem is marked: an empty line says nothing, so the text above it is marked. */
  lineOf({ line }) {
    const { doc } = this.#view.state;
    let number = Math.min(line, doc.lines);
    while (number > 1 && !doc.line(number).text.trim()) number -= 1;
    return number;
  }

  #write(from, to, text) {
    this.#view.dispatch({ changes: { from, to, insert: text }, annotations: isolateHistory.of("full"), userEvent: "input.complete" });
  }

  /** Return the word, or the text in quotes, at the place of a problem: never an empty line. */
  #rangeOf({ line, column }) {
    const number = this.lineOf({ line });
    const found = this.#view.state.doc.line(number);
    const start = number === line ? Math.min(Math.max(0, column - 1), Math.max(0, found.length - 1)) : found.text.search(/\S/);
    const rest = found.text.slice(start);
    const word = /^"(?:[^"\\]|\\.)*"|^'(?:[^']|'')*'|^[^\s:#,[\]{}][^:#,[\]{}]*?(?=\s*(?:[:,\]}]|$|\s#))/.exec(rest)?.[0] ?? rest.slice(0, 1);
    return { from: found.from + start, to: Math.min(found.from + start + Math.max(word.length, 1), found.to) };
  }

  #complete(context) {
    if (!this.#schema) return null;
    const line = context.state.doc.lineAt(context.pos);
    const lines = context.state.doc.toString().split("\n");
    const found = completionsAt(this.#schema, lines, line.number - 1, context.pos - line.from);
    if (!found || (!context.explicit && found.from === context.pos - line.from)) return null;
    return { from: line.from + found.from, options: found.options, validFor: /^[\w.-]*$/ };
  }

  #explain(view, position) {
    if (!this.#schema) return null;
    const line = view.state.doc.lineAt(position);
    const found = meaningAt(this.#schema, view.state.doc.toString().split("\n"), line.number - 1, position - line.from);
    if (!found) return null;
    return {
      pos: line.from + found.from,
      end: line.from + found.to,
      above: true,
      create: () => ({
        dom: h("div", { class: "meaning" }, h("b", {}, found.key), found.kind ? h("span", {}, found.kind) : null, h("p", {}, found.text)),
      }),
    };
  }
}

function foldMarker(open) {
  return h("span", { title: open ? "Fold" : "Unfold" }, open ? "▾" : "▸");
}
