// What the page is made of: calls with the key, streams of events, small helpers. No frameworks.
export const $ = (id) => document.getElementById(id);

export function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const paths = {
  save: "M12 4v11m0 0 4.5-4.5M12 15l-4.5-4.5M5 19.5h14",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  bin: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7",
};
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", paths[name]);
  path.setAttribute("stroke-linecap", "round");
  path.setAttribute("stroke-linejoin", "round");
  svg.append(path);
  return svg;
}

// ---- the key ----

const keyName = "ounce-key";
let key = sessionStorage.getItem(keyName) ?? localStorage.getItem(keyName) ?? "";

// Asks for the key, once however many calls want it.
let asking = null;
function askKey() {
  asking ??= new Promise((resolve) => {
    const dialog = $("key");
    dialog.addEventListener("close", () => {
      key = $("key-text").value.trim();
      sessionStorage.setItem(keyName, key);
      if ($("key-keep").checked) localStorage.setItem(keyName, key);
      else localStorage.removeItem(keyName);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// A call of the server; after 401 again with a new key. Errors have the server's words.
export async function call(path, options = {}) {
  for (;;) {
    const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}) };
    if (key) headers.Authorization = `Bearer ${key}`;
    const reply = await fetch(path, { ...options, headers });
    if (reply.status === 401) {
      await askKey();
      continue;
    }
    if (!reply.ok) {
      const text = await reply.text();
      let error = { message: `${reply.status} ${reply.statusText}` };
      try { error = JSON.parse(text).error ?? error; } catch { /* not ours */ }
      throw Object.assign(new Error(error.message), { status: reply.status, param: error.param });
    }
    return reply;
  }
}

// Server-sent events of a job, by fetch: EventSource cannot send a key.
export async function* events(path, signal) {
  const reply = await call(path, { signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const lines = text.slice(0, end).split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (name && data) yield { name, data: JSON.parse(data) };
    }
  }
}

// ---- words ----

export function seconds(s) {
  if (s === null || s === undefined) return "";
  if (s < 1) return "less than a second";
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return `${(s / 3600).toFixed(1)} h`;
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// ---- light and dark ----

export function themes(button) {
  const root = document.documentElement;
  const stored = localStorage.getItem("ounce-theme");
  if (stored) root.dataset.theme = stored;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("ounce-theme", root.dataset.theme);
  });
}

export function dialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog && dialog.id !== "key") dialog.close();
      if (event.target.closest?.("[data-close]")) dialog.close();
    });
  }
}
