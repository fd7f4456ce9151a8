// process: shows power, utilisation and memory of one process in the last minutes. Loaded when
// the user opens a process.
import { axes, css, loadCharts, lonely, padding } from "./chart.js";
import { ask, model, named } from "./data.js";
import * as f from "./format.js";
import { $, el, put } from "./rows.js";

const EVERY = 10000; // Milliseconds between two requests: the step of this history.
const CHARTS = [
	["power_watts", "Power", "power", "W", 1], ["utilization_sm_ratio", "SM utilisation", "use", "%", 100], ["memory_bytes", "Memory", "memory", "GiB", 2 ** -30],
];

let keyOf = null, shown = null, timer = 0, plots = [];

function facts(p) {
	return [`GPU ${p.device_index}`, `PID ${p.pid}`, p.user, p.container, p.unit, p.run_seconds != null && `runs for ${f.span(p.run_seconds)}`,
		p.energy_joules != null && `${f.joules(p.energy_joules)} since the service first saw it (${f.words(p.energy_method)})`].filter(Boolean).join(" · ");
}

// Draws chart i. A step without a value is a gap. The three charts have the same time axis.
function drawChart(i, h) {
	const [key, title, hue, unit, scale] = CHARTS[i], values = h[key].map((v) => (v === null ? null : v * scale)), known = values.filter((v) => v !== null);
	const [, legend] = plots[i].box.firstChild.children, show = (v) => `${v.toFixed(unit === "GiB" ? 1 : 0)} ${unit}`;
	const min = h.time[0], max = Math.max(h.time.at(-1), min + 60), most = Math.max(unit === "%" ? 100 : 1, ...known) * 1.05;
	const range = [...new Set([Math.min(...known), Math.max(...known)].map(show))].join(" to ");
	put(legend, known.length ? `${f.span(h.time.at(-1) - min)}: ${range}` : `${title.toLowerCase()} unknown`);
	const stroke = css(`--${hue}`), place = plots[i].place;
	plots[i].plot ||= new window.uPlot({
		width: place.clientWidth || 300, height: place.clientHeight || 130, legend: { show: false }, padding, cursor: { y: false, drag: { x: false, y: false } },
		scales: { x: { time: true, auto: false }, y: { auto: false } }, axes: axes(unit, () => [plots[i].plot.scales.x.min, plots[i].plot.scales.x.max]),
		series: [{}, { stroke, width: 1.75, spanGaps: false, points: { show: false, size: 5, fill: stroke, stroke, filter: (u, at) => lonely(u, at) } }],
	}, [h.time, values], place);
	plots[i].plot.setData([h.time, values], false);
	plots[i].plot.batch(() => {
		plots[i].plot.setScale("x", { min, max });
		plots[i].plot.setScale("y", { min: 0, max: most });
	});
}

async function draw() {
	const p = model.processes.find((x) => keyOf(x) === shown);
	if (p)
		put($("process-facts"), facts(p));
	try {
		const [r] = await Promise.all([ask("processes/history"), loadCharts()]), h = r.processes.find((x) => keyOf(x) === shown);
		if (!$("process").open)
			return;
		put($("process-note"), h?.time.length ? p ? "" : "The process has left the GPU." : "There is no history of this process: the service keeps only the largest processes of each GPU.");
		if (h?.time.length)
			CHARTS.forEach((_, i) => drawChart(i, h));
	} catch (e) {
		put($("process-note"), e.message);
	}
}

$("process").addEventListener("close", () => {
	clearInterval(timer);
	plots.forEach((c) => c.plot?.destroy());
});

// Opens the charts of process p. key(p) returns a text that identifies p in the list and in the history.
export function openProcess(p, key) {
	keyOf = key;
	shown = key(p);
	plots = CHARTS.map(([, title, hue]) => {
		const place = el("div", { className: "plot", ariaHidden: "true" });
		return { place, plot: null, box: el("figure", { className: "chart" }, el("figcaption", {}, el("b", { className: `h-${hue}`, textContent: title }), el("span", { className: "legend" })), place) };
	});
	put($("process-title"), named(p.name || `process ${p.pid}`));
	put($("process-command"), p.command || "");
	put($("process-facts"), facts(p));
	put($("process-note"), "");
	$("process-charts").replaceChildren(...plots.map((c) => c.box));
	$("process").showModal();
	clearInterval(timer);
	timer = setInterval(() => document.hidden || draw(), EVERY);
	draw();
}
