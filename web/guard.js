// guard: shows the state of each worker with its reasons and timers, and sends requests of people. Loaded only if the service has
// workers or reservations.
import { ask, change, emit, model, named, on, refresh, selector, token } from "./data.js";
import * as f from "./format.js";
import { fillMove, headline, makeMove, movesOf, timeOf } from "./moves.js";
import { $, el, figure, put, unknown, width } from "./rows.js";
import { Table, text } from "./table.js";
import { permitted, TYPE } from "./windows.js";

const MODES = {
	enforce: ["enforce", "good"],
	"dry-run": ["dry run", "warn", "Dry run: decisions are logged and counted, but nothing is done. No worker is moved."],
	observe: ["observe", "warn", "Observing: processes on the GPUs are reported, but nothing is done. No worker is moved."],
};
// For each state: its colour, its meaning, and what happens when next_seconds has passed.
const STATES = {
	active: ["good", "It may use the GPU.", "checked again"],
	suspect: ["warn", "Another process may need the GPU; the guard checks this more often.", "decided"],
	drain: ["warn", "It takes no new work; running work may finish.", "evicted"],
	evict: ["warn", "It was requested to leave.", "ends without success"],
	verify: ["warn", "It reports that it has left; the guard checks its memory.", "memory must be free"],
	evicted: ["calm", "It is evicted, and its memory is free.", "may return"],
	quiet: ["calm", "No process needs the GPU any more; waiting for a quiet time.", "may return"],
	precheck: ["calm", "Memory, temperature and the worker are checked before it returns.", "checked again"],
	resume: ["calm", "It was requested to return.", "ends without success"],
	"verify-up": ["calm", "It reports that it has returned; the guard checks its memory.", "must be back on the GPU"],
	stuck: ["bad", "It did not leave the GPU.", "tried again"],
	absent: ["calm", "Its process does not run.", "checked again"],
	reconcile: ["calm", "After a start, the journal is compared with the processes.", "checked again"],
};
const REASONS = {
	contention: "another process needs the GPU", manual: "requested by a person", thermal: "the GPU is too hot", health: "the GPU has a fault",
	schedule: "its schedule", battery: "the machine is on battery", blind: "the processes on the GPU cannot be read", budget: "power or energy is above its cap",
	reserved: "the memory is reserved", idle: "its model was idle",
};
const OVERLAYS = {
	blind: "its GPU cannot be read: the driver fails", hung: "a driver call has not returned", quarantine: "its GPU must be reset before it can be used",
};
const CLASSES = [
	["contender", "warn"], ["unknown", "warn"], ["orphan", "warn"], ["worker", "good"], ["ignored", "calm"], ["system", "calm"], ["self", "calm"],
];
const LEVELS = { ok: "good", warn: "warn", throttle: "warn", evict: "bad", quarantine: "bad" };
const TIMES = [[900, "15 minutes"], [3600, "1 hour"], [7200, "2 hours"], [28800, "8 hours"], [86400, "1 day"], [0, "no limit: until it is released"]];
const DECISIONS = 128; // Number of decisions that are requested if there are new ones. Otherwise only the last one is requested.
const HOLDS = new Set(["hold active", "hold evicted"]); // Rules of decisions that only say that the worker is held.
const LEAVES = new Set(["active", "suspect", "reconcile", "absent"]); // States in which the button is Evict, not Resume.

let doc = null, at = 0, looks = [];

const passed = () => (performance.now() - at) / 1000;
// Returns how many of the reported seconds remain now; null: no time was reported.
const left = (seconds) => (seconds == null ? null : Math.max(0, seconds - passed()));
const span = (seconds) => f.span(Math.ceil(seconds)).replaceAll(" ", "\u00a0");
const gpu = (d) => `GPU ${d.index}`;
const device = (name) => model.devices.find((d) => d.uuid === name || String(d.index) === name || (name.length > 4 && d.uuid?.startsWith(name)));
const badge = (tone, word, title = "") => el("span", { className: `badge ${tone}`, textContent: word, title });
const cause = (d) => named(d.evidence ? `${d.rule} (${d.evidence})` : d.rule);
const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const dry = () => doc.mode !== "enforce";

