// processes: the table of the processes on the GPUs, with their figures and a line of their recent power.
import { ask, model } from "./data.js";
import * as f from "./format.js";
import { Table, text } from "./table.js";
import { el, figure, put, unknown } from "./rows.js";

const PAST_LEAST = 120; // Least time that the line of a process covers, in seconds.
const PAST_EVERY = 10000; // Milliseconds between two requests: the step of this history.
const WIDTH = 72, HEIGHT = 18;
const SVG = "http://www.w3.org/2000/svg";

const METHODS = {
	measured: "measured: it is alone on the GPU", modelled: "divided among the processes on the GPU by SM utilisation",
	"equal-split": "divided in equal parts among the processes on the GPU, because the utilisation is unknown",
};

const keyOf = (p) => `${p.device_uuid} ${p.pid} ${p.start_ticks} ${p.gpu_instance ?? ""}`;

let past = new Map(), asked = -Infinity;

// Requests the history of the processes, not more often than the history changes.
async function refreshPast() {
	if (document.hidden || performance.now() - asked < PAST_EVERY)
		return false;
	asked = performance.now();
	past = new Map((await ask("processes/history")).processes.map((p) => [keyOf(p), p]));
	return true;
}

// Draws power as a line, or memory if no power is known. Steps without a value are gaps.
function drawPast(cell, p) {
	const h = past.get(keyOf(p)), powered = h?.power_watts.some((v) => v !== null);
	const values = !h ? [] : powered ? h.power_watts : h.memory_bytes;
	const known = values.filter((v) => v !== null), show = powered ? f.watts : f.bytes;
	if (known.length < 2)
		return unknown(cell, "needs_two_readings");
	const top = Math.max(...known) || 1, end = h.time.at(-1), span = Math.max(PAST_LEAST, end - h.time[0]);
	const x = (t) => WIDTH - (end - t) / span * WIDTH;
	let line = "", gap = true;
	values.forEach((v, i) => {
		if (v !== null)
			line += `${gap ? "M" : "L"}${x(h.time[i]).toFixed(1)} ${(HEIGHT - 1 - v / top * (HEIGHT - 2)).toFixed(1)}`;
		gap = v === null;
	});
	const what = `${powered ? "power" : "memory"} of ${f.span(end - h.time[0])}: ${show(Math.min(...known))} to ${show(top)}`;
	if (!cell.querySelector("svg")) {
		const svg = document.createElementNS(SVG, "svg");
		svg.append(document.createElementNS(SVG, "path"));
		svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
		svg.setAttribute("aria-hidden", "true");
		delete cell.dataset.unknown;
		cell.replaceChildren(svg, el("span", { className: "unseen" }));
	}
	cell.querySelector("svg").setAttribute("class", powered ? "past" : "past memory");
	cell.querySelector("path").setAttribute("d", line);
	put(cell.lastChild, what);
	cell.title = what;
}

// The name is a button if the process has a history to show.
function fillName(c, p) {
	const button = past.has(keyOf(p));
	if (!button && !c.querySelector("button"))
		text((x) => x.name)(c, p);
	else if (!c.querySelector("button"))
		c.replaceChildren(el("button", { type: "button", className: "opens", onclick: () => import("./process.js").then((m) => m.openProcess(c.item, keyOf)) }));
	c.item = p;
	if (button)
		put(c.firstChild, p.name || f.DASH);
	if (p.command)
		c.title = p.command;
}

const number = (key, show) => ({ num: true, sort: (p) => p[key],
	show: (all) => all.some((p) => p[key] != null || p.absent?.[key] === "first_reading"),
	fill: (c, p) => figure(c, p, key, show) });

export const processes = () => new Table("processes", [
	{ name: "GPU", num: true, sort: (p) => p.device_index, fill: text((p) => p.device_index) },
	{ name: "PID", num: true, sort: (p) => p.pid, fill: text((p) => p.pid) },
	{ name: "MIG", num: true, show: (all) => all.some((p) => p.gpu_instance != null), sort: (p) => p.gpu_instance,
		fill: (c, p) => put(c, p.gpu_instance != null ? String(p.gpu_instance) : "") },
	{ name: "User", sort: (p) => p.user, fill: (c, p) => (p.user || p.uid != null ? put(c, p.user || `uid ${p.uid}`) :
		unknown(c, p.orphan ? "the process is not visible from here" : "no_permission")) },
	{ name: "Name", wrap: true, lead: true, sort: (p) => p.name, fill: fillName },
	{ name: "SM", ...number("utilization_sm_ratio", f.percent) },
	{ name: "Memory", num: true, first: true, sort: (p) => p.memory_bytes, fill: (c, p) =>
		figure(c, { memory_bytes: p.memory_bytes, absent: { memory_bytes: p.memory_absent } }, "memory_bytes", f.bytes) },
	{ name: "Power", ...number("power_watts", f.watts) },
	{ name: "Energy", ...number("energy_joules", f.joules), fill: (c, p) => {
		if (figure(c, p, "energy_joules", f.joules) !== null)
			c.title = f.sentences(`${f.wattHours(p.energy_joules)} since the service first saw the process`, METHODS[p.energy_method]);
	} },
	{ name: "Recent power", show: (all) => all.some((p) => past.has(keyOf(p))), fill: drawPast },
	{ name: "CPU", ...number("cpu_used_cores", f.percent) },
	{ name: "Runs for", ...number("run_seconds", (v) => (v < 1 ? "0 s" : f.seconds(Math.floor(v)))) },
	{ name: "Type", sort: (p) => p.types?.join(), fill: (c, p) => {
		text((x) => x.types?.map((type) => type[0].toUpperCase()).join("+"))(c, p);
		if (p.types?.length)
			c.title = p.types.join(", ");
	} },
	{ name: "Container", show: (all) => all.some((p) => p.container), fill: (c, p) => put(c, p.container || "") },
	{ name: "Unit", show: (all) => all.some((p) => p.unit), sort: (p) => p.unit, fill: (c, p) => put(c, p.unit || "") },
], keyOf, "No process is on a GPU.");

// Draws the processes of the snapshot, and again when their history has arrived.
export function drawProcesses(table) {
	const list = model.processes;
	table.draw(list);
	if (list.length)
		refreshPast().then((fresh) => fresh && table.draw(model.processes)).catch(() => {});
	return list.length;
}
