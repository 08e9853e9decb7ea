import { $, bytes, call, count, dialogs, events, icon, make, seconds, themes } from "./parts.js";

const ideas = ["red apple", "snow leopard", "pizza", "rocket", "owl", "birthday cake"];
let loaded = null;
let working = 0;
const pictures = []; // newest first: {blob url, prompt, seed ...}
const chosen = [];

// ---- the form ----

const round = (n) => {
  const m = loaded.limits.size_multiple;
  return Math.max(m, Math.round(n / m) * m);
};

// Shapes of about as many pixels as the model's own.
function shapes() {
  const { width, height } = loaded.defaults;
  const area = Math.min(width * height, loaded.limits.max_pixels);
  const list = [["Square", 1, 1], ["Tall", 3, 4], ["Wide", 4, 3], ["Banner", 16, 9]];
  return list.map(([name, w, h]) => {
    const side = Math.sqrt(area / (w * h));
    let size = [round(w * side), round(h * side)];
    if (name === "Square" && width === height) size = [width, height];
    while (size[0] * size[1] > loaded.limits.max_pixels) {
      size = size.map((s) => s - loaded.limits.size_multiple);
    }
    return { name, w, h, size };
  });
}

function shapeButton(name, ratio, checked) {
  const box = make("i");
  const scale = 20 / Math.max(...ratio);
  box.style.width = `${ratio[0] * scale}px`;
  box.style.height = `${ratio[1] * scale}px`;
  const input = make("input", { type: "radio", name: "shape", value: name, checked });
  return make("label", { class: "size" }, input, make("span", {}, box, name));
}

function chooseShape(list) {
  const name = document.querySelector("[name=shape]:checked").value;
  const shape = list.find((s) => s.name === name);
  $("custom").classList.toggle("on", !shape);
  if (shape) [$("width").value, $("height").value] = shape.size;
  else $("width").focus();
}

function fillForm() {
  const d = loaded.defaults;
  const list = shapes();
  $("sizes").replaceChildren(...list.map((s, i) => shapeButton(s.name, [s.w, s.h], i === 0)),
    shapeButton("Custom", [1, 1], false));
  $("sizes").addEventListener("change", () => chooseShape(list));
  for (const id of ["width", "height"]) {
    Object.assign($(id), { min: loaded.limits.size_multiple, max: 16384, step: loaded.limits.size_multiple });
  }
  [$("width").value, $("height").value] = list[0].size;
  $("steps").max = Math.min(200, Math.max(50, d.num_inference_steps * 2));
  $("steps").value = d.num_inference_steps;
  $("guidance").value = d.true_cfg_scale;
  $("negative").value = (d.negative_prompt ?? "").trim();
  $("count").max = loaded.limits.max_pictures;
  outputs();
}

function outputs() {
  $("steps-out").value = $("steps").value;
  $("guidance-out").value = Number($("guidance").value) > 1 ? Number($("guidance").value).toFixed(1) : "off";
}

const roll = () => { $("seed").value = crypto.getRandomValues(new Uint32Array(1))[0]; };

function lock(on) {
  $("lock").setAttribute("aria-pressed", on);
  $("lock").setAttribute("aria-label", on ? "Let the seed change" : "Keep this seed");
}

function request() {
  const body = {
    prompt: $("prompt").value,
    n: Number($("count").value) || 1,
    size: `${$("width").value}x${$("height").value}`,
    num_inference_steps: Number($("steps").value),
    true_cfg_scale: Number($("guidance").value),
    preview_every: Math.max(1, Math.round(Number($("steps").value) / 8)),
  };
  if ($("negative").value.trim()) body.negative_prompt = $("negative").value;
  const kept = $("lock").getAttribute("aria-pressed") === "true";
  if (!kept || !$("seed").value) roll();
  body.seed = Number($("seed").value);
  return body;
}

function fail(message) {
  $("error").textContent = message;
  $("error").hidden = !message;
}

const say = (text) => { $("live").textContent = text; };

async function generate() {
  if (!$("ask").reportValidity()) return;
  fail("");
  const body = request();
  $("go").disabled = true;
  try {
    const job = await (await call("/v1/jobs", { method: "POST", body: JSON.stringify(body) })).json();
    say(`${count(body.n, "picture")} asked for.`);
    follow(job, body);
  } catch (error) {
    fail(error.status === 429 ? `Everyone is busy: ${error.message}` : error.message);
    if (error.param && $(error.param)) $(error.param).focus();
  } finally {
    $("go").disabled = false;
  }
}

