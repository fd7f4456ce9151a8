// guard: which worker must leave its GPU, why, until when; and what people may ask for.  Fetched where there is a guard.
import { ask, change, keyOf, model, on, refresh, selector, token } from "./data.js";
import * as f from "./format.js";
import { $, el, figure, put, unknown, width } from "./rows.js";
import { Table, text } from "./table.js";
import { permitted, TYPE } from "./windows.js";

const MODES = {
	enforce: ["enforce", "good"],
	"dry-run": ["dry run", "warn", "Dry run: what is decided is told and counted, and nothing is done. No worker is moved."],
	observe: ["observe", "warn", "Observing: who is on the GPUs is told, and nothing is done. No worker is moved."],
};
// [tone, what it means, what next_seconds counts to]
const STATES = {
	active: ["good", "It may use the GPU.", "looked at again"],
	suspect: ["warn", "Somebody may need the GPU; it is looked at closely.", "decided"],
	drain: ["warn", "It takes no new work; what is under way may end.", "told to leave"],
	evict: ["warn", "It was told to leave.", "given up"],
	verify: ["warn", "It says that it left; its memory is watched.", "must be free"],
	evicted: ["calm", "It is out, and its memory is free.", "may come back"],
	quiet: ["calm", "Nobody needs the GPU any more; waiting whether it stays so.", "may come back"],
	precheck: ["calm", "May it come back? Room, heat and the worker are checked.", "checked again"],
	resume: ["calm", "It was told to come back.", "given up"],
	"verify-up": ["calm", "It says that it is back; its memory is watched.", "must be back"],
	stuck: ["bad", "It did not leave.", "tried again"],
	absent: ["calm", "There is no such process.", "looked at again"],
	reconcile: ["calm", "After a start: what was, and what is?", "looked at again"],
};
const REASONS = {
	contention: "somebody needs the GPU", manual: "a person asked for it", thermal: "the GPU is too hot", health: "the GPU is not well",
	schedule: "its hours", battery: "the machine is on battery", blind: "the GPU cannot be seen", budget: "power or energy is above its cap",
	reserved: "the room is reserved", idle: "its model idled",
};
const OVERLAYS = {
	blind: "its GPU cannot be seen: the driver fails", hung: "a call of the driver has not returned", quarantine: "its GPU must be reset before it can be used",
};
const CLASSES = [
	["contender", "warn"], ["unknown", "warn"], ["orphan", "warn"], ["worker", "good"], ["ignored", "calm"], ["system", "calm"], ["self", "calm"],
];
const LEVELS = { ok: "good", warn: "warn", throttle: "warn", evict: "bad", quarantine: "bad" };
const TIMES = [[900, "15 minutes"], [3600, "1 hour"], [7200, "2 hours"], [28800, "8 hours"], [86400, "1 day"], [0, "no end: until it is released"]];
const DECISIONS = 40;
const LEAVES = new Set(["active", "suspect", "reconcile", "absent"]); // where Evict is the wish, not Resume

let doc = null, at = 0, looks = [], health = [];

// ---- words

const passed = () => (performance.now() - at) / 1000;
// What is left of a time that was told, counted on; null: there is none.
const left = (seconds) => (seconds == null ? null : Math.max(0, seconds - passed()));
const span = (seconds) => f.span(Math.ceil(seconds)).replaceAll(" ", "\u00a0");
const gpu = (d) => `GPU ${d.index}`;
// A UUID tells people nothing.
const named = (s) => model.devices.reduce((t, d) => (d.uuid ? t.replaceAll(d.uuid, gpu(d)) : t), s || "");
const device = (name) => model.devices.find((d) => d.uuid === name || String(d.index) === name || (name.length > 4 && d.uuid?.startsWith(name)));
const badge = (tone, word, title = "") => el("span", { className: `badge ${tone}`, textContent: word, title });
const cause = (d) => named(d.evidence ? `${d.rule} (${d.evidence})` : d.rule);
const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const dry = () => doc.mode !== "enforce";

// Where it is, or was when it was seen; else where it may be.
const places = new Map();
function where(w) {
	const on = looks.filter((g) => g.processes.some((p) => p.worker === w.name)).map(gpu);
	if (on.length)
		places.set(w.name, on);
	return (places.get(w.name) || w.gpus.map((n) => (device(n) ? gpu(device(n)) : n))).join(", ");
}

