// The page is fetched again every second, or as seldom as it says it is worth, and what has changed in its live regions
// is taken over in place.

const EVERY_MS = Number(document.querySelector("[data-every-ms]")?.dataset.everyMs ?? 1000);
const PATIENCE_MS = 10000;
const regions = () => [...document.querySelectorAll("[data-live]")];
const stale = document.getElementById("stale");

const callbacks = {
  beforeNodeMorphed: (old) => !(old instanceof Element && old.hasAttribute("data-keep")),
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
};

export async function refresh() {
  const answer = await fetch(location.href, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.redirected && new URL(answer.url).pathname === "/login") {
    location.reload();
    return;
  }
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const region of regions()) {
    const twin = fresh.getElementById(region.id);
    if (twin && twin.innerHTML !== region.dataset.seen) {
      region.dataset.seen = twin.innerHTML;
      Idiomorph.morph(region, twin.innerHTML, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks });
    }
  }
  document.dispatchEvent(new Event("refreshed"));
}

async function beat() {
  const began = performance.now();
  if (!document.hidden) {
    try {
      await refresh();
      stale.hidden = true;
    } catch {
      stale.hidden = false;
    }
  }
  setTimeout(beat, Math.max(200, EVERY_MS - (performance.now() - began)));
}

if (regions().length) setTimeout(beat, EVERY_MS);
