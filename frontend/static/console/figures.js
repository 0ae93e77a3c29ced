// The figures of the overview.

import { duration, milliseconds, number, percent, shortNames, utc } from "./dom.js";

const toObjects = (history) => {
  const places = Object.fromEntries(history.columns.map((name, place) => [name, place]));
  return history.points.map((point) => Object.fromEntries(Object.entries(places).map(([name, place]) => [name, point[place]])));
};

// A share of fewer predictions is too uncertain to draw.
const LEAST_PREDICTIONS = 10;

/** Share of answers that the growing embedding predicted, with its interval, the held-out accuracy now, and the noise ceiling. */
export const accuracy = {
  name: "accuracy",
  title: "Accuracy while the map grew",
  sentence:
    "Share of recent random answers that the embedding of that time predicted before it learned from them, with its 95 % interval: an average over earlier, poorer embeddings, so that it lies below the held-out accuracy now (dotted). Once the curve is flat, more answers change little. The dashed line is the noise ceiling: people disagree too much for any embedding to exceed it.",
  emptyText: "Appears once random queries have been answered and there is an embedding to predict them.",
  option(history, colour) {
    const points = toObjects(history).filter((point) => point.held_total >= LEAST_PREDICTIONS);
    if (points.length < 2) return null;
    const x = (point) => point.absorbed;
    const now = history.held?.accuracy ?? null;
    const ceiling = points.map((point) => [x(point), point.ceiling]).filter(([, value]) => value !== null);
    return {
      xAxis: { type: "value", name: "answers", nameGap: 30, min: "dataMin", max: "dataMax", axisLabel: { formatter: number } },
      yAxis: { type: "value", min: Math.min(0.4, ...points.map((point) => Math.floor(10 * point.accuracy) / 10)), max: 1, axisLabel: { formatter: (value) => percent(value) } },
      tooltip: {
        trigger: "axis",
        confine: true,
        formatter: ([first]) => {
          const point = points[first.dataIndex];
          return `${number(point.absorbed)} answers: ${percent(point.accuracy, 1)} predicted (${percent(point.accuracy_low, 1)} to ${percent(point.accuracy_high, 1)})`;
        },
      },
      series: [
        { name: "accuracy", type: "line", showSymbol: false, color: colour.first, lineStyle: { width: 2 }, data: points.map((point) => [x(point), point.accuracy]), z: 3 },
        { name: "low", type: "line", stack: "interval", stackStrategy: "all", showSymbol: false, lineStyle: { opacity: 0 }, data: points.map((point) => [x(point), point.accuracy_low]), silent: true },
        {
          name: "interval",
          type: "line",
          stack: "interval",
          stackStrategy: "all",
          showSymbol: false,
          lineStyle: { opacity: 0 },
          areaStyle: { color: colour.first, opacity: 0.18 },
          data: points.map((point) => [x(point), point.accuracy_high - point.accuracy_low]),
          silent: true,
        },
        { name: "held-out accuracy now", type: "line", showSymbol: false, color: colour.third, lineStyle: { type: "dotted", width: 2 }, data: now === null ? [] : [points[0], points.at(-1)].map((point) => [x(point), now]) },
        { name: "ceiling", type: "line", showSymbol: false, color: colour.second, lineStyle: { type: "dashed", width: 2 }, data: ceiling },
      ],
    };
  },
  rows: (history) => [
    ["answers", "predicted", "predicted_low", "predicted_high", "noise_ceiling", "predictions"],
    ...toObjects(history).map((point) => [point.absorbed, point.accuracy, point.accuracy_low, point.accuracy_high, point.ceiling, point.held_total]),
  ],
};

/** Answers over time, with the participants who began and finished. */
export const answersOverTime = {
  name: "answers-over-time",
  title: "Answers over time",
  sentence: "Bars are answers; lines are participants who gave their first answer and who finished. Gaps are times without answers.",
  emptyText: "No answers yet.",
  option({ series }, colour) {
    if (!series.rows.length) return null;
    const step = `per ${duration(series.minutes * 60_000)}`;
    return {
      legend: { top: 0, textStyle: { color: colour.ink }, data: ["answers", "began", "finished"] },
      xAxis: { type: "time", min: series.rows[0][0] - series.minutes * 60_000, max: series.rows.at(-1)[0] + series.minutes * 60_000, axisLabel: { formatter: { hour: "{HH}:{mm}", minute: "{HH}:{mm}", day: "{d} {MMM}" } } },
      yAxis: [
        { type: "value", name: `answers ${step}`, nameGap: 40, minInterval: 1 },
        { type: "value", name: "participants", nameGap: 30, minInterval: 1, splitLine: { show: false } },
      ],
      grid: { left: 60, right: 52, top: 36, bottom: 32 },
      series: [
        { name: "answers", type: "bar", barMaxWidth: 28, color: colour.first, data: series.rows.map(([at, count]) => [at, count]) },
        { name: "began", type: "line", yAxisIndex: 1, showSymbol: series.rows.length < 4, color: colour.second, data: series.rows.map(([at, , began]) => [at, began]) },
        { name: "finished", type: "line", yAxisIndex: 1, showSymbol: series.rows.length < 4, color: colour.third, lineStyle: { type: "dashed" }, data: series.rows.map(([at, , , ended]) => [at, ended]) },
      ],
    };
  },
  rows: ({ series }) => [["begin_utc", "answers", "began", "finished"], ...series.rows.map(([at, ...counts]) => [utc(at), ...counts])],
};

// Times below this are all the same to a participant: one bar.
const AT_ONCE_MS = 10;

/**
 * Return the bins [from, to, count] with those of hardly any time as one.
 * @param {number[][]} bins
 */