// ---- pictures under way ----

function waitingCard(body, index, cancel) {
  const img = make("img", { alt: "", hidden: true });
  const frame = make("div", { class: "frame waits" }, img);
  const [width, height] = body.size.split("x");
  frame.style.aspectRatio = `${width} / ${height}`;
  const bar = make("progress", { max: 1, "aria-label": `Progress of picture ${index + 1}` });
  const facts = make("p", { class: "facts" }, "Handing in");
  const stop = make("button", { type: "button", class: "plain", onclick: cancel }, body.n > 1 ? "Cancel all" : "Cancel");
  const card = make("li", { class: "card" }, frame, make("div", { class: "text" },
    make("p", { class: "prompt" }, body.prompt), bar, facts, make("div", { class: "row" }, stop)));
  return { card, frame, img, bar, facts, stop };
}

function describe(p, job) {
  if (p.stage === "queued") return p.position > 1 ? `Waiting, ${p.position - 1} before it` : "Waiting, next in line";
  if (p.stage === "text") return "Reading the prompt";
  if (p.stage === "steps") {
    const left = seconds(job.seconds_left);
    return `Step ${p.step} of ${p.steps}${left ? ` \u00b7 ${left} left` : ""}`;
  }
  if (p.stage === "decode") return "Turning it into pixels";
  return p.stage === "done" ? "Done" : p.error ?? "Cancelled";
}

function showProgress(card, p, job) {
  card.facts.textContent = describe(p, job);
  if (p.stage === "queued" || p.stage === "text") card.bar.removeAttribute("value");
  else card.bar.value = p.steps ? p.step / p.steps : 0;
}

function showPreview(card, data) {
  card.img.src = `data:${data.type};base64,${data.b64_json}`;
  card.img.hidden = false;
  card.frame.classList.remove("waits");
  card.frame.classList.add("preview");
}

async function follow(job, body) {
  const cancel = () => call(`/v1/jobs/${job.id}`, { method: "DELETE" }).catch((e) => fail(e.message));
  const cards = Array.from({ length: body.n }, (_, i) => waitingCard(body, i, cancel));
  $("grid").prepend(...cards.map((c) => c.card));
  working++;
  update();
  if (matchMedia("(max-width: 52rem)").matches) $("bar").scrollIntoView({ block: "center" });
  let last = job;
  try {
    for await (const { name, data } of events(`/v1/jobs/${job.id}/events`)) {
      if (name === "preview") {
        showPreview(cards[data.index], data);
        continue;
      }
      last = data;
      data.pictures.forEach((p, i) => showProgress(cards[i], p, data));
    }
    await finish(last, body, cards);
  } catch (error) {
    for (const c of cards) broken(c, error.message);
  }
  working--;
  update();
}

function broken(card, text) {
  card.card.classList.add("bad");
  card.frame.classList.remove("waits");
  card.bar.remove();
  card.facts.textContent = text;
  card.stop.textContent = "Remove";
  card.stop.replaceWith(make("button", { type: "button", class: "plain", onclick: () => { card.card.remove(); update(); } }, "Remove"));
}

async function finish(job, body, cards) {
  let done = 0;
  for (const [i, p] of job.pictures.entries()) {
    if (p.stage !== "done") {
      if (job.status === "cancelled") cards[i].card.remove();
      else broken(cards[i], p.error ?? "It failed");
      continue;
    }
    const blob = await (await call(`/v1/jobs/${job.id}/pictures/${i}`)).blob();
    const picture = { ...body, seed: p.seed, url: URL.createObjectURL(blob), name: `ounce-${p.seed}.png`, size: job.size };
    pictures.unshift(picture);
    cards[i].card.replaceWith(picture.card = finishedCard(picture));
    done++;
  }
  say(job.status === "cancelled" ? "Cancelled." : `${count(done, "picture")} done.`);
  call(`/v1/jobs/${job.id}`, { method: "DELETE" }).catch(() => {}); // they are here now
}

// ---- pictures that are done ----

