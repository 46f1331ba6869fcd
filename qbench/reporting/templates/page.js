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
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (const part of [target?.closest("details"), target?.querySelector("details.chart")]) part?.setAttribute("open", "");
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.chart)").forEach((part) => { part.open = true; }));