function joinShortest(bins) {
  const short = bins.filter(([, to]) => to <= AT_ONCE_MS);
  const rest = bins.slice(short.length);
  return short.length ? [[0, rest[0]?.[0] ?? short.at(-1)[1], short.reduce((sum, [, , count]) => sum + count, 0)], ...rest] : rest;
}

const histogram = (kind, { name, title, sentence }) => ({
  name,
  title,
  sentence,
  emptyText: "No answers yet.",
  option({ histograms, times }, colour) {
    const bins = joinShortest(histograms[kind]);
    if (!bins.length) return null;
    return {
      xAxis: { type: "category", data: bins.map(([from, to]) => (from === 0 ? `< ${milliseconds(to)}` : milliseconds(from))), name: `median ${milliseconds(times[kind].median)} · 95 % within ${milliseconds(times[kind].p95)}`, nameGap: 30 },
      yAxis: { type: "value", name: "answers", nameGap: 40, minInterval: 1 },
      tooltip: {
        trigger: "axis",
        confine: true,
        formatter: ([bar]) => `${milliseconds(bins[bar.dataIndex][0])} to ${milliseconds(bins[bar.dataIndex][1])}: ${number(bins[bar.dataIndex][2])}`,
      },
      series: [{ type: "bar", barCategoryGap: "8%", color: colour.first, data: bins.map(([, , count]) => count) }],
    };
  },
  rows: ({ histograms }) => [["from_ms", "to_ms", "answers"], ...histograms[kind]],
});

export const responseTimes = histogram("response", {
  name: "response-times",
  title: "Response times",
  sentence: "On a logarithmic axis, careful answers form a single peak. A second peak at the left means that some participants answer too fast to have looked.",
});

export const timeBetweenTrials = histogram("wait", {
  name: "waiting-times",
  title: "Time between trials",
  sentence: "Time from an answer until the next query is ready. One query is always fetched in advance, so nearly all bars should be at the left.",
});

// The colours of the heat map reach from no answer to so many times the mean of a row.
const MOST_OF_MEAN = 2;

/** How often each target was asked about, as a heat map. */
export const answersPerTarget = {
  name: "answers-per-target",
  title: "Answers per target",
  sentence: "Darker means more answers, compared with the mean of the row. Each row should be even: the positions of light targets are uncertain.",
  emptyText: "No answers yet.",
  height: 270,
  option({ targets_asked: asked, targets: n, names }, colour) {
    const kinds = [["won", "winner"], ["foot", "foot"], ["head", "head"]];
    const means = kinds.map(([kind]) => asked[kind].reduce((sum, count) => sum + count, 0) / Math.max(1, n));
    if (Math.max(...means) === 0) return null;
    const cells = kinds.flatMap(([kind], row) => asked[kind].map((count, target) => [target, row, Math.min(MOST_OF_MEAN, count / (means[row] || 1))]));
    const shown = shortNames(names);
    return {
      xAxis: { type: "category", data: names, splitLine: { show: false }, axisLabel: { rotate: 40, formatter: (_, place) => shown[place] } },
      yAxis: { type: "category", data: kinds.map(([, label]) => label), splitLine: { show: false } },
      grid: { left: 64, right: 16, top: 8, bottom: 110 },
      tooltip: { trigger: "item", confine: true, renderMode: "richText", formatter: ({ value: [target, row] }) => `${names[target]} as ${kinds[row][1]}: ${number(asked[kinds[row][0]][target])}` },
      visualMap: {
        min: 0,
        max: MOST_OF_MEAN,
        orient: "horizontal",
        left: "center",
        bottom: 0,
        itemWidth: 12,
        itemHeight: 120,
        text: ["twice the mean or more", "no answers"],
        textStyle: { color: colour.ink },
        inRange: { color: ["#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154"] },
      },
      series: [{ type: "heatmap", data: cells, itemStyle: { borderColor: colour.background, borderWidth: n < 120 ? 1 : 0 } }],
    };
  },
  rows: ({ targets_asked: asked, names }) => [["target", "name", "head", "foot", "winner"], ...asked.head.map((count, target) => [target, names[target], count, asked.foot[target], asked.won[target]])],
};

/** Durations of refits and searches by number of answers. */
export const learning = {
  name: "learning",
  title: "Refit and search times",
  sentence: "Duration of a refit of the embedding and of a search for the next queries. If both take less than a second or two, every answer influences the next queries.",
  emptyText: "Appears after the first refits.",
  option(history, colour) {
    const points = toObjects(history).filter((point) => point.refit_ms !== null);
    if (points.length < 2) return null;
    const line = (name, label, tint, dash) => ({
      name: label,
      type: "line",
      showSymbol: false,
      color: tint,
      lineStyle: { type: dash },
      data: points.filter((point) => point[name] > 0).map((point) => [point.absorbed, point[name]]),
    });
    return {
      legend: { top: 0, textStyle: { color: colour.ink } },
      xAxis: { type: "value", name: "answers", nameGap: 30, min: "dataMin", max: "dataMax", axisLabel: { formatter: number } },
      yAxis: { type: "log", axisLabel: { formatter: milliseconds } },
      tooltip: { trigger: "axis", confine: true, valueFormatter: milliseconds },
      series: [line("refit_ms", "refit", colour.first, "solid"), line("search_ms", "search", colour.second, "dashed")],
    };
  },
  rows: (history) => [
    ["answers", "generation", "refit_ms", "search_ms", "loss"],
    ...toObjects(history).map((point) => [point.absorbed, point.generation, point.refit_ms, point.search_ms, point.loss]),
  ],
};
