// windows: starts, stops and lists energy windows.
import { change, forgetWindow, model, openWindows, whyBlind } from "./data.js";
import * as f from "./format.js";
import { Table } from "./table.js";
import { codes } from "./words.js";
import { $, el, put, unknown } from "./rows.js";

const KINDS = { valid: "good", suspect: "warn", invalid: "bad", "no-result": "bad" };

const path = (w) => `windows/${w.id}`;
const began = (w) => Date.parse(w.begin_time);
const called = (w) => w.label || w.id;
const duration = (s) => (s < 60 ? `${s.toFixed(1)} s` : f.span(s));

function fillJoules(cell, w) {
	const e = w.energy_joules;
	if (e?.best == null)
		return unknown(cell, w.state === "open" ? "not measured yet: there are no samples" : "no_data");
	const range = e.low != null ? `${f.joules(e.low)} … ${f.joules(e.high)}` : "";
	if (cell.dataset.key === range + e.best && !cell.dataset.unknown)
		return;
	delete cell.dataset.unknown;
	cell.dataset.key = range + e.best;
	cell.title = `${f.wattHours(e.best)}${range ? `, between ${range}` : ""}`;
	cell.replaceChildren(el("b", { textContent: f.joules(e.best) }), el("span", { className: "range", textContent: range }));
}

function fillValidity(cell, w) {
	const early = w.state === "open" && w.energy_joules?.best == null;
	const list = early ? [] : w.codes || [], key = `${early} ${w.validity} ${list}`;
	if (cell.dataset.key === key)
		return;
	cell.dataset.key = key;
	const word = early ? "measuring" : w.validity || f.DASH;
	cell.replaceChildren(el("span", { className: `badge ${KINDS[word] || "calm"}`, textContent: f.words(word) }),
		el("span", { className: "codes", textContent: list.map((c) => codes[c] || f.words(c)).join("; ") }));
}

// Returns the energy of a part; unknown if the energy of one of its GPUs is unknown.
function partText(p) {
	const each = p.devices.map((d) => d.energy_joules?.best ?? null), known = each.length && !each.includes(null);
	return `${p.label ?? "before the first mark"}: ${known ? f.joules(each.reduce((a, b) => a + b, 0)) : "energy unknown"} in ${duration(p.seconds)}${p.unfinished ? ", so far" : ""}`;
}

function fillLabel(cell, w) {
	if (!cell.firstChild) {
		const list = el("ul", { className: "parts" });
		cell.append(el("span"), el("details", { hidden: true }, el("summary"), list));
	}
	const [name, more] = cell.children, parts = w.parts || [], [head, list] = more.children;
	put(name, called(w));
	name.title = w.id;
	more.hidden = !parts.length;
	put(head, parts.length ? `${parts.length} parts` : "");
	while (list.childElementCount > parts.length)
		list.lastChild.remove();
	parts.forEach((p, i) => {
		if (!list.children[i])
			list.append(el("li"));
		put(list.children[i], partText(p));
	});
}

// Writes indices as ranges: 0, 1, 2 and 7 are written as "0–2, 7".
function spans(numbers) {
	const out = [];
	for (const n of numbers) {
		const last = out.at(-1);
		if (last && n === last[1] + 1)
			last[1] = n;
		else
			out.push([n, n]);
	}
	return out.map(([a, b]) => (a === b ? a : `${a}–${b}`)).join(", ");
}

function fillActions(cell, w, act) {
	if (cell.dataset.state === w.state)
		return;
	cell.dataset.state = w.state;
	const button = (word, fn) => el("button", { type: "button", textContent: word, ariaLabel: `${word} ${called(w)}`, onclick: fn });
	cell.replaceChildren(el("span", { className: "actions" },
		w.state === "open" ? button("Stop", () => act("POST", `${path(w)}/stop`)) : el("a", { href: `api/v1/${path(w)}`, target: "_blank", textContent: "JSON", title: "The whole result" }),
		button("Forget", () => act("DELETE", path(w), null, w.id))));
}

function windowTable(act) {
	return new Table("windows", [
		{ name: "Label", wrap: true, lead: true, fill: fillLabel },
		{ name: "GPUs", fill: (c, w) => put(c, spans(w.devices.map((d) => d.index))) },
		{ name: "Began", num: true, fill: (c, w) => put(c, f.when(began(w))) },
		{ name: "Duration", num: true, fill: (c, w) => put(c, w.seconds == null ? f.DASH : duration(w.seconds)) },
		{ name: "Energy", num: true, fill: fillJoules },
		{ name: "Validity", wrap: true, fill: fillValidity },
		{ name: "", unseen: "Action", fill: (c, w) => fillActions(c, w, act) },
	], (w) => String(w.id), "There is no window. If there is a GPU, start one before the work that you want to measure.");
}

export const TYPE = "Enter the content of its token file (token_file in gpuward.toml, or --token-file), or ask the administrator of the service.";

// Sends a request that may need the token; asks for the token until the service accepts it.
export async function permitted(needToken, what, go) {
	try {
		return await go();
	} catch (e) {
		if (e.status !== 401)
			throw e;
		if (!await needToken(`${e.type === "wrong-token" ? "The service refused that token. " : ""}${what} needs the token of this service. ` +
				TYPE))
			throw new Error("Nothing was changed, because no token was entered.");
		return permitted(needToken, what, go);
	}
}

export function windows(needToken) {
	const note = $("window-note");
	async function act(method, where, body, gone) {
		put(note, "");
		try {
			const w = await permitted(needToken, "Changing energy windows", () => change(method, where, body));
			if (gone)
				forgetWindow(gone);
			else
				model.windows.set(String(w.id), w);
			draw();
			return true;
		} catch (e) {
			put(note, e.message);
			return false;
		}
	}
	const table = windowTable(act);

	function draw() {
		const list = [...model.windows.values()].sort((a, b) => (a.state === "ended") - (b.state === "ended") || began(b) - began(a));
		table.draw(list.slice(0, 50));
	}

	$("window-form").addEventListener("submit", async (e) => {
		e.preventDefault();
		const gpu = $("window-gpus").value, body = { label: $("window-label").value.trim() };
		if (gpu)
			body.gpus = [gpu];
		if (await act("POST", "windows", body))
			$("window-label").value = "";
	});

	const start = $("window-form").querySelector("button");
	function chooseGpus() {
		const why = model.devices.length ? "" : whyBlind() || "there is no GPU to measure";
		if (start.disabled || why) // A note about a failed request stays while there are GPUs.
			put(note, f.sentences(why));
		start.disabled = Boolean(why);
		const select = $("window-gpus"), want = ["", ...model.devices.map((d) => d.uuid || String(d.index))];
		if ([...select.options].map((o) => o.value).join() !== want.join())
			select.replaceChildren(el("option", { value: "", textContent: "all" }), ...model.devices.map((d) =>
				el("option", { value: d.uuid || String(d.index), textContent: `GPU ${d.index}` })));
	}

	return {
		draw,
		chooseGpus,
		tick() {
			if (openWindows().length)
				draw();
		},
	};
}
