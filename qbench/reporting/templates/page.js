// On every page: a hint above tables that scroll; what is linked to or printed is unfolded.
"use strict";
const hint = (box) => {
  const rest = box.scrollWidth - box.clientWidth;
  box.classList.toggle("wide", rest > 1);
  box.classList.toggle("more", rest > 1 && box.scrollLeft < rest - 1);
};
const watch = new ResizeObserver((seen) => seen.forEach(({ target }) => hint(target)));
for (const box of document.querySelectorAll(".scroll")) {
  const words = document.createElement("p");
  words.className = "sideways";
  words.setAttribute("aria-hidden", "true");
  words.textContent = "scroll →";
  box.before(words);
  watch.observe(box);
  hint(box);
  box.addEventListener("scroll", () => hint(box), { passive: true });
}
// Names that the page explains have their line as a title, wherever they are.
const meanings = new Map([...document.querySelectorAll(".glossary dt")].map((name) => [name.textContent, name.nextSibling.textContent]));
if (meanings.size) {
  for (const place of document.querySelectorAll("th, td, h3, small, .slug, .which, .others span")) {
    const lines = place.textContent.split(/[ ,\u00a0]+/).flatMap((word) => {
      const [name, variant] = word.split("+");
      return [word, name, variant && "+" + variant].filter((one, at, all) => meanings.has(one) && all.indexOf(one) === at).map((one) => `${one}: ${meanings.get(one)}`);
    });
    if (lines.length && !place.title) place.title = lines.join("\n");
  }
}
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (const part of [target?.closest("details"), target?.querySelector("details.chart")]) part?.setAttribute("open", "");
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.chart)").forEach((part) => { part.open = true; }));