// Without enforcement the guard goes through its states as if workers did what it would tell them.
const pretends = (w) => w.dry_run && !LEAVES.has(w.state);

// Replaced only when it says something else: what somebody reads or has marked stays.
function fill(cell, key, make) {
	if (cell.dataset.key === key)
		return;
	cell.dataset.key = key;
	cell.replaceChildren(...make().filter(Boolean));
}

// The items of a list by their ids, made where they are new; nothing that stays is taken out.
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

// ---- workers

function fillName(c, w) {
	const more = [w.kind, `priority ${w.priority}`, where(w) || "on no GPU"].join(" · ");
	fill(c, more, () => [el("b", { textContent: w.name, title: w.configured || "" }), el("small", { textContent: more })]);
}

function fillState(c, w) {
	const over = Object.keys(OVERLAYS).filter((k) => w[k]), held = w.hold === "none" ? "" : `held ${w.hold}`;
	fill(c, [w.state, over, held, dry()].join(), () => [
		badge(STATES[w.state]?.[0] || "calm", pretends(w) ? `would be: ${w.state}` : w.state), ...over.map((k) => badge("bad", k, OVERLAYS[k])), held && badge("calm", held), el("small"),
	]);
	put(c.lastChild, w.since_seconds == null ? "" : `for ${f.span(w.since_seconds + passed())}`);
}

function fillWhy(c, w) {
	const why = w.reasons.map((r) => [r.reason, cause(r) || REASONS[r.reason] || "", r.clears]), said = named(w.why);
	// Of one that simply runs, or only would have left, the last decision is no news.
	const news = pretends(w) ? false : w.state !== "active" || w.next_seconds != null || (w.hold !== "none" && !said.startsWith("hold"));
	// "RULE: EVIDENCE", which a reason above may have said already.
	const more = said && news && !w.reasons.some((r) => r.rule && said.startsWith(named(r.rule))) ? said : "";
	const state = pretends(w) ? "Only decided: nothing was done." : w.hold === w.state && w.hold === "active" ? "A person holds it on the GPU, whoever needs it." : STATES[w.state]?.[1] || f.words(w.state);
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
	const [held, unit] = f.bytes(w.resident_bytes).split(" "), need = f.bytes(w.need_bytes);
	put(pair.firstChild, w.need_bytes && (need.endsWith(` ${unit}`) || !w.resident_bytes) ? held : `${held} ${unit}`);
	put(pair.lastChild, w.need_bytes ? `/ ${need}` : "");
	width(bar.firstChild, w.need_bytes ? w.resident_bytes / w.need_bytes : 0);
	put(more, pretends(w) ? "it is still there" : out ? `${f.bytes(w.residue_bytes)} stayed` : "");
}

// What runs out, with what it means: "may come back in 12 s".
function timers(w) {
	const next = left(w.next_seconds), hold = left(w.hold_until_seconds), out = w.mask.includes("manual");
	return [
		next !== null && !(Math.abs(next - hold) < 1) && `${STATES[w.state]?.[2] || "can change"} in ${span(next)}`,
		w.hold !== "none" || out ? `${w.hold === "none" ? "evicted" : "held"} ${hold === null ? "until it is " + (w.hold === "none" ? "resumed" : "released") : `for ${span(hold)}`}` : "",
		w.backoff > 1 && `quiet time ×${f.digits(w.backoff)}: it came and went often`,
	].filter(Boolean);
}

function fillTimers(c, w) {
	const list = timers(w);
	while (c.childElementCount > list.length || (c.firstChild && !list.length))
		c.lastChild.remove();
	list.forEach((s, i) => put(c.children[i] || c.appendChild(el("span", { className: "timer" })), s));
	if (!list.length)
		c.append(el("span", { className: "timer none", textContent: f.DASH, title: "no timer runs: it changes when somebody needs the GPU, or a reason ends" }));
	else
		c.firstChild.className = "timer";
	c.classList.toggle("idle", !list.length);
}

function fillMoves(c, w) {
	put(c, dry() ? `${w.would_evict_total}\u00a0× would have left` : `${w.evictions_total}\u00a0×\u00a0out, ${w.resumes_total}\u00a0×\u00a0back`);
}