// Returns the GPUs where the worker is or was last, or else the GPUs where it may be.
const places = new Map();
function where(w) {
	const on = looks.filter((g) => g.processes.some((p) => p.worker === w.name)).map(gpu);
	if (on.length)
		places.set(w.name, on);
	return (places.get(w.name) || w.gpus.map((n) => (device(n) ? gpu(device(n)) : n))).join(", ");
}

// Replaces the text only if it changes, so that the user's selection stays.
function fill(cell, key, make) {
	if (cell.dataset.key === key)
		return;
	cell.dataset.key = key;
	cell.replaceChildren(...make().filter(Boolean));
}

// Updates a list by the ids of its items: creates new ones and keeps the others in place.
function items(list, rows, make, update = () => {}) {
	const have = new Map([...list.children].map((li) => [li.dataset.id, li]));
	const nodes = rows.map((r) => {
		const li = have.get(String(r.id)) || make(r);
		li.dataset.id = r.id;
		update(li, r);
		return li;
	});
	if (nodes.length !== list.childElementCount || nodes.some((n, i) => n !== list.children[i]))
		list.replaceChildren(...nodes);
}

function fillName(c, w) {
	const more = [w.kind, `priority ${w.priority}`, where(w) || "on no GPU"].join(" · ");
	fill(c, more, () => [el("b", { textContent: w.name, title: w.configured || "" }), el("small", { textContent: more })]);
}

function fillState(c, w) {
	const over = Object.keys(OVERLAYS).filter((k) => w[k]), held = w.hold === "none" ? "" : `held ${w.hold}`;
	fill(c, [w.state, over, held, dry()].join(), () => [
		badge(STATES[w.state]?.[0] || "calm", w.hypothetical ? `would be: ${w.state}` : w.state), ...over.map((k) => badge("bad", k, OVERLAYS[k])), held && badge("calm", held), el("small"),
	]);
	put(c.lastChild, w.since_seconds == null ? "" : `for ${f.span(w.since_seconds + passed())}`);
}

function fillWhy(c, w) {
	const why = w.reasons.map((r) => [r.reason, cause(r) || REASONS[r.reason] || "", r.clears]), said = named(w.why);
	// The last decision is not shown for a worker that runs, or that left only in a dry run.
	const news = w.hypothetical ? false : w.state !== "active" || w.next_seconds != null || (w.hold !== "none" && !HOLDS.has(w.why_rule));
	// The last decision, "RULE: EVIDENCE", is shown unless a reason above has the same rule.
	const more = said && news && !w.reasons.some((r) => r.rule && r.rule === w.why_rule) ? said : "";
	const state = w.hypothetical ? "Only decided: nothing was done." : w.hold === w.state && w.hold === "active" ? "A person holds it on the GPU, even if other processes need it." : STATES[w.state]?.[1] || f.words(w.state);
	fill(c, JSON.stringify([state, why, more, w.blind, w.hung, w.quarantine]), () => [
		el("span", { className: "said", textContent: state }),
		...Object.keys(OVERLAYS).filter((k) => w[k]).map((k) => el("span", { className: "reason alarm", textContent: f.sentences(OVERLAYS[k]) })),
		...why.map(([r, s, ends]) => el("span", { className: "reason", title: ends ? `Ends ${ends}` : "" }, badge("warn", r, REASONS[r]), ` ${s}`)),
		more && el("span", { className: "reason", textContent: more }),
	]);
}

function fillMemory(c, w) {
	fill(c, "made", () => [el("span", { className: "pair" }, el("span", { className: "v" }), el("span", { className: "of" })),
		el("span", { className: "bar", ariaHidden: "true" }, el("i", { className: "fill memory" })), el("small")]);
	const [pair, bar, more] = c.children, out = !w.resident_bytes && w.residue_bytes;
	if (w.memory_reason) {
		put(pair.firstChild, "–");
		put(pair.lastChild, "");
		width(bar.firstChild, 0);
		put(more, w.memory_reason);
		return;
	}
	const [held, unit] = f.bytes(w.resident_bytes).split(" "), need = f.bytes(w.need_bytes);
	put(pair.firstChild, w.need_bytes && (need.endsWith(` ${unit}`) || !w.resident_bytes) ? held : `${held} ${unit}`);
	put(pair.lastChild, w.need_bytes ? `/ ${need}` : "");
	width(bar.firstChild, w.need_bytes ? w.resident_bytes / w.need_bytes : 0);
	put(more, w.hypothetical ? "still on the GPU" : out ? `${f.bytes(w.residue_bytes)} still held` : "");
}

