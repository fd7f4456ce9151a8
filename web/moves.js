// moves: shows the decisions of the guard as moves. A move is one line, such as "ollama left
// GPU 0 for game.exe", that unfolds into its steps with their times.
import * as f from "./format.js";
import { el, put } from "./rows.js";

const HOME = new Set(["active", "absent", "reconcile"]), AWAY = new Set(["evicted", "stuck"]), OUT = new Set(["suspect", "drain", "evict", "verify"]);
const SOON = 2000; // Milliseconds. A request belongs to the move that begins within this time after the request.
// Names of the steps of leaving and returning, by the state that the step leads to.
const STEPS = {
	suspect: "suspect", drain: "decided", evict: "ordered", verify: "answered", evicted: "freed", stuck: "not freed",
	quiet: "quiet", precheck: "checked", resume: "ordered", "verify-up": "answered", active: "back", absent: "ended",
};
const TONES = { left: "calm", back: "good", stayed: "calm", stuck: "bad", leaving: "warn", returning: "warn", note: "calm", found: "calm" };

const at = (d) => Date.parse(d.time_utc);

// Groups decisions (oldest first) into moves { id, worker, kind, steps }. A decision that changes no state, such as a request, is a
// note: it is the first step of a move that follows within SOON, or a move of its own.
export function movesOf(decisions) {
	const out = [], open = new Map();
	for (const d of decisions) {
		let m = open.get(d.worker);
		if (!m || (m.kind === "note" && (d.from === d.to || at(d) - at(m.steps[0]) > SOON))) {
			m = { id: d.id, worker: d.worker, kind: "note", steps: [] };
			out.push(m);
			open.set(d.worker, m);
		}
		m.steps.push(d);
		if (d.from === d.to)
			continue;
		if (m.kind === "note")
			m.kind = HOME.has(d.from) || OUT.has(d.to) ? "leaving" : "returning";
		const home = HOME.has(d.to);
		if (!home && !AWAY.has(d.to))
			continue;
		open.delete(d.worker);
		m.kind = d.to === "stuck" ? "stuck" : d.from === "reconcile" || d.to === "reconcile" ? "found" : (m.kind === "leaving") === home ? "stayed" : home ? "back" : "left";
	}
	return out;
}

const last = (m) => m.steps.at(-1);
const ENDED = new Set(["left", "back", "stuck", "stayed", "found"]);
// Returns the time of a move in milliseconds: when it ended, or when it began if it has not ended.
export const timeOf = (m) => at(ENDED.has(m.kind) ? last(m) : m.steps[0]);
const step = (m, ...states) => m.steps.find((d) => states.includes(d.to) && d.from !== d.to);
const took = (a, b) => f.seconds(Math.max(0, at(b) - at(a)) / 1000 || 0.001);

// Returns why the worker leaves, in the words of the service: " for game.exe (pid 4711, 13.0 GiB)".
function cause(m) {
	const d = step(m, "drain", "evict") || last(m);
	return d.cause ? ` ${d.cause}` : "";
}

// Returns how much memory became free, and in which time; in a dry run, how much would become free.
function freed(d) {
	if (d.freed_bytes == null)
		return "";
	return `: ${f.bytes(d.freed_bytes)} ${d.dry_run ? "would be free" : "freed"}${d.freed_seconds == null ? "" : ` in ${f.seconds(d.freed_seconds)}`}`;
}

// Describes the move in one sentence. gpu(uuid) returns the name of a GPU.
export function headline(m, { gpu }) {
	const d = last(m), first = m.steps[0], dry = d.dry_run, where = d.uuid ? ` ${gpu(d.uuid)}` : " its GPU";
	const resumed = step(m, "resume"), evidence = d.evidence ? `: ${d.evidence}` : "";
	switch (m.kind) {
	case "left":
		return `${m.worker} ${dry ? "would have left" : "left"}${where}${cause(m)}${freed(d)}${dry ? "; nothing was done" : ""}`;
	case "back":
		return `${m.worker} ${dry ? "would be back on" : "is back on"}${where}${resumed && !dry ? ` after ${took(resumed, d)}` : ""}${evidence}`;
	case "stayed":
		return `${m.worker} ${HOME.has(d.to) ? `stayed on${where}` : `stayed off${where}`}: ${d.rule}`;
	case "stuck":
		return `${m.worker} did not leave${where}${cause(m)}: ${d.evidence || d.rule}`;
	case "leaving":
		return `${m.worker} is leaving${where}${cause(m)}`;
	case "returning":
		return `${m.worker} is returning to${where}`;
	default: {
		const about = m.kind === "found" ? d : first; // "found": the service started and looked at the worker; its last step says what it found.
		return `${m.worker}: ${about.rule}${about.evidence ? ` (${about.evidence})` : ""}`;
	}
	}
}

function stepText(d, named) {
	const text = named(d.evidence ? `${d.rule} (${d.evidence})` : d.rule);
	return `${text}${d.dry_run ? "; nothing was done" : ""}`;
}

const millis = (t) => `${f.clock(t)}.${String(new Date(t).getMilliseconds()).padStart(3, "0")}`;

function fillSteps(list, m, named) {
	m.steps.forEach((d, i) => {
		if (!list.children[i])
			list.append(el("li", {}, el("time"), el("span", { className: "after" }), el("b"), el("span")));
		const [time, after, word, text] = list.children[i].children;
		time.dateTime = d.time_utc;
		put(time, millis(at(d)));
		put(after, i ? `+${((at(d) - at(m.steps[0])) / 1000).toFixed(2)} s` : "");
		put(word, d.from === d.to ? "note" : STEPS[d.to] || d.to);
		put(text, stepText(d, named));
	});
}

export function makeMove() {
	return el("li", {}, el("details", {}, el("summary", {}, el("time"), el("span", { className: "badge" }), el("span")), el("ol", { className: "steps" })));
}

// Fills the line of a move. context: the members that headline() needs, and named(text), which replaces UUIDs.
export function fillMove(li, m, context) {
	const [head, list] = li.firstChild.children, [time, badge, text] = head.children, t = timeOf(m);
	time.dateTime = new Date(t).toISOString();
	time.title = new Date(t).toLocaleString();
	put(time, f.when(t));
	put(badge, m.kind);
	badge.className = `badge ${TONES[m.kind]}`;
	put(text, context.named(headline(m, context)));
	fillSteps(list, m, context.named);
}
