// range: the time range of a chart: the last minutes, hours or days, or a range that the user
// enters.
//
// A range is { label, name, seconds, step }. A range that the user entered also has begin and end, in seconds since 1970; end null:
// the range lasts until now.
import { now } from "./data.js";
import * as f from "./format.js";
import { $, el, put } from "./rows.js";

const DAY = 86400;
const POINTS = 600; // Maximum number of points per line in a range that the user entered.
const SHORTEST = 10; // Length of the shortest range, in seconds.
const presets = [
	["5 min", "5m", 300, 1], ["15 min", "15m", 900, 1], ["1 h", "1h", 3600, 5], ["6 h", "6h", 21600, 30],
	["24 h", "24h", DAY, 120], ["7 d", "7d", 7 * DAY, 900], ["30 d", "30d", 30 * DAY, 3600],
].map(([label, name, seconds, step]) => ({ label, name, seconds, step }));

export const preset = (i) => presets[i] || null;
export const named = (name) => presets.find((r) => r.name === name) || null;

// Makes a range. begin, end: seconds since 1970. Returns null if the range is too short.
export function between(begin, end) {
	const seconds = (end ?? now()) - begin;
	return seconds >= SHORTEST ? { label: "Other", name: "part", seconds, step: Math.max(1, Math.ceil(seconds / POINTS)), begin, end } : null;
}

export const isLive = (r) => r.end == null;

// Returns the visible time of a range. last: the time of the newest value.
export function shown(r, last, step) {
	const end = r.end ?? Math.max(last || 0, now() - 2 * step);
	return [r.begin ?? end - r.seconds, end];
}

// Returns the parameters for /api/v1/series. most: maximum number of points per line.
export function query(r, most = Infinity) {
	const step = Math.max(r.step, Math.ceil(r.seconds / most)), end = r.end == null ? "" : `&to=${Math.ceil(r.end)}`;
	return { step, text: `from=${r.begin == null ? `-${r.name}` : Math.floor(r.begin)}${end}&step=${step}` };
}

export function words(r) {
	if (r.begin == null)
		return `of the last ${r.label}`;
	return `from ${f.when(r.begin * 1000)}${r.end == null ? " until now" : ` to ${f.when(r.end * 1000)}`}`;
}

const utc = (t) => new Date(t * 1000).toISOString().replace(".000Z", "Z");

export function toAddress(r) {
	if (r.begin == null)
		return `range=${r.name}`;
	return `from=${utc(Math.floor(r.begin))}${r.end == null ? "" : `&to=${utc(Math.ceil(r.end))}`}`;
}

// Reads a range from q, a URLSearchParams. Returns null if q has no range.
export function fromAddress(q) {
	const begin = Date.parse(q.get("from")) / 1000, end = Date.parse(q.get("to")) / 1000;
	return Number.isFinite(begin) ? between(begin, Number.isFinite(end) ? end : null) : named(q.get("range"));
}

// Returns the value for <input type=datetime-local>, in the time zone of the browser.
function local(t) {
	const d = new Date(t * 1000), two = (n) => String(n).padStart(2, "0");
	return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}T${f.clock(d)}`;
}

// Makes the buttons. choose(range) is called when the user chooses a range. press(range) highlights the button of a range.
export function rangeButtons(choose) {
	const buttons = presets.map((r, i) => el("button", { type: "button", textContent: r.label, title: `${r.label} (${i + 1})`, onclick: () => choose(r) }));
	const other = el("button", { type: "button", textContent: "Other", title: "Enter from and to (r)", onclick: () => enterRange(pressed, choose) });
	let pressed = presets[0];
	return {
		box: el("div", { className: "ranges", role: "group", ariaLabel: "Range of the charts" }, ...buttons, other),
		press(r) {
			pressed = r;
			buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(presets[i] === r)));
			other.setAttribute("aria-pressed", String(r.begin != null));
		},
	};
}

function problem() {
	const from = Date.parse($("period-from").value) / 1000, to = $("period-to").value ? Date.parse($("period-to").value) / 1000 : null;
	if (!Number.isFinite(from))
		return "Enter when the range begins: day and time.";
	if (from > now() - SHORTEST)
		return "The range begins in the future or just now. Enter an earlier time in From.";
	return to !== null && to - from < SHORTEST ? `The range must be ${SHORTEST} s or longer. Enter a later time in To, or leave it empty.` : "";
}

// Opens the dialog in which the user enters a range. r: the current range, with which the fields are filled.
export function enterRange(r, choose) {
	const box = $("period"), [begin, end] = shown(r, 0, 1);
	$("period-from").value = local(begin);
	$("period-to").value = r.end == null ? "" : local(end);
	put($("period-note"), "");
	box.returnValue = "";
	$("period-form").onsubmit = (e) => {
		if (e.submitter?.value === "cancel" || !problem())
			return;
		e.preventDefault();
		put($("period-note"), problem());
	};
	box.onclose = () => {
		const to = $("period-to").value;
		if (box.returnValue === "show")
			choose(between(Date.parse($("period-from").value) / 1000, to ? Date.parse(to) / 1000 : null));
	};
	box.showModal();
}