// Writes the timers with their meaning: "may return in 12 s".
function timers(w) {
	const next = left(w.next_seconds), hold = left(w.hold_until_seconds), out = w.mask.includes("manual");
	return [
		next !== null && !(Math.abs(next - hold) < 1) && `${STATES[w.state]?.[2] || "can change"} in ${span(next)}`,
		w.hold !== "none" || out ? `${w.hold === "none" ? "evicted" : "held"} ${hold === null ? "until it is " + (w.hold === "none" ? "resumed" : "released") : `for ${span(hold)}`}` : "",
		w.backoff > 1 && w.mask.includes("contention") && !LEAVES.has(w.state) && `quiet time ×${f.digits(w.backoff)}: it was evicted often`,
	].filter(Boolean);
}

function fillTimers(c, w) {
	const list = timers(w);
	while (c.childElementCount > list.length || (c.firstChild && !list.length))
		c.lastChild.remove();
	list.forEach((s, i) => put(c.children[i] || c.appendChild(el("span", { className: "timer" })), s));
	if (!list.length)
		c.append(el("span", { className: "timer none", textContent: f.DASH, title: "no timer runs: the state changes when a process needs the GPU, or when a reason ends" }));
	else
		c.firstChild.className = "timer";
	c.classList.toggle("idle", !list.length);
}

function fillMoves(c, w) {
	put(c, dry() ? `${w.would_evict_total}\u00a0× would have left` : `${w.evictions_total}\u00a0×\u00a0evicted, ${w.resumes_total}\u00a0×\u00a0returned`);
}

// Creates the two buttons once and then changes only their text, so that the focus stays.
function fillActions(c, w) {
	if (!c.firstChild)
		c.append(el("span", { className: "actions" }, ...[0, 1].map((i) => el("button", { type: "button", onclick: () => request(c.verbs[i], c.worker) }))));
	c.worker = w.name;
	c.verbs = [LEAVES.has(w.state) && w.reasons.every((r) => r.masked) ? "evict" : "resume", w.hold === "none" ? "hold" : "release"];
	c.verbs.forEach((verb, i) => {
		const button = c.firstChild.children[i], word = VERBS[verb][0];
		put(button, word);
		if (button.ariaLabel !== `${word} ${w.name}`)
			button.ariaLabel = `${word} ${w.name}`;
	});
}

const workerTable = () => new Table("guard-workers", [
	{ name: "Worker", lead: true, fill: fillName },
	{ name: "State", fill: fillState },
	{ name: "Why", wrap: true, fill: fillWhy },
	{ name: "Memory held / need", fill: fillMemory },
	{ name: "Next change", fill: fillTimers },
	{ name: "Moved", fill: fillMoves },
	{ name: "", unseen: "Action", fill: fillActions },
], (w) => w.name, "No worker is configured: the guard only observes.");

const rank = (p) => CLASSES.findIndex(([name]) => name === p.class);

const processTable = () => new Table("guard-processes", [
	{ name: "GPU", num: true, fill: text((p) => p.index) },
	{ name: "Process", lead: true, fill: (c, p) => fill(c, `${p.pid} ${p.name}`, () => [p.name || "?", el("small", { textContent: ` ${p.pid}` })]) },
	{ name: "Class", fill: (c, p) => fill(c, p.class, () => [badge(CLASSES[rank(p)]?.[1] || "calm", p.class)]) },
	{ name: "Memory", num: true, fill: (c, p) => figure(c, { ...p, absent: { memory_bytes: "no_data" } }, "memory_bytes", f.bytes) },
	{ name: "Busy", num: true, fill: (c, p) => (p.utilization_sm_ratio == null ? unknown(c, "read only while a process may need the GPU") :
		figure(c, p, "utilization_sm_ratio", f.percent)) },
	{ name: "Rule", wrap: true, fill: (c, p) => put(c, [p.worker ? "" : f.words(p.action), named(p.rule)].filter(Boolean).join(": ")) },
], (p) => `${p.uuid} ${p.pid}`, "No process is on a GPU.");