function finishedCard(picture) {
  const title = `${picture.prompt}, seed ${picture.seed}`;
  const frame = make("button", { type: "button", class: "frame", "aria-label": `Show ${title}`, onclick: () => show(picture) },
    make("img", { src: picture.url, alt: title }));
  frame.style.aspectRatio = picture.size.replace("x", " / ");
  const pick = make("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => choose(picture) }, "Compare");
  picture.pick = pick;
  const tools = make("div", { class: "tools" },
    make("a", { class: "icon", href: picture.url, download: picture.name, "aria-label": "Download", title: "Download" }, icon("save")),
    make("button", { type: "button", class: "icon", "aria-label": "Again with this seed", title: "Again with this seed", onclick: () => again(picture) }, icon("again")),
    make("button", { type: "button", class: "icon", "aria-label": "Remove", title: "Remove", onclick: () => remove(picture) }, icon("bin")),
    make("span", { class: "grow" }), pick);
  return make("li", { class: "card" }, frame, make("div", { class: "text" },
    make("p", { class: "prompt" }, picture.prompt), make("p", { class: "facts" }, facts(picture)), tools));
}

const facts = (p) => `${p.size.replace("x", " \u00d7 ")} \u00b7 ${count(p.num_inference_steps, "step")} \u00b7 seed ${p.seed}`;

function again(picture) {
  $("prompt").value = picture.prompt;
  $("negative").value = picture.negative_prompt ?? "";
  $("steps").value = picture.num_inference_steps;
  $("guidance").value = picture.true_cfg_scale;
  $("seed").value = picture.seed;
  $("count").value = 1;
  const [width, height] = picture.size.split("x");
  if ($("width").value !== width || $("height").value !== height) {
    document.querySelector("[name=shape][value=Custom]").checked = true;
    $("custom").classList.add("on");
    [$("width").value, $("height").value] = [width, height];
  }
  lock(true);
  outputs();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  $("prompt").focus();
  say("Prompt and seed are in the form.");
}

function remove(picture) {
  pictures.splice(pictures.indexOf(picture), 1);
  if (chosen.includes(picture)) choose(picture);
  picture.card.remove();
  URL.revokeObjectURL(picture.url);
  update();
}

function choose(picture) {
  const at = chosen.indexOf(picture);
  if (at >= 0) chosen.splice(at, 1);
  else chosen.push(picture);
  if (chosen.length > 2) mark(chosen.shift(), false);
  mark(picture, at < 0);
  update();
  if (at < 0 && chosen.length === 2) compare();
}

function mark(picture, on) {
  picture.card.classList.toggle("chosen", on);
  picture.pick.setAttribute("aria-pressed", on);
  picture.pick.textContent = on ? "Chosen" : "Compare";
}

function show(picture) {
  $("view-img").src = picture.url;
  $("view-img").alt = picture.prompt;
  $("view-img").style.aspectRatio = picture.size.replace("x", " / ");
  $("view-prompt").textContent = picture.prompt;
  const list = { Seed: picture.seed, Size: picture.size.replace("x", " \u00d7 "), Steps: picture.num_inference_steps,
    Guidance: picture.true_cfg_scale > 1 ? picture.true_cfg_scale : "off" };
  if (picture.negative_prompt) list["Steered away from"] = picture.negative_prompt;
  $("view-facts").replaceChildren(...Object.entries(list).map(([k, v]) =>
    make("div", {}, make("dt", {}, k), make("dd", {}, String(v)))));
  Object.assign($("view-save"), { href: picture.url, download: picture.name });
  $("view-again").onclick = () => again(picture);
  $("view").showModal();
}

function compare() {
  const [a, b] = chosen;
  for (const [id, p] of [["pair-a", a], ["pair-b", b]]) {
    $(id).src = p.url;
    $(id).alt = `${p.prompt}, seed ${p.seed}`;
    $(`${id}-text`).textContent = `${p.prompt} \u00b7 ${facts(p)}`;
  }
  $("slider").style.setProperty("--ratio", a.size.replace("x", " / "));
  $("pair-at").value = 50;
  $("slider").style.setProperty("--at", "50%");
  $("pair").showModal();
  $("pair-at").focus();
}

function update() {
  const any = $("grid").children.length;
  $("empty").hidden = any > 0;
  $("bar").hidden = any === 0;
  $("grid").classList.toggle("one", any === 1);
  const parts = [count(pictures.length, "picture")];
  if (working) parts.push(`${count(working, "request")} under way`);
  if (chosen.length === 1) parts.push("choose one more to compare");
  $("summary").textContent = parts.join(" \u00b7 ");
  $("compare").disabled = chosen.length !== 2;
  $("clear").disabled = pictures.length === 0;
}

// ---- what is loaded ----

function schemeTable() {
  const rows = loaded.by_scheme.map((s) => make("tr", {}, make("td", {}, s.name), make("td", { class: "n" }, String(s.tensors)),
    make("td", { class: "n" }, bytes(s.file_bytes)), make("td", { class: "n" }, bytes(s.resident_bytes + s.mapped_bytes))));
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...["Scheme", "Tensors", "In files", "Here"].map((t, i) =>
      make("th", { scope: "col", class: i ? "n" : "" }, t)))), make("tbody", {}, ...rows)));
}

