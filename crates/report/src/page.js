"use strict";
// Values under the pointer, and saving the raw data. Without this script the page loses nothing else.
(() => {
  const tip = document.getElementById("tip");
  const reach = 28; // in units of the drawing

  const seriesOf = (svg) =>
    [...svg.querySelectorAll("[data-h]")].map((g) => ({
      name: g.dataset.n,
      values: JSON.parse(g.dataset.h),
    }));

  function nearest(all, p) {
    let best = null;
    for (const { name, values } of all) {
      for (const [x, y, text] of values) {
        const far = Math.hypot(x - p.x, y - p.y);
        if (far < reach && (!best || far < best.far)) best = { far, text: name ? `${name}\n${text}` : text };
      }
    }
    return best;
  }

  function show(event, text) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 6);
    const below = event.clientY + 16 + box.height < innerHeight;
    tip.style.left = `${Math.max(left, 6)}px`;
    tip.style.top = `${below ? event.clientY + 16 : event.clientY - box.height - 12}px`;
  }

  for (const svg of document.querySelectorAll("svg.plot")) {
    let all = null; // read when first needed: a report may have many points
    svg.addEventListener("pointermove", (event) => {
      all ??= seriesOf(svg);
      const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const hit = nearest(all, p);
      if (hit) show(event, hit.text);
      else tip.hidden = true;
    });
    svg.addEventListener("pointerleave", () => (tip.hidden = true));
  }

  for (const link of document.querySelectorAll("a.save")) {
    link.href = "#raw";
    link.addEventListener("click", () => {
      const json = document.getElementById(link.dataset.from).textContent;
      link.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
    });
  }
})();