function lines(list, rows) {
	items(list, rows, () => el("li", {}, badge("", ""), el("span")), (li, { tone, word, say }) => {
		li.firstChild.className = `badge ${tone}`;
		put(li.firstChild, word);
		put(li.lastChild, say);
	});
	list.hidden = !rows.length;
}

// Lists the GPUs with a problem. Healthy GPUs are only counted.
function drawGpus() {
	const health = [...model.health.values()], blind = new Map(looks.filter((g) => ["blind", "hung", "lost"].includes(g.state)).map((g) => [g.uuid, g.state]));
	const ill = health.filter((h) => blind.has(h.uuid) || (h.level && h.level !== "ok")), well = health.filter((h) => h.level === "ok" && !blind.has(h.uuid));
	const margin = well.map((h) => h.margin_celsius).filter((v) => v != null), least = margin.length ? `, ${Math.min(...margin).toFixed(0)} °C${margin.length > 1 ? " or more" : ""} below the limit` : "";
	const dim = health.filter((h) => !h.level && !blind.has(h.uuid)), some = (list, word) => `${list.length > 1 ? `${list.length} GPUs` : gpu(list[0])} ${word}`;
	lines($("guard-gpus"), [
		...ill.map((h) => ({
			id: h.uuid, tone: blind.has(h.uuid) ? "bad" : LEVELS[h.level] || "warn", word: `${gpu(h)}: ${blind.get(h.uuid) || h.level}`,
			say: f.sentences(named(h.why), h.advice, left(h.clears_seconds) > 0 && `may end in ${span(left(h.clears_seconds))}`),
		})),
		...looks.filter((g) => g.hidden_processes).map((g) => ({
			id: `${g.uuid} hidden`, tone: "warn", word: `${gpu(g)}: hidden processes`,
			say: f.sentences("some processes on it are not visible from here", g.unattributed_bytes > 0 && `${f.bytes(g.unattributed_bytes)} have no visible owner`),
		})),
		well.length && { id: "well", tone: "good", word: some(well, "ok"), say: `Healthy${least}.` },
		dim.length && { id: "dim", tone: "calm", word: some(dim, "not monitored"), say: "Temperature and faults are not checked." },
	].filter(Boolean));
}

function drawRooms() {
	lines($("guard-rooms"), doc.reservations.map((r) => ({
		id: r.id, tone: "calm", word: `${named(r.gpu)} reserved`,
		say: `${f.bytes(r.bytes)}${r.pid ? ` for process ${r.pid}` : ""}${r.left_bytes < r.bytes ? `, of which ${f.bytes(r.left_bytes)} are not used yet` : ""}, ` +
			`${r.until_seconds == null ? `until it ${r.pid ? "ends" : "is released"}` : `for ${span(left(r.until_seconds))} more`}.`,
	})));
}

const context = { named, gpu: (uuid) => (device(uuid) ? gpu(device(uuid)) : uuid) };

function drawDecisions() {
	items($("guard-decisions"), movesOf(doc.decisions).reverse().sort((a, b) => timeOf(b) - timeOf(a)), makeMove, (li, m) => fillMove(li, m, context));
	$("guard-quiet").hidden = doc.decisions.length > 0;
}

// Reports moves that ended since the last answer.
let reported = null;
function report() {
	const ended = movesOf(doc.decisions).filter((m) => ["left", "back", "stuck"].includes(m.kind)), id = (m) => m.steps.at(-1).id;
	for (const m of reported === null ? [] : ended.filter((x) => id(x) > reported))
		emit("moved", m.kind, named(headline(m, context)));
	reported = Math.max(0, ...doc.decisions.map((d) => d.id));
}

const VERBS = { evict: ["Evict"], resume: ["Resume"], hold: ["Hold …"], release: ["Release"] };
let needToken = null;