// Two buttons that stay: who has the focus on one keeps it.
function fillActions(c, w) {
	if (!c.firstChild)
		c.append(el("span", { className: "actions" }, ...[0, 1].map((i) => el("button", { type: "button", onclick: () => wish(c.wishes[i], c.worker) }))));
	c.worker = w.name;
	c.wishes = [LEAVES.has(w.state) && w.reasons.every((r) => r.masked) ? "evict" : "resume", w.hold === "none" ? "hold" : "release"];
	c.wishes.forEach((verb, i) => {
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
], (w) => w.name, "No worker is configured: the guard only looks.");

// ---- who is on the GPUs

const rank = (p) => CLASSES.findIndex(([name]) => name === p.class);

const processTable = () => new Table("guard-processes", [
	{ name: "GPU", num: true, fill: text((p) => p.index) },
	{ name: "Process", lead: true, fill: (c, p) => fill(c, `${p.pid} ${p.name}`, () => [p.name || "?", el("small", { textContent: ` ${p.pid}` })]) },
	{ name: "Class", fill: (c, p) => fill(c, p.class, () => [badge(CLASSES[rank(p)]?.[1] || "calm", p.class)]) },
	{ name: "Memory", num: true, fill: (c, p) => figure(c, { ...p, absent: { memory_bytes: "no_data" } }, "memory_bytes", f.bytes) },
	{ name: "Busy", num: true, fill: (c, p) => (p.utilization_sm_ratio == null ? unknown(c, "asked only while there is somebody to judge") :
		figure(c, p, "utilization_sm_ratio", f.percent)) },
	{ name: "Rule", wrap: true, fill: (c, p) => put(c, [p.worker ? "" : f.words(p.action), named(p.rule)].filter(Boolean).join(": ")) },
], (p) => `${p.uuid} ${p.pid}`, "No process is on a GPU.");

// ---- GPUs and reservations: sentences

function lines(list, rows) {
	items(list, rows, () => el("li", {}, badge("", ""), el("span")), (li, { tone, word, say }) => {
		li.firstChild.className = `badge ${tone}`;
		put(li.firstChild, word);
		put(li.lastChild, say);
	});
	list.hidden = !rows.length;
}

// Those that are well are only counted.
function drawGpus() {
	const blind = new Map(looks.filter((g) => ["blind", "hung", "lost"].includes(g.state)).map((g) => [g.uuid, g.state]));
	const ill = health.filter((h) => blind.has(h.uuid) || (h.level && h.level !== "ok")), well = health.filter((h) => h.level === "ok" && !blind.has(h.uuid));
	const margin = well.map((h) => h.margin_celsius).filter((v) => v != null), least = margin.length ? `, ${Math.min(...margin).toFixed(0)} °C${margin.length > 1 ? " or more" : ""} below the limit` : "";
	const dim = health.filter((h) => !h.level && !blind.has(h.uuid)), some = (list, word) => `${list.length > 1 ? `${list.length} GPUs` : gpu(list[0])} ${word}`;
	lines($("guard-gpus"), [
		...ill.map((h) => ({
			id: h.uuid, tone: blind.has(h.uuid) ? "bad" : LEVELS[h.level] || "warn", word: `${gpu(h)}: ${blind.get(h.uuid) || h.level}`,
			say: f.sentences(named(h.why), h.advice, left(h.clears_seconds) > 0 && `can be over in ${span(left(h.clears_seconds))}`),
		})),
		...looks.filter((g) => g.hidden_processes).map((g) => ({
			id: `${g.uuid} hidden`, tone: "warn", word: `${gpu(g)}: hidden processes`,
			say: f.sentences("not every process on it can be seen from here", g.unattributed_bytes > 0 && `${f.bytes(g.unattributed_bytes)} have no owner that can be seen`),
		})),
		well.length && { id: "well", tone: "good", word: some(well, "ok"), say: `Healthy${least}.` },
		dim.length && { id: "dim", tone: "calm", word: some(dim, "not watched"), say: "Heat and faults are not looked at." },
	].filter(Boolean));
}

function drawRooms() {
	lines($("guard-rooms"), doc.reservations.map((r) => ({
		id: r.id, tone: "calm", word: `${named(r.gpu)} reserved`,
		say: `${f.bytes(r.bytes)}${r.pid ? ` for process ${r.pid}` : ""}${r.left_bytes < r.bytes ? `, of which ${f.bytes(r.left_bytes)} are not taken yet` : ""}, ` +
			`${r.until_seconds == null ? `until it ${r.pid ? "ends" : "is given back"}` : `for ${span(left(r.until_seconds))} more`}.`,
	})));
}

// ---- decisions

function drawDecisions() {
	items($("guard-decisions"), [...doc.decisions].reverse(), decision);
	$("guard-quiet").hidden = doc.decisions.length > 0;
}

function decision(d) {
	const t = Date.parse(d.time_utc);
	return el("li", {}, el("time", { dateTime: d.time_utc, textContent: f.when(t), title: new Date(t).toLocaleString() }),
		badge(STATES[d.to]?.[0] || "calm", d.to), el("span", {}, el("b", { textContent: `${d.worker} ` }),
			d.from === d.to ? "" : `from ${d.from}: `, cause(d), d.dry_run ? "; nothing was done" : ""));
}

// ---- what people ask for

const VERBS = { evict: ["Evict"], resume: ["Resume"], hold: ["Hold …"], release: ["Release"] };
let needToken = null;

// What will happen, in a sentence or two.
function outlook(verb, w, state) {
	const size = w.resident_bytes ? `the ${f.bytes(w.resident_bytes)} that it holds${where(w) ? ` on ${where(w)}` : ""}` : "", free = size ? `it is told to free ${size}; what is under way may end first` : "it holds nothing now";
	const others = w.mask.filter((r) => r !== "manual").join(", ");
	const say = {
		evict: [free, "it stays out for this time, or until somebody resumes it"],
		resume: [`it comes back ${others ? `when this is over: ${others}` : "when the checks pass: nothing else speaks against it"}`,
			"Resume now passes over contention and the quiet time. Room, heat and faults are checked in any case."],
		hold: state === "active" ? [`it stays on the GPU, whoever needs it${w.state === "active" ? "" : "; it comes back when there is room"}`, "Heat and a broken GPU still move it."] :
			[free, "it stays out, whatever happens"],
		release: ["the hold ends, and the rules decide again at once"],
	}[verb];
	return f.sentences(...say, dry() && `the guard's mode is ${doc.mode}: this is told, and no worker is moved`);
}

function wish(verb, name) {
	const w = doc.workers.find((x) => x.name === name), box = $("wish"), form = box.querySelector("form"), timed = verb === "evict" || verb === "hold";
	const last = TIMES.length - 1, explain = () => put($("wish-what"), outlook(verb, w, form.elements.state.value));
	if (!w)
		return;
	put($("wish-title"), `${VERBS[verb][0].replace(" …", "")} ${w.name}?`);
	put($("wish-go"), VERBS[verb][0].replace(" …", ""));
	$("wish-states").hidden = verb !== "hold";
	$("wish-time").hidden = !timed;
	$("wish-now").hidden = verb !== "resume";
	$("wish-token").hidden = Boolean(token.get());
	$("wish-ttl").replaceChildren(...TIMES.map(([s, word], i) => el("option", { value: s, selected: i === (verb === "evict" ? last : 2),
		textContent: i === last && verb === "evict" ? "no end: until it is resumed" : word })));
	form.elements.state.value = "evicted";
	$("wish-reason").value = box.returnValue = "";
	form.onchange = explain;
	explain();
	box.showModal();
	box.onclose = () => {
		const body = {}, reason = $("wish-reason").value.trim();
		if (box.returnValue !== "go" && box.returnValue !== "now")
			return;
		if (timed)
			body.ttl_s = Number($("wish-ttl").value);
		if (verb === "hold")
			body.state = form.elements.state.value;
		if (reason)
			body.reason = reason;
		if (box.returnValue === "now")
			body.force = true;
		send(verb, name, body);
	};
}

function tell(text, bad) {
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
		tell(`Accepted: ${verb} ${name}. Its state is ${w.state}${w.mask.length ? ` (${w.mask.join(", ")})` : ""}.`);
		load();
		follow(w.operation, `${verb} ${name}`, () => mine === sent);
	} catch (e) {
		tell(e.message, true);
	}
}