function memoryTable() {
  const names = { resident_bytes: "Weights", mapped_bytes: "Weights used from the file", plan_bytes: "Tables for running",
    step_bytes: "A step", sequence_bytes: "A picture under way", load_peak_bytes: "Peak of loading", run_peak_bytes: "Peak of drawing one" };
  const rows = Object.entries(names).filter(([k]) => loaded.memory[k] > 0).map(([k, name]) =>
    make("tr", {}, make("td", {}, name), make("td", { class: "n" }, bytes(loaded.memory[k]))));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Memory"),
    make("th", { scope: "col", class: "n" }, "Planned"))), make("tbody", {}, ...rows)));
}

function showLoaded() {
  if (!loaded) return;
  const meter = make("div", { class: "meter", "aria-hidden": "true" }, ...loaded.by_scheme.map((s) => {
    const part = make("i", { title: s.name });
    part.style.flexGrow = s.resident_bytes + s.mapped_bytes;
    return part;
  }));
  $("loaded-title").textContent = loaded.model;
  $("loaded-body").replaceChildren(
    make("p", { class: "muted" }, `${loaded.pipeline} on ${loaded.device} (${loaded.tier}, ${count(loaded.threads, "thread")}), ` +
      `up to ${count(loaded.limits.max_num_seqs, "picture")} together, ounce ${loaded.version}`),
    meter, schemeTable(), memoryTable());
  $("loaded").showModal();
}

// ---- start ----

async function connect() {
  for (;;) {
    try {
      loaded = await (await call("/v1/loaded")).json();
      break;
    } catch (error) {
      $("model").textContent = error.status === 503 ? "loading the model" : "no connection";
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  }
  $("model").textContent = loaded.model;
  $("state").className = "dot ready";
  $("loaded-open").setAttribute("aria-label", `${loaded.model}: what is loaded`);
  document.title = `ounce \u00b7 ${loaded.model}`;
  fillForm();
}

async function watch() {
  const alive = await fetch("/ready").then((r) => r.ok, () => false);
  $("state").className = `dot ${alive ? "ready" : "lost"}`;
}

function listen() {
  $("ask").addEventListener("submit", (event) => { event.preventDefault(); generate(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !document.querySelector("dialog[open]")) generate();
  });
  for (const id of ["steps", "guidance"]) $(id).addEventListener("input", outputs);
  $("dice").addEventListener("click", roll);
  $("lock").addEventListener("click", () => {
    const on = $("lock").getAttribute("aria-pressed") !== "true";
    if (on && !$("seed").value) roll();
    lock(on);
  });
  $("seed").addEventListener("input", () => lock($("seed").value !== ""));
  const step = (d) => { $("count").value = Math.min(Number($("count").max), Math.max(1, (Number($("count").value) || 1) + d)); };
  $("fewer").addEventListener("click", () => step(-1));
  $("more").addEventListener("click", () => step(1));
  $("pair-at").addEventListener("input", () => $("slider").style.setProperty("--at", `${$("pair-at").value}%`));
  $("compare").addEventListener("click", compare);
  $("clear").addEventListener("click", () => { for (const p of [...pictures]) remove(p); });
  $("loaded-open").addEventListener("click", showLoaded);
  $("ideas").replaceChildren(...ideas.map((text) => make("button", { type: "button", onclick: () => {
    $("prompt").value = text;
    generate();
  } }, text)));
}

themes($("theme"));
dialogs();
listen();
update();
await connect();
setInterval(watch, 10000);