// Describes what will happen after the request.
function outlook(verb, w, state) {
	const size = w.resident_bytes ? `the ${f.bytes(w.resident_bytes)} that it holds${where(w) ? ` on ${where(w)}` : ""}` : "", free = size ? `it is requested to free ${size}; running work may finish first` : w.memory_reason ? "the memory that it holds is unknown" : "it holds no GPU memory now";
	const others = w.mask.filter((r) => r !== "manual").join(", ");
	const say = {
		evict: [free, "it stays evicted for this time, or until it is resumed"],
		resume: [`it returns ${others ? `when this ends: ${others}` : "when the checks pass; nothing else keeps it off the GPU"}`,
			"Resume now ignores contention and the quiet time. Memory, temperature and faults are always checked."],
		hold: state === "active" ? [`it stays on the GPU, even if other processes need it${w.state === "active" ? "" : "; it returns when memory is available"}`, "Heat and faults still move it."] :
			[free, "it stays evicted for this time, or until it is released"],
		release: ["the hold ends, and the rules decide again at once"],
	}[verb];
	return f.sentences(...say, dry() && `the guard's mode is ${doc.mode}: this is logged, but no worker is moved`, !dry() && doc.mode_note);
}

function request(verb, name) {
	const w = doc.workers.find((x) => x.name === name), box = $("request"), form = box.querySelector("form"), timed = verb === "evict" || verb === "hold";
	const last = TIMES.length - 1, explain = () => put($("request-what"), outlook(verb, w, form.elements.state.value));
	if (!w)
		return;
	put($("request-title"), `${VERBS[verb][0].replace(" …", "")} ${w.name}?`);
	put($("request-go"), VERBS[verb][0].replace(" …", ""));
	$("request-states").hidden = verb !== "hold";
	$("request-time").hidden = !timed;
	$("request-now").hidden = verb !== "resume";
	$("request-token").hidden = Boolean(token.get()) || doc.read_only;
	$("request-ttl").replaceChildren(...TIMES.map(([s, word], i) => el("option", { value: s, selected: i === (verb === "evict" ? last : 2),
		textContent: i === last && verb === "evict" ? "no limit: until it is resumed" : word })));
	form.elements.state.value = "evicted";
	$("request-reason").value = box.returnValue = "";
	form.onchange = explain;
	explain();
	box.showModal();
	box.onclose = () => {
		const body = {}, reason = $("request-reason").value.trim();
		if (box.returnValue !== "go" && box.returnValue !== "now")
			return;
		if (timed)
			body.ttl_s = Number($("request-ttl").value);
		if (verb === "hold")
			body.state = form.elements.state.value;
		if (reason)
			body.reason = reason;
		if (box.returnValue === "now")
			body.force = true;
		send(verb, name, body);
	};
}

function showNote(text, bad) {
	const note = $("guard-note");
	note.className = bad ? "answer bad" : "answer";
	note.hidden = false;
	put(note, named(text));
}

let sent = 0;
async function send(verb, name, body) {
	const mine = ++sent;
	try {
		const w = await permitted(needToken, "Moving a worker", () => change("POST", `guard/workers/${encodeURIComponent(name)}/${verb}`, body));
		showNote(`Accepted: ${verb} ${name}. Its state is ${w.state}${w.mask.length ? ` (${w.mask.join(", ")})` : ""}.`);
		load();
		follow(w.operation, `${verb} ${name}`, () => mine === sent);
	} catch (e) {
		showNote(e.message, true);
	}
}

// Follows the operation until it ends or another request replaces it.
async function follow(op, what, wanted) {
	while (op?.state === "running" && wanted()) {
		await new Promise((done) => { setTimeout(done, 500); });
		op = await ask(`guard/operations/${op.id}`).catch(() => null);
	}
	if (op && wanted())
		showNote(f.sentences(`${op.state}: ${what}`, op.message), op.state === "failed");
}

let tables = null, asking = false, again = false, heard = 0;

async function load() {
	if (asking) {
		again = true;
		return;
	}
	asking = true;
	try {
		const before = doc;
		let g = await ask(`guard?limit=${before ? 1 : DECISIONS}`);
		if (before && g.decisions[0]?.id === before.decisions.at(-1)?.id)
			g.decisions = before.decisions;
		else if (before)
			g = await ask(`guard?limit=${DECISIONS}`);
		doc = g;
		at = performance.now();
		announce(before);
		report();
		draw();
	} catch (e) {
		if (e.type === "no-guard" || e.status === 404)
			$("guard").hidden = true;
	}
	asking = false;
	if (again) {
		again = false;
		load();
	}
}

// GPUs without processes are not requested.
async function loadGpus() {
	const used = new Set((model.snapshot?.processes || []).map((p) => p.device_uuid)), ill = new Set(looks.filter((g) => g.state !== "ok").map((g) => g.uuid));
	const wanted = model.devices.filter((d) => used.has(d.uuid) || ill.has(d.uuid) || d.state !== "ok" || model.devices.length === 1);
	looks = (await Promise.all(wanted.map((d) => ask(`guard/gpus/${selector(d)}`).catch(() => null)))).filter(Boolean);
	draw();
}