// What becomes of it, until it is done or somebody asks for something else.
async function follow(op, what, wanted) {
	while (op?.state === "running" && wanted()) {
		await new Promise((done) => { setTimeout(done, 500); });
		op = await ask(`guard/operations/${op.id}`).catch(() => null);
	}
	if (op && wanted())
		tell(f.sentences(`${op.state}: ${what}`, op.message), op.state === "failed");
}

// ---- what the service tells

let tables = null, asking = false, again = false, heard = 0;

async function load() {
	if (asking) {
		again = true;
		return;
	}
	asking = true;
	try {
		const g = await ask(`guard?limit=${DECISIONS}`), before = doc;
		doc = g;
		at = performance.now();
		announce(before);
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

// GPUs that nobody is on are not asked for.
async function loadGpus() {
	const used = new Set((model.snapshot?.processes || []).map((p) => p.device_uuid)), ill = new Set(looks.filter((g) => g.state !== "ok").map((g) => g.uuid));
	const wanted = model.devices.filter((d) => used.has(d.uuid) || ill.has(d.uuid) || d.state !== "ok" || model.devices.length === 1);
	const answers = await Promise.all([ask("health"), ...wanted.map((d) => ask(`guard/gpus/${selector(d)}`).catch(() => null))]).catch(() => null);
	if (!answers)
		return;
	health = answers[0].gpus;
	looks = answers.slice(1).filter(Boolean);
	draw();
}

// Those who hear are told of states, not of seconds.
function announce(before) {
	const news = doc.workers.filter((w) => before?.workers.some((b) => b.name === w.name && b.state !== w.state));
	if (news.length)
		put($("announce"), news.map((w) => `${w.name}: ${w.state}. ${STATES[w.state]?.[1] || ""} ${w.mask.map((r) => REASONS[r]).join(", ")}`).join(" "));
}

// Where everybody looks first.
function drawTile(list) {
	const runs = list.filter((w) => LEAVES.has(w.state) && w.state !== "absent"), tile = $("total-guard");
	$("guard-tile").hidden = !list.length;
	put(tile, list.length === 1 ? `${list[0].name} ${dry() ? `in ${MODES[doc.mode][0]}` : list[0].state}` : dry() ? `${count(list.length, "worker")} in ${MODES[doc.mode][0]}` : `${runs.length} of ${list.length} active`);
	tile.classList.toggle("alarm", list.some((w) => w.state === "stuck" || w.quarantine || w.blind || w.hung));
}

function draw() {
	if (!doc || document.hidden)
		return;
	const [word, tone, mark] = MODES[doc.mode] || [doc.mode, "warn"], c = doc.counts, list = [...doc.workers].sort((a, b) => b.priority - a.priority);
	$("guard").hidden = !doc.workers.length && !doc.reservations.length;
	put($("guard-mode"), word);
	$("guard-mode").className = `badge ${tone}`;
	$("guard-mark").hidden = !mark;
	put($("guard-mark"), mark || "");
	$("guard-journal").hidden = doc.journal === "ok";
	put($("guard-journal"), doc.journal === "ok" ? "" : f.sentences(doc.journal));
	put($("guard-facts"), [count(list.length, "worker"), count(c.evictions_total, "eviction"), count(c.resumes_total, "return"),
		c.would_evict_total && `${count(c.would_evict_total, "eviction")} not done`,
		!dry() && c.free_seconds_last != null && `memory last free after ${f.seconds(c.free_seconds_last)}`, doc.journal === "ok" && "journal ok"].filter(Boolean).join(" · "));
	drawTile(list);
	$("guard-token").hidden = Boolean(token.get()) || !list.length;
	tables.workers.draw(list);
	tables.processes.draw(looks.flatMap((g) => g.processes.map((p) => ({ ...p, uuid: g.uuid, index: g.index })))
		.sort((a, b) => rank(a) - rank(b) || (b.memory_bytes ?? 0) - (a.memory_bytes ?? 0)));
	drawGpus();
	drawRooms();
	drawDecisions();
}

export function guard(askToken) {
	needToken = askToken;
	model.guarded = true; // the panel is what people come for: the figures of the one GPU do not push it away
	for (const box of document.querySelectorAll("details.all"))
		box.open = false;
	tables = { workers: workerTable(), processes: processTable() };
	$("guard-token").querySelector("button").addEventListener("click", async () => {
		await needToken(`Moving a worker needs the token of this service. ${TYPE}`);
		draw();
	});
	$("total-guard").addEventListener("click", (e) => {
		e.preventDefault(); // the address is of the view
		$("guard").scrollIntoView();
		$("guard").focus();
	});
	on("snapshot", loadGpus);
	// What it decides it tells at once.
	on("events", () => {
		const last = model.events.find((e) => e.kind === "guard")?.id ?? 0;
		if (last === heard)
			return;
		heard = last;
		load();
		refresh();
		setTimeout(refresh, 800); // what follows from it
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
