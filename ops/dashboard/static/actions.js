// Buttons and forms that change something go to the API, as the session's holder; what it says is told as text.

import { refresh } from "./live.js";

const csrf = document.querySelector("meta[name=csrf]").content;
const told = document.getElementById("told");
const dialog = document.getElementById("ask");

async function send(url, body) {
  const headers = { "content-type": "application/json", "x-csrf-token": csrf };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await answer.text();
  const document = text ? JSON.parse(text) : {};
  if (!answer.ok) throw new Error(document.detail || answer.statusText);
  return document;
}

function tell(text, isBad = false) {
  told.textContent = text;
  told.classList.toggle("bad", isBad);
  told.classList.add("shown");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => told.classList.remove("shown"), 8000);
}

function ask(question, secret = "") {
  dialog.querySelector("#question").textContent = question;
  const shown = dialog.querySelector("#secret");
  shown.textContent = secret;
  shown.hidden = !secret;
  dialog.querySelector("[value=no]").hidden = Boolean(secret);
  dialog.querySelector("[value=yes]").textContent = secret ? "I have it" : "Do it";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((answered) => {
    dialog.addEventListener("close", () => answered(dialog.returnValue === "yes"), { once: true });
  });
}

async function doing(button, work) {
  button.disabled = true;
  try {
    await work();
  } catch (problem) {
    tell(problem.message, true);
  } finally {
    button.disabled = false;
  }
}

const counted = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

function whatCounts(found) {
  const skipped = Object.entries(found.skipped_because).map(([why, n]) => `${n}: ${why}`);
  const left = skipped.length ? ` (skipped ${skipped.join("; ")})` : "";
  return counted(found.selected - found.skipped, "delivery", "deliveries") + left;
}

function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    const value = field.value?.trim();
    if (!field.name || field.tagName === "BUTTON" || !value) continue;
    body[field.name] = "list" in field.dataset ? [value] : value;
  }
  const chosen = form.matches("form.bar") ? [...document.querySelectorAll("[data-choose]:checked")] : [];
  if (!chosen.length) return body;
  const places = new Set(chosen.map((box) => box.dataset.destination));
  const only = places.size === 1 ? { destination: [...places][0] } : {};
  delete body.since;
  delete body.until;
  return { ...body, ...only, events: [...new Set(chosen.map((box) => box.dataset.choose))] };
}

const filled = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));

async function submit(form, isDry) {
  const { api, count, go, told: text } = form.dataset;
  const body = bodyOf(form);
  const url = api.replace(/\{(\w+)\}/g, (_, name) => {
    const value = body[name];
    delete body[name];
    return encodeURIComponent(value);
  });
  if (count) {
    const found = await send(url, { ...body, dry_run: true });
    form.querySelector("output").textContent = whatCounts(found);
    if (isDry || !found.selected) return;
    if (!(await ask(`${count} ${whatCounts(found)}?`))) return;
  }
  const answer = await send(url, body);
  if (go) location.assign(filled(go, answer));
  else form.querySelector("output").textContent = filled(text, answer);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-post]");
  if (!button) return;
  doing(button, async () => {
    if (button.dataset.ask && !(await ask(button.dataset.ask))) return;
    const answer = await send(button.dataset.post, JSON.parse(button.dataset.body));
    if (answer.secret) await ask("The new secret; it is shown this once:", answer.secret);
    tell(`${button.textContent.trim()}: done`);
    await refresh();
  });
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.api) return;
  event.preventDefault();
  doing(event.submitter, () => submit(form, event.submitter.name === "dry_run"));
});

const choice = document.getElementById("choice");
if (choice) {
  const all = choice.textContent;
  document.addEventListener("change", () => {
    const n = document.querySelectorAll("[data-choose]:checked").length;
    choice.textContent = n ? counted(n, "chosen delivery", "chosen deliveries") : all;
  });
}