// Lets screen readers announce changes of states, but not of timers.
function announce(before) {
	const news = doc.workers.filter((w) => before?.workers.some((b) => b.name === w.name && b.state !== w.state));
	if (news.length)
		put($("announce"), news.map((w) => `${w.name}: ${w.state}. ${STATES[w.state]?.[1] || ""} ${w.mask.map((r) => REASONS[r]).join(", ")}`).join(" "));
}

// Draws the tile in the header.
function drawTile(list) {
	const runs = list.filter((w) => LEAVES.has(w.state) && w.state !== "absent"), tile = $("total-guard");
	$("guard-tile").hidden = !list.length;
	put(tile, list.length === 1 ? `${list[0].name} ${dry() ? `in ${MODES[doc.mode][0]}` : list[0].state}` : dry() ? `${count(list.length, "worker")} in ${MODES[doc.mode][0]}` : `${runs.length} of ${list.length} active`);
	tile.classList.toggle("alarm", list.some((w) => w.state === "stuck" || w.quarantine || w.blind || w.hung));
}

function draw() {
	if (!doc || document.hidden)
		return;
	const [word, tone, mark] = doc.mode_note && !dry() ? [doc.mode, "warn"] : MODES[doc.mode] || [doc.mode, "warn"], c = doc.counts, list = [...doc.workers].sort((a, b) => b.priority - a.priority);
	$("guard").hidden = !doc.workers.length && !doc.reservations.length;
	put($("guard-mode"), word);
	$("guard-mode").className = `badge ${tone}`;
	$("guard-mark").hidden = !mark && !doc.mode_note;
	put($("guard-mark"), [mark, doc.mode_note].filter(Boolean).join(" "));
	$("guard-journal").hidden = doc.journal === "ok";
	put($("guard-journal"), doc.journal === "ok" ? "" : f.sentences(doc.journal));
	put($("guard-facts"), [count(list.length, "worker"), count(c.evictions_total, "eviction"), count(c.resumes_total, "return"),
		c.would_evict_total && `${count(c.would_evict_total, "eviction")} not carried out`,
		!dry() && c.free_seconds_last != null && `the last eviction freed its memory in ${f.seconds(c.free_seconds_last)}`, doc.journal === "ok" && "journal ok"].filter(Boolean).join(" · "));
	drawTile(list);
	$("guard-token").hidden = Boolean(token.get()) || !list.length || doc.read_only;
	$("guard-read-only").hidden = !doc.read_only || !list.length;
	tables.workers.draw(list);
	tables.processes.draw(looks.flatMap((g) => g.processes.map((p) => ({ ...p, uuid: g.uuid, index: g.index })))
		.sort((a, b) => rank(a) - rank(b) || (b.memory_bytes ?? 0) - (a.memory_bytes ?? 0)));
	drawGpus();
	drawRooms();
	drawDecisions();
}

export function guard(askToken) {
	needToken = askToken;
	model.guarded = true; // The long list of figures of a GPU stays closed, so that the panel of the guard is visible.
	for (const box of document.querySelectorAll("details.all"))
		box.open = false;
	tables = { workers: workerTable(), processes: processTable() };
	$("guard-token").querySelector("button").addEventListener("click", async () => {
		await needToken(`Moving a worker needs the token of this service. ${TYPE}`);
		draw();
	});
	$("total-guard").addEventListener("click", (e) => {
		e.preventDefault(); // The address must not change, because it stores the view.
		$("guard").scrollIntoView();
		$("guard").focus();
	});
	on("snapshot", loadGpus);
	// New decisions arrive as events, without a delay.
	on("events", () => {
		const last = model.events.find((e) => e.kind === "guard")?.id ?? 0;
		if (last === heard)
			return;
		heard = last;
		load();
		refresh();
		setTimeout(refresh, 800); // The processes change some time after the decision.
	});
	setInterval(() => {
		if (!document.hidden && model.link.state !== "reconnecting")
			load();
		else
			draw();
	}, 1000);
	load();
	return loadGpus();
}
